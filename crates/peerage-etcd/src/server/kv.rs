//! Ranges, writes, transactions, compaction.
//!
//! Sorting, and filtering by revisions, is done here: a store knows only the order of keys.

use peerage_store as store;
use store::{KeyRange, StoreError};
use tonic::Status;

use super::{Shared, header};
use crate::convert;
use crate::messages::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, Request, RequestOp, Response, ResponseOp, SortOrder,
    SortTarget, TxnRequest, TxnResponse,
};
use crate::status::to_status;

fn failed(error: StoreError) -> Status {
    to_status(&error)
}

pub(super) async fn range(shared: Shared, request: RangeRequest) -> Result<RangeResponse, Status> {
    let (request, shape) = split(request).map_err(failed)?;
    let response = shared.store.range(request).await.map_err(failed)?;
    Ok(shape.apply(response))
}

pub(super) async fn put(shared: Shared, request: PutRequest) -> Result<PutResponse, Status> {
    let txn = store::Txn::of([store::Op::Put(convert::put_from(request))]);
    let response = shared.store.txn(txn).await.map_err(failed)?;
    let header = Some(header(response.revision));
    match response.responses.into_iter().next() {
        Some(store::OpResponse::Put(put)) => Ok(PutResponse {
            header,
            prev_kv: put.previous.map(convert::kv_to),
        }),
        _ => Err(Status::internal("the store did not answer a put with one")),
    }
}

pub(super) async fn delete_range(
    shared: Shared,
    request: DeleteRangeRequest,
) -> Result<DeleteRangeResponse, Status> {
    let txn = store::Txn::of([store::Op::Delete(convert::delete_from(request))]);
    let response = shared.store.txn(txn).await.map_err(failed)?;
    let header = Some(header(response.revision));
    match response.responses.into_iter().next() {
        Some(store::OpResponse::Delete(delete)) => Ok(DeleteRangeResponse {
            header,
            ..deleted(delete)
        }),
        _ => Err(Status::internal(
            "the store did not answer a deletion with one",
        )),
    }
}

fn deleted(delete: store::DeleteResponse) -> DeleteRangeResponse {
    DeleteRangeResponse {
        header: None,
        deleted: convert::count_to(delete.deleted),
        prev_kvs: delete.previous.into_iter().map(convert::kv_to).collect(),
    }
}

pub(super) async fn txn(shared: Shared, request: TxnRequest) -> Result<TxnResponse, Status> {
    let compares = request.compare.into_iter().map(convert::compare_from);
    let (success, success_shapes) = ops(request.success)?;
    let (failure, failure_shapes) = ops(request.failure)?;
    let txn = store::Txn {
        compares: compares.collect::<Result<_, _>>().map_err(failed)?,
        success,
        failure,
    };
    let response = shared.store.txn(txn).await.map_err(failed)?;
    let shapes = match response.succeeded {
        true => success_shapes,
        false => failure_shapes,
    };
    let header = header(response.revision);
    let answers = response.responses.into_iter().zip(shapes);
    Ok(TxnResponse {
        header: Some(header),
        succeeded: response.succeeded,
        responses: answers
            .map(|(answer, shape)| answer_to(answer, shape))
            .collect(),
    })
}

/// The operations, and how the answer to each that is a range is to look.
fn ops(requests: Vec<RequestOp>) -> Result<(Vec<store::Op>, Vec<Shape>), Status> {
    let op = |op: RequestOp| match op.request {
        Some(Request::RequestRange(range)) => {
            let (range, shape) = split(range).map_err(failed)?;
            Ok((store::Op::Range(range), shape))
        }
        Some(Request::RequestPut(put)) => {
            Ok((store::Op::Put(convert::put_from(put)), Shape::default()))
        }
        Some(Request::RequestDeleteRange(delete)) => Ok((
            store::Op::Delete(convert::delete_from(delete)),
            Shape::default(),
        )),
        // Differs: etcd runs transactions within transactions; Kubernetes has none.
        Some(Request::RequestTxn(_)) => {
            Err(Status::unimplemented("a transaction within a transaction"))
        }
        None => Err(Status::invalid_argument("etcdserver: key not found")),
    };
    let ops = requests
        .into_iter()
        .map(op)
        .collect::<Result<Vec<_>, Status>>()?;
    Ok(ops.into_iter().unzip())
}

fn answer_to(answer: store::OpResponse, shape: Shape) -> ResponseOp {
    // As in etcd's answers, what is within a transaction has the revision only.
    let within = |revision| {
        Some(crate::messages::ResponseHeader {
            revision,
            ..Default::default()
        })
    };
    let response = match answer {
        store::OpResponse::Range(range) => {
            let revision = range.revision;
            let mut range = shape.apply(range);
            range.header = within(revision);
            Response::ResponseRange(range)
        }
        store::OpResponse::Put(put) => Response::ResponsePut(PutResponse {
            header: None,
            prev_kv: put.previous.map(convert::kv_to),
        }),
        store::OpResponse::Delete(delete) => Response::ResponseDeleteRange(deleted(delete)),
    };
    ResponseOp {
        response: Some(response),
    }
}

pub(super) async fn compact(
    shared: Shared,
    request: CompactionRequest,
) -> Result<CompactionResponse, Status> {
    shared
        .store
        .compact(request.revision)
        .await
        .map_err(failed)?;
    Ok(CompactionResponse {
        header: Some(shared.current().await?),
    })
}

/// What of a range's answer the store does not do.
#[derive(Debug, Default)]
struct Shape {
    order: Option<(SortTarget, SortOrder)>,
    mod_revisions: (i64, i64),
    create_revisions: (i64, i64),
    /// Set when the store is asked for more than is wanted.
    limit: usize,
    keys_only: bool,
}

/// What to ask the store, and what is left to do with its answer.
fn split(request: RangeRequest) -> Result<(store::RangeRequest, Shape), StoreError> {
    let unknown = |_| convert::invalid("an unknown order");
    let order = SortOrder::try_from(request.sort_order).map_err(unknown)?;
    let target = SortTarget::try_from(request.sort_target).map_err(unknown)?;
    let mut shape = Shape {
        order: match (target, order) {
            (SortTarget::Key, SortOrder::None | SortOrder::Ascend) => None,
            (target, SortOrder::None) => Some((target, SortOrder::Ascend)),
            (target, order) => Some((target, order)),
        },
        mod_revisions: (request.min_mod_revision, request.max_mod_revision),
        create_revisions: (request.min_create_revision, request.max_create_revision),
        ..Shape::default()
    };
    let mut range = store::RangeRequest {
        keys: KeyRange::from_etcd(request.key, request.range_end),
        limit: usize::try_from(request.limit.max(0)).unwrap_or(usize::MAX),
        revision: request.revision,
        keys_only: request.keys_only,
        count_only: request.count_only,
    };
    if shape.order.is_some() || shape.filters() {
        shape.limit = std::mem::take(&mut range.limit);
        // Values may be what is sorted by.
        shape.keys_only = std::mem::take(&mut range.keys_only);
    }
    Ok((range, shape))
}

impl Shape {
    fn filters(&self) -> bool {
        self.mod_revisions != (0, 0) || self.create_revisions != (0, 0)
    }

    fn apply(&self, mut response: store::RangeResponse) -> RangeResponse {
        let within = |value: i64, (min, max): (i64, i64)| {
            (min == 0 || value >= min) && (max == 0 || value <= max)
        };
        if self.filters() {
            response.kvs.retain(|kv| {
                within(kv.mod_revision, self.mod_revisions)
                    && within(kv.create_revision, self.create_revisions)
            });
        }
        if let Some((target, order)) = self.order {
            sort(&mut response.kvs, target, order);
        }
        if self.limit > 0 && response.kvs.len() > self.limit {
            response.kvs.truncate(self.limit);
            response.more = true;
        }
        if self.keys_only {
            response.kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        RangeResponse {
            header: Some(header(response.revision)),
            kvs: response.kvs.into_iter().map(convert::kv_to).collect(),
            more: response.more,
            count: convert::count_to(response.count),
        }
    }
}

fn sort(kvs: &mut [store::KeyValue], target: SortTarget, order: SortOrder) {
    match target {
        SortTarget::Key => kvs.sort_by(|a, b| a.key.cmp(&b.key)),
        SortTarget::Version => kvs.sort_by_key(|kv| kv.version),
        SortTarget::Create => kvs.sort_by_key(|kv| kv.create_revision),
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if order == SortOrder::Descend {
        kvs.reverse();
    }
}
