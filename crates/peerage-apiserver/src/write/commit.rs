//! The last stages of a write: admission, validation, and the compare-and-update that makes it count.

use std::sync::Arc;

use bytes::Bytes;
use peerage_core::Status;
use peerage_store::{
    Compare, KeyValue, LeaseId, Op, OpResponse, PutOp, StoreError, StoreExt as _, Txn, WriteError,
};
use serde_json::Value;

use super::{
    Change, WriteOptions,
    admission::{self, Seen},
    before_update, finished_terminating, from_stored, to_stored,
};
use crate::cache::{CachedObject, Content};
use crate::call::Call;
use crate::encoding::{self, Encoding};
use crate::error::ApiError;
use crate::resources::Place;
use crate::validate;
use crate::write::services::{self, Held};

/// Runs of one update while others change the same object. kube-apiserver tries for as long as the request lives.
const TRIES: usize = 64;

/// What a write has done.
pub(crate) struct Committed {
    /// The object as it is now; of a deleted one, as it was last.
    pub(crate) object: Arc<CachedObject>,
    /// Whether it is gone.
    pub(crate) deleted: bool,
}

/// Creates an object that has been prepared.
pub(crate) async fn create(
    call: &Call,
    options: &WriteOptions,
    mut object: Value,
) -> Result<Committed, ApiError> {
    let place = call.place()?;
    admission::mutate(call, &mut object, None).await?;
    call.api()
        .catalogue
        .apply_defaults(call.resource(), &mut object);
    validate::create(call, &object)?;
    let namespace = admission::seen(call, &object, options.dry_run).await?;
    let reserved = services::reserve(call, &mut object, None, options.dry_run).await?;
    let owner = services::owner(call, &object);
    let own_name = object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let name: Arc<str> = call.name_of(&own_name).into();
    let bytes = encode(call, object.clone())?;
    let key = format!("{}{name}", place.prefix);
    if options.dry_run {
        return match call
            .api()
            .store
            .get(key.clone())
            .await
            .map_err(|e| call.store_error(&e))?
        {
            Some(existing) => Err(exists(call, &own_name, &existing)),
            None => Ok(Committed {
                object: unstored(place, name, bytes),
                deleted: false,
            }),
        };
    }
    let lease = event_lease(call).await.map_err(|e| call.store_error(&e))?;
    let put = PutOp {
        key: key.into(),
        value: encoding::seal(Encoding::of_new(&place.stored.resource), bytes),
        lease,
        ..PutOp::default()
    };
    match insert(call, put, namespace, &object).await {
        Ok(kv) => Ok(Committed {
            object: loaded(place, name, &kv),
            deleted: false,
        }),
        Err(error) => {
            // Where the store did not answer nobody knows whether the object is there.
            if error.code() < 500 {
                services::release(call, &owner, &reserved).await;
            }
            Err(error)
        }
    }
}

/// Writes a new object, if there is none of that name and its namespace has not changed since it was seen.
async fn insert(
    call: &Call,
    put: PutOp,
    mut namespace: Option<Seen>,
    object: &Value,
) -> Result<KeyValue, ApiError> {
    let own_name = object["metadata"]["name"].as_str().unwrap_or_default();
    for _ in 0..TRIES {
        let unchanged = namespace
            .iter()
            .map(|n| Compare::mod_revision(n.key.clone(), n.revision));
        let txn = Txn::new()
            .when([Compare::absent(put.key.clone())])
            .when(unchanged)
            .then([Op::Put(put.clone())])
            .otherwise([Op::get(put.key.clone())]);
        let response = call.api().store.txn(txn).await;
        let response = response.map_err(|e| call.store_error(&e))?;
        if response.succeeded {
            return Ok(KeyValue {
                key: put.key,
                value: put.value,
                create_revision: response.revision,
                mod_revision: response.revision,
                version: 1,
                lease: put.lease,
            });
        }
        if let Some(OpResponse::Range(found)) = response.responses.first()
            && let Some(existing) = found.kvs.first()
        {
            return Err(exists(call, own_name, existing));
        }
        namespace = admission::seen(call, object, true).await?;
    }
    Err(Status::server_timeout(call.group_resource(), "create", 1).into())
}

/// Changes an object: `change` is given the current one in the request's version and returns what it is to be.
/// It is called again when somebody else was faster.
///
/// The current object comes from the cache, which may lag behind the store. So nothing but the compare-and-update
/// itself is decided by it: a refusal, a write that changes nothing and a dry run are decided again by what the store
/// has when that is newer.
pub(crate) async fn modify(
    call: &Call,
    options: &WriteOptions,
    own_name: &str,
    part: Change,
    mut change: impl FnMut(&Value, &CachedObject) -> Result<Value, ApiError>,
) -> Result<Committed, ApiError> {
    let place = call.place()?;
    let mut current = current(call, place, own_name).await?;
    for _ in 0..TRIES {
        let old = from_stored(call, &current)?;
        let planned = match change(&old, &current) {
            Ok(new) => plan(call, new, &old, part).await,
            Err(error) => Err(error),
        };
        let unwritten = match &planned {
            Ok(planned) => options.dry_run || planned.changes_nothing(call, &current)?,
            Err(_) => true,
        };
        if unwritten && let Some(newer) = reload(call, place, &current).await? {
            current = newer;
            continue;
        }
        let Planned { mut new, gone, .. } = planned?;
        let reserved = if gone {
            Held::default()
        } else {
            services::reserve(call, &mut new, Some(&old), options.dry_run).await?
        };
        let owner = services::owner(call, &new);
        let kept = if gone {
            Held::default()
        } else {
            Held::of(call, &new)
        };
        let bytes = encode(call, new)?;
        match store(call, options, place, &current, bytes, gone).await? {
            Stored::Done(committed) => {
                if !options.dry_run {
                    let left = Held::of(call, &old).without(&kept);
                    services::release(call, &owner, &left).await;
                }
                return Ok(committed);
            }
            Stored::Changed(newer) => {
                services::release(call, &owner, &reserved).await;
                current = newer;
            }
        }
    }
    Err(Status::server_timeout(call.group_resource(), call.info.verb(), 1).into())
}

/// What a change comes to.
struct Planned {
    /// The object.
    new: Value,
    /// The same as it is to be stored.
    bytes: Bytes,
    /// Whether it goes with this write.
    gone: bool,
}

impl Planned {
    fn changes_nothing(&self, call: &Call, current: &CachedObject) -> Result<bool, ApiError> {
        Ok(!self.gone && self.bytes == *json(call, current)?)
    }
}

/// The stages between the decoded object and the store.
async fn plan(call: &Call, mut new: Value, old: &Value, part: Change) -> Result<Planned, ApiError> {
    let catalogue = &call.api().catalogue;
    before_update(catalogue, call.resource(), &mut new, old, part).map_err(|e| e.status())?;
    // The marks of a deletion change nothing else.
    if part != Change::Mark {
        admission::mutate(call, &mut new, Some(old)).await?;
        catalogue.apply_defaults(call.resource(), &mut new);
        validate::update(call, &new, old)?;
    }
    let gone = finished_terminating(&new);
    let bytes = encode(call, new.clone())?;
    Ok(Planned { new, bytes, gone })
}

/// Removes an object now, unless it has become another than `expected`, which is then the inner error. Watchers
/// see it as `last`.
pub(crate) async fn remove(
    call: &Call,
    options: &WriteOptions,
    expected: &Arc<CachedObject>,
    last: Value,
) -> Result<Result<Committed, Arc<CachedObject>>, ApiError> {
    let place = call.place()?;
    json(call, expected)?;
    let held = Held::of(call, &last);
    let owner = services::owner(call, &last);
    let bytes = encode(call, last)?;
    match store(call, options, place, expected, bytes, true).await? {
        Stored::Done(committed) => {
            if !options.dry_run {
                services::release(call, &owner, &held).await;
            }
            Ok(Ok(committed))
        }
        Stored::Changed(newer) => Ok(Err(newer)),
    }
}

enum Stored {
    Done(Committed),
    Changed(Arc<CachedObject>),
}

async fn store(
    call: &Call,
    options: &WriteOptions,
    place: &Place,
    current: &Arc<CachedObject>,
    bytes: Bytes,
    gone: bool,
) -> Result<Stored, ApiError> {
    let done = |object, deleted| Ok(Stored::Done(Committed { object, deleted }));
    if !gone && bytes == *json(call, current)? {
        return done(current.clone(), false);
    }
    let name = current.name.clone();
    if options.dry_run {
        let mut object = CachedObject::load(name, &pretended(current, bytes), Some(&place.stored));
        object.created = current.created;
        return done(Arc::new(object), gone);
    }
    let key = format!("{}{name}", place.prefix);
    let result = if gone {
        call.api()
            .store
            .delete(key, Some(current.revision))
            .await
            .map(|(mut kv, revision)| {
                kv.value = bytes;
                kv.mod_revision = revision;
                kv
            })
    } else {
        let lease = current.lease;
        let value = encoding::seal(current.encoding, bytes);
        call.api()
            .store
            .update(key, value, current.revision, lease)
            .await
    };
    match result {
        Ok(kv) => done(loaded(place, name, &kv), gone),
        Err(WriteError::Conflict {
            current: Some(kv), ..
        }) => Ok(Stored::Changed(loaded(place, name, &kv))),
        Err(WriteError::Conflict { current: None, .. }) => {
            Err(ApiError::not_found(call.resource(), current.own_name()))
        }
        Err(WriteError::Store(error)) => Err(call.store_error(&error)),
    }
}

/// The current object: from the cache, or, when it is not there, from the store itself.
pub(crate) async fn current(
    call: &Call,
    place: &Place,
    own_name: &str,
) -> Result<Arc<CachedObject>, ApiError> {
    let name = call.name_of(own_name);
    if let Some(object) = place.cache.get(&name) {
        return Ok(object);
    }
    let key = format!("{}{name}", place.prefix);
    match call
        .api()
        .store
        .get(key)
        .await
        .map_err(|e| call.store_error(&e))?
    {
        Some(kv) => Ok(loaded(place, name.into(), &kv)),
        None => Err(ApiError::not_found(call.resource(), own_name)),
    }
}

/// A newer state of the object than `seen`, if the store has one.
pub(crate) async fn reload(
    call: &Call,
    place: &Place,
    seen: &CachedObject,
) -> Result<Option<Arc<CachedObject>>, ApiError> {
    let key = format!("{}{}", place.prefix, seen.name);
    match call
        .api()
        .store
        .get(key)
        .await
        .map_err(|e| call.store_error(&e))?
    {
        Some(kv) if kv.mod_revision != seen.revision => {
            Ok(Some(loaded(place, seen.name.clone(), &kv)))
        }
        Some(_) => Ok(None),
        None => Err(ApiError::not_found(call.resource(), seen.own_name())),
    }
}

/// The JSON of a stored object; one that this server cannot read is never overwritten.
fn json<'a>(call: &Call, object: &'a CachedObject) -> Result<&'a Bytes, ApiError> {
    match &object.content {
        Content::Json(json) => Ok(json.bytes()),
        Content::Unreadable { reason, .. } => Err(unreadable(call, object, reason)),
    }
}

/// 500 for a stored object of the request's kind that this server cannot read.
pub(crate) fn unreadable(call: &Call, object: &CachedObject, reason: &str) -> ApiError {
    let prefix = call.place().map_or("", |place| &place.prefix);
    let kind = call.group_resource().to_string();
    unreadable_of(&kind, prefix, object, reason)
}

/// 500 for a stored object that this server cannot read, with what can be done about it.
pub(crate) fn unreadable_of(
    kind: &str,
    prefix: &str,
    object: &CachedObject,
    reason: &str,
) -> ApiError {
    let fix = match object.encoding {
        Encoding::Protobuf => {
            "; it is left as it is. Run the kube-apiservers on this store with --storage-media-type=application/json, then rewrite what is stored through one of them (a StorageVersionMigration, or kubectl replace)"
        }
        Encoding::Json => "; it is left as it is",
    };
    let name = &*object.name;
    Status::internal(format!(
        "{kind} {name:?} cannot be read from the store (key {prefix}{name}): {reason}{fix}"
    ))
    .into()
}

fn encode(call: &Call, object: Value) -> Result<Bytes, ApiError> {
    let stored = to_stored(call, object);
    serde_json::to_vec(&stored)
        .map(Bytes::from)
        .map_err(|e| Status::internal(e.to_string()).into())
}

fn loaded(place: &Place, name: Arc<str>, kv: &KeyValue) -> Arc<CachedObject> {
    Arc::new(CachedObject::load(name, kv, Some(&place.stored)))
}

/// An object that a dry run has not stored: it has no revision.
fn unstored(place: &Place, name: Arc<str>, bytes: Bytes) -> Arc<CachedObject> {
    let kv = KeyValue {
        key: Bytes::new(),
        value: bytes,
        create_revision: 0,
        mod_revision: 0,
        version: 0,
        lease: 0,
    };
    loaded(place, name, &kv)
}

fn pretended(current: &CachedObject, bytes: Bytes) -> KeyValue {
    KeyValue {
        key: Bytes::new(),
        value: bytes,
        create_revision: current.created,
        mod_revision: current.revision,
        version: 1,
        lease: current.lease,
    }
}

/// 409 for an object that there is already.
pub(crate) fn exists(call: &Call, name: &str, current: &KeyValue) -> ApiError {
    let terminating = encoding::open(&current.value)
        .ok()
        .and_then(|(json, _)| serde_json::from_slice::<Value>(&json).ok())
        .is_some_and(|o| o["metadata"]["deletionTimestamp"].is_string());
    if terminating {
        return Status::being_deleted(call.group_resource(), name).into();
    }
    Status::already_exists(call.group_resource(), name).into()
}

/// Events go away by themselves (`--event-ttl`); everything else stays.
async fn event_lease(call: &Call) -> Result<LeaseId, StoreError> {
    if call.resource().kind.as_ref() != "Event" {
        return Ok(0);
    }
    call.api().event_leases.current(&*call.api().store).await
}
