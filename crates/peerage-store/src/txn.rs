//! What a transaction means, for every store that keeps its own data.
//!
//! A store gives its current state as an [`Engine`]; everything that can be refused is refused
//! before the engine is changed.

use bytes::Bytes;

use crate::error::StoreError;
use crate::types::{
    Compare, CompareResult, CompareTarget, DeleteOp, DeleteResponse, Event, EventKind, KeyRange,
    KeyValue, LeaseId, Limits, Op, OpResponse, PutOp, PutResponse, RangeRequest, RangeResponse,
    Revision, Txn, TxnResponse,
};

/// The current state of a store, as a transaction sees and changes it.
pub(crate) trait Engine {
    /// The revision before the transaction.
    fn revision(&self) -> Revision;
    /// The oldest revision that can be read.
    fn compact_revision(&self) -> Revision;
    /// One key, with the transaction's own changes.
    fn get(&mut self, key: &[u8]) -> Result<Option<KeyValue>, StoreError>;
    /// A range; at revision 0 with the transaction's own changes.
    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, StoreError>;
    /// Whether keys may be attached to the lease.
    fn lease_is_alive(&mut self, id: LeaseId) -> bool;
    /// Writes down an event, the `index`th of its revision.
    fn apply(&mut self, event: &Event, index: usize) -> Result<(), StoreError>;
}

/// Refuses what is wrong whatever the state.
pub(crate) fn check(txn: &Txn, limits: &Limits) -> Result<(), StoreError> {
    for len in [txn.compares.len(), txn.success.len(), txn.failure.len()] {
        if len > limits.max_txn_ops {
            return Err(StoreError::TooManyOps {
                ops: len,
                limit: limits.max_txn_ops,
            });
        }
    }
    let size = txn.compares.iter().map(compare_size).sum::<usize>()
        + txn.success.iter().map(op_size).sum::<usize>()
        + txn.failure.iter().map(op_size).sum::<usize>();
    within(size, limits.max_txn_bytes)?;
    for compare in &txn.compares {
        check_keys(&compare.keys, limits)?;
    }
    for branch in [&txn.success, &txn.failure] {
        for op in branch {
            check_op(op, limits)?;
        }
        check_written_once(branch)?;
    }
    Ok(())
}

fn check_op(op: &Op, limits: &Limits) -> Result<(), StoreError> {
    match op {
        Op::Put(put) if put.key.is_empty() => Err(StoreError::EmptyKey),
        Op::Put(put) if put.keep_value && !put.value.is_empty() => Err(invalid("a value is given")),
        Op::Put(put) if put.keep_lease && put.lease != 0 => Err(invalid("a lease is given")),
        Op::Put(put) => {
            within(put.key.len(), limits.max_key_bytes)?;
            within(put.value.len(), limits.max_value_bytes)
        }
        Op::Delete(delete) => check_keys(&delete.keys, limits),
        Op::Range(range) => check_range(range, limits),
    }
}

/// Refuses a range that is wrong whatever the state.
pub(crate) fn check_range(range: &RangeRequest, limits: &Limits) -> Result<(), StoreError> {
    check_keys(&range.keys, limits)?;
    if range.revision < 0 {
        return Err(invalid("a revision is negative"));
    }
    Ok(())
}

fn check_keys(keys: &KeyRange, limits: &Limits) -> Result<(), StoreError> {
    if keys.single().is_some_and(Bytes::is_empty) {
        return Err(StoreError::EmptyKey);
    }
    within(keys.start().len(), limits.max_key_bytes)?;
    within(keys.end().map_or(0, Bytes::len), limits.max_key_bytes)
}

fn check_written_once(ops: &[Op]) -> Result<(), StoreError> {
    let mut puts: Vec<&[u8]> = ops.iter().filter_map(put_key).collect();
    let deleted = |key: &&[u8]| {
        ops.iter().any(|op| match op {
            Op::Delete(delete) => delete.keys.contains(key),
            Op::Put(_) | Op::Range(_) => false,
        })
    };
    if puts.iter().any(deleted) {
        return Err(StoreError::DuplicateKey);
    }
    puts.sort_unstable();
    if puts.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(StoreError::DuplicateKey);
    }
    Ok(())
}

fn put_key(op: &Op) -> Option<&[u8]> {
    match op {
        Op::Put(put) => Some(&put.key),
        Op::Delete(_) | Op::Range(_) => None,
    }
}

fn within(size: usize, limit: usize) -> Result<(), StoreError> {
    if size > limit {
        return Err(StoreError::TooLarge { size, limit });
    }
    Ok(())
}

fn invalid(what: &str) -> StoreError {
    StoreError::Invalid {
        reason: what.to_owned(),
    }
}

fn keys_size(keys: &KeyRange) -> usize {
    keys.start().len() + keys.end().map_or(0, Bytes::len)
}

fn compare_size(compare: &Compare) -> usize {
    let value = match &compare.target {
        CompareTarget::Value(value) => value.len(),
        _ => 0,
    };
    keys_size(&compare.keys) + value
}

/// The bytes of keys and values that an operation carries.
pub(crate) fn op_size(op: &Op) -> usize {
    match op {
        Op::Put(put) => put.key.len() + put.value.len(),
        Op::Delete(delete) => keys_size(&delete.keys),
        Op::Range(range) => keys_size(&range.keys),
    }
}

/// Refuses a revision that `engine` cannot show.
pub(crate) fn check_revision(
    wanted: Revision,
    current: Revision,
    compacted: Revision,
) -> Result<(), StoreError> {
    if wanted > current {
        return Err(StoreError::FutureRevision { current });
    }
    if wanted != 0 && wanted < compacted {
        return Err(StoreError::Compacted {
            compact_revision: compacted,
        });
    }
    Ok(())
}

/// Runs a transaction that passed [`check`]. On an error `engine` is unchanged as far as the error
/// is not its own.
pub(crate) fn run(
    engine: &mut dyn Engine,
    txn: &Txn,
    limits: &Limits,
) -> Result<(TxnResponse, Vec<Event>), StoreError> {
    let mut succeeded = true;
    for compare in &txn.compares {
        succeeded = succeeded && holds(engine, compare)?;
    }
    let ops = if succeeded {
        &txn.success
    } else {
        &txn.failure
    };
    check_state(engine, ops, limits)?;
    let mut run = Run {
        revision: engine.revision() + 1,
        events: Vec::new(),
        engine,
    };
    let mut responses = Vec::with_capacity(ops.len());
    for op in ops {
        responses.push(run.op(op)?);
    }
    let events = run.events;
    let revision = engine.revision() + Revision::from(!events.is_empty());
    let response = TxnResponse {
        revision,
        succeeded,
        responses,
    };
    Ok((response, events))
}

/// Deletes each of `keys` that exists, as one revision.
pub(crate) fn delete_keys(
    engine: &mut dyn Engine,
    keys: &[Bytes],
) -> Result<Vec<Event>, StoreError> {
    let mut run = Run {
        revision: engine.revision() + 1,
        events: Vec::new(),
        engine,
    };
    for key in keys {
        if let Some(previous) = run.engine.get(key)? {
            run.delete(previous)?;
        }
    }
    Ok(run.events)
}

fn holds(engine: &mut dyn Engine, compare: &Compare) -> Result<bool, StoreError> {
    let kvs = match compare.keys.single() {
        Some(key) => engine.get(key)?.into_iter().collect(),
        None => engine.range(&RangeRequest::new(compare.keys.clone()))?.kvs,
    };
    if kvs.is_empty() {
        let value = matches!(compare.target, CompareTarget::Value(_));
        return Ok(!value && compares(&KeyValue::default(), compare));
    }
    Ok(kvs.iter().all(|kv| compares(kv, compare)))
}

fn compares(kv: &KeyValue, compare: &Compare) -> bool {
    let ordering = match &compare.target {
        CompareTarget::Version(target) => kv.version.cmp(target),
        CompareTarget::CreateRevision(target) => kv.create_revision.cmp(target),
        CompareTarget::ModRevision(target) => kv.mod_revision.cmp(target),
        CompareTarget::Value(target) => kv.value.cmp(target),
        CompareTarget::Lease(target) => kv.lease.cmp(target),
    };
    match compare.result {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
        CompareResult::NotEqual => ordering.is_ne(),
    }
}

/// Refuses what is wrong in this state. What a put or a delete finds cannot be changed by another
/// operation before it, since no key is written twice.
fn check_state(engine: &mut dyn Engine, ops: &[Op], limits: &Limits) -> Result<(), StoreError> {
    let mut deleted = 0;
    for op in ops {
        match op {
            Op::Put(put) => {
                if put.lease != 0 && !engine.lease_is_alive(put.lease) {
                    return Err(StoreError::LeaseNotFound { id: put.lease });
                }
                if (put.keep_value || put.keep_lease) && engine.get(&put.key)?.is_none() {
                    return Err(StoreError::KeyNotFound);
                }
            }
            Op::Delete(delete) if delete.keys.single().is_some() => deleted += 1,
            Op::Delete(delete) => {
                let count = RangeRequest::new(delete.keys.clone()).count_only();
                deleted += engine.range(&count)?.count as usize;
            }
            Op::Range(range) => {
                check_revision(range.revision, engine.revision(), engine.compact_revision())?
            }
        }
        if deleted > limits.max_deleted_keys {
            return Err(StoreError::TooManyOps {
                ops: deleted,
                limit: limits.max_deleted_keys,
            });
        }
    }
    Ok(())
}

/// A transaction on its way.
struct Run<'e> {
    engine: &'e mut dyn Engine,
    /// The revision that its changes get.
    revision: Revision,
    events: Vec<Event>,
}

impl Run<'_> {
    fn op(&mut self, op: &Op) -> Result<OpResponse, StoreError> {
        Ok(match op {
            Op::Put(put) => OpResponse::Put(self.put(put)?),
            Op::Delete(delete) => OpResponse::Delete(self.delete_range(delete)?),
            Op::Range(range) => {
                let mut response = self.engine.range(range)?;
                response.revision = self.engine.revision() + i64::from(!self.events.is_empty());
                OpResponse::Range(response)
            }
        })
    }

    fn put(&mut self, put: &PutOp) -> Result<PutResponse, StoreError> {
        let previous = self.engine.get(&put.key)?;
        let before = previous.as_ref();
        let kv = KeyValue {
            key: put.key.clone(),
            value: match before {
                Some(before) if put.keep_value => before.value.clone(),
                _ => put.value.clone(),
            },
            create_revision: before.map_or(self.revision, |before| before.create_revision),
            mod_revision: self.revision,
            version: before.map_or(0, |before| before.version) + 1,
            lease: match before {
                Some(before) if put.keep_lease => before.lease,
                _ => put.lease,
            },
        };
        let response = PutResponse {
            previous: previous.clone().filter(|_| put.previous),
        };
        self.apply(EventKind::Put, kv, previous)?;
        Ok(response)
    }

    fn delete_range(&mut self, delete: &DeleteOp) -> Result<DeleteResponse, StoreError> {
        let kvs = match delete.keys.single() {
            Some(key) => self.engine.get(key)?.into_iter().collect(),
            None => {
                self.engine
                    .range(&RangeRequest::new(delete.keys.clone()))?
                    .kvs
            }
        };
        let mut response = DeleteResponse {
            deleted: kvs.len() as u64,
            previous: Vec::new(),
        };
        for kv in kvs {
            if delete.previous {
                response.previous.push(kv.clone());
            }
            self.delete(kv)?;
        }
        Ok(response)
    }

    fn delete(&mut self, previous: KeyValue) -> Result<(), StoreError> {
        let gone = KeyValue {
            key: previous.key.clone(),
            mod_revision: self.revision,
            ..KeyValue::default()
        };
        self.apply(EventKind::Delete, gone, Some(previous))
    }

    fn apply(
        &mut self,
        kind: EventKind,
        kv: KeyValue,
        previous: Option<KeyValue>,
    ) -> Result<(), StoreError> {
        let event = Event { kind, kv, previous };
        self.engine.apply(&event, self.events.len())?;
        self.events.push(event);
        Ok(())
    }
}
