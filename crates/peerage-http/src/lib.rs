//! Listeners, TLS with reload, HTTP/1.1 and HTTP/2, and sending one request to one upstream.
//!
//! The two ends of every connection Peerage holds: [`Server`] accepts, [`Upstream`] sends. Both stream, both
//! bound everything that waits, and neither knows who is asking (`peerage-auth`), what a peer is or where a
//! request should go (`peerage-proxy`).
//!
//! | module | holds |
//! |---|---|
//! | [`body`] | the one body type, and how to make, limit and read it |
//! | [`tls`], [`reload`] | certificates and CA bundles that follow their files |
//! | [`server`] | accepting, limits, graceful shutdown |
//! | [`upstream`] | one remote server: its connections, errors and upgrades |
//! | [`tunnel`](mod@tunnel) | two upgraded connections joined |
//! | [`hop`] | headers that end at each hop (RFC 9110 section 7.6.1) |
//! | [`closing`] | watches that end between two events |
//! | [`metrics`] | counters and their text form |

pub mod body;
pub mod closing;
pub mod hop;
mod io;
pub mod metrics;
mod own_address;
mod plain;
pub mod reload;
pub mod server;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
pub mod tunnel;
pub mod upstream;

pub use body::{BoxError, channel, empty, full};
pub use hop::{is_upgrade, strip_hop_by_hop};
pub use own_address::own_address;
pub use plain::plain;
pub use server::{ConnInfo, Drain, Server, ServerOptions, TlsPeer};
pub use tls::{ClientTls, Pem, ServerTls, TlsError};
pub use tunnel::tunnel;
pub use upstream::{SendError, Stage, Stranger, Upstream, UpstreamOptions};

/// The body of every request and response: bytes that arrive when they arrive.
pub type Body = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;
/// A request as it travels through every layer.
pub type Request = http::Request<Body>;
/// A response as it travels through every layer.
pub type Response = http::Response<Body>;
/// A service that answers every request: failures are responses, so it has no error.
pub type HttpService =
    tower::util::BoxCloneSyncService<Request, Response, std::convert::Infallible>;
