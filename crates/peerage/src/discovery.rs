//! What one server serves, asked of it or read from what was saved of it.
//!
//! A server is asked for its own aggregated documents (`profile=nopeer`) in the newest version that it has, in the very
//! words in which the gateway asks; one from before 1.26 answers legacy documents, and then every group-version is walked. What the documents mean, and which
//! cannot be true, is `peerage-core`'s.
//!
//! Invariant: a group-version that could not be read is listed as stale and empty, never left out.

use std::collections::BTreeMap;

use futures::StreamExt;
use http::StatusCode;
use peerage_core::discovery::{
    ApiGroup, ApiGroupDiscoveryList, DocumentError, from_legacy, read_api_resources,
    read_api_versions, read_core, read_groups, read_legacy_groups,
};
use peerage_proxy::FRONT_ACCEPT;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Answer, ApiClient, ClientError};

/// How many group-versions are asked for at once.
const WALKERS: usize = 8;
/// The most group-versions that are walked.
const MOST_VERSIONS: usize = 2000;

/// Why a server's discovery is not known.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The server could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It answered something else than a document.
    #[error("{path} answers {answer}{hint}")]
    Status {
        /// What was asked for.
        path: String,
        /// The status.
        status: StatusCode,
        /// Status and message.
        answer: String,
        /// What it is about, behind a semicolon.
        hint: String,
    },
    /// Its document cannot be used.
    #[error("{path}: {reason}")]
    Document {
        /// Where it is from.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More than any server has.
    #[error("more than {MOST_VERSIONS} group-versions")]
    TooMany,
}

fn hint(client: &ApiClient, status: StatusCode) -> String {
    match status {
        StatusCode::FORBIDDEN => {
            "; the right that is missing is that of the ClusterRole system:discovery".to_owned()
        }
        StatusCode::UNAUTHORIZED => format!("; {}", client.refused()),
        _ => String::new(),
    }
}

/// The form in which a server says what it serves, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `apidiscovery.k8s.io/v2`, since 1.30.
    V2,
    /// `apidiscovery.k8s.io/v2beta1`, 1.26 to 1.34.
    V2beta1,
    /// One document for each group-version.
    Legacy,
}

impl Form {
    /// The form in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::V2 => "aggregated v2",
            Self::V2beta1 => "aggregated v2beta1",
            Self::Legacy => "legacy documents",
        }
    }
}

/// Kind and version of any document.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
}

/// The form of a document, which tells more than its content type.
pub fn form(bytes: &[u8]) -> Option<Form> {
    let head: Head = serde_json::from_slice(bytes).ok()?;
    match (head.kind.as_str(), head.api_version.as_str()) {
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2") => Some(Form::V2),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2beta1") => Some(Form::V2beta1),
        ("APIGroupList" | "APIVersions" | "APIResourceList" | "APIGroup", _) => Some(Form::Legacy),
        _ => None,
    }
}

/// What a server serves by itself.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// Groups of `/apis`.
    pub apis: ApiGroupDiscoveryList,
    /// The core group, of `/api`.
    pub core: ApiGroupDiscoveryList,
    /// The form in which it said so.
    pub form: Form,
}

/// Asks a server.
pub async fn read(client: &ApiClient) -> Result<Discovery, DiscoveryError> {
    let (core, apis) = futures::join!(document(client, "/api"), document(client, "/apis"));
    let (core, apis) = (core?, apis?);
    let found = form(&apis).unwrap_or(Form::Legacy);
    if found == Form::Legacy {
        return walk(client, &core, &apis).await;
    }
    Ok(Discovery {
        core: read_core(&core).map_err(|e| unreadable("/api", &e))?,
        apis: read_groups(&apis).map_err(|e| unreadable("/apis", &e))?,
        form: found,
    })
}

async fn document(client: &ApiClient, path: &str) -> Result<bytes::Bytes, DiscoveryError> {
    let answer = client.get_as(path, FRONT_ACCEPT).await?;
    usable(client, path, answer)
}

fn usable(client: &ApiClient, path: &str, answer: Answer) -> Result<bytes::Bytes, DiscoveryError> {
    if answer.status == StatusCode::OK {
        return Ok(answer.body);
    }
    Err(DiscoveryError::Status {
        path: path.to_owned(),
        status: answer.status,
        answer: answer.in_words(),
        hint: hint(client, answer.status),
    })
}

fn unreadable(path: &str, error: &DocumentError) -> DiscoveryError {
    DiscoveryError::Document {
        path: path.to_owned(),
        reason: crate::client::chain(error),
    }
}

async fn walk(client: &ApiClient, core: &[u8], apis: &[u8]) -> Result<Discovery, DiscoveryError> {
    let (core_group, groups) = roots(core, apis)?;
    let paths = group_version_paths(&core_group, &groups);
    if paths.len() > MOST_VERSIONS {
        return Err(DiscoveryError::TooMany);
    }
    let answers = futures::stream::iter(paths)
        .map(|path| async move {
            let answer = client.get(&path).await;
            (path, answer)
        })
        .buffer_unordered(WALKERS)
        .collect::<Vec<_>>()
        .await;
    let mut lists = Vec::new();
    for (path, answer) in answers {
        let answer = answer?;
        // A group-version whose server is down answers 503: it is listed without resources.
        if answer.status == StatusCode::OK {
            lists.push(read_api_resources(&answer.body).map_err(|e| unreadable(&path, &e))?);
        }
    }
    Ok(Discovery {
        apis: from_legacy(&groups, &lists),
        core: from_legacy(&[core_group], &lists),
        form: Form::Legacy,
    })
}

fn roots(core: &[u8], apis: &[u8]) -> Result<(ApiGroup, Vec<ApiGroup>), DiscoveryError> {
    let core = read_api_versions(core).map_err(|e| unreadable("/api", &e))?;
    let apis = read_legacy_groups(apis).map_err(|e| unreadable("/apis", &e))?;
    Ok((core.to_group(), apis.groups))
}

fn group_version_paths(core: &ApiGroup, groups: &[ApiGroup]) -> Vec<String> {
    let core = core
        .versions
        .iter()
        .map(|it| format!("/api/{}", it.version));
    let versions = groups.iter().flat_map(|group| {
        let version = |it: &peerage_core::discovery::GroupVersionForDiscovery| {
            format!("/apis/{}/{}", group.name, it.version)
        };
        group.versions.iter().map(version).collect::<Vec<_>>()
    });
    core.chain(versions).collect()
}

/// What a saved walk says: legacy documents by the path that they were got from.
pub fn from_saved_walk(documents: &BTreeMap<String, Value>) -> Result<Discovery, DiscoveryError> {
    let bytes = |path: &str| {
        let document = documents.get(path);
        document.map(|it| it.to_string().into_bytes())
    };
    let missing = |path: &str| DiscoveryError::Document {
        path: path.to_owned(),
        reason: "not in the saved documents".to_owned(),
    };
    let core = bytes("/api").ok_or_else(|| missing("/api"))?;
    let apis = bytes("/apis").ok_or_else(|| missing("/apis"))?;
    let (core_group, groups) = roots(&core, &apis)?;
    let mut lists = Vec::new();
    for path in group_version_paths(&core_group, &groups) {
        if let Some(bytes) = bytes(&path) {
            lists.push(read_api_resources(&bytes).map_err(|e| unreadable(&path, &e))?);
        }
    }
    Ok(Discovery {
        apis: from_legacy(&groups, &lists),
        core: from_legacy(&[core_group], &lists),
        form: Form::Legacy,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_says_its_form_itself() {
        for (document, expected) in [
            (
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}),
                Some(Form::V2),
            ),
            (
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2beta1"}),
                Some(Form::V2beta1),
            ),
            (
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v3"}),
                None,
            ),
            (
                json!({"kind": "APIGroupList", "apiVersion": "v1"}),
                Some(Form::Legacy),
            ),
            (json!({"kind": "APIVersions"}), Some(Form::Legacy)),
            (json!({"kind": "Status"}), None),
            (json!([]), None),
        ] {
            assert_eq!(
                form(document.to_string().as_bytes()),
                expected,
                "{document}"
            );
        }
        assert_eq!(form(b"<html>"), None);
    }

    #[test]
    fn a_saved_walk_keeps_versions_whose_documents_are_missing_as_stale() {
        let version = |gv: &str, v: &str| json!({"groupVersion": gv, "version": v});
        let walk = BTreeMap::from([
            (
                "/api".to_owned(),
                json!({"kind": "APIVersions", "versions": ["v1"]}),
            ),
            (
                "/api/v1".to_owned(),
                json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                    {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"]},
                    {"name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]}]}),
            ),
            (
                "/apis".to_owned(),
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "apps",
                    "versions": [version("apps/v1", "v1")], "preferredVersion": version("apps/v1", "v1")}]}),
            ),
        ]);
        let found = from_saved_walk(&walk).unwrap();
        let pods = found.core.group("").unwrap().versions[0]
            .resource("pods")
            .unwrap()
            .clone();
        assert_eq!(pods.subresources[0].subresource, "log");
        assert!(
            found.apis.group("apps").unwrap().versions[0]
                .freshness
                .is_stale()
        );

        let without = from_saved_walk(&BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(without, "/api: not in the saved documents");
    }
}
