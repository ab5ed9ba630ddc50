//! Whether a peer that says not to have an API really has none, although its documents list it.
//!
//! A server says so by the words of its path router, or by a header of ours. Both can also come from what is behind a
//! server: a pod or service through the subresource `proxy`, an aggregated API server, a path that only looks like the
//! resource's. So nothing is taken for the whole API's until the peer's own list of the group-version lacks it too.
//!
//! Invariant: what one client's request is answered takes no API away from others by itself.

use http::StatusCode;
use peerage_core::RequestInfo;
use peerage_core::discovery::read_api_resources;
use tokio::time::Instant;

use super::Forward;
use crate::peer::{Edition, Peer};
use crate::poll::{Fetch, FetchError, Fetched, fetch, what};

/// What the list says.
pub(super) enum Listed {
    Yes,
    /// As opposed to these documents.
    No(Edition),
    /// It could not be had.
    Unknown,
}

impl Forward<'_> {
    /// Asks the peer, unless it listed the API just before.
    pub(super) async fn is_listed(&self, peer: &Peer, deadline: Instant) -> Listed {
        if peer.is_confirmed(self.info) {
            return Listed::Yes;
        }
        let Some(link) = peer.link() else {
            return Listed::Unknown;
        };
        // Those of before the list is read: newer ones than these may be newer than the list.
        let of = peer.edition();
        let path = list_path(self.info);
        let asked = Fetch {
            accept: Some("application/json"),
            deadline,
            ..what(self.shared, self.own_id, &path)
        };
        let listed = match fetch(&link.upstream, asked).await {
            Ok(Fetched::Document { bytes, .. }) => match read_api_resources(&bytes) {
                Ok(list) => list.resources.iter().any(|it| it.name == name(self.info)),
                Err(_) => return Listed::Unknown,
            },
            Err(FetchError::Status(StatusCode::NOT_FOUND)) => false,
            _ => return Listed::Unknown,
        };
        if listed {
            peer.confirm(self.info, of);
            return Listed::Yes;
        }
        Listed::No(of)
    }
}

fn list_path(info: &RequestInfo<'_>) -> String {
    match info.api_group() {
        "" => format!("/api/{}", info.api_version()),
        group => format!("/apis/{group}/{}", info.api_version()),
    }
}

fn name(info: &RequestInfo<'_>) -> String {
    match info.subresource() {
        "" => info.resource().to_owned(),
        subresource => format!("{}/{subresource}", info.resource()),
    }
}
