//! `metav1.ListOptions` as the query of a list, watch or deletecollection gives them.

use std::time::Duration;

use peerage_core::Query;
use peerage_objects::field::FieldError;
use peerage_objects::selector::{FieldSelector, LabelSelector};
use peerage_store::Revision;

use crate::error::ApiError;

/// How a `resourceVersion` is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// Exactly that revision.
    Exact,
    /// That revision or any later one.
    NotOlderThan,
}

/// What a list or watch asks for.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// Most objects wanted; 0 for all.
    pub(crate) limit: usize,
    pub(crate) continuation: Option<String>,
    /// As sent; empty when absent.
    pub(crate) resource_version: String,
    pub(crate) version_match: Option<Match>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads and checks the query of a list (`watch` false) or a watch.
    pub(crate) fn parse(query: &Query<'_>, watch: bool) -> Result<Self, ApiError> {
        let text = |key| query.first(key).unwrap_or_default().to_owned();
        let flag = |key: &str| {
            query
                .first(key)
                .map(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
        };
        let version_match = text("resourceVersionMatch");
        let options = Self {
            labels: LabelSelector::parse(&text("labelSelector")).map_err(ApiError::bad_request)?,
            fields: FieldSelector::parse(&text("fieldSelector")).map_err(ApiError::bad_request)?,
            limit: usize::try_from(integer(query, "limit")?.unwrap_or(0)).unwrap_or(0),
            continuation: Some(text("continue")).filter(|t| !t.is_empty()),
            resource_version: text("resourceVersion"),
            version_match: match version_match.as_str() {
                "Exact" => Some(Match::Exact),
                "NotOlderThan" => Some(Match::NotOlderThan),
                _ => None,
            },
            timeout: integer(query, "timeoutSeconds")?
                .and_then(|s| u64::try_from(s).ok())
                .map(Duration::from_secs),
            bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: flag("sendInitialEvents"),
        };
        let errors = if watch {
            options.watch_errors(&version_match)
        } else {
            options.list_errors(&version_match)
        };
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid_options("ListOptions", errors))
        }
    }

    fn list_errors(&self, version_match: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let forbidden = |detail: &str| FieldError::forbidden("resourceVersionMatch", detail);
        if !version_match.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if self.continuation.is_some() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if self.version_match.is_none() {
                errors.push(FieldError::not_supported(
                    "resourceVersionMatch",
                    version_match,
                    ["Exact", "NotOlderThan", ""],
                ));
            }
            if self.version_match == Some(Match::Exact) && self.resource_version == "0" {
                errors.push(forbidden(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }

    fn watch_errors(&self, version_match: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let forbidden = |detail: &str| FieldError::forbidden("resourceVersionMatch", detail);
        if self.send_initial_events.is_some() {
            if self.version_match != Some(Match::NotOlderThan) {
                errors.push(forbidden(
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            if !version_match.is_empty() && self.version_match != Some(Match::NotOlderThan) {
                errors.push(FieldError::not_supported(
                    "resourceVersionMatch",
                    version_match,
                    ["NotOlderThan"],
                ));
            }
        } else if !version_match.is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if self.continuation.is_some() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }

    /// The `resourceVersion` as a number; `None` when absent.
    pub(crate) fn revision(&self) -> Result<Option<Revision>, BadVersion> {
        if self.resource_version.is_empty() {
            return Ok(None);
        }
        parse_version(&self.resource_version).map(Some)
    }
}

/// A `resourceVersion` that is no number.
#[derive(Debug, thiserror::Error)]
#[error("resourceVersion: Invalid value: {0:?}: strconv.ParseUint: parsing {0:?}: invalid syntax")]
pub(crate) struct BadVersion(pub(crate) String);

/// Reads a `resourceVersion`.
pub(crate) fn parse_version(text: &str) -> Result<Revision, BadVersion> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| BadVersion(text.to_owned()))
}

fn integer(query: &Query<'_>, key: &str) -> Result<Option<i64>, ApiError> {
    match query.first(key) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}
