//! Audit policies: the first rule that matches a request decides how much of it is recorded.
//!
//! The document is the one that kube-apiserver's `--audit-policy-file` takes (`audit.k8s.io/v1` Policy); reading the
//! file, in YAML or JSON, is the caller's.
//!
//! Differs: an unknown field is an error, where Kubernetes logs a warning and goes on without it. A misspelt
//! condition would silently widen its rule.

use serde::Deserialize;
use serde_json::Value;

use super::{Level, Stage, Stages};
use crate::request_info::RequestInfo;
use crate::status::StatusCause;
use crate::user::User;

/// A checked policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
}

/// What is recorded of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decision {
    /// How much.
    pub level: Level,
    /// At which stages nothing is written.
    pub omit_stages: Stages,
    /// Whether `metadata.managedFields` is left out of recorded objects.
    pub omit_managed_fields: bool,
}

impl Decision {
    /// Whether an event is written at this stage.
    #[must_use]
    pub fn records(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omit_stages.contains(stage)
    }
}

/// Why a document is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It does not have the shape of one.
    #[error("the audit policy cannot be read: {0}")]
    Malformed(String),
    /// It is of another kind or version.
    #[error(
        "the audit policy is a {kind} of {api_version}, but has to be a Policy of audit.k8s.io/v1"
    )]
    WrongType {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// Without rules it would record nothing.
    #[error("the audit policy has no rules; to record nothing, leave the policy out")]
    NoRules,
    /// Some fields have values that they must not have.
    #[error("the audit policy is invalid: {}", lines(.0))]
    Invalid(Vec<StatusCause>),
}

fn lines(causes: &[StatusCause]) -> String {
    causes
        .iter()
        .map(StatusCause::line)
        .collect::<Vec<_>>()
        .join(", ")
}

impl Policy {
    /// Reads and checks a policy document.
    ///
    /// # Errors
    /// See [`PolicyError`]; all faulty fields are told at once.
    pub fn parse(document: Value) -> Result<Self, PolicyError> {
        let document: Document = serde_json::from_value(document)
            .map_err(|error| PolicyError::Malformed(error.to_string()))?;
        if document.kind != "Policy" || document.api_version != "audit.k8s.io/v1" {
            return Err(PolicyError::WrongType {
                kind: document.kind,
                api_version: document.api_version,
            });
        }
        if document.rules.is_empty() {
            return Err(PolicyError::NoRules);
        }
        let mut faults = Vec::new();
        let omit_stages = stages(&document.omit_stages, "omitStages", &mut faults);
        let rules = document
            .rules
            .into_iter()
            .enumerate()
            .map(|(at, rule)| rule.checked(&format!("rules[{at}]"), omit_stages, &mut faults))
            .collect();
        if !faults.is_empty() {
            return Err(PolicyError::Invalid(faults));
        }
        Ok(Policy {
            rules,
            omit_stages,
            omit_managed_fields: document.omit_managed_fields,
        })
    }

    /// The policy that records every request at one level.
    #[must_use]
    pub fn uniform(level: Level) -> Self {
        Policy {
            rules: vec![Rule {
                level,
                ..Rule::default()
            }],
            ..Policy::default()
        }
    }

    /// How much is recorded of a request: what the first rule that matches says, nothing when none does.
    ///
    /// The user is the authenticated one, before any impersonation.
    #[must_use]
    pub fn decide(&self, user: Option<&User>, info: &RequestInfo<'_>) -> Decision {
        match self.rules.iter().find(|rule| rule.matches(user, info)) {
            Some(rule) => Decision {
                level: rule.level,
                omit_stages: rule.omit_stages,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            },
            None => Decision {
                level: Level::None,
                omit_stages: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
            },
        }
    }
}

/// A rule: conditions that must all hold; an empty one always does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    /// The policy's own included.
    omit_stages: Stages,
    omit_managed_fields: Option<bool>,
}

impl Rule {
    fn matches(&self, user: Option<&User>, info: &RequestInfo<'_>) -> bool {
        let is_any =
            |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
        if !self.users.is_empty() && !user.is_some_and(|user| is_any(&self.users, &user.name)) {
            return false;
        }
        let is_member = |user: &User| self.user_groups.iter().any(|group| user.is_in(group));
        if !self.user_groups.is_empty() && !user.is_some_and(is_member) {
            return false;
        }
        if !is_any(&self.verbs, info.verb()) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource_request()
                && is_any(&self.namespaces, info.namespace())
                && (self.resources.is_empty()
                    || self
                        .resources
                        .iter()
                        .any(|resources| resources.matches(info)));
        }
        self.non_resource_urls.is_empty()
            || (!info.is_resource_request()
                && self
                    .non_resource_urls
                    .iter()
                    .any(|pattern| is_url_match(pattern, info.path())))
    }
}

/// Whether a path matches a pattern, in which a `*` at the end stands for anything.
fn is_url_match(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// Resources of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    group: String,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    resources: Vec<String>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    resource_names: Vec<String>,
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo<'_>) -> bool {
        if self.group != info.api_group() {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_named = self.resource_names.is_empty()
            || self.resource_names.iter().any(|name| name == info.name());
        is_named
            && self
                .resources
                .iter()
                .any(|pattern| is_resource_match(pattern, info))
    }

    fn check(&self, field: &str, faults: &mut Vec<StatusCause>) {
        const NO_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
            characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
            used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        if !self.group.is_empty() && !crate::request_info::is_dns_subdomain(&self.group) {
            faults.push(StatusCause::invalid(
                format!("{field}.group"),
                &self.group,
                NO_SUBDOMAIN,
            ));
        }
        if !self.resource_names.is_empty() && self.resources.is_empty() {
            let detail = "using resourceNames requires at least one resource";
            faults.push(StatusCause::invalid(
                format!("{field}.resourceNames"),
                &self.resource_names,
                detail,
            ));
        }
    }
}

/// Whether a pattern names the resource: `pods`, `pods/log`, `*` for all, `*/scale` for the subresource of any,
/// `pods/*` for the resource and all its subresources.
fn is_resource_match(pattern: &str, info: &RequestInfo<'_>) -> bool {
    let (resource, subresource) = (info.resource(), info.subresource());
    match pattern.split_once('/') {
        None => pattern == "*" || (pattern == resource && subresource.is_empty()),
        Some((name, "*")) if name == resource => true,
        Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
        Some((name, sub)) => name == resource && !subresource.is_empty() && sub == subresource,
    }
}

/// The document as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    kind: String,
    api_version: String,
    #[serde(rename = "metadata")]
    _metadata: Value,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    rules: Vec<RuleDocument>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RuleDocument {
    level: String,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    users: Vec<String>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    user_groups: Vec<String>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    resources: Vec<GroupResources>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    namespaces: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "crate::status::null_is_default"
    )]
    non_resource_urls: Vec<String>,
    #[serde(deserialize_with = "crate::status::null_is_default")]
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

impl RuleDocument {
    fn checked(self, field: &str, omit_stages: Stages, faults: &mut Vec<StatusCause>) -> Rule {
        let level = level(&self.level, &format!("{field}.level"), faults);
        let urls_field = format!("{field}.nonResourceURLs");
        check_urls(&self.non_resource_urls, &urls_field, faults);
        for (at, resources) in self.resources.iter().enumerate() {
            resources.check(&format!("{field}.resources[{at}]"), faults);
        }
        let own_stages = stages(&self.omit_stages, &format!("{field}.omitStages"), faults);
        let names_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if names_resources && !self.non_resource_urls.is_empty() {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            faults.push(StatusCause::invalid(
                urls_field,
                &self.non_resource_urls,
                detail,
            ));
        }
        Rule {
            level,
            users: self.users,
            user_groups: self.user_groups,
            verbs: self.verbs,
            resources: self.resources,
            namespaces: self.namespaces,
            non_resource_urls: self.non_resource_urls,
            omit_stages: omit_stages.union(own_stages),
            omit_managed_fields: self.omit_managed_fields,
        }
    }
}

fn level(text: &str, field: &str, faults: &mut Vec<StatusCause>) -> Level {
    if let Some(level) = Level::ALL.into_iter().find(|level| level.name() == text) {
        return level;
    }
    faults.push(match text {
        "" => StatusCause::required(field, ""),
        _ => StatusCause::not_supported(field, text, Level::ALL.map(Level::name)),
    });
    Level::None
}

fn stages(texts: &[String], field: &str, faults: &mut Vec<StatusCause>) -> Stages {
    let mut found = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        match Stage::ALL.into_iter().find(|stage| stage.name() == text) {
            Some(stage) => found.push(stage),
            None => {
                let detail = format!(
                    "allowed stages are {}",
                    Stage::ALL.map(Stage::name).join(",")
                );
                faults.push(StatusCause::invalid(
                    format!("{field}[{at}]"),
                    text,
                    &detail,
                ));
            }
        }
    }
    found.into_iter().collect()
}

fn check_urls(urls: &[String], field: &str, faults: &mut Vec<StatusCause>) {
    for (at, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        let mut fault =
            |detail| faults.push(StatusCause::invalid(format!("{field}[{at}]"), url, detail));
        if !url.starts_with('/') {
            fault("non-resource URL rules must begin with a '/' character");
        }
        if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
            fault("non-resource URL wildcards '*' must be the final character of the rule");
        }
    }
}

#[cfg(test)]
mod tests;
