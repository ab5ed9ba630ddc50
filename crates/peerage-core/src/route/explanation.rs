//! A decision with everything that it was made from, for people and programs that ask why.
//!
//! The same form wherever it is asked: `GET /debug/peers?explain=` of a server, and `peerage explain`. Nothing here is on
//! a request's way.

use serde::{Deserialize, Serialize};

use super::{Route, Rules, UnsureReason, route};
use crate::index::{Depth, Target};
use crate::query::Query;
use crate::request_info::{RequestInfo, RequestInfoError};
use crate::view::{Peer, PeerEntry, PeerView, Standing};

/// Who answers a request, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What is asked for.
    pub request: Asked,
    /// `local`, `peer`, `unknown` or `unsure`.
    pub answer: String,
    /// The reason's word, as in metrics.
    pub reason: String,
    /// Both in a sentence.
    pub explanation: String,
    /// Peers to try, the best first.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// Where nobody can answer now: the peers on which that depends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<Candidate>,
}

/// A request as Kubernetes sees it; empty texts where it names nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path, with the query.
    pub target: String,
    /// The verb.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// A peer to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its server ID.
    pub id: String,
    /// Host and port; empty when not known.
    pub address: String,
}

/// The methods that Kubernetes knows.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Why a question is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// It is about no method of HTTP.
    #[error(
        "{method:?} is no method; write one of {}, where a list is a GET of the collection and a watch one with ?watch=true",
        METHODS.join(", ")
    )]
    Method {
        /// What was written.
        method: String,
    },
    /// It is about no path.
    #[error(
        "{target:?} is not a path; write a path, such as /apis/apps/v1/deployments, or a method before it"
    )]
    Path {
        /// What was written.
        target: String,
    },
    /// No server would understand the target.
    #[error(transparent)]
    Target(#[from] RequestInfoError),
}

/// Whether this is a method and a target that can be asked about.
///
/// # Errors
/// [`QuestionError`] with what to write instead.
pub fn check_question(method: &str, target: &str) -> Result<(), QuestionError> {
    if !target.starts_with('/') {
        let target = target.to_owned();
        return Err(QuestionError::Path { target });
    }
    if !METHODS.contains(&method) {
        let method = method.to_owned();
        return Err(QuestionError::Method { method });
    }
    Ok(())
}

/// What `?explain=METHOD PATH` asks about, or `?explain=PATH` for a GET; none if the query does not ask.
///
/// # Errors
/// [`QuestionError`] for what is neither.
pub fn question<'q>(query: &'q Query<'_>) -> Result<Option<(&'q str, &'q str)>, QuestionError> {
    let Some(question) = query.first("explain") else {
        return Ok(None);
    };
    let (method, target) = question.split_once(' ').unwrap_or(("GET", question));
    check_question(method, target)?;
    Ok(Some((method, target)))
}

impl Explanation {
    /// Decides who answers a client's request of this method and target, by this view.
    ///
    /// # Errors
    /// [`RequestInfoError`] for a target that no server would understand.
    pub fn of(method: &str, target: &str, view: &PeerView) -> Result<Self, RequestInfoError> {
        let info = RequestInfo::parse(method, target)?;
        let route = route(&info, view, &Rules::default());
        Ok(Self::of_route(method, target, &info, &route, view))
    }

    /// The same, decided already by this view.
    #[must_use]
    pub fn of_route(
        method: &str,
        target: &str,
        info: &RequestInfo<'_>,
        route: &Route<'_>,
        view: &PeerView,
    ) -> Self {
        let candidates = match route {
            Route::Forward { candidates, .. } => candidates.as_slice(),
            _ => &[],
        };
        let candidates = candidates.iter().map(|peer| Candidate::of(peer));
        let awaited = match route {
            Route::Unsure { reason, .. } => awaited(*reason, &Target::of(info), view),
            _ => Vec::new(),
        };
        let names: Vec<String> = awaited.iter().map(Candidate::in_words).collect();
        let explanation = match names.is_empty() {
            true => route.explain(),
            false => format!("{}; it is about {}", route.explain(), names.join(", ")),
        };
        Self {
            request: Asked::new(method, target, info),
            answer: route.answer().to_owned(),
            reason: route.reason().to_owned(),
            explanation,
            candidates: candidates.collect(),
            awaited,
        }
    }
}

/// The peers because of which the answer is not known.
fn awaited(reason: UnsureReason, target: &Target<'_>, view: &PeerView) -> Vec<Candidate> {
    let lists = |entry: &PeerEntry| {
        let documents = entry.peer.documents.as_ref();
        documents.map(|it| it.find(target)).unwrap_or_default()
    };
    let is_awaited = |entry: &&PeerEntry| match reason {
        UnsureReason::PeerGone => {
            entry.standing == Standing::Held && lists(entry).depth >= Depth::Resource
        }
        UnsureReason::NotSynced | UnsureReason::PeerNotHeard => entry.standing == Standing::Unheard,
        UnsureReason::StaleElsewhere => entry.standing == Standing::Candidate && lists(entry).stale,
        UnsureReason::AlreadySent => false,
    };
    let entries = view.entries.iter().filter(is_awaited);
    entries.map(|it| Candidate::of(&it.peer)).collect()
}

impl Candidate {
    fn of(peer: &Peer) -> Self {
        Self {
            id: peer.id.to_string(),
            address: peer.address.to_string(),
        }
    }

    fn in_words(&self) -> String {
        let Self { id, address } = self;
        match address.is_empty() || address == id {
            true => id.clone(),
            false => format!("{id} at {address}"),
        }
    }
}

impl Asked {
    fn new(method: &str, target: &str, info: &RequestInfo<'_>) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            verb: info.verb().to_owned(),
            group: info.api_group().to_owned(),
            version: info.api_version().to_owned(),
            resource: info.resource().to_owned(),
            subresource: info.subresource().to_owned(),
            namespace: info.namespace().to_owned(),
            name: info.name().to_owned(),
        }
    }
}
