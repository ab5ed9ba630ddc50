//! What every handler of this server shares.

use std::sync::Arc;

use peerage_auth::Authenticator;
use peerage_catalogue::Catalogue;
use peerage_http::metrics::Registry;
use peerage_proxy::PeerProxy;
use peerage_store::Store;
use tokio_util::sync::CancellationToken;

use crate::authz::Authorizer;
use crate::cache::Cache;
use crate::event_leases::EventLeases;
use crate::health::Health;
use crate::local::{Issuer, Process};
use crate::openapi::OpenApi;
use crate::options::Limits;
use crate::resources::Resources;

/// The server's state, made once at its start.
pub(crate) struct Api {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) resources: Resources,
    pub(crate) cache: Arc<Cache>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) health: Arc<Health>,
    pub(crate) limits: Limits,
    pub(crate) event_leases: EventLeases,
    pub(crate) metrics: Registry,
    pub(crate) openapi: OpenApi,
    pub(crate) proxy: PeerProxy,
    pub(crate) process: Process,
    /// Whether the served version has `/statusz` and `/flagz`.
    pub(crate) serves_pages: bool,
    /// Whose token keys are published.
    pub(crate) issuer: Option<Issuer>,
    /// Cancelled when the server stops: watches end.
    pub(crate) stopping: CancellationToken,
}
