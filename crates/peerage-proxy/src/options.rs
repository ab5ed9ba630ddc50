//! Settings of the proxy, with the defaults and why they are what they are.

use std::time::Duration;

use peerage_http::ClientTls;

use crate::clock::Clock;
use crate::front::FrontOptions;
use crate::record::HoldTimes;
use crate::render::Rendering;

/// Everything that an embedder may decide about the proxy.
#[derive(Clone)]
pub struct ProxyOptions {
    /// How we show ourselves to peers and which of their certificates we accept. `None` (no peer CA is configured)
    /// turns the proxy off: local discovery, nothing forwarded.
    pub tls: Option<ClientTls>,
    /// Rhythm and limits of the pollers.
    pub poll: PollOptions,
    /// Limits of forwarded requests.
    pub forward: ForwardOptions,
    /// How long a peer that was there stays remembered: its APIs are listed as stale and answer 503.
    pub hold: Duration,
    /// How long a peer with an identity but no endpoint yet is waited for.
    pub start_wait: Duration,
    /// Which legacy documents and media types the version that is served has, and how YAML is written.
    pub rendering: Rendering,
    /// Whether every client, and not only `system:masters`, is told which peer answered.
    pub name_peer_to_all: bool,
    /// Whether each forwarded request is worth an info line.
    pub log_requests: bool,
    /// Wall-clock time, which Leases are written in.
    pub clock: Clock,
    /// Makes this a front: nothing is served here, everything goes to one of the peers.
    pub front: Option<FrontOptions>,
}

/// Rhythm and limits of the pollers.
#[derive(Clone, Debug)]
pub struct PollOptions {
    /// Between two good rounds.
    pub interval: Duration,
    /// After the first failed round; doubles up to `retry_cap`.
    pub retry: Duration,
    /// The longest wait between failed rounds.
    pub retry_cap: Duration,
    /// For `/readyz`, which costs a server nothing: two of these that pass in silence are a dead peer.
    pub probe_deadline: Duration,
    /// For one fetch, from the connection to the last byte.
    pub deadline: Duration,
    /// The largest document that is read.
    pub size_limit: usize,
    /// For this long after it was away or not ready, or ended a connection, a server may be starting and list less than it
    /// will.
    pub starting: Duration,
    /// For this long after a request that may have changed which APIs there are, servers are asked as often as after a first
    /// failure.
    pub changing: Duration,
    /// Between two readings of a legacy list that lacks something, or of a server that has no other documents.
    pub lists_again: Duration,
}

impl Default for PollOptions {
    fn default() -> PollOptions {
        PollOptions {
            // An unchanged peer costs three answers without a body, so a few seconds are cheap.
            interval: Duration::from_secs(3),
            retry: Duration::from_millis(500),
            retry_cap: Duration::from_secs(4),
            probe_deadline: Duration::from_secs(3),
            deadline: Duration::from_secs(5),
            // A server with 5 000 custom resources has about 4 MiB.
            size_limit: 16 << 20,
            // Seconds after it is ready a kube-apiserver lists all, with aggregated APIs that take their time.
            starting: Duration::from_secs(15),
            // After a second or two a kube-apiserver lists what was defined there, and no longer what was deleted; another one
            // that hears of it by its watch, a little later.
            changing: Duration::from_secs(10),
            // Nothing about them is conditional.
            lists_again: Duration::from_secs(30),
        }
    }
}

/// Limits of forwarded requests.
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// From the first attempt to the head of the answer, watches and upgrades included.
    pub first_byte: Duration,
    /// The longest pause within an answer, but for those that may go on for ever.
    pub pause: Duration,
    /// Attempts per request, the first included.
    pub attempts: usize,
    /// What clients are told to wait when an answer is 503.
    pub retry_after: Duration,
    /// Tunnels (upgraded connections) open at once.
    pub tunnels: usize,
}

impl Default for ForwardOptions {
    fn default() -> ForwardOptions {
        ForwardOptions {
            // kube-apiserver's own limit for requests that are not long-running.
            first_byte: Duration::from_secs(60),
            // A kube-apiserver is done with the whole answer by then.
            pause: Duration::from_secs(60),
            attempts: 3,
            retry_after: Duration::from_secs(1),
            tunnels: 4096,
        }
    }
}

impl Default for ProxyOptions {
    fn default() -> ProxyOptions {
        ProxyOptions {
            tls: None,
            poll: PollOptions::default(),
            forward: ForwardOptions::default(),
            hold: Duration::from_secs(600),
            // A server takes three to ten seconds from its Lease to its endpoint key.
            start_wait: Duration::from_secs(30),
            rendering: Rendering::default(),
            name_peer_to_all: false,
            log_requests: true,
            clock: Clock::default(),
            front: None,
        }
    }
}

impl ProxyOptions {
    pub(crate) fn hold_times(&self) -> HoldTimes {
        HoldTimes {
            hold: self.hold,
            start_wait: self.start_wait,
        }
    }
}
