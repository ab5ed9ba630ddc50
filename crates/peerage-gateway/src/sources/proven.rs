//! Which addresses are known to be servers: those where one has answered lately, as the proxy says that asks them all.
//!
//! Sources say where servers are supposed to be, and whoever writes to one may say anything. When more is said than can
//! be asked, what has answered comes first.
//!
//! Invariant: what is remembered is bounded, and forgotten by itself.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::uri::Authority;
use peerage_proxy::MAX_PEERS;
use tokio::time::Instant;

/// How long a server that does not answer any more is preferred to addresses that never did.
pub(super) const LATELY: Duration = Duration::from_secs(600);
/// More than answer at one time.
const MOST: usize = 2 * MAX_PEERS;

type Ask = dyn Fn() -> Vec<Authority> + Send + Sync;

/// The addresses. Clones are one.
#[derive(Clone, Default)]
pub(super) struct Proven(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Where servers answer now.
    ask: OnceLock<Box<Ask>>,
    /// When each was last seen to answer.
    seen: Mutex<HashMap<String, Instant>>,
}

impl Proven {
    /// From now on this says where servers answer. The first one stays.
    pub(super) fn judge_by(&self, ask: impl Fn() -> Vec<Authority> + Send + Sync + 'static) {
        let _ = self.0.ask.set(Box::new(ask));
    }

    /// Where a server answered within this time; none while nobody can say.
    pub(super) fn within(&self, time: Duration, now: Instant) -> Option<HashSet<String>> {
        let answering = (self.0.ask.get()?)();
        let seen = self.0.seen.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        for address in answering {
            seen.insert(normal(&address), now);
        }
        seen.retain(|_, at| now.saturating_duration_since(*at) < LATELY);
        while seen.len() > MOST {
            let oldest = seen.iter().min_by_key(|(_, at)| **at);
            let Some(oldest) = oldest.map(|(address, _)| address.clone()) else {
                break;
            };
            seen.remove(&oldest);
        }
        let recent = seen
            .iter()
            .filter(|(_, at)| now.saturating_duration_since(**at) < time);
        Some(recent.map(|(address, _)| address.clone()).collect())
    }

    /// Where a server has answered lately.
    pub(super) fn lately(&self, now: Instant) -> HashSet<String> {
        self.within(LATELY, now).unwrap_or_default()
    }
}

/// One spelling for one address.
pub(super) fn normal(address: &Authority) -> String {
    let host = address.host().trim_matches(['[', ']']);
    let port = address.port_u16().unwrap_or(443);
    match host.parse::<IpAddr>() {
        Ok(ip) => format!("{} {port}", ip.to_canonical()),
        Err(_) => format!("{} {port}", host.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_answered_lately_is_remembered_for_a_while_and_within_bounds() {
        let proven = Proven::default();
        let at =
            |n: usize| -> Authority { format!("10.0.{}.{}:1", n / 250, n % 250).parse().unwrap() };
        assert_eq!(proven.within(LATELY, Instant::now()), None);
        let answering = Arc::new(Mutex::new(vec![at(0)]));
        let asked = answering.clone();
        proven.judge_by(move || asked.lock().unwrap().clone());
        let known = |proven: &Proven| proven.lately(Instant::now()).len();
        assert_eq!(known(&proven), 1);
        answering.lock().unwrap().clear();
        tokio::time::advance(LATELY / 2).await;
        assert_eq!(known(&proven), 1);
        let soon = proven.within(LATELY / 4, Instant::now()).unwrap();
        assert!(soon.is_empty(), "{soon:?}");
        tokio::time::advance(LATELY).await;
        assert_eq!(known(&proven), 0);
        *answering.lock().unwrap() = (0..MOST * 2).map(at).collect();
        assert_eq!(known(&proven), MOST);
    }
}
