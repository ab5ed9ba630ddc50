//! The Mixed Version Proxy as a tower layer around any local service.
//!
//! What Kubernetes' KEP-4020 describes: a server that gets a request for an API that only another version serves
//! sends it there, and every server's discovery shows what any of them serves. This crate is that, for any service
//! that answers HTTP requests; it brings no store.
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | what a registry tells of each peer, and what follows from it |
//! | `poll` | one task per peer: its documents, its health |
//! | `writer` | the one task that makes the view |
//! | `service` | who answers a request |
//! | `discovery`, `openapi` | documents of the whole control plane |
//! | `forward`, [`headers`] | a request on its way to a peer and back |
//! | `front`, `version`, `identity` | which server answers when none of them is this one, and which is which |
//! | `error`, `answer` | what the proxy itself refuses, in the client's media type |
//! | `accepted` | which tokens the servers behind a front accept, and so share connections |
//! | [`recent`] | who was noted lately |
//! | `health`, `metrics`, [`debug`] | how each peer does |
//!
//! To embed it, tell it of the other servers and of what the own service serves, and put the layer around that service:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use peerage_http::HttpService;
//! use peerage_proxy::{Exclusions, LocalApis, PeerProxy, PeerRecord, ProxyOptions};
//! use tokio::sync::watch;
//! use tower::Layer;
//!
//! # async fn embed(options: ProxyOptions, own: LocalApis, service: HttpService) -> HttpService {
//! // Whoever finds the other servers sends a new list whenever one changes.
//! let other = PeerRecord {
//!     id: "apiserver-other".into(),
//!     address: "192.0.2.2:6443".parse().ok(),
//!     identity_lease: None,
//!     endpoint_live: true,
//!     zone: None,
//! };
//! let (_registry, records) = watch::channel(Arc::from([other]));
//! let (_own, local) = watch::channel(Arc::new(own));
//! let (_store, exclusions) = watch::channel(Arc::new(Exclusions::default()));
//! let proxy = PeerProxy::start(options, records, local, exclusions);
//! HttpService::new(proxy.layer().layer(service))
//! # }
//! ```
//!
//! Left to others: who is asking and what they may do (`peerage-auth` and the chain around the layer), what a
//! document means, how documents merge and where a request goes (`peerage-core`), bytes on the wire (`peerage-http`),
//! where records come from and what "local" is (whoever embeds this).

mod accepted;
mod answer;
mod audit;
mod bound;
pub mod clock;
pub mod debug;
mod discovery;
mod error;
mod explain;
mod forward;
mod front;
mod gzip;
pub mod headers;
mod health;
mod identity;
mod log_gate;
mod metrics;
mod openapi;
pub mod options;
mod peer;
mod poll;
pub mod recent;
pub mod record;
pub mod render;
mod service;
mod shared;
mod version;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use peerage_core::route::{Explanation, QuestionError};
use peerage_core::{Query, RequestInfo};
use peerage_http::metrics::Registry;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use answer::Form;
pub use bound::BoundClients;
pub use clock::Clock;
pub use debug::DebugPeers;
pub use error::flag_to_look_at;
pub use front::{Answers, FrontOptions, Question, Writes};
pub use log_gate::LogGate;
pub use options::{ForwardOptions, PollOptions, ProxyOptions};
pub use peerage_core::{Exclusions, LocalApis, PeerView};
pub use poll::{FRONT_ACCEPT, PEER_ACCEPT, peer_user};
pub use record::{IdentityLease, PeerRecord};
pub use render::{Rendering, Yaml};
pub use service::{Behind, ProxyLayer, ProxyService};
pub use writer::MAX_PEERS;

use shared::{Known, Shared, Snapshot};
use writer::{Sources, Writer};

/// A running proxy. Its tasks end when the last clone of it, and of the services that its layer made, is dropped.
#[derive(Clone)]
pub struct PeerProxy {
    shared: Arc<Shared>,
    tasks: Arc<DropGuard>,
}

impl PeerProxy {
    /// Starts the tasks. `records` must hold the registry's first complete list: what is not in it is taken for
    /// not registered. `local` has no documents for as long as the local server does not know its own.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn start(
        options: ProxyOptions,
        records: watch::Receiver<Arc<[PeerRecord]>>,
        local: watch::Receiver<Arc<LocalApis>>,
        exclusions: watch::Receiver<Arc<Exclusions>>,
    ) -> PeerProxy {
        if options.tls.is_none() {
            tracing::debug!(
                "no peer CA is configured, so this server shows and serves its own APIs only"
            );
        }
        let stop = CancellationToken::new();
        let empty = PeerView::build(Default::default());
        let shared = Arc::new(Shared {
            tunnels: Arc::new(Semaphore::new(options.forward.tunnels)),
            front: options.front.clone().map(front::Front::new),
            options,
            metrics: metrics::ProxyMetrics::new(),
            snapshot: ArcSwap::from_pointee(Snapshot::new(Arc::new(empty), HashMap::new())),
            changed: Notify::new(),
            stop: stop.clone(),
            openapi_v2: Default::default(),
            twins: Default::default(),
            last_merged: Default::default(),
            views: watch::Sender::new(0),
            log_gate: LogGate::new(Duration::from_secs(10)),
        });
        let sources = Sources {
            records,
            local,
            exclusions,
        };
        let mut writer = Writer::new(shared.clone(), sources);
        writer.publish();
        tokio::spawn(writer.run());
        PeerProxy {
            shared,
            tasks: Arc::new(stop.drop_guard()),
        }
    }

    /// The layer to put around the local service.
    #[must_use]
    pub fn layer(&self) -> ProxyLayer {
        ProxyLayer {
            shared: self.shared.clone(),
            tasks: self.tasks.clone(),
        }
    }

    /// The service that sends every request to one of the servers behind a front, whatever it asks for: the local
    /// service of a front.
    #[must_use]
    pub fn behind(&self) -> Behind {
        Behind {
            shared: self.shared.clone(),
            _tasks: self.tasks.clone(),
        }
    }

    /// Who answers this request, as far as documents go. Whoever lets a front answer from memory has to know that the
    /// client may read it.
    #[must_use]
    pub fn answers(&self, method: &http::Method, info: &RequestInfo<'_>) -> Answers {
        if info.is_resource_request() {
            return Answers::AsRouted;
        }
        let view = &self.shared.snapshot.load().view;
        let reads = matches!(*method, http::Method::GET | http::Method::HEAD);
        if let Some(asked) = discovery::Asked::of(info.path()) {
            return if reads && asked.may_be_in(view) {
                Answers::FromMemory
            } else {
                Answers::Server
            };
        }
        match openapi::answer::Asked::of(info.path()) {
            Some(asked) if reads && asked.is_in_memory() => Answers::FromMemory,
            Some(_) if !reads => Answers::Server,
            _ => Answers::AsRouted,
        }
    }

    /// The view in force.
    #[must_use]
    pub fn view(&self) -> Arc<PeerView> {
        self.shared.snapshot.load().view.clone()
    }

    /// Changes with each new view: what was folded into the last one may be read from [`PeerProxy::view`] then.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<u64> {
        self.shared.views.subscribe()
    }

    /// Has every peer asked for its documents now.
    pub fn refresh(&self) {
        for known in self.shared.snapshot.load().peers.values() {
            known.peer.poke.notify_one();
        }
    }

    /// Answers `?explain=METHOD PATH`: who would answer that request, and why; a front's servers in the order in which
    /// it would try them, for a client that has not written lately.
    ///
    /// # Errors
    /// [`QuestionError`] for what is no request that a server would understand.
    pub fn explain(&self, query: &Query<'_>) -> Result<Option<Explanation>, QuestionError> {
        explain::explain(self, query)
    }

    /// Whether there is a peer that requests can be sent to now.
    #[must_use]
    pub fn has_usable_peer(&self) -> bool {
        let snapshot = self.shared.snapshot.load();
        snapshot.peers.values().any(Known::is_serving)
    }

    /// Where servers answer now that have proved who they are.
    #[must_use]
    pub fn serving(&self) -> Vec<http::uri::Authority> {
        let snapshot = self.shared.snapshot.load();
        let serving = snapshot.peers.values().filter(|it| it.is_serving());
        let links = serving.filter_map(|it| it.peer.link());
        links.map(|link| link.address.clone()).collect()
    }

    /// Every peer, its state and why.
    #[must_use]
    pub fn debug(&self) -> DebugPeers {
        let options = &self.shared.options;
        debug::describe(
            &self.shared.snapshot.load(),
            options.tls.is_some(),
            Instant::now(),
            options.clock.now(),
        )
    }

    /// Makes the proxy's series visible in this registry.
    pub fn register_metrics(&self, registry: &Registry) {
        self.shared.metrics.register(registry, &self.shared);
    }
}
