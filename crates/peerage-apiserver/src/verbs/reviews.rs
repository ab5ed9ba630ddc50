//! What is answered and never stored: who am I, and may I (or somebody) do this?

use std::collections::BTreeMap;

use http::StatusCode;
use peerage_core::{GroupKind, Status, StatusCause, User};
use peerage_http::{Body, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authz::{Attributes, Decision, Rule};
use crate::call::Call;
use crate::error::ApiError;
use crate::write::{WriteOptions, body};

/// Answers a POST of a review.
pub(crate) async fn create(call: Call, request: Body) -> Result<Response, ApiError> {
    let call = &call;
    let options = WriteOptions::parse(&call.query(), "CreateOptions")?;
    let bytes = body::as_json(call, body::read(call, request).await?)?;
    let mut review = body::object(
        call,
        body::Wanted::of(call.resource()),
        &bytes,
        None,
        options.field_validation,
    )?;
    let status = match &*call.resource().kind {
        "SelfSubjectReview" => who_am_i(&call.user),
        "SelfSubjectAccessReview" => {
            let spec = Spec::read(call, &review, false)?;
            shown(&decide(call, &call.user, &spec))
        }
        "SubjectAccessReview" => {
            let spec = Spec::read(call, &review, true)?;
            shown(&decide(call, &spec.subject(), &spec))
        }
        "LocalSubjectAccessReview" => {
            let spec = Spec::read(call, &review, true)?;
            spec.check_namespace(call)?;
            shown(&decide(call, &spec.subject(), &spec))
        }
        "SelfSubjectRulesReview" => rules(call, &review)?,
        kind => {
            let message = format!("this server does not answer a {kind}");
            return Err(Status::generic(501, &message).into());
        }
    };
    review["status"] = status;
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    let mut response = call.respond().document(StatusCode::CREATED, &review);
    call.warnings.apply(response.headers_mut());
    Ok(response)
}

fn who_am_i(user: &User) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    json!({ "userInfo": info })
}

/// `spec` of the access reviews.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NonResourceAttributes {
    path: String,
    verb: String,
}

impl Spec {
    fn read(call: &Call, review: &Value, with_subject: bool) -> Result<Self, ApiError> {
        let spec: Spec = serde_json::from_value(review["spec"].clone()).unwrap_or_default();
        let mut causes = Vec::new();
        let both = spec.resource_attributes.is_some() && spec.non_resource_attributes.is_some();
        let neither = spec.resource_attributes.is_none() && spec.non_resource_attributes.is_none();
        if both {
            causes.push(StatusCause::invalid(
                "spec.nonResourceAttributes",
                json!(null),
                "cannot be specified in combination with resourceAttributes",
            ));
        }
        if neither {
            causes.push(StatusCause::invalid(
                "spec.resourceAttributes",
                json!(null),
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ));
        }
        if with_subject && spec.user.is_empty() && spec.groups.is_empty() {
            causes.push(StatusCause::invalid(
                "spec.user",
                "",
                "at least one of user or group must be specified",
            ));
        }
        if causes.is_empty() {
            return Ok(spec);
        }
        let kind = GroupKind::new(&call.resource().group, &call.resource().kind);
        Err(Status::invalid(kind, "", causes).into())
    }

    fn subject(&self) -> User {
        User {
            name: self.user.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            extra: self.extra.clone(),
        }
    }

    /// A local review is about its own namespace only.
    fn check_namespace(&self, call: &Call) -> Result<(), ApiError> {
        let named = self
            .resource_attributes
            .as_ref()
            .map_or("", |a| &a.namespace);
        if named == call.info.namespace() {
            return Ok(());
        }
        let text = format!(
            "spec.resourceAttributes.namespace must match namespace: {}",
            call.info.namespace()
        );
        Err(ApiError::bad_request(text))
    }
}

fn decide(call: &Call, user: &User, spec: &Spec) -> Decision {
    let attributes = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(a), _) => Attributes {
            verb: &a.verb,
            resource_request: true,
            group: &a.group,
            resource: &a.resource,
            subresource: &a.subresource,
            namespace: &a.namespace,
            name: &a.name,
            path: "",
        },
        (None, Some(a)) => Attributes {
            verb: &a.verb,
            path: &a.path,
            ..Attributes::default()
        },
        (None, None) => Attributes::default(),
    };
    call.api().authorizer.decide(user, &attributes)
}

fn shown(decision: &Decision) -> Value {
    let mut status = json!({ "allowed": decision.allowed });
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    if !decision.allowed && !decision.errors.is_empty() {
        status["reason"] = json!(decision.explanation());
    }
    status
}

/// Every rule that applies to the caller in a namespace.
fn rules(call: &Call, review: &Value) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rbac = call.api().authorizer.rbac();
    let everything = Rule::everything();
    let (mut rules, errors) = rbac.rules(&call.user, namespace);
    if call.user.is_in(crate::authz::SYSTEM_MASTERS) || call.api().authorizer.always_allows() {
        rules.insert(0, &everything[0]);
        rules.insert(1, &everything[1]);
    }
    let paths: Vec<_> = rules
        .iter()
        .filter(|r| !r.non_resource_urls.is_empty())
        .map(|r| json!({ "verbs": r.verbs, "nonResourceURLs": r.non_resource_urls }))
        .collect();
    let resources: Vec<_> = rules
        .iter()
        .filter(|r| !r.resources.is_empty())
        .map(|r| resource_rule(r))
        .collect();
    let mut status =
        json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false });
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors.join(", "));
        status["incomplete"] = json!(true);
    }
    Ok(status)
}

fn resource_rule(rule: &Rule) -> Value {
    let mut shown =
        json!({ "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources });
    if !rule.resource_names.is_empty() {
        shown["resourceNames"] = json!(rule.resource_names);
    }
    shown
}
