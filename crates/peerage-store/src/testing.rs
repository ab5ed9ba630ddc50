//! For tests of stores and of what is built on them: one suite that every store passes, and a store
//! that fails on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod conformance;
mod faulty;

pub use faulty::{Fault, FaultPlan, FaultyStore};
