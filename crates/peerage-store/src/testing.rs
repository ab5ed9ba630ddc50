//! For tests of stores and of what is built on them: one suite that every store passes, and a store
//! that fails on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod conformance;
mod faulty;

pub use faulty::{Fault, FaultPlan, FaultyStore};

/// What decides the choices that a test leaves to chance: `PEERAGE_SEED`, which repeats a run that failed, or a new one.
/// It is printed, and a bad one is refused, since a run under another seed would repeat nothing. The choices are the same
/// for the same seed, the interleaving is not.
pub fn seed() -> u64 {
    let seed = match std::env::var("PEERAGE_SEED") {
        Ok(seed) => seed
            .parse()
            .unwrap_or_else(|_| panic!("PEERAGE_SEED={seed} is no number")),
        Err(_) => rand::random(),
    };
    println!("PEERAGE_SEED={seed}");
    seed
}
