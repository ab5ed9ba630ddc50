//! Between the store's types and etcd's messages. Nothing is decided here.

use std::time::Duration;

use peerage_store as store;
use store::{KeyRange, StoreError};

use crate::messages as etcd;

pub(crate) fn invalid(reason: impl Into<String>) -> StoreError {
    StoreError::Invalid {
        reason: reason.into(),
    }
}

pub(crate) fn kv_from(kv: etcd::KeyValue) -> store::KeyValue {
    store::KeyValue {
        key: kv.key,
        value: kv.value,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

pub(crate) fn kv_to(kv: store::KeyValue) -> etcd::KeyValue {
    etcd::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
    }
}

/// A count or limit that a peer sent: never negative here.
pub(crate) fn count_from(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

pub(crate) fn count_to(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whole seconds, rounded up: a lease never lives shorter than asked.
pub(crate) fn seconds_to(time: Duration) -> i64 {
    let rest = u64::from(time.subsec_nanos() > 0);
    count_to(time.as_secs().saturating_add(rest))
}

pub(crate) fn seconds_from(seconds: i64) -> Duration {
    Duration::from_secs(count_from(seconds))
}

pub(crate) fn range_to(request: store::RangeRequest) -> etcd::RangeRequest {
    let (key, range_end) = request.keys.to_etcd();
    etcd::RangeRequest {
        key,
        range_end,
        limit: count_to(request.limit as u64),
        revision: request.revision,
        keys_only: request.keys_only,
        count_only: request.count_only,
        ..etcd::RangeRequest::default()
    }
}

pub(crate) fn put_from(put: etcd::PutRequest) -> store::PutOp {
    store::PutOp {
        key: put.key,
        value: put.value,
        lease: put.lease,
        previous: put.prev_kv,
        keep_value: put.ignore_value,
        keep_lease: put.ignore_lease,
    }
}

fn put_to(put: store::PutOp) -> etcd::PutRequest {
    etcd::PutRequest {
        key: put.key,
        value: put.value,
        lease: put.lease,
        prev_kv: put.previous,
        ignore_value: put.keep_value,
        ignore_lease: put.keep_lease,
    }
}

pub(crate) fn delete_from(delete: etcd::DeleteRangeRequest) -> store::DeleteOp {
    store::DeleteOp {
        keys: KeyRange::from_etcd(delete.key, delete.range_end),
        previous: delete.prev_kv,
    }
}

fn delete_to(delete: store::DeleteOp) -> etcd::DeleteRangeRequest {
    let (key, range_end) = delete.keys.to_etcd();
    etcd::DeleteRangeRequest {
        key,
        range_end,
        prev_kv: delete.previous,
    }
}

fn op_to(op: store::Op) -> etcd::RequestOp {
    let request = match op {
        store::Op::Put(put) => etcd::Request::RequestPut(put_to(put)),
        store::Op::Delete(delete) => etcd::Request::RequestDeleteRange(delete_to(delete)),
        store::Op::Range(range) => etcd::Request::RequestRange(range_to(range)),
    };
    etcd::RequestOp {
        request: Some(request),
    }
}

pub(crate) fn txn_to(txn: store::Txn) -> etcd::TxnRequest {
    etcd::TxnRequest {
        compare: txn.compares.into_iter().map(compare_to).collect(),
        success: txn.success.into_iter().map(op_to).collect(),
        failure: txn.failure.into_iter().map(op_to).collect(),
    }
}

fn compare_to(compare: store::Compare) -> etcd::Compare {
    let (key, range_end) = compare.keys.to_etcd();
    let result = match compare.result {
        store::CompareResult::Equal => etcd::CompareResult::Equal,
        store::CompareResult::Greater => etcd::CompareResult::Greater,
        store::CompareResult::Less => etcd::CompareResult::Less,
        store::CompareResult::NotEqual => etcd::CompareResult::NotEqual,
    };
    use store::CompareTarget as From;
    use {etcd::CompareTarget as To, etcd::TargetUnion as With};
    let (target, with) = match compare.target {
        From::Version(version) => (To::Version, With::Version(version)),
        From::CreateRevision(revision) => (To::Create, With::CreateRevision(revision)),
        From::ModRevision(revision) => (To::Mod, With::ModRevision(revision)),
        From::Value(value) => (To::Value, With::Value(value)),
        From::Lease(lease) => (To::Lease, With::Lease(lease)),
    };
    etcd::Compare {
        result: result.into(),
        target: target.into(),
        key,
        target_union: Some(with),
        range_end,
    }
}

pub(crate) fn compare_from(compare: etcd::Compare) -> Result<store::Compare, StoreError> {
    let result = match etcd::CompareResult::try_from(compare.result) {
        Ok(etcd::CompareResult::Equal) => store::CompareResult::Equal,
        Ok(etcd::CompareResult::Greater) => store::CompareResult::Greater,
        Ok(etcd::CompareResult::Less) => store::CompareResult::Less,
        Ok(etcd::CompareResult::NotEqual) => store::CompareResult::NotEqual,
        Err(_) => return Err(invalid("an unknown kind of compare")),
    };
    Ok(store::Compare {
        target: target_from(compare.target, compare.target_union)?,
        keys: KeyRange::from_etcd(compare.key, compare.range_end),
        result,
    })
}

/// What is compared is told twice. As etcd does, the first decides, and if the second does not fit, the
/// value compared with is zero.
fn target_from(
    target: i32,
    with: Option<etcd::TargetUnion>,
) -> Result<store::CompareTarget, StoreError> {
    use etcd::TargetUnion as With;
    use store::CompareTarget as To;
    let number = match &with {
        Some(
            With::Version(n) | With::CreateRevision(n) | With::ModRevision(n) | With::Lease(n),
        ) => *n,
        Some(With::Value(_)) | None => 0,
    };
    Ok(match etcd::CompareTarget::try_from(target) {
        Ok(etcd::CompareTarget::Version) => To::Version(number),
        Ok(etcd::CompareTarget::Create) => To::CreateRevision(number),
        Ok(etcd::CompareTarget::Mod) => To::ModRevision(number),
        Ok(etcd::CompareTarget::Lease) => To::Lease(number),
        Ok(etcd::CompareTarget::Value) => match with {
            Some(With::Value(value)) => To::Value(value),
            _ => To::Value(bytes::Bytes::new()),
        },
        Err(_) => return Err(invalid("an unknown target of a compare")),
    })
}

pub(crate) fn range_response_from(response: etcd::RangeResponse) -> store::RangeResponse {
    store::RangeResponse {
        revision: revision_of(response.header.as_ref()),
        kvs: response.kvs.into_iter().map(kv_from).collect(),
        more: response.more,
        count: count_from(response.count),
    }
}

pub(crate) fn revision_of(header: Option<&etcd::ResponseHeader>) -> store::Revision {
    header.map_or(0, |header| header.revision)
}

pub(crate) fn txn_response_from(
    response: etcd::TxnResponse,
) -> Result<store::TxnResponse, StoreError> {
    let revision = revision_of(response.header.as_ref());
    let op = |op: etcd::ResponseOp| match op.response {
        Some(etcd::Response::ResponseRange(range)) => {
            // Within a transaction etcd does not fill in every header.
            let mut range = range_response_from(range);
            range.revision = revision;
            Ok(store::OpResponse::Range(range))
        }
        Some(etcd::Response::ResponsePut(put)) => Ok(store::OpResponse::Put(store::PutResponse {
            previous: put.prev_kv.map(kv_from),
        })),
        Some(etcd::Response::ResponseDeleteRange(delete)) => {
            Ok(store::OpResponse::Delete(store::DeleteResponse {
                deleted: count_from(delete.deleted),
                previous: delete.prev_kvs.into_iter().map(kv_from).collect(),
            }))
        }
        None => Err(invalid("an answer within a transaction is empty")),
    };
    Ok(store::TxnResponse {
        revision,
        succeeded: response.succeeded,
        responses: response
            .responses
            .into_iter()
            .map(op)
            .collect::<Result<_, _>>()?,
    })
}

pub(crate) fn watch_from(create: etcd::WatchCreateRequest) -> store::WatchRequest {
    let filtered = |filter: etcd::FilterType| create.filters.contains(&(filter as i32));
    store::WatchRequest {
        no_put: filtered(etcd::FilterType::Noput),
        no_delete: filtered(etcd::FilterType::Nodelete),
        previous: create.prev_kv,
        progress: create.progress_notify,
        start: create.start_revision.max(0),
        keys: KeyRange::from_etcd(create.key, create.range_end),
    }
}

pub(crate) fn watch_to(request: &store::WatchRequest) -> etcd::WatchCreateRequest {
    let (key, range_end) = request.keys.to_etcd();
    let filters = [
        (request.no_put, etcd::FilterType::Noput),
        (request.no_delete, etcd::FilterType::Nodelete),
    ];
    let wanted = filters.into_iter().filter(|(wanted, _)| *wanted);
    etcd::WatchCreateRequest {
        key,
        range_end,
        start_revision: request.start,
        progress_notify: request.progress,
        filters: wanted.map(|(_, filter)| filter.into()).collect(),
        prev_kv: request.previous,
        watch_id: 0,
        fragment: false,
    }
}

pub(crate) fn event_to(event: store::Event) -> etcd::Event {
    let kind = match event.kind {
        store::EventKind::Put => etcd::EventType::Put,
        store::EventKind::Delete => etcd::EventType::Delete,
    };
    etcd::Event {
        r#type: kind.into(),
        kv: Some(kv_to(event.kv)),
        prev_kv: event.previous.map(kv_to),
    }
}

pub(crate) fn event_from(event: etcd::Event) -> Result<store::Event, StoreError> {
    let kind = match etcd::EventType::try_from(event.r#type) {
        Ok(etcd::EventType::Put) => store::EventKind::Put,
        Ok(etcd::EventType::Delete) => store::EventKind::Delete,
        Err(_) => return Err(invalid("an event of an unknown kind")),
    };
    let kv = event.kv.ok_or_else(|| invalid("an event without a key"))?;
    Ok(store::Event {
        kind,
        kv: kv_from(kv),
        previous: event.prev_kv.map(kv_from),
    })
}
