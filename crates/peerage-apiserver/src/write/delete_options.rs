//! `DeleteOptions`, from the query or the body of a DELETE. A body wins over the query, as in kube-apiserver.

use bytes::Bytes;
use peerage_core::Query;
use peerage_objects::field::FieldError;
use peerage_objects::meta::Propagation;
use serde::Deserialize;

use super::options::dry_run;
use crate::error::ApiError;

/// How to delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    kind: Option<String>,
    api_version: Option<String>,
    dry_run: Option<Vec<String>>,
    grace_period_seconds: Option<i64>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    preconditions: Option<PreconditionsFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PreconditionsFile {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads and checks them; `bytes` is JSON (a YAML body has been made JSON before).
    pub(crate) fn parse(query: &Query<'_>, bytes: &Bytes) -> Result<Self, ApiError> {
        let file = if bytes.is_empty() {
            from_query(query)?
        } else {
            from_body(bytes)?
        };
        let mut errors = Vec::new();
        let options = Self {
            dry_run: dry_run(file.dry_run.unwrap_or_default(), &mut errors),
            grace_seconds: file.grace_period_seconds.map(|s| if s < 0 { 1 } else { s }),
            propagation: propagation(
                file.propagation_policy.as_deref(),
                file.orphan_dependents,
                &mut errors,
            ),
            uid: file.preconditions.as_ref().and_then(|p| p.uid.clone()),
            resource_version: file.preconditions.and_then(|p| p.resource_version),
        };
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid_options("DeleteOptions", errors))
        }
    }
}

fn from_body(bytes: &Bytes) -> Result<File, ApiError> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| {
        let why = if e.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            e.to_string()
        };
        ApiError::bad_request(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))
    })?;
    match (file.kind.as_deref(), file.api_version.as_deref()) {
        (None | Some("" | "DeleteOptions"), _) => Ok(file),
        (Some(kind), version) => {
            let text = peerage_objects::body::no_kind_registered(version.unwrap_or_default(), kind);
            Err(ApiError::bad_request(text))
        }
    }
}

fn from_query(query: &Query<'_>) -> Result<File, ApiError> {
    let grace = query.first("gracePeriodSeconds").filter(|t| !t.is_empty());
    let grace = grace.map(|text| {
        text.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        })
    });
    let dry_run: Vec<String> = query.all("dryRun").map(str::to_owned).collect();
    let flag = query
        .first("orphanDependents")
        .map(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"));
    Ok(File {
        dry_run: (!dry_run.is_empty()).then_some(dry_run),
        grace_period_seconds: grace.transpose()?,
        orphan_dependents: flag,
        propagation_policy: query
            .first("propagationPolicy")
            .filter(|p| !p.is_empty())
            .map(str::to_owned),
        ..File::default()
    })
}

fn propagation(
    policy: Option<&str>,
    orphan: Option<bool>,
    errors: &mut Vec<FieldError>,
) -> Option<Propagation> {
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid("propagationPolicy", policy, detail));
        return None;
    }
    match (policy, orphan) {
        (None, None) => None,
        (None, Some(true)) | (Some("Orphan"), _) => Some(Propagation::Orphan),
        (None, Some(false)) | (Some("Background"), _) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some(other), _) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported("propagationPolicy", other, known));
            None
        }
    }
}
