//! Server IDs whose address changes back and forth: two servers that register under one ID.
//!
//! A registry has room for one address per ID, so each of the two overwrites the other's every few seconds. A server
//! that comes back at another address changes it once. Pure; `now` is an argument.
//!
//! Invariant: what is remembered is bounded by what is registered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use tokio::time::Instant;

/// An address that was given up for less than this was not given up. Servers register every ten seconds.
const BACK: Duration = Duration::from_secs(60);

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
        let (before, at) = known.before.as_ref()?;
        let recent = now.saturating_duration_since(*at) < BACK;
        (known.swings && recent).then(|| before.clone())
    }

    /// Forgets all IDs but these.
    pub(super) fn keep(&mut self, registered: impl Fn(&str) -> bool) {
        self.0.retain(|id, _| registered(id));
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
