//! The checklist over servers made by hand: a pair of kube-apiservers as they should be, and each thing that may be
//! wrong with them.

mod certificates;
mod checklist;
mod fixture;
mod gateways;
mod reached;
mod told;
