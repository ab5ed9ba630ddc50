//! What clients ask of any server before they use it.

use tonic::Status;

use super::{MEMBER, Shared, TERM, header};
use crate::convert;
use crate::messages::{
    AlarmRequest, AlarmResponse, DefragmentRequest, DefragmentResponse, Member, MemberListRequest,
    MemberListResponse, StatusRequest, StatusResponse,
};
use crate::status::to_status;

/// The etcd whose behaviour is offered. kube-apiserver reads it to decide whether it may ask watches for
/// progress.
const VERSION: &str = "3.6.0";

pub(super) async fn status(shared: Shared, _: StatusRequest) -> Result<StatusResponse, Status> {
    let status = shared
        .store
        .status()
        .await
        .map_err(|error| to_status(&error))?;
    let index = status.revision.unsigned_abs();
    Ok(StatusResponse {
        header: Some(header(status.revision)),
        version: VERSION.to_owned(),
        db_size: convert::count_to(status.size),
        leader: MEMBER,
        raft_index: index,
        raft_term: TERM,
        raft_applied_index: index,
        errors: Vec::new(),
        db_size_in_use: convert::count_to(status.size_in_use),
        is_learner: false,
        storage_version: status.version,
    })
}

/// Differs: there are no alarms, which in etcd somebody has to take back. A full store says so on each write and recovers by itself.
pub(super) async fn alarm(shared: Shared, _: AlarmRequest) -> Result<AlarmResponse, Status> {
    Ok(AlarmResponse {
        header: Some(shared.current().await?),
        alarms: Vec::new(),
    })
}

/// Free space within a store's file is used again; there is nothing to do.
pub(super) async fn defragment(
    shared: Shared,
    _: DefragmentRequest,
) -> Result<DefragmentResponse, Status> {
    Ok(DefragmentResponse {
        header: Some(shared.current().await?),
    })
}

pub(super) async fn member_list(
    shared: Shared,
    _: MemberListRequest,
) -> Result<MemberListResponse, Status> {
    let member = Member {
        id: MEMBER,
        name: "peerage".to_owned(),
        peer_urls: Vec::new(),
        client_urls: shared.options.client_urls.clone(),
        is_learner: false,
    };
    Ok(MemberListResponse {
        header: Some(shared.current().await?),
        members: vec![member],
    })
}
