//! The one document of OpenAPI version 2, merged from this server's and the peers' that describe more.
//!
//! Made when it is first asked for and kept until a schema changes anywhere. What this server has wins, for a front what
//! the newest server has; a peer adds the paths and definitions that are missing. A peer whose document cannot be had is
//! left out, and is asked again now and then beside the requests.
//!
//! Invariants: all peers together are waited for no longer than one of them may take; a peer that failed once holds up no
//! further request; nothing is asked or made once per request.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::HeaderValue;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::note;
use crate::gzip;
use crate::peer::Peer;
use crate::poll::{Fetch, Fetched, fetch, what};
use crate::shared::Shared;

/// Path of the document.
pub(crate) const PATH: &str = "/openapi/v2";

/// The document of a server with thousands of custom resources is some tens of megabytes.
const SIZE_LIMIT: usize = 64 << 20;

/// Making the document takes a busy server several seconds: so many times what another document may take.
const PATIENCE: u32 = 4;

/// The same for how long after a failure a peer is asked again.
const AGAIN: u32 = 6;

/// Peers that are asked at one time.
const WIDTH: usize = 16;

/// The merged document and its tag.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    pub(crate) bytes: Bytes,
    pub(crate) etag: HeaderValue,
    /// The same bytes, compressed.
    pub(crate) packed: Option<Arc<[u8]>>,
}

/// This server's own document.
#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) bytes: Bytes,
    /// Its tag, where the server gives one.
    pub(crate) etag: Option<HeaderValue>,
}

impl Local {
    /// Changes with the document; without a tag that takes reading all of it.
    fn identify(&self, hasher: &mut impl Hasher) {
        match &self.etag {
            Some(etag) => etag.as_bytes().hash(hasher),
            None => self.bytes.hash(hasher),
        }
    }
}

/// The last merged document.
#[derive(Default)]
pub(crate) struct Cache(Mutex<State>);

#[derive(Default)]
struct State {
    key: u64,
    built: Arc<OnceCell<Built>>,
    /// Whether somebody tries to complete it.
    renewing: bool,
    /// Peers whose document could not be had, and when that was last tried.
    failed: HashMap<Arc<str>, Instant>,
}

/// What making the document came to.
#[derive(Clone, Default)]
struct Built {
    merged: Option<Merged>,
    /// When to try again what could not be had.
    again: Option<Instant>,
}

/// What the document is made of.
#[derive(Clone)]
struct Parts {
    local: Option<Local>,
    peers: Vec<Arc<Peer>>,
}

impl Cache {
    /// The merged document of the local server and these peers, or of these peers alone; `None` if the first cannot be
    /// read. Built once however many ask, and whether or not they stay to see it.
    pub(crate) async fn get(
        &self,
        shared: &Arc<Shared>,
        local: Option<Local>,
        mut peers: Vec<Arc<Peer>>,
    ) -> Option<Merged> {
        peers.retain(|peer| peer.link().is_some() && !peer.health.is_open());
        let cell = self.cell(key(local.as_ref(), &peers));
        let parts = Parts { local, peers };
        let built = match cell.get() {
            Some(built) => built.clone(),
            None => tokio::spawn(first(shared.clone(), cell.clone(), parts.clone()))
                .await
                .ok()?,
        };
        let due = built.again.is_some_and(|again| again <= Instant::now());
        if due && self.begin_renewal(&cell) {
            tokio::spawn(renew(shared.clone(), cell, built.clone(), parts));
        }
        built.merged
    }

    fn cell(&self, key: u64) -> Arc<OnceCell<Built>> {
        let Ok(mut state) = self.0.lock() else {
            return Arc::default();
        };
        if state.key != key {
            state.key = key;
            state.built = Arc::default();
            state.renewing = false;
        }
        state.built.clone()
    }

    /// Whether the caller is the one to complete this document.
    fn begin_renewal(&self, of: &Arc<OnceCell<Built>>) -> bool {
        self.0.lock().is_ok_and(|mut state| {
            Arc::ptr_eq(&state.built, of) && !std::mem::replace(&mut state.renewing, true)
        })
    }

    fn end_renewal(&self, of: &Arc<OnceCell<Built>>, built: Built) {
        if let Ok(mut state) = self.0.lock()
            && Arc::ptr_eq(&state.built, of)
        {
            state.built = Arc::new(OnceCell::new_with(Some(built)));
            state.renewing = false;
        }
    }

    fn has_failed(&self, peer: &Peer) -> bool {
        self.0
            .lock()
            .is_ok_and(|state| state.failed.contains_key(&peer.id))
    }

    /// Remembers whose document could not be had. Of peers that are no more nothing is kept.
    fn note(&self, shared: &Shared, peers: &[Arc<Peer>], documents: &[Option<Bytes>]) {
        let now = Instant::now();
        let snapshot = shared.snapshot.load();
        let Ok(mut state) = self.0.lock() else { return };
        for (peer, document) in peers.iter().zip(documents) {
            match document {
                Some(_) => drop(state.failed.remove(&peer.id)),
                None => drop(state.failed.insert(peer.id.clone(), now)),
            }
        }
        state.failed.retain(|id, _| snapshot.peers.contains_key(id));
    }

    /// When the first of these that failed is to be asked again.
    fn again(&self, shared: &Shared, peers: &[Arc<Peer>]) -> Option<Instant> {
        let state = self.0.lock().ok()?;
        let tried = peers.iter().filter_map(|peer| state.failed.get(&peer.id));
        Some(*tried.min()? + pause(shared))
    }
}

fn pause(shared: &Shared) -> Duration {
    shared.options.poll.deadline * AGAIN
}

/// Changes with any schema of the local server or of a peer: version 3's index has a hash of each. What a peer without
/// one serves is told by its discovery.
fn key(local: Option<&Local>, peers: &[Arc<Peer>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Some(local) = local {
        local.identify(&mut hasher);
    }
    for peer in peers {
        peer.id.hash(&mut hasher);
        let documents = peer.documents();
        let served = documents.map(|heard| heard.changed);
        let index = peer.openapi().filter(|it| !it.index.paths.is_empty());
        let without_index = served.filter(|_| index.is_none());
        without_index.hash(&mut hasher);
        for (path, entry) in index.iter().flat_map(|it| &it.index.paths) {
            (path, &entry.server_relative_url).hash(&mut hasher);
        }
    }
    hasher.finish()
}

async fn first(shared: Arc<Shared>, cell: Arc<OnceCell<Built>>, parts: Parts) -> Built {
    tokio::select! {
        built = cell.get_or_init(|| build(&shared, parts)) => built.clone(),
        () = shared.stop.cancelled() => Built::default(),
    }
}

/// Asks those that failed once more, and makes the document anew if one of them has it now.
async fn renew(shared: Arc<Shared>, cell: Arc<OnceCell<Built>>, old: Built, parts: Parts) {
    let cache = &shared.openapi_v2;
    let failed = parts.peers.iter().filter(|peer| cache.has_failed(peer));
    let failed: Vec<Arc<Peer>> = failed.cloned().collect();
    let renewed = async {
        let documents = read_all(&shared, &failed).await;
        if documents.iter().any(Option::is_some) || old.merged.is_none() {
            return build(&shared, parts).await;
        }
        Built {
            again: cache.again(&shared, &failed),
            ..old
        }
    };
    tokio::select! {
        renewed = renewed => cache.end_renewal(&cell, renewed),
        () = shared.stop.cancelled() => {}
    }
}

/// Makes the document of everybody who did not fail before.
async fn build(shared: &Shared, parts: Parts) -> Built {
    let cache = &shared.openapi_v2;
    let asked = parts.peers.iter().filter(|peer| !cache.has_failed(peer));
    let asked: Vec<Arc<Peer>> = asked.cloned().collect();
    let read = read_all(shared, &asked).await;
    let documents: Vec<Bytes> = parts
        .local
        .map(|local| local.bytes)
        .into_iter()
        .chain(read.into_iter().flatten())
        .collect();
    let merge = tokio::task::spawn_blocking(move || {
        let bytes = merge(&documents)?;
        let etag = HeaderValue::from_str(&peerage_core::etag::etag_of(&bytes)).ok()?;
        let packed = gzip::openapi(&bytes);
        Some(Merged {
            bytes,
            etag,
            packed,
        })
    });
    let merged = merge.await.ok().flatten();
    let missing = cache.again(shared, &parts.peers);
    let nothing = merged.is_none().then(|| Instant::now() + pause(shared));
    Built {
        merged,
        again: missing.or(nothing),
    }
}

/// The documents of these, in their order, as far as they can be had before one deadline.
async fn read_all(shared: &Shared, peers: &[Arc<Peer>]) -> Vec<Option<Bytes>> {
    let own_id = shared.snapshot.load().view.local_id().clone();
    let deadline = Instant::now() + shared.options.poll.deadline * PATIENCE;
    let ask = |peer: Arc<Peer>| {
        let own_id = own_id.clone();
        async move { read(shared, &own_id, &peer, deadline).await }
    };
    let asked = stream::iter(peers.iter().cloned().map(ask));
    let documents: Vec<Option<Bytes>> = asked.buffered(WIDTH).collect().await;
    shared.openapi_v2.note(shared, peers, &documents);
    documents
}

async fn read(shared: &Shared, own_id: &str, peer: &Peer, deadline: Instant) -> Option<Bytes> {
    let link = peer.link()?;
    let what = Fetch {
        accept: Some("application/json"),
        deadline,
        size_limit: SIZE_LIMIT,
        ..what(shared, own_id, PATH)
    };
    match fetch(&link.upstream, what).await {
        Ok(Fetched::Document { bytes, .. }) => Some(bytes),
        Ok(Fetched::Unchanged) => None,
        Err(error) => {
            note(peer, PATH, &error);
            None
        }
    }
}

/// The first document with what the others have beside it. One that is alone stays as it was written.
fn merge(documents: &[Bytes]) -> Option<Bytes> {
    let (first, others) = documents.split_first()?;
    let mut merged: Map<String, Value> = serde_json::from_slice(first).ok()?;
    if others.is_empty() {
        return Some(first.clone());
    }
    for other in others {
        let Ok(mut other) = serde_json::from_slice::<Map<String, Value>>(other) else {
            continue;
        };
        for part in ["paths", "definitions"] {
            let Some(Value::Object(theirs)) = other.remove(part) else {
                continue;
            };
            let ours = merged
                .entry(part)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(ours) = ours {
                for (name, value) in theirs {
                    ours.entry(name).or_insert(value);
                }
            }
        }
    }
    serde_json::to_vec(&merged).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn peers_add_what_is_missing_and_change_nothing() {
        let first = br#"{"swagger":"2.0","paths":{"/a":1},"definitions":{"A":"ours"}}"#;
        let documents = [
            Bytes::from_static(first),
            Bytes::from_static(
                br#"{"swagger":"x","paths":{"/a":2,"/b":2},"definitions":{"A":"theirs","B":1}}"#,
            ),
            Bytes::from_static(b"no json"),
            Bytes::from_static(br#"{"paths":7,"definitions":{"C":1}}"#),
        ];
        let merged: Value = serde_json::from_slice(&merge(&documents).unwrap()).unwrap();
        let expected = serde_json::json!({"swagger":"2.0","paths":{"/a":1,"/b":2},"definitions":{"A":"ours","B":1,"C":1}});
        assert_eq!(merged, expected);
        assert_eq!(merge(&documents[2..]), None, "the first is what counts");
        assert_eq!(merge(&documents[..1]).unwrap(), &first[..]);
        assert_eq!(merge(&[]), None);
    }
}
