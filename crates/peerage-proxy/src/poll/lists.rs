//! The legacy lists of one server, one for each group and version that it has.
//!
//! They tell what aggregated documents do not: the storage version hashes, and what a server that answers merged
//! documents serves itself. And they are all that servers from before 1.26 have: from such a server's `/api` and `/apis`
//! and these lists the aggregated document is made that it would answer. Nothing about them is conditional, so each is
//! read when it is new and then rarely.
//!
//! Differs: an APIService that another server made shows in a server's legacy `/apis` although its list is 404 there;
//! what has no list is not listed.
//!
//! Invariants: a walk is bounded in number, width and time; a list that cannot be had leaves the one that was there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::StatusCode;
use peerage_core::discovery::{
    ApiGroup, ApiGroupDiscoveryList, ApiResourceList, DocumentError, StorageVersionHashes,
    from_legacy, read_api_resources, read_api_versions, read_legacy_groups,
};
use serde::Deserialize;
use tokio::time::Instant;

use super::fetch::{Fetch, FetchError, Fetched, fetch};
use super::{GROUPS, RoundError, what};
use crate::peer::{Link, Part};
use crate::shared::Shared;

/// Lists of one server; a cluster with a thousand operators has as many.
const MAX_LISTS: usize = 2000;

/// Lists that are asked for at once.
const WIDTH: usize = 8;

/// After so long a list of a server that has no other documents is read again: resources come and go within it.
const AGAIN: Duration = Duration::from_secs(30);

/// A walk through all lists may take so many times what one document may.
const WALK: u32 = 6;

/// What is known of one server's lists, by group and version (`apps/v1`).
#[derive(Default)]
pub(super) struct Lists {
    known: HashMap<String, Known>,
    /// The legacy documents of `/api` and `/apis` that the last lists were read for.
    walked: HashMap<&'static str, Bytes>,
}

struct Known {
    /// None for a version that the server says not to have.
    list: Option<Arc<ApiResourceList>>,
    read: Instant,
}

/// What asking for one list came to.
enum Told {
    List(ApiResourceList),
    Absent,
    Failed(FetchError),
    Unusable(DocumentError),
}

/// Who asks, and where.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) shared: &'a Shared,
    pub(super) link: &'a Link,
    pub(super) own_id: &'a str,
}

/// Whether this is a document that has to be walked from.
pub(super) fn is_legacy(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, default)]
        kind: std::borrow::Cow<'a, str>,
    }
    let kind = serde_json::from_slice::<Typed<'_>>(bytes).map(|typed| typed.kind);
    kind.is_ok_and(|kind| matches!(&*kind, "APIVersions" | "APIGroupList"))
}

impl Lists {
    /// The list of this group and version, if the last walk found one.
    pub(super) fn get(&self, group_version: &str) -> Option<&ApiResourceList> {
        self.known.get(group_version)?.list.as_deref()
    }

    /// Whether the server said not to have this group and version.
    pub(super) fn is_absent(&self, group_version: &str) -> bool {
        let known = self.known.get(group_version);
        known.is_some_and(|known| known.list.is_none())
    }

    /// Whether the server has said anything of this group and version.
    pub(super) fn has_heard(&self, group_version: &str) -> bool {
        self.known.contains_key(group_version)
    }

    /// The hashes in all of them.
    pub(super) fn hashes(&self) -> StorageVersionHashes {
        let mut hashes = StorageVersionHashes::default();
        for list in self.known.values().filter_map(|it| it.list.as_ref()) {
            hashes.insert_all(list);
        }
        hashes
    }

    /// Forgets the lists of whatever is not listed any more.
    pub(super) fn retain(&mut self, is_listed: impl Fn(&str) -> bool) {
        self.known
            .retain(|group_version, _| is_listed(group_version));
    }

    /// The aggregated document of a server that answered `path` with a legacy one.
    pub(super) async fn walk(
        &mut self,
        asker: Asker<'_>,
        path: &'static str,
        bytes: &Bytes,
        old: Option<&Part>,
    ) -> Result<ApiGroupDiscoveryList, RoundError> {
        let document = |source| RoundError::Document { path, source };
        let mut groups = read_groups(path, bytes).map_err(document)?;
        let now = Instant::now();
        let listed = groups.iter().flat_map(|group| &group.versions);
        let mut wanted: Vec<String> = listed.map(|it| it.group_version.clone()).collect();
        if wanted.len() > MAX_LISTS {
            let (what, limit) = ("versions", MAX_LISTS);
            return Err(document(DocumentError::TooMany { what, limit }));
        }
        if path == GROUPS.path {
            let listed: HashSet<&str> = wanted.iter().map(|it| &**it).collect();
            self.retain(|it| !it.contains('/') || listed.contains(it));
        }
        wanted.retain(|it| self.known.get(it).is_none_or(|it| now - it.read >= AGAIN));
        if let Some(old) = old
            && wanted.is_empty()
            && self.walked.get(path) == Some(bytes)
        {
            return Ok((*old.list).clone());
        }
        let deadline = now + asker.shared.options.poll.deadline * WALK;
        let failed = self.read(asker, wanted, deadline).await;
        if let Some(source) = failed.filter(FetchError::is_transport) {
            return Err(RoundError::Fetch { path, source });
        }
        self.walked.insert(path, bytes.clone());
        groups.retain_mut(|group| {
            group
                .versions
                .retain(|it| !self.is_absent(&it.group_version));
            !group.versions.is_empty()
        });
        let listed = groups.iter().flat_map(|group| &group.versions);
        let lists = listed.filter_map(|it| self.get(&it.group_version).cloned());
        Ok(from_legacy(&groups, &lists.collect::<Vec<_>>()))
    }

    /// Reads the lists of these. Returns the last failure, if there was any.
    pub(super) async fn read(
        &mut self,
        asker: Asker<'_>,
        wanted: Vec<String>,
        deadline: Instant,
    ) -> Option<FetchError> {
        let ask = |group_version: String| async move {
            let told = ask(asker, &group_version, deadline).await;
            (group_version, told)
        };
        let mut answers = stream::iter(wanted).map(ask).buffer_unordered(WIDTH);
        let mut failure = None;
        while let Some((group_version, told)) = answers.next().await {
            let list = match told {
                Told::List(list) => Some(Arc::new(list)),
                Told::Absent => None,
                Told::Failed(error) => {
                    failure = Some(error);
                    continue;
                }
                Told::Unusable(error) => {
                    tracing::debug!(group_version, "cannot use a legacy list: {error}");
                    continue;
                }
            };
            let read = Instant::now();
            self.known.insert(group_version, Known { list, read });
        }
        failure
    }
}

fn read_groups(path: &str, bytes: &[u8]) -> Result<Vec<ApiGroup>, DocumentError> {
    match path {
        "/api" => Ok(vec![read_api_versions(bytes)?.to_group()]),
        _ => Ok(read_legacy_groups(bytes)?.groups),
    }
}

async fn ask(asker: Asker<'_>, group_version: &str, deadline: Instant) -> Told {
    let path = match group_version.contains('/') {
        true => format!("/apis/{group_version}"),
        false => format!("/api/{group_version}"),
    };
    let usual = what(asker.shared, asker.own_id, &path);
    let what = Fetch {
        accept: Some("application/json"),
        deadline: usual.deadline.min(deadline),
        ..usual
    };
    match fetch(&asker.link.probes, what).await {
        Ok(Fetched::Document { bytes, .. }) => match read_api_resources(&bytes) {
            Ok(list) if list.group_version == group_version => Told::List(list),
            Ok(_) => Told::Unusable(DocumentError::Empty("resources of this version")),
            Err(error) => Told::Unusable(error),
        },
        Ok(Fetched::Unchanged) => Told::Failed(FetchError::UnaskedNotModified),
        Err(FetchError::Status(StatusCode::NOT_FOUND)) => Told::Absent,
        Err(error) => Told::Failed(error),
    }
}
