//! Recording requests: from a request to lines of `audit.k8s.io/v1` events in a file.
//!
//! How much is recorded is the policy's decision (`peerage-core`), what a request is about is known by the
//! chain, which notes it in the [`AuditContext`] that travels in the request's extensions. This module numbers
//! requests ([`audit_id`]), writes events at their stages, and keeps the log files in bounds.
//!
//! Invariants: a request waits for the log at most [`AuditOptions::patience`]; an event that finds no room is
//! counted and reported, never silently lost; every begun request comes to its last stage, also when its
//! client goes or its handling panics.

mod context;
mod rotate;
mod sink;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use peerage_core::audit::{Level, Policy};
use peerage_core::{RequestInfo, User};
use peerage_http::{ConnInfo, Response};
use prometheus_client::metrics::counter::Counter;

pub use context::{AuditContext, observe};
pub use rotate::Rotation;

/// The header that carries the number of a request from hop to hop and back to the client.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Bytes of a client-sent number that are told back; apiserver's `maxAuditIDLength`.
const ID_TOLD: usize = 64;

/// Where and how much is recorded.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// What is recorded of which request (`--audit-policy-file`).
    pub policy: Policy,
    /// The file (`--audit-log-path`); none, or `-`, for standard output.
    pub path: Option<PathBuf>,
    /// When files are changed and removed (`--audit-log-maxsize`, `-maxage`, `-maxbackup`).
    pub rotation: Rotation,
    /// Events that may wait to be written.
    pub queue: usize,
    /// How long a request waits when the queue is full, until it goes on unrecorded.
    pub patience: Duration,
    /// Counts of what happens.
    pub metrics: AuditMetrics,
}

impl AuditOptions {
    /// This policy, to standard output.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            path: None,
            rotation: Rotation::default(),
            queue: 10_000,
            patience: Duration::from_millis(200),
            metrics: AuditMetrics::default(),
        }
    }
}

/// What the log counts.
#[derive(Debug, Clone, Default)]
pub struct AuditMetrics {
    /// Events handed to the log.
    pub events: Counter,
    /// Events that could not be written.
    pub lost: Counter,
}

impl AuditMetrics {
    /// Registers the counts, under kube-apiserver's names.
    pub fn register(&self, registry: &peerage_http::metrics::Registry) {
        let generated = "[ALPHA] Counter of audit events generated and sent to the audit backend.";
        registry.register(
            "apiserver_audit_event_total",
            generated,
            self.events.clone(),
        );
        let lost = "[ALPHA] Counter of audit events that failed to be audited properly.";
        registry.register("apiserver_audit_error_total", lost, self.lost.clone());
    }
}

/// The audit log cannot be begun.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened for writing.
    #[error("cannot write the audit log (--audit-log-path) {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The writer cannot be started.
    #[error("cannot start the audit log's writer")]
    Start(#[source] std::io::Error),
}

/// Records requests. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct AuditLog(Option<Arc<Log>>);

#[derive(Debug)]
pub(crate) struct Log {
    policy: Policy,
    sink: sink::Sink,
}

impl AuditLog {
    /// Opens the file and starts its writer.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn open(options: AuditOptions) -> Result<Self, AuditError> {
        let sink = sink::Sink::open(&options)?;
        Ok(Self(Some(Arc::new(Log {
            policy: options.policy,
            sink,
        }))))
    }

    /// Records nothing, and numbers requests all the same.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Waits until the log has room for a request's events, or patience runs out.
    pub async fn ready(&self) {
        if let Some(log) = &self.0 {
            log.sink.ready().await;
        }
    }

    /// Begins the record of a request, and writes its first event. `user` is who authenticated; for a request
    /// that failed to, an empty one.
    #[must_use]
    pub fn begin(
        &self,
        id: &str,
        user: &User,
        info: &RequestInfo<'_>,
        headers: &HeaderMap,
        connection: &ConnInfo,
    ) -> AuditContext {
        let Some(log) = &self.0 else {
            return AuditContext::unrecorded(id);
        };
        let decision = log.policy.decide(Some(user), info);
        if decision.level == Level::None {
            return AuditContext::unrecorded(id);
        }
        AuditContext::begin(log.clone(), decision, id, user, info, headers, connection)
    }

    /// Waits until everything begun so far is written.
    pub async fn flush(&self) {
        if let Some(log) = &self.0 {
            log.sink.flush().await;
        }
    }
}

/// The number of a request: what the client sent, or a new one.
#[must_use]
pub fn audit_id(headers: &HeaderMap) -> String {
    let sent = headers.get(AUDIT_ID).and_then(|value| value.to_str().ok());
    sent.filter(|id| !id.is_empty())
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// The answer with the request's number, once.
#[must_use]
pub fn numbered(id: &str, mut response: Response) -> Response {
    response.headers_mut().insert(AUDIT_ID, told_id(id));
    response
}

/// The number as it is told to the client: cut to 64 bytes, as kube-apiserver does.
#[must_use]
pub fn told_id(id: &str) -> HeaderValue {
    let end = (0..=id.len().min(ID_TOLD))
        .rev()
        .find(|at| id.is_char_boundary(*at))
        .unwrap_or(0);
    HeaderValue::try_from(&id[..end]).unwrap_or(HeaderValue::from_static(""))
}
