//! GET of a collection, from the cache; pages of an older revision and exact revisions from the store.

use std::sync::Arc;

use peerage_store::{KeyRange, KeyValue, RangeRequest, Revision};

use crate::cache::{CacheError, CachedObject};
use crate::call::{Call, Selection};
use crate::continuation::Continuation;
use crate::error::ApiError;
use crate::list_options::{ListOptions, Match};
use crate::render::{self, Page};
use crate::resources::Place;

/// Objects that are read from the store at once while a page of an older revision is filled.
const CHUNK: usize = 1_000;

/// Answers a list.
pub(crate) async fn list(call: &Call) -> Result<peerage_http::Response, ApiError> {
    let options = ListOptions::parse(&call.query(), false)?;
    let page = page(call, &options).await?;
    render::list(call, page)
}

/// The objects that a list or deletecollection names.
pub(crate) async fn page(call: &Call, options: &ListOptions) -> Result<Page, ApiError> {
    let place = call.place()?;
    let matcher = call.selection(options)?;
    let version = options
        .revision()
        .map_err(|e| ApiError::bad_request(format!("invalid resource version: {e}")))?;
    if let Some(token) = &options.continuation {
        return next_page(call, options, &matcher, token, version).await;
    }
    if options.version_match == Some(Match::Exact)
        && let Some(revision) = version
    {
        return stored_page(call, &matcher, "", revision, options.limit).await;
    }
    match version {
        None => call.fresh().await?,
        Some(0) => {}
        Some(revision) => {
            call.api()
                .cache
                .reach(revision, crate::cache::REACH)
                .await
                .map_err(|e| too_large(&e, revision))?;
        }
    }
    let snapshot = place
        .cache
        .snapshot(&call.prefix(), call.api().cache.revision());
    // At version 0 kube-apiserver answers from its cache and ignores the limit.
    let limit = if version == Some(0) { 0 } else { options.limit };
    Ok(cut(snapshot.objects, &matcher, limit, snapshot.revision))
}

async fn next_page(
    call: &Call,
    options: &ListOptions,
    matcher: &Selection,
    token: &str,
    version: Option<Revision>,
) -> Result<Page, ApiError> {
    if version.is_some_and(|v| v != 0) {
        return Err(ApiError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let from = Continuation::parse(token)
        .map_err(|e| ApiError::bad_request(format!("invalid continue token: {e}")))?;
    // At version 0 the limit is ignored here too.
    let limit = if version == Some(0) { 0 } else { options.limit };
    if from.revision < 0 {
        call.fresh().await?;
        let snapshot = call
            .place()?
            .cache
            .snapshot(&call.prefix(), call.api().cache.revision());
        let rest = after(snapshot.objects, &call.prefix(), &from.start);
        return Ok(cut(rest, matcher, limit, snapshot.revision));
    }
    stored_page(call, matcher, &from.start, from.revision, limit).await
}

/// A page as of `revision`: from the cache when the kind has not changed since, else from the store.
async fn stored_page(
    call: &Call,
    matcher: &Selection,
    start: &str,
    revision: Revision,
    limit: usize,
) -> Result<Page, ApiError> {
    // Another server may have given out a revision that has not come here yet.
    call.api()
        .cache
        .reach(revision, crate::cache::REACH)
        .await
        .map_err(|e| too_large(&e, revision))?;
    let place = call.place()?;
    let snapshot = place.cache.snapshot(&call.prefix(), 0);
    // The snapshot's own revision is that of the kind's last change: it holds what was there at `revision`.
    if snapshot.revision <= revision {
        let rest = after(snapshot.objects, &call.prefix(), start);
        return Ok(cut(rest, matcher, limit, revision));
    }
    let (objects, left) = stored_objects(call, matcher, start, revision, limit).await?;
    Ok(limited(objects, limit, revision, left))
}

/// What the store held at `revision` from `start` on, up to one more than `limit`; and how many those are in all,
/// when everything is selected.
async fn stored_objects(
    call: &Call,
    matcher: &Selection,
    start: &str,
    revision: Revision,
    limit: usize,
) -> Result<(Vec<Arc<CachedObject>>, Option<usize>), ApiError> {
    let place = call.place()?;
    let base = format!("{}{}", place.prefix, call.prefix());
    let end = KeyRange::prefix(base.clone())
        .end()
        .cloned()
        .unwrap_or_default();
    let mut from = format!("{base}{start}");
    let mut objects = Vec::new();
    let mut all = None;
    let mut more = true;
    while more && (limit == 0 || objects.len() <= limit) {
        let request = RangeRequest::new(KeyRange::between(from.clone(), end.clone()))
            .limit(CHUNK)
            .at(revision);
        let chunk = call
            .api()
            .store
            .range(request)
            .await
            .map_err(|e| call.store_error(&e))?;
        all = all.or(usize::try_from(chunk.count).ok());
        objects.extend(loaded(place, &chunk.kvs).filter(|o| matcher.matches(o)));
        more = chunk.more;
        if let Some(last) = chunk.kvs.last() {
            from = format!("{}\0", String::from_utf8_lossy(&last.key));
        }
    }
    Ok((objects, all.filter(|_| matcher.is_everything())))
}

fn loaded<'a>(
    place: &'a Place,
    kvs: &'a [KeyValue],
) -> impl Iterator<Item = Arc<CachedObject>> + 'a {
    kvs.iter().filter_map(|kv| {
        let name = std::str::from_utf8(kv.key.get(place.prefix.len()..)?).ok()?;
        let object = CachedObject::load(name.into(), kv, Some(&place.stored));
        Some(Arc::new(object))
    })
}

/// The objects that match, up to `limit`, and how the list goes on.
fn cut(
    objects: Vec<Arc<CachedObject>>,
    matcher: &Selection,
    limit: usize,
    revision: Revision,
) -> Page {
    if limit == 0 {
        let objects = objects.into_iter().filter(|o| matcher.matches(o)).collect();
        return Page {
            objects,
            revision,
            continuation: None,
            remaining: None,
        };
    }
    if matcher.is_everything() {
        let all = objects.len();
        return limited(objects, limit, revision, Some(all));
    }
    // One more than fits tells whether there is a next page.
    let objects = objects
        .into_iter()
        .filter(|o| matcher.matches(o))
        .take(limit + 1)
        .collect();
    limited(objects, limit, revision, None)
}

fn limited(
    mut objects: Vec<Arc<CachedObject>>,
    limit: usize,
    revision: Revision,
    all: Option<usize>,
) -> Page {
    if limit == 0 || objects.len() <= limit {
        return Page {
            objects,
            revision,
            continuation: None,
            remaining: None,
        };
    }
    objects.truncate(limit);
    let last = objects.last().map(|o| o.name.clone()).unwrap_or_default();
    Page {
        revision,
        continuation: Some((last, revision)),
        remaining: all.map(|all| (all - limit) as i64),
        objects,
    }
}

fn after(objects: Vec<Arc<CachedObject>>, prefix: &str, start: &str) -> Vec<Arc<CachedObject>> {
    objects
        .into_iter()
        .filter(|o| {
            o.name
                .strip_prefix(prefix)
                .is_some_and(|name| name >= start)
        })
        .collect()
}

/// A revision that this server has not reached.
fn too_large(error: &CacheError, wanted: Revision) -> ApiError {
    match error {
        CacheError::Behind { at, .. } => ApiError::too_large_version(wanted, *at),
        other => ApiError::unavailable(other.to_string()),
    }
}
