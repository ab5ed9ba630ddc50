//! In which order peers are tried.
//!
//! Peers that work before peers that failed lately, ready before not known before not ready, near before far,
//! and among equals an order that the request's ticket decides, so that requests spread over them.

use std::time::Duration;

use super::Candidates;
use crate::view::{PeerEntry, PeerState, Readiness};

/// Orders `able` for one request.
pub(super) fn ordered<'v>(able: &[&'v PeerEntry], ticket: u64) -> Candidates<'v> {
    let mut entries: smallvec::SmallVec<[&PeerEntry; 4]> = able.into();
    entries.sort_by_key(|entry| rank(entry, ticket));
    entries.into_iter().map(|entry| &entry.peer).collect()
}

fn rank(entry: &PeerEntry, ticket: u64) -> (bool, Readiness, u32, u64) {
    let peer = &entry.peer;
    let failing = peer.state != PeerState::Live;
    let distance = distance(peer.latency);
    (
        failing,
        peer.readiness,
        distance,
        mixed(entry.seed ^ ticket),
    )
}

/// Latency in steps of doubling from one millisecond, so that peers that are about equally near share the load.
/// A latency that was never measured counts as the longest.
fn distance(latency: Option<Duration>) -> u32 {
    let Some(latency) = latency else {
        return u32::MAX;
    };
    match latency.as_millis() {
        0 => 0,
        millis => millis.ilog2() + 1,
    }
}

/// Spreads every bit of the input over the output (the finaliser of SplitMix64).
fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
