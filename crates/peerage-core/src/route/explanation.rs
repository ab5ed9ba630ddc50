//! A decision with everything that it was made from, for people and programs that ask why.
//!
//! The same form wherever it is asked: `GET /debug/peers?explain=` of a server, and `peerage explain`. Nothing here is on
//! a request's way.

use serde::{Deserialize, Serialize};

use super::{Route, Rules, route};
use crate::query::Query;
use crate::request_info::{RequestInfo, RequestInfoError};
use crate::view::PeerView;

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

impl Explanation {
    /// Answers `?explain=METHOD PATH`, or `?explain=PATH` for a GET; none if the query does not ask.
    ///
    /// # Errors
    /// [`RequestInfoError`] for a target that no server would understand.
    pub fn asked(query: &Query<'_>, view: &PeerView) -> Result<Option<Self>, RequestInfoError> {
        let Some(question) = query.first("explain") else {
            return Ok(None);
        };
        let (method, target) = question.split_once(' ').unwrap_or(("GET", question));
        Self::of(method, target, view).map(Some)
    }

    /// Decides who answers a client's request of this method and target, by this view.
    ///
    /// # Errors
    /// [`RequestInfoError`] for a target that no server would understand.
    pub fn of(method: &str, target: &str, view: &PeerView) -> Result<Self, RequestInfoError> {
        let info = RequestInfo::parse(method, target)?;
        let route = route(&info, view, &Rules::default());
        let candidates = match &route {
            Route::Forward { candidates, .. } => candidates.as_slice(),
            _ => &[],
        };
        let candidates = candidates.iter().map(|peer| Candidate {
            id: peer.id.to_string(),
            address: peer.address.to_string(),
        });
        Ok(Self {
            request: Asked::new(method, target, &info),
            answer: route.answer().to_owned(),
            reason: route.reason().to_owned(),
            explanation: route.explain(),
            candidates: candidates.collect(),
        })
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
