//! Joining the client's connection to the peer's once both switch protocols.
//!
//! Bytes are not looked at; copying, half-closing and draining are `peerage_http::tunnel`'s.
//!
//! Invariant: a tunnel holds one of a bounded number of places until it ends.

use std::sync::Arc;

use http::StatusCode;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use peerage_http::{Drain, Response, body, hop, tunnel};
use tokio::sync::OwnedSemaphorePermit;

use crate::audit::Audit;
use crate::error::ProxyError;
use crate::headers;
use crate::health::InFlight;
use crate::shared::Shared;

/// The client's side of a tunnel to be.
pub(super) struct Client {
    pub(super) upgrade: OnUpgrade,
    pub(super) drain: Option<Drain>,
    pub(super) place: OwnedSemaphorePermit,
}

impl Client {
    /// Takes what a tunnel needs off the request, and its place.
    pub(super) fn take(
        shared: &Shared,
        extensions: &mut http::Extensions,
    ) -> Result<Client, ProxyError> {
        let place = shared.tunnels.clone().try_acquire_owned();
        Ok(Client {
            upgrade: extensions.remove().ok_or(ProxyError::CannotUpgrade)?,
            drain: extensions.get().cloned(),
            place: place.map_err(|_| ProxyError::TunnelsFull)?,
        })
    }
}

/// Answers 101 and joins the two connections when that has been written. `held` is kept until the tunnel has ended,
/// which is the end of the request.
pub(super) fn join(
    shared: &Arc<Shared>,
    client: Client,
    mut response: Response,
    named: Option<&str>,
    held: (InFlight, Audit),
) -> Result<Response, ProxyError> {
    let upstream: Option<OnUpgrade> = response.extensions_mut().remove();
    let upstream = upstream.ok_or(ProxyError::UpgradeAnswer(StatusCode::SWITCHING_PROTOCOLS))?;
    let protocol = response.headers().get(UPGRADE).cloned();
    let (mut head, body_of_101) = response.into_parts();
    headers::incoming(&mut head.headers, named, shared.origins());
    head.headers
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    let stop = shared.stop.clone();
    tokio::spawn(async move {
        let Client {
            upgrade,
            drain,
            place,
        } = client;
        let joined = tunnel::tunnel(upgrade, upstream, drain, Default::default());
        tokio::select! {
            ended = joined => tracing::debug!(?ended, "a tunnel ended"),
            () = stop.cancelled() => {}
        }
        // The connection to the peer lives as long as the body of its 101.
        drop((body_of_101, held, place));
    });
    head.extensions.clear();
    Ok(Response::from_parts(head, body::empty()))
}

/// Whether these headers ask for a protocol that is tunnelled.
pub(super) fn protocol(headers: &http::HeaderMap) -> Option<&'static str> {
    hop::upgrade_protocol(headers)
}
