//! Which server answers where: a front is given addresses, and an address is no server.
//!
//! A server is known by the certificate that it shows, under the name that all servers of a control plane have. Where
//! several show one certificate, a TLS session ticket tells whether they are several.
//!
//! | seen | what follows |
//! |---|---|
//! | our own answer | the address leads back here: it is set aside |
//! | a certificate of another authority or name, and never one of ours | it is no server of ours: set aside |
//! | one process at two addresses | the second is set aside while the first answers |
//! | nothing at all, for the whole hold time | it is not waited for any more: set aside until it answers |
//! | another server's certificate where there was one of its own | the address changed hands: what was heard there is forgotten |
//! | a new certificate | renewed: said once |
//!
//! Leaves to `poll` when servers are looked at, and to `writer` that what is set aside is in no view.
//!
//! Invariants: a server that is set aside gets no request; it comes back by itself when what was seen is no longer so.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::log_gate::LogGate;
use crate::peer::{Link, Peer, TroubleKind};
use crate::shared::Shared;

/// How often two addresses with one certificate are compared.
const AGAIN: Duration = Duration::from_secs(600);
/// After this a comparison that led to nothing is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// Servers with one certificate that are compared, each with each: more than any control plane has.
const MOST_SERVERS: usize = 32;
/// Comparisons that are remembered. Each is three connections.
const MOST: usize = MOST_SERVERS * (MOST_SERVERS - 1) / 2;
/// Comparisons at one time.
const WIDTH: usize = 4;
/// How often it is said that there are too many.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A certificate, shortened.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a registered address is not counted as a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// This server itself answers there.
    Oneself,
    /// Whoever answers there has never shown a certificate of this control plane.
    Stranger,
    /// Nobody has answered there yet, for longer than a server is waited for.
    Silent,
    /// The server of this ID answers there too.
    Twin(Arc<str>),
}

impl Aside {
    /// The metric label.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Aside::Oneself => "oneself",
            Aside::Stranger => "stranger",
            Aside::Silent => "never_heard",
            Aside::Twin(_) => "same_server",
        }
    }

    pub(crate) fn message(&self, address: &str) -> String {
        match self {
            Aside::Oneself => format!(
                "{address} leads back to this gateway (a virtual address, or its own); nothing is sent there"
            ),
            Aside::Stranger => format!(
                "whoever answers at {address} shows no certificate of this control plane; nothing is sent there"
            ),
            Aside::Silent => format!(
                "nobody has answered at {address} for as long as a server is waited for; it does not count until somebody does"
            ),
            Aside::Twin(other) => format!(
                "{address} is one more address of the server {other}; it is asked under that one while it answers"
            ),
        }
    }
}

/// Whether this address is to be set aside for what answered there last.
pub(crate) fn judge(peer: &Peer, hold: Duration) -> Option<Aside> {
    let trouble = peer.trouble()?;
    match trouble.kind {
        TroubleKind::Oneself => Some(Aside::Oneself),
        TroubleKind::Stranger if !peer.is_proven() => Some(Aside::Stranger),
        _ if is_unheard(peer) && peer.met.elapsed() > hold => Some(Aside::Silent),
        _ => None,
    }
}

/// How long this address is waited for still, if nobody has answered there yet.
pub(crate) fn patience(peer: &Peer, hold: Duration) -> Option<Duration> {
    let left = hold.checked_sub(peer.met.elapsed())?;
    is_unheard(peer).then_some(left)
}

fn is_unheard(peer: &Peer) -> bool {
    !peer.is_proven() && peer.documents().is_none()
}

/// A server's answer came over this connection: what its certificate says. Whether requests may go there is not said yet.
pub(crate) fn note(shared: &Shared, peer: &Peer, link: &Link) {
    let Some(certificate) = link.upstream.certificate() else {
        return;
    };
    let now = Fingerprint::of(&certificate);
    let before = peer.showed().into_iter().next();
    if !peer.note_certificate(now) {
        return;
    }
    shared.changed.notify_one();
    let Some(before) = before.filter(|before| *before != now) else {
        return;
    };
    match whose(shared, peer, now, before) {
        Some(other) => {
            let message = format!(
                "the server {other} answers at {} now, where another one did: the address changed hands, and what was \
                 heard there is forgotten",
                link.address
            );
            tracing::warn!(peer = &*peer.id, certificate = %now, "{message}");
            peer.counts.error("changed_hands");
            peer.forget();
            peer.set_remark(message);
        }
        None => {
            tracing::info!(peer = &*peer.id, certificate = %now, "a server shows a new certificate");
        }
    }
}

/// The other server whose certificate this is, and which never had the one before.
fn whose(shared: &Shared, peer: &Peer, now: Fingerprint, before: Fingerprint) -> Option<Arc<str>> {
    let snapshot = shared.snapshot.load();
    let others = snapshot.peers.values().map(|known| &known.peer);
    let mut others = others.filter(|other| other.id != peer.id);
    let other = others.find(|other| {
        let showed = other.showed();
        showed.contains(&now) && !showed.contains(&before)
    })?;
    Some(other.id.clone())
}

/// What is known of pairs of addresses that show one certificate.
pub(crate) struct Twins {
    known: Mutex<HashMap<Pair, Verdict>>,
    at_once: Semaphore,
    log_gate: LogGate,
}

type Pair = (Arc<str>, Arc<str>);

/// What a comparison is of.
#[derive(Clone, PartialEq, Eq)]
struct Compared {
    certificate: Fingerprint,
    addresses: (String, String),
}

struct Verdict {
    of: Compared,
    asked: Instant,
    /// Whether the answer is still to come.
    pending: bool,
    /// None while it is not known.
    same: Option<bool>,
}

impl Default for Twins {
    fn default() -> Twins {
        Twins {
            known: Mutex::default(),
            at_once: Semaphore::new(WIDTH),
            log_gate: LogGate::new(LOG_INTERVAL),
        }
    }
}

impl Twins {
    /// Whether the second is one more address of the first, as far as is known; asks if it is not.
    pub(crate) fn are_one(
        &self,
        shared: &Arc<Shared>,
        first: &Arc<Peer>,
        second: &Arc<Peer>,
    ) -> bool {
        let (Some(a), Some(b)) = (first.link(), second.link()) else {
            return false;
        };
        let certificate = first.certificate();
        let Some(certificate) = certificate.filter(|_| certificate == second.certificate()) else {
            return false;
        };
        let addresses = (a.address.to_string(), b.address.to_string());
        let pair = (first.id.clone(), second.id.clone());
        let of = Compared {
            certificate,
            addresses,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let old = known.get(&pair).filter(|old| old.of == of);
        let same = old.and_then(|old| old.same);
        let patience = if same.is_some() { AGAIN } else { RETRY };
        if old.is_some_and(|old| old.pending || old.asked.elapsed() < patience) {
            return same == Some(true);
        }
        if known.len() < MOST || known.contains_key(&pair) {
            let verdict = Verdict {
                of: of.clone(),
                asked: Instant::now(),
                pending: true,
                same,
            };
            known.insert(pair.clone(), verdict);
            drop(known);
            tokio::spawn(compare(shared.clone(), pair, of));
        } else {
            drop(known);
            self.say_too_many(first, second);
        }
        same == Some(true)
    }

    fn say_too_many(&self, first: &Peer, second: &Peer) {
        if let Some(held_back) = self.log_gate.pass(Instant::now()) {
            second.counts.error("not_compared");
            tracing::warn!(
                peer = &*second.id,
                first = &*first.id,
                held_back,
                "more addresses share certificates than {MOST_SERVERS} with one: it is not found out whether these two are \
                 one server, and each counts as one"
            );
        }
    }

    /// Forgets all pairs but those of these servers.
    pub(crate) fn keep(&self, registered: impl Fn(&str) -> bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(a, b), _| registered(a) && registered(b));
    }

    /// Takes in what a comparison came to, if it is still about these two. Returns whether that is news.
    fn learn(&self, pair: &Pair, of: &Compared, same: Option<bool>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(verdict) = known.get_mut(pair).filter(|it| it.of == *of) else {
            return false;
        };
        (verdict.pending, verdict.asked) = (false, Instant::now());
        let news = same.is_some() && verdict.same != same;
        if news {
            verdict.same = same;
        }
        news
    }
}

async fn compare(shared: Arc<Shared>, pair: Pair, of: Compared) {
    let Some(front) = &shared.front else { return };
    let (first, second) = (&of.addresses.0, &of.addresses.1);
    let compared = async {
        let _turn = shared.twins.at_once.acquire().await;
        peerage_http::upstream::is_same_server(first, second, &front.options.passing).await
    };
    let same = tokio::select! {
        same = compared => same,
        () = shared.stop.cancelled() => return,
    };
    if shared.twins.learn(&pair, &of, same) {
        tracing::debug!(
            first,
            second,
            same,
            "compared two addresses with one certificate"
        );
        shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_sha_256_of_the_certificate() {
        let shown = Fingerprint::of(b"").to_string();
        assert_eq!(
            shown,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_comparison_counts_only_for_the_certificate_and_the_addresses_that_it_was_of() {
        let twins = Twins::default();
        let pair: Pair = ("a".into(), "b".into());
        let of = |certificate: &[u8], second: &str| Compared {
            certificate: Fingerprint::of(certificate),
            addresses: ("one:1".to_owned(), second.to_owned()),
        };
        let verdict = Verdict {
            of: of(b"new", "two:2"),
            asked: Instant::now(),
            pending: true,
            same: None,
        };
        let put = |verdict| {
            drop(
                twins
                    .known
                    .lock()
                    .map(|mut it| it.insert(pair.clone(), verdict)),
            )
        };
        put(verdict);
        assert!(!twins.learn(&pair, &of(b"old", "two:2"), Some(true)));
        assert!(!twins.learn(&pair, &of(b"new", "three:3"), Some(true)));
        assert!(!twins.learn(&pair, &of(b"new", "two:2"), None), "no news");
        assert!(twins.learn(&pair, &of(b"new", "two:2"), Some(true)));
        assert!(
            !twins.learn(&pair, &of(b"new", "two:2"), Some(true)),
            "no news"
        );
    }
}
