//! Leases.

use futures::{Stream, StreamExt};
use peerage_store::{Lease, StoreError};
use tonic::{Status, Streaming};

use super::{Shared, header};
use crate::convert;
use crate::messages::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use crate::status::to_status;

fn failed(error: StoreError) -> Status {
    to_status(&error)
}

pub(super) async fn grant(
    shared: Shared,
    request: LeaseGrantRequest,
) -> Result<LeaseGrantResponse, Status> {
    // Like etcd, which has a shortest time to live and grants that when less is asked for.
    let ttl = convert::seconds_from(request.ttl.max(1));
    let id = Some(request.id).filter(|&id| id != 0);
    let Lease { id, ttl } = shared.store.lease_grant(ttl, id).await.map_err(failed)?;
    Ok(LeaseGrantResponse {
        header: Some(shared.current().await?),
        id,
        ttl: convert::seconds_to(ttl),
        error: String::new(),
    })
}

pub(super) async fn revoke(
    shared: Shared,
    request: LeaseRevokeRequest,
) -> Result<LeaseRevokeResponse, Status> {
    let revision = shared
        .store
        .lease_revoke(request.id)
        .await
        .map_err(failed)?;
    Ok(LeaseRevokeResponse {
        header: Some(header(revision)),
    })
}

pub(super) fn keep_alive(
    shared: Shared,
    requests: Streaming<LeaseKeepAliveRequest>,
) -> impl Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send + 'static {
    let until = shared.shutdown.clone().cancelled_owned();
    let answer = move |request: Result<LeaseKeepAliveRequest, Status>| {
        let shared = shared.clone();
        async move { keep_one_alive(shared, request?.id).await }
    };
    requests.then(answer).take_until(until)
}

async fn keep_one_alive(shared: Shared, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    let ttl = match shared.store.lease_keep_alive(id).await {
        Ok(lease) => convert::seconds_to(lease.ttl),
        // Zero is how a client is told on this stream.
        Err(StoreError::LeaseNotFound { .. }) => 0,
        Err(error) => return Err(failed(error)),
    };
    Ok(LeaseKeepAliveResponse {
        header: Some(shared.current().await?),
        id,
        ttl,
    })
}

pub(super) async fn time_to_live(
    shared: Shared,
    request: LeaseTimeToLiveRequest,
) -> Result<LeaseTimeToLiveResponse, Status> {
    let LeaseTimeToLiveRequest { id, keys } = request;
    let header = Some(shared.current().await?);
    match shared.store.lease_time_to_live(id, keys).await {
        Ok(status) => Ok(LeaseTimeToLiveResponse {
            header,
            id,
            ttl: convert::count_to(status.remaining.as_secs()),
            granted_ttl: convert::seconds_to(status.granted),
            keys: status.keys,
        }),
        Err(StoreError::LeaseNotFound { .. }) => Ok(LeaseTimeToLiveResponse {
            header,
            id,
            ttl: -1,
            granted_ttl: 0,
            keys: Vec::new(),
        }),
        Err(error) => Err(failed(error)),
    }
}

pub(super) async fn leases(
    shared: Shared,
    _: LeaseLeasesRequest,
) -> Result<LeaseLeasesResponse, Status> {
    let ids = shared.store.leases().await.map_err(failed)?;
    Ok(LeaseLeasesResponse {
        header: Some(shared.current().await?),
        leases: ids.into_iter().map(|id| LeaseStatus { id }).collect(),
    })
}
