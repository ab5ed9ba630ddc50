//! Server IDs whose address changes back and forth: two servers that register under one ID.
//!
//! A registry has room for one address per ID, so each of the two overwrites the other's every few seconds. A server
//! that comes back at another address changes it once. When one of the two leaves, it takes down what both registered,
//! and the other registers anew with its next renewal. Pure; `now` is an argument.
//!
//! Invariant: what is remembered is bounded by what is registered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use tokio::time::Instant;

use super::Found;

/// An address that was given up for less than this was not given up. Servers register every ten seconds.
const BACK: Duration = Duration::from_secs(60);

/// How long the one of two servers that stays may take to register anew: two renewals, and some.
pub(super) const ANEW: Duration = Duration::from_secs(25);

/// The addresses of every ID.
#[derive(Default)]
pub(super) struct Moves(HashMap<Arc<str>, Addresses>);

struct Addresses {
    current: Authority,
    /// The one before, and when it was last the current one.
    before: Option<(Authority, Instant)>,
    /// Whether both were the current one in turns.
    swings: bool,
}

impl Moves {
    /// Notes where a server is; returns it, and beside it the other one that has its ID, if it is two. These come in one
    /// order whoever has registered last, so that each keeps the name that the first and the second of an ID get.
    pub(super) fn servers(&mut self, found: Found, now: Instant) -> Vec<Found> {
        let id = found.id.clone();
        let other = id.and_then(|id| self.note(&id, &found.address, now));
        let other = other.map(|address| Found {
            address,
            ..found.clone()
        });
        let mut servers: Vec<_> = other.into_iter().chain([found]).collect();
        servers.sort_by(|a, b| a.address.as_str().cmp(b.address.as_str()));
        servers
    }

    /// Notes the address of an ID; returns the other one of the two servers that have it, if it is two.
    pub(super) fn note(
        &mut self,
        id: &Arc<str>,
        address: &Authority,
        now: Instant,
    ) -> Option<Authority> {
        let known = self.0.entry(id.clone()).or_insert_with(|| Addresses {
            current: address.clone(),
            before: None,
            swings: false,
        });
        if known.current != *address {
            let back = known.before.take().is_some_and(|(before, at)| {
                before == *address && now.saturating_duration_since(at) < BACK
            });
            known.swings = back;
            let left = std::mem::replace(&mut known.current, address.clone());
            known.before = Some((left, now));
        }
        known.other(now).cloned()
    }

    /// Whether two servers have this ID, so that its registration is not theirs alone to take down.
    pub(super) fn are_two(&self, id: &str, now: Instant) -> bool {
        self.0.get(id).is_some_and(|it| it.other(now).is_some())
    }

    /// Whether a server of this ID is registered.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// Forgets all IDs but these.
    pub(super) fn keep(&mut self, registered: impl Fn(&str) -> bool) {
        self.0.retain(|id, _| registered(id));
    }
}

impl Addresses {
    /// Where the other of two servers is.
    fn other(&self, now: Instant) -> Option<&Authority> {
        let (before, at) = self.before.as_ref()?;
        let recent = now.saturating_duration_since(*at) < BACK;
        (self.swings && recent).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_that_comes_back_is_a_second_server_and_one_that_does_not_is_not() {
        let (id, start) = ("apiserver-a".into(), Instant::now());
        let mut moves = Moves::default();
        let mut note = |address: &'static str, second: u64| {
            let address = Authority::from_static(address);
            let other = moves.note(&id, &address, start + Duration::from_secs(second));
            other.map(|it| it.to_string())
        };
        assert_eq!(note("a:1", 0), None);
        assert_eq!(note("b:1", 5), None, "it may have moved");
        assert_eq!(note("a:1", 10).as_deref(), Some("b:1"));
        assert_eq!(note("b:1", 15).as_deref(), Some("a:1"));
        assert_eq!(note("b:1", 40).as_deref(), Some("a:1"));
        assert_eq!(note("b:1", 80), None, "the other has gone");
        assert_eq!(note("c:1", 90), None);
        assert_eq!(note("b:1", 200), None, "it moved back long after");
    }

    #[test]
    fn what_is_no_longer_registered_is_forgotten() {
        let mut moves = Moves::default();
        for n in 0..1000 {
            let id: Arc<str> = format!("id-{n}").into();
            moves.note(&id, &Authority::from_static("a:1"), Instant::now());
            moves.keep(|known| known == &*id);
        }
        assert_eq!(moves.0.len(), 1);
    }
}
