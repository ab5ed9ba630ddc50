//! One peer as the whole proxy shares it: its connection, its documents, its health.
//!
//! The poller writes the documents, the writer of the view sets the link, requests read both and report to the
//! health. Nothing here waits; every value is replaced whole.
//!
//! Invariant: documents are those of the last round in which every fetch succeeded.

mod found_out;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::FutureExt;
use http::HeaderValue;
use http::uri::Authority;
use peerage_core::Documents;
use peerage_core::discovery::ApiGroupDiscoveryList;
use peerage_http::Upstream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::health::Health;
use crate::identity::Fingerprint;
use crate::log_gate::LogGate;
use crate::metrics::PeerCounts;
use crate::openapi::PeerIndex;
use crate::version::ApiVersion;

pub(crate) use found_out::Edition;
use found_out::FoundOut;

/// One peer.
pub(crate) struct Peer {
    pub(crate) id: Arc<str>,
    pub(crate) health: Arc<Health>,
    pub(crate) counts: PeerCounts,
    /// Since when it is registered.
    pub(crate) met: Instant,
    /// Wakes its poller: the registry told something new of it, or somebody wants to know.
    pub(crate) poke: Notify,
    /// Asks its poller to look again: a request was answered in a way that makes one wonder.
    pub(crate) doubted: Notify,
    /// When its poller last looked, in milliseconds since it was met; 0 for never.
    looked: AtomicU64,
    /// When it was last away or not ready, in the same way.
    stirred: AtomicU64,
    /// When a request last may have changed which APIs there are, in the same way.
    changing: AtomicU64,
    link: ArcSwapOption<Link>,
    documents: ArcSwapOption<Heard>,
    openapi: ArcSwapOption<PeerIndex>,
    trouble: ArcSwapOption<Trouble>,
    zone: ArcSwapOption<Arc<str>>,
    version: ArcSwapOption<ApiVersion>,
    /// Why it is not known which version it serves now.
    version_trouble: ArcSwapOption<String>,
    /// APIs that the peer listed and turned out not to have, and when.
    disproved: FoundOut,
    /// APIs that it turned out to have although an answer said otherwise, and when.
    confirmed: FoundOut,
    /// Rounds without a good document since the last with one.
    failed_rounds: AtomicU32,
    /// The certificates that it showed, the last one first.
    certificates: Mutex<Vec<Fingerprint>>,
    /// What is odd about who it is.
    remark: ArcSwapOption<String>,
    /// Whether another address of the same server is asked instead.
    resting: AtomicBool,
    /// For warnings about this peer.
    pub(crate) log_gate: LogGate,
}

/// Where the peer is, and the connections there.
pub(crate) struct Link {
    pub(crate) address: Authority,
    /// Shows our certificate, so identity headers are believed.
    pub(crate) upstream: Upstream,
    /// The same, for what the poller asks: it does not wait in the queue of clients' requests, so that a server which has
    /// its hands full is not taken for dead.
    pub(crate) probes: Upstream,
    /// Show none, for requests that bring their own credentials. A front's only.
    pub(crate) passing: Option<Passing>,
    /// Whether a server of this control plane has answered there.
    pub(crate) proven: AtomicBool,
    /// When the server was last asked for whom it takes us.
    pub(crate) asked: Mutex<Option<Instant>>,
}

/// Connections that show no certificate, so that who asks is known by the request alone.
pub(crate) struct Passing {
    /// For requests with a token that a server has accepted.
    pub(crate) accepted: Upstream,
    /// For all others: kube-apiserver closes a connection for each of them (GOAWAY), and has turned away whatever
    /// else was on its way over it.
    pub(crate) doubtful: Upstream,
}

impl Link {
    /// An answer came from there. Returns whether it was the first.
    pub(crate) fn prove(&self) -> bool {
        !self.proven.swap(true, Ordering::Relaxed)
    }

    /// It takes what we say for something else, and is asked again at once.
    pub(crate) fn doubt(&self) {
        self.proven.store(false, Ordering::Relaxed);
        self.forget_answer();
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Has it asked again at once for whom it takes us.
    pub(crate) fn forget_answer(&self) {
        if let Ok(mut asked) = self.asked.lock() {
            *asked = None;
        }
    }

    /// Whether the server was not asked for so long for whom it takes us; it is now.
    pub(crate) fn is_to_be_asked_again(&self, now: Instant, after: Duration) -> bool {
        self.asked.lock().is_ok_and(|mut asked| {
            let due = asked.is_none_or(|at| now >= at + after);
            if due {
                *asked = Some(now);
            }
            due
        })
    }
}

/// A peer's own discovery documents.
#[derive(Clone)]
pub(crate) struct Heard {
    /// Of `/api`.
    pub(crate) core: Part,
    /// Of `/apis`.
    pub(crate) groups: Part,
    /// The version that it said to serve.
    pub(crate) version: Option<ApiVersion>,
    /// What it listed before it was away or not ready, if that was more.
    pub(crate) before: Option<Before>,
    /// How many of the APIs listed the peer turned out not to serve itself.
    pub(crate) not_own: usize,
    /// Both, without those, with the index over them.
    pub(crate) served: Arc<Documents>,
    /// When they were last known to be right.
    pub(crate) checked: Instant,
    /// When either last changed.
    pub(crate) changed: Instant,
}

/// Earlier documents of a peer that seems to be starting and lists less for the moment.
#[derive(Clone)]
pub(crate) struct Before {
    pub(crate) core: Arc<ApiGroupDiscoveryList>,
    pub(crate) groups: Arc<ApiGroupDiscoveryList>,
    /// What of both it served itself.
    pub(crate) served: Arc<Documents>,
    /// The version that it said to serve then.
    pub(crate) version: Option<ApiVersion>,
    /// Since when it lists less.
    pub(crate) since: Instant,
}

/// One document and the tag to ask for it with.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) list: Arc<ApiGroupDiscoveryList>,
    pub(crate) etag: Option<HeaderValue>,
    /// Whether it was made from legacy documents.
    pub(crate) is_legacy: bool,
}

/// The last thing that went wrong with a peer.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// What it says of who answers there.
    pub(crate) kind: TroubleKind,
    /// The metric label.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    pub(crate) at: Instant,
}

/// What a failure says of who answers at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// This server itself.
    Oneself,
    /// Somebody with a certificate of another authority or another name.
    Stranger,
    /// Nothing.
    Other,
}

/// Requests have a peer asked anew at most this often.
const RECHECK_MILLIS: u64 = 1000;

/// How many certificates of one server are remembered, to tell a renewal from another server.
const MAX_CERTIFICATES: usize = 4;

/// One warning per peer and interval.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Failed rounds after which a server is no longer waited for at the start: a few seconds.
pub(crate) const PATIENCE: u32 = 4;

impl Peer {
    pub(crate) fn new(id: Arc<str>) -> Peer {
        Peer {
            id,
            health: Arc::default(),
            counts: PeerCounts::default(),
            met: Instant::now(),
            poke: Notify::new(),
            doubted: Notify::new(),
            looked: AtomicU64::new(0),
            stirred: AtomicU64::new(0),
            changing: AtomicU64::new(0),
            link: ArcSwapOption::empty(),
            documents: ArcSwapOption::empty(),
            openapi: ArcSwapOption::empty(),
            trouble: ArcSwapOption::empty(),
            zone: ArcSwapOption::empty(),
            version: ArcSwapOption::empty(),
            version_trouble: ArcSwapOption::empty(),
            disproved: FoundOut::default(),
            confirmed: FoundOut::default(),
            failed_rounds: AtomicU32::new(0),
            certificates: Mutex::default(),
            remark: ArcSwapOption::empty(),
            resting: AtomicBool::new(false),
            log_gate: LogGate::new(LOG_INTERVAL),
        }
    }

    /// Whether a server of this control plane has answered where it is now.
    pub(crate) fn is_proven(&self) -> bool {
        let link = self.link.load();
        link.as_ref().is_some_and(|it| it.is_proven())
    }

    /// The certificates that it showed, the last one first.
    pub(crate) fn showed(&self) -> Vec<Fingerprint> {
        self.certificates
            .lock()
            .map(|it| it.clone())
            .unwrap_or_default()
    }

    /// The certificate that it showed last.
    pub(crate) fn certificate(&self) -> Option<Fingerprint> {
        self.certificates.lock().ok()?.first().copied()
    }

    /// Returns whether it is another one than before.
    pub(crate) fn note_certificate(&self, now: Fingerprint) -> bool {
        let Ok(mut showed) = self.certificates.lock() else {
            return false;
        };
        if showed.first() == Some(&now) {
            return false;
        }
        showed.retain(|it| *it != now);
        showed.insert(0, now);
        showed.truncate(MAX_CERTIFICATES);
        true
    }

    pub(crate) fn remark(&self) -> Option<Arc<String>> {
        self.remark.load_full()
    }

    pub(crate) fn set_remark(&self, remark: String) {
        self.remark.store(Some(Arc::new(remark)));
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// Lets it be asked again, or not.
    pub(crate) fn set_resting(&self, resting: bool) {
        if self.resting.swap(resting, Ordering::Relaxed) && !resting {
            self.poke.notify_one();
        }
    }

    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.link.load_full()
    }

    pub(crate) fn set_link(&self, link: Option<Link>) {
        self.link.store(link.map(Arc::new));
    }

    pub(crate) fn documents(&self) -> Option<Arc<Heard>> {
        self.documents.load_full()
    }

    /// Forgets all that it served and said (its hold time is over, or it is another server now).
    pub(crate) fn forget(&self) {
        self.documents.store(None);
        self.openapi.store(None);
        self.set_trouble(None);
        self.forget_version();
        self.version_trouble.store(None);
        self.disproved.clear();
        self.confirmed.clear();
        self.remark.store(None);
    }

    pub(crate) fn set_documents(&self, documents: Heard) {
        self.documents.store(Some(Arc::new(documents)));
        // Not before: what is found out about the old ones meanwhile has to go too.
        self.disproved.clear();
        self.confirmed.clear();
    }

    /// Publishes documents that are the old ones, seen again.
    pub(crate) fn confirm_documents(&self, documents: Heard) {
        self.documents.store(Some(Arc::new(documents)));
    }

    pub(crate) fn openapi(&self) -> Option<Arc<PeerIndex>> {
        self.openapi.load_full()
    }

    pub(crate) fn set_openapi(&self, index: PeerIndex) {
        self.openapi.store(Some(Arc::new(index)));
    }

    /// Where it is, if that was said.
    pub(crate) fn zone(&self) -> Option<Arc<str>> {
        self.zone.load().as_deref().cloned()
    }

    pub(crate) fn set_zone(&self, zone: Option<Arc<str>>) {
        if self.zone() != zone {
            self.zone.store(zone.map(Arc::new));
        }
    }

    /// The version that it last said to serve. Known to fronts only.
    pub(crate) fn version(&self) -> Option<ApiVersion> {
        self.version.load().as_deref().copied()
    }

    /// Who answers there next may serve another version.
    pub(crate) fn forget_version(&self) {
        self.version.store(None);
    }

    /// Why it could not be asked which version it serves, when it was last tried.
    pub(crate) fn version_trouble(&self) -> Option<Arc<String>> {
        self.version_trouble.load_full()
    }

    pub(crate) fn set_version_trouble(&self, trouble: String) {
        self.version_trouble.store(Some(Arc::new(trouble)));
    }

    /// Returns whether it changed.
    pub(crate) fn set_version(&self, version: ApiVersion) -> bool {
        self.version_trouble.store(None);
        let changed = self.version() != Some(version);
        if changed {
            self.version.store(Some(Arc::new(version)));
        }
        changed
    }

    /// Has the poller look again, unless it has only just begun to: many requests wonder at the same time.
    pub(crate) fn recheck(&self) {
        let looked = self.looked.load(Ordering::Relaxed);
        if looked == 0 || self.age() > looked.saturating_add(RECHECK_MILLIS) {
            self.doubted.notify_one();
        }
    }

    /// A round begins, and with it what requests asked for.
    pub(crate) fn round_begins(&self) {
        self.looked.store(self.age(), Ordering::Relaxed);
        let _ = self.doubted.notified().now_or_never();
    }

    /// Whether it listed more before and seems to be starting.
    pub(crate) fn is_starting(&self) -> bool {
        let heard = self.documents.load();
        heard.as_ref().is_some_and(|heard| heard.before.is_some())
    }

    /// It is away, not ready, or ended a connection.
    pub(crate) fn stirs(&self) {
        self.stirred.store(self.age(), Ordering::Relaxed);
    }

    /// Whether that was so not longer ago.
    pub(crate) fn has_stirred_within(&self, time: Duration) -> bool {
        self.is_within(&self.stirred, time)
    }

    /// A request succeeded that may have changed which APIs there are. Its poller looks now and more often for a while:
    /// servers take seconds to show such a change, the one that the request went to as well as the others.
    pub(crate) fn apis_change(&self) {
        self.changing.store(self.age(), Ordering::Relaxed);
        self.doubted.notify_one();
    }

    /// Whether that was so not longer ago.
    pub(crate) fn changed_apis_within(&self, time: Duration) -> bool {
        self.is_within(&self.changing, time)
    }

    fn is_within(&self, since: &AtomicU64, time: Duration) -> bool {
        let since = since.load(Ordering::Relaxed);
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        since != 0 && self.age() < since.saturating_add(time)
    }

    fn age(&self) -> u64 {
        u64::try_from(self.met.elapsed().as_millis()).map_or(u64::MAX, |it| it.saturating_add(1))
    }

    /// Notes how a round ended. Returns how many have failed in a row.
    pub(crate) fn round_ended(&self, good: bool) -> u32 {
        if good {
            self.failed_rounds.store(0, Ordering::Relaxed);
            return 0;
        }
        self.failed_rounds
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1)
    }

    /// Whether it has answered nothing useful so often that nobody should wait for it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.failed_rounds.load(Ordering::Relaxed) >= PATIENCE
    }

    pub(crate) fn trouble(&self) -> Option<Arc<Trouble>> {
        self.trouble.load_full()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<Trouble>) {
        self.trouble.store(trouble.map(Arc::new));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use peerage_core::RequestInfo;

    fn heard() -> Heard {
        let part = || Part {
            list: Arc::default(),
            etag: None,
            is_legacy: false,
        };
        let now = Instant::now();
        Heard {
            core: part(),
            groups: part(),
            version: None,
            before: None,
            not_own: 0,
            served: Arc::default(),
            checked: now,
            changed: now,
        }
    }

    fn widgets() -> RequestInfo<'static> {
        RequestInfo::parse("GET", "/apis/new.example.com/v1/widgets").unwrap()
    }

    #[test]
    fn nothing_that_a_server_said_is_left_once_it_is_forgotten() {
        let peer = Peer::new("a".into());
        let info = widgets();
        peer.set_documents(heard());
        peer.set_openapi(PeerIndex::default());
        peer.set_trouble(Some(Trouble {
            kind: TroubleKind::Stranger,
            reason: "tls_name",
            text: "no".to_owned(),
            at: Instant::now(),
        }));
        peer.set_version(ApiVersion {
            major: 1,
            minor: 37,
        });
        peer.set_version_trouble("no".to_owned());
        peer.disprove(&info, peer.edition());
        peer.confirm(&info, peer.edition());
        peer.set_remark("it changed hands".to_owned());
        assert!(peer.documents().is_some() && peer.openapi().is_some());
        assert!(peer.trouble().is_some() && peer.is_disproved(&info) && peer.is_confirmed(&info));
        peer.forget();
        assert!(peer.documents().is_none() && peer.openapi().is_none());
        assert!(peer.trouble().is_none());
        assert_eq!(peer.version(), None);
        assert_eq!(peer.version_trouble(), None);
        assert!(!peer.is_disproved(&info) && !peer.is_confirmed(&info));
        assert_eq!(peer.remark(), None);
    }

    #[test]
    fn what_was_found_out_of_old_documents_is_not_held_against_new_ones() {
        let peer = Peer::new("a".into());
        let info = widgets();
        peer.set_documents(heard());
        let old = peer.edition();
        // Seen again, they are the same.
        peer.confirm_documents(Heard {
            checked: Instant::now(),
            ..Heard::clone(&peer.documents().unwrap())
        });
        peer.disprove(&info, old);
        assert!(peer.is_disproved(&info));
        peer.set_documents(heard());
        assert!(!peer.is_disproved(&info));
        peer.disprove(&info, old);
        peer.confirm(&info, old);
        assert!(!peer.is_disproved(&info) && !peer.is_confirmed(&info));
        peer.disprove(&info, peer.edition());
        assert!(peer.is_disproved(&info));
    }
}
