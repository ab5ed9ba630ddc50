//! The legacy lists of one server, one for each group and version that it has.
//!
//! They tell what aggregated documents do not: the storage version hashes, and what a server that answers merged
//! documents serves itself. And they are all that servers from before 1.26 have: from such a server's `/api` and `/apis`
//! and these lists the aggregated document is made that it would answer. Nothing about them is conditional, so each is
//! read when it is new and then rarely; those that lacked something, and no others, are read again while they do.
//!
//! Differs: an APIService that another server made shows in a server's legacy `/apis` although its list is 404 there;
//! what has no list is not listed.
//!
//! Invariants: a walk is bounded in number, width and time; a list that cannot be had leaves the one that was there; a
//! server that fails to answer for one is not asked for more of those that lacked something until later.

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
use crate::peer::Link;
use crate::shared::Shared;

/// Lists of one server; a cluster with a thousand operators has as many.
const MAX_LISTS: usize = 2000;

/// Lists that are asked for at once.
const WIDTH: usize = 8;

/// Lists that lacked something and are read again in one round: few, since a server that answers what others serve lacks
/// as many for ever.
const MAX_AGAIN: usize = 32;

/// A walk through all lists may take so many times what one document may.
const WALK: u32 = 6;

/// What is known of one server's lists, by group and version (`apps/v1`).
#[derive(Default)]
pub(super) struct Lists {
    known: HashMap<String, Known>,
    /// Those that were absent, not to be had or without something that is listed when all were last looked at.
    doubtful: Vec<String>,
    /// Before then none of these is read again.
    rest_until: Option<Instant>,
    /// The legacy documents of `/api` and `/apis` that the last lists were read for, and what came of each.
    walked: HashMap<&'static str, (Bytes, ApiGroupDiscoveryList)>,
}

struct Known {
    /// None while nothing has been heard.
    said: Option<Said>,
    /// When it was last asked for.
    asked: Instant,
}

#[derive(PartialEq)]
enum Said {
    List(Arc<ApiResourceList>),
    /// The server says not to have this version.
    Absent,
}

/// What came of reading several lists.
#[derive(Default)]
pub(super) struct Read {
    /// The last failure, if there was any.
    pub(super) failure: Option<FetchError>,
    /// Whether any says something else than before.
    pub(super) is_news: bool,
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
        match self.said(group_version)? {
            Said::List(list) => Some(list),
            Said::Absent => None,
        }
    }

    /// Whether the server said not to have this group and version.
    pub(super) fn is_absent(&self, group_version: &str) -> bool {
        self.said(group_version) == Some(&Said::Absent)
    }

    /// Whether the server has said anything of this group and version.
    pub(super) fn has_heard(&self, group_version: &str) -> bool {
        self.said(group_version).is_some()
    }

    /// Whether the server was asked for it, to whatever end.
    pub(super) fn was_asked(&self, group_version: &str) -> bool {
        self.known.contains_key(group_version)
    }

    fn said(&self, group_version: &str) -> Option<&Said> {
        self.known.get(group_version)?.said.as_ref()
    }

    /// Has these read again from time to time.
    pub(super) fn doubt(&mut self, doubtful: Vec<String>) {
        self.doubtful = doubtful;
    }

    /// Reads again what was doubtful when it was read, the longest ago first. Returns whether that told anything new.
    pub(super) async fn read_again(&mut self, asker: Asker<'_>) -> bool {
        let now = Instant::now();
        let options = &asker.shared.options.poll;
        let due = self.due(now, options.lists_again);
        let mut is_news = false;
        for few in due.chunks(WIDTH) {
            let read = self
                .read(asker, few.to_vec(), now + options.probe_deadline)
                .await;
            is_news |= read.is_news;
            if read.failure.is_some() {
                self.rest_until = Some(Instant::now() + options.lists_again);
                break;
            }
        }
        is_news
    }

    fn due(&self, now: Instant, after: Duration) -> Vec<String> {
        if self.rest_until.is_some_and(|until| now < until) {
            return Vec::new();
        }
        let asked = |it: &String| Some((self.known.get(it)?.asked, it.clone()));
        let mut due: Vec<_> = self.doubtful.iter().filter_map(asked).collect();
        due.retain(|(asked, _)| now - *asked >= after);
        due.sort();
        due.truncate(MAX_AGAIN);
        due.into_iter().map(|(_, it)| it).collect()
    }

    /// The hashes in all of them.
    pub(super) fn hashes(&self) -> StorageVersionHashes {
        let mut hashes = StorageVersionHashes::default();
        for known in self.known.values() {
            if let Some(Said::List(list)) = &known.said {
                hashes.insert_all(list);
            }
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
        let again = asker.shared.options.poll.lists_again;
        let is_fresh = |known: &Known| known.said.is_some() && now - known.asked < again;
        wanted.retain(|it| !self.known.get(it).is_some_and(is_fresh));
        if let Some((walked, list)) = self.walked.get(path)
            && wanted.is_empty()
            && walked == bytes
        {
            return Ok(list.clone());
        }
        let deadline = now + asker.shared.options.poll.deadline * WALK;
        let failed = self.read(asker, wanted, deadline).await.failure;
        if let Some(source) = failed.filter(FetchError::is_transport) {
            return Err(RoundError::Fetch { path, source });
        }
        groups.retain_mut(|group| {
            group
                .versions
                .retain(|it| !self.is_absent(&it.group_version));
            !group.versions.is_empty()
        });
        let listed = groups.iter().flat_map(|group| &group.versions);
        let lists = listed.filter_map(|it| self.get(&it.group_version).cloned());
        let list = from_legacy(&groups, &lists.collect::<Vec<_>>());
        self.walked.insert(path, (bytes.clone(), list.clone()));
        Ok(list)
    }

    /// Reads the lists of these.
    pub(super) async fn read(
        &mut self,
        asker: Asker<'_>,
        wanted: Vec<String>,
        deadline: Instant,
    ) -> Read {
        let ask = |group_version: String| async move {
            let told = ask(asker, &group_version, deadline).await;
            (group_version, told)
        };
        let mut answers = stream::iter(wanted).map(ask).buffer_unordered(WIDTH);
        let mut read = Read::default();
        while let Some((group_version, told)) = answers.next().await {
            let said = match told {
                Told::List(list) => Some(Said::List(Arc::new(list))),
                Told::Absent => Some(Said::Absent),
                Told::Failed(error) => {
                    read.failure = Some(error);
                    None
                }
                Told::Unusable(error) => {
                    tracing::debug!(group_version, "cannot use a legacy list: {error}");
                    None
                }
            };
            read.is_news |= self.take(group_version, said);
        }
        read
    }

    /// Notes what was said of one. Returns whether that is something else than before.
    fn take(&mut self, group_version: String, said: Option<Said>) -> bool {
        let asked = Instant::now();
        let nothing = Known { said: None, asked };
        let known = self.known.entry(group_version).or_insert(nothing);
        known.asked = asked;
        let is_news = said.is_some() && known.said != said;
        if is_news {
            known.said = said;
        }
        is_news
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
