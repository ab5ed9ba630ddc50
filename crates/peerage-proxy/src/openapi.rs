//! OpenAPI documents of the whole control plane.
//!
//! Version 3 is an index and one document per group-version. The index that clients get is the local one with what
//! peers have beside it; a document that another server has is fetched from there, with the client's identity.
//! Where several servers have the same group-version, the one that serves most of it describes it, of those the newest.
//! A front has no documents of its own: its index is made of those of the servers behind it, is the same whichever of
//! them a request goes to, and is answered from memory. Version 2 is one document for everything ([`v2`]).
//!
//! Differs: kube-apiserver knows its own documents only, so `kubectl explain` fails for what only a peer has.
//!
//! Invariants: what a peer answers is bounded and never trusted to be well-formed; a verified peer gets local documents.

pub(crate) mod answer;
pub(crate) mod v2;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use peerage_core::Exclusions;
use peerage_core::discovery::ApiGroupDiscoveryList;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::peer::{Heard, Link, Peer};
use crate::poll::{Fetch, FetchError, Fetched, fetch, what};
use crate::shared::{Shared, Snapshot};

/// Path of the index.
pub(crate) const INDEX: &str = "/openapi/v3";

/// An index is asked for again after this long although the peer's discovery has not changed: schemas change with
/// custom resources.
const REFRESH: Duration = Duration::from_secs(30);

/// The most entries of an index: one per group and version of the largest clusters, many times over.
const MAX_ENTRIES: usize = 20_000;

/// `GET /openapi/v3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    #[serde(default)]
    pub(crate) paths: BTreeMap<String, Entry>,
}

/// Where one document is, with its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(rename = "serverRelativeURL")]
    pub(crate) server_relative_url: String,
}

/// After a failed reading it is asked for again after this long, and each time in vain after twice as long, so that one
/// that hangs does not hold up every round.
const RETRY: Duration = Duration::from_secs(1);

/// A peer's index.
#[derive(Clone, Default)]
pub(crate) struct PeerIndex {
    index: Index,
    /// When it was last asked for, and what the peer's discovery was then.
    asked: Option<(Instant, Instant)>,
    /// How often in a row it could not be read.
    failures: u32,
}

impl PeerIndex {
    fn is_due(&self, now: Instant, documents: Instant) -> bool {
        self.asked
            .is_none_or(|(asked, of)| of != documents || now - asked >= self.pause())
    }

    fn pause(&self) -> Duration {
        match self.failures {
            0 => REFRESH,
            failures => (RETRY * 2_u32.saturating_pow(failures - 1)).min(REFRESH),
        }
    }
}

/// Asks for the peer's index when it may have changed, and soon again when it could not be read. Until then it is what it was.
pub(crate) async fn refresh(shared: &Shared, peer: &Peer, link: &Link, own_id: &str) {
    let Some(documents) = peer.documents() else {
        return;
    };
    let now = Instant::now();
    let old = peer.openapi();
    if let Some(old) = &old
        && !old.is_due(now, documents.changed)
    {
        return;
    }
    let mut next = old.as_deref().cloned().unwrap_or_default();
    next.asked = Some((now, documents.changed));
    match read_index(shared, link, own_id).await {
        Ok(index) => (next.index, next.failures) = (index, 0),
        Err(error) => {
            note(peer, INDEX, &error);
            next.failures = next.failures.saturating_add(1);
        }
    }
    let same = old.is_some_and(|old| old.index == next.index);
    peer.set_openapi(next);
    if !same {
        shared.changed.notify_one();
    }
}

/// Counts and tells that a peer's description could not be read.
fn note(peer: &Peer, path: &str, error: &dyn Error) {
    peer.counts.error("openapi");
    if let Some(held_back) = peer.log_gate.pass(Instant::now()) {
        tracing::warn!(
            peer = &*peer.id,
            held_back,
            "cannot read {path} of a peer, so the merged one may lack what only this peer describes: {error}"
        );
    }
}

/// Why an index could not be had.
#[derive(Debug, thiserror::Error)]
enum IndexError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("it is no index: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has {0} entries, more than {MAX_ENTRIES}")]
    Large(usize),
}

async fn read_index(shared: &Shared, link: &Link, own_id: &str) -> Result<Index, IndexError> {
    let what = Fetch {
        accept: Some("application/json"),
        ..what(shared, own_id, INDEX)
    };
    let bytes = match fetch(&link.probes, what).await {
        Ok(Fetched::Document { bytes, .. }) => bytes,
        Ok(Fetched::Unchanged) => return Err(FetchError::UnaskedNotModified.into()),
        // Servers before 1.24 have none.
        Err(FetchError::Status(StatusCode::NOT_FOUND)) => return Ok(Index::default()),
        Err(error) => return Err(error.into()),
    };
    let mut index: Index = serde_json::from_slice(&bytes)?;
    if index.paths.len() > MAX_ENTRIES {
        return Err(IndexError::Large(index.paths.len()));
    }
    // What a peer hands to clients through us stays a path of this server.
    index.paths.retain(|path, entry| {
        let own = format!("{INDEX}/{path}");
        entry
            .server_relative_url
            .strip_prefix(&own)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
    });
    Ok(index)
}

/// The documents that peers describe and not this server: where each is, and who has it.
#[derive(Default)]
pub(crate) struct Elsewhere {
    entries: BTreeMap<String, Held>,
}

/// A document that peers have.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    pub(crate) peers: Vec<Arc<Peer>>,
}

impl Elsewhere {
    /// Finds out who describes what.
    pub(crate) fn of(snapshot: &Snapshot) -> Elsewhere {
        let exclusions = snapshot.view.exclusions();
        let is_front = snapshot.view.is_front();
        let ours = Sizes::of_local(snapshot);
        let mut peers: Vec<_> = snapshot.peers.values().collect();
        // Who is away stands in only for what nobody else has.
        peers.sort_by_key(|known| {
            let peer = &known.peer;
            (known.is_away(), Reverse(peer.version()), peer.id.clone())
        });
        let mut best: BTreeMap<String, (usize, Held)> = BTreeMap::new();
        for known in peers {
            let (Some(index), Some(documents)) = (known.peer.openapi(), known.peer.documents())
            else {
                continue;
            };
            let theirs = Sizes::of_peer(&documents, exclusions);
            for (path, entry) in &index.index.paths {
                // A server's own proxy leaves what is no API to that server.
                let bare = is_front && !path.starts_with("api/") && !path.starts_with("apis/");
                let Some(size) = theirs.of(path).or(bare.then_some(1)) else {
                    continue;
                };
                let own = ours.of(path);
                let in_vain = known.is_away() && (own.is_some() || best.contains_key(path));
                if in_vain || own.is_some_and(|own| own >= size) {
                    continue;
                }
                offer(&mut best, path, size, entry, &known.peer);
            }
        }
        Elsewhere {
            entries: best
                .into_iter()
                .map(|(path, (_, held))| (path, held))
                .collect(),
        }
    }

    /// Who has the document at this path below [`INDEX`].
    pub(crate) fn get(&self, path: &str) -> Option<&Held> {
        self.entries.get(path)
    }

    /// Whether peers describe nothing that this server does not.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Somebody for everything that this server does not describe; each once. A front's `first` is that server to it.
    pub(crate) fn peers(&self, first: Option<&Peer>) -> Vec<Arc<Peer>> {
        let has_it = |held: &&Held| {
            held.peers
                .iter()
                .any(|it| Some(&*it.id) == first.map(|it| &*it.id))
        };
        let missing = self.entries.values().filter(|held| !has_it(held));
        let mut peers: Vec<Arc<Peer>> = missing
            .flat_map(|held| held.peers.first().cloned())
            .collect();
        peers.sort_by(|a, b| a.id.cmp(&b.id));
        peers.dedup_by(|a, b| a.id == b.id);
        peers
    }

    /// The index of a front.
    pub(crate) fn index(&self) -> Option<Vec<u8>> {
        let paths = self.entries.iter();
        let paths = paths.map(|(path, held)| (path.clone(), held.entry.clone()));
        serde_json::to_vec(&Index {
            paths: paths.collect(),
        })
        .ok()
    }

    /// The local index with what peers have beside it; the local bytes if they are no index.
    pub(crate) fn merge_into(&self, local: &[u8]) -> Option<Vec<u8>> {
        let mut index: Index = serde_json::from_slice(local).ok()?;
        for (path, held) in &self.entries {
            index.paths.insert(path.clone(), held.entry.clone());
        }
        serde_json::to_vec(&index).ok()
    }
}

fn offer(
    best: &mut BTreeMap<String, (usize, Held)>,
    path: &str,
    size: usize,
    entry: &Entry,
    peer: &Arc<Peer>,
) {
    let held = || Held {
        entry: entry.clone(),
        peers: vec![peer.clone()],
    };
    match best.get_mut(path) {
        None => {
            best.insert(path.to_owned(), (size, held()));
        }
        Some((largest, old)) if size > *largest => (*largest, *old) = (size, held()),
        // Another server with the very same document can stand in.
        Some((largest, old)) if size == *largest && old.entry == *entry => {
            old.peers.push(peer.clone());
        }
        Some(_) => {}
    }
}

/// How much of each group-version a server serves.
struct Sizes(BTreeMap<String, usize>);

impl Sizes {
    fn of_peer(documents: &Heard, exclusions: &Exclusions) -> Sizes {
        let counts = |resource: &str, group: &str, version: &str| {
            !exclusions.covers(group, version, resource)
        };
        let mut sizes = BTreeMap::new();
        for list in [&documents.served.core(), &documents.served.apis()] {
            count(&mut sizes, list, counts);
        }
        Sizes(sizes)
    }

    fn of(&self, path: &str) -> Option<usize> {
        self.0.get(path).copied().filter(|size| *size > 0)
    }

    fn of_local(snapshot: &Snapshot) -> Sizes {
        let mut sizes = BTreeMap::new();
        if snapshot.view.is_front() {
            return Sizes(sizes);
        }
        if let Some(documents) = snapshot.view.local_documents() {
            for list in [&documents.core(), &documents.apis()] {
                count(&mut sizes, list, |_, _, _| true);
            }
        }
        Sizes(sizes)
    }
}

/// Counts resources and subresources under the path that OpenAPI has them at.
fn count(
    sizes: &mut BTreeMap<String, usize>,
    list: &ApiGroupDiscoveryList,
    counts: impl Fn(&str, &str, &str) -> bool,
) {
    for group in &list.items {
        let name = group.name();
        for version in &group.versions {
            let size: usize = version
                .resources
                .iter()
                .filter(|r| counts(&r.resource, name, &version.version))
                .map(|r| 1 + r.subresources.len())
                .sum();
            let path = match name {
                "" => format!("api/{}", version.version),
                _ => format!("apis/{name}/{}", version.version),
            };
            *sizes.entry(path).or_default() += size;
            if !name.is_empty() && size > 0 {
                // The document of the group itself describes nothing but its discovery.
                sizes.entry(format!("apis/{name}")).or_insert(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_cannot_be_read_is_asked_for_less_and_less_often_but_not_forgotten() {
        let pause = |failures| {
            let index = PeerIndex {
                failures,
                ..PeerIndex::default()
            };
            index.pause().as_secs()
        };
        let pauses: Vec<u64> = (0..8).chain([u32::MAX]).map(pause).collect();
        assert_eq!(pauses, [30, 1, 2, 4, 8, 16, 30, 30, 30]);
    }
}
