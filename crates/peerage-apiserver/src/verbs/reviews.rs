//! What is answered and never stored: who am I, and may I (or somebody) do this?

use std::collections::BTreeMap;

use http::StatusCode;
use peerage_core::{GroupKind, Status, StatusCause, User};
use peerage_http::{Body, Response};
use peerage_objects::meta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::authz::{Attributes, Decision, Rule};
use crate::call::Call;
use crate::error::ApiError;
use crate::write::{WriteOptions, body};

/// Answers a POST of a review.
pub(crate) async fn create(call: Call, request: Body) -> Result<Response, ApiError> {
    let call = &call;
    let options = WriteOptions::parse(&call.query(), "CreateOptions")?;
    let bytes = body::as_json(
        call,
        body::Wanted::of(call.resource()),
        body::read(call, request).await?,
    )?;
    let mut review = body::object(
        call,
        body::Wanted::of(call.resource()),
        &bytes,
        None,
        options.field_validation,
    )?;
    place(call, &mut review)?;
    let status = match &*call.resource().kind {
        "SelfSubjectReview" => who_am_i(call, &mut review),
        "SelfSubjectAccessReview" => {
            let spec = Spec::read(call, &review, About::Caller)?;
            shown(&spec, &decide(call, &call.user, &spec))
        }
        "SubjectAccessReview" => {
            let spec = Spec::read(call, &review, About::Anybody)?;
            shown(&spec, &decide(call, &spec.subject(), &spec))
        }
        "LocalSubjectAccessReview" => {
            let spec = Spec::read(call, &review, About::AnybodyHere)?;
            shown(&spec, &decide(call, &spec.subject(), &spec))
        }
        "SelfSubjectRulesReview" => {
            let status = rules(call, &review)?;
            // Kubernetes answers with the status alone.
            review["spec"] = json!({});
            status
        }
        "TokenReview" => whose_token(call, &review)?,
        kind => {
            let message = format!("this server does not answer a {kind}");
            return Err(Status::generic(501, &message).into());
        }
    };
    review["status"] = status;
    if call.accept.convert.is_some() {
        // Reviews have no table and no metadata to show apart.
        return Err(Status::not_acceptable(MEDIA_TYPES).into());
    }
    let mut response = call.respond().document(StatusCode::CREATED, &review);
    call.warnings.apply(response.headers_mut());
    Ok(response)
}

/// What is said to who wants a review in another form.
const MEDIA_TYPES: &str = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// A namespaced review is of the request's namespace, any other of none.
fn place(call: &Call, review: &mut Value) -> Result<(), ApiError> {
    let namespace = call.info.namespace();
    let namespaced = call.resource().namespaced;
    let meta = meta::meta_mut(review);
    let sent = meta.get("namespace").and_then(Value::as_str).unwrap_or("");
    if namespaced && !sent.is_empty() && sent != namespace {
        let why =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(why));
    }
    if namespaced {
        meta.insert("namespace".to_owned(), json!(namespace));
    } else {
        meta.remove("namespace");
    }
    Ok(())
}

fn who_am_i(call: &Call, review: &mut Value) -> Value {
    let user = &call.user;
    let now = peerage_objects::time::show(jiff::Timestamp::now());
    meta::meta_mut(review).insert("creationTimestamp".to_owned(), json!(now));
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    json!({ "userInfo": info })
}

/// Whose bearer token somebody was shown. Tokens of the file are for any audience.
fn whose_token(call: &Call, review: &Value) -> Result<Value, ApiError> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        let why = "token is required for TokenReview in authentication";
        return Err(ApiError::bad_request(why));
    }
    let Some(user) = call.api().authenticator.user_of_token(token) else {
        return Ok(json!({ "user": {}, "error": "invalid bearer token" }));
    };
    let mut status = json!({ "authenticated": true, "user": &*user });
    let audiences = &review["spec"]["audiences"];
    if audiences.as_array().is_some_and(|a| !a.is_empty()) {
        status["audiences"] = audiences.clone();
    }
    Ok(status)
}

/// Whose access a review asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Caller,
    Anybody,
    /// Anybody, in the namespace of the request only.
    AnybodyHere,
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
#[serde(rename_all = "camelCase", default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
    field_selector: Option<Selector>,
    label_selector: Option<Selector>,
}

/// A selector of a review. RBAC does not look at it; it is checked all the same.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    raw_selector: String,
    requirements: Vec<Requirement>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// Shown in refusals under the names that Kubernetes' internal type has.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct NonResourceAttributes {
    #[serde(rename(serialize = "Path"))]
    path: String,
    #[serde(rename(serialize = "Verb"))]
    verb: String,
}

impl Spec {
    fn read(call: &Call, review: &Value, about: About) -> Result<Self, ApiError> {
        let spec: Spec = serde_json::from_value(review["spec"].clone()).unwrap_or_default();
        let mut causes = spec.check();
        if about != About::Caller && spec.user.is_empty() && spec.groups.is_empty() {
            causes.push(StatusCause::invalid(
                "spec.user",
                "",
                "at least one of user or group must be specified",
            ));
        }
        let mut meta = review["metadata"].clone();
        if about == About::AnybodyHere {
            causes.extend(spec.check_here(call.info.namespace()));
            if let Some(fields) = meta.as_object_mut() {
                fields.remove("namespace");
            }
        }
        if meta.as_object().is_some_and(|fields| !fields.is_empty()) {
            causes.push(StatusCause::invalid("metadata", &meta, "must be empty"));
        }
        if causes.is_empty() {
            return Ok(spec);
        }
        // Kubernetes names the group and forgets the kind.
        Err(Status::invalid(GroupKind::new(&call.resource().group, ""), "", causes).into())
    }

    fn check(&self) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let path = self.non_resource_attributes.as_ref();
        if self.resource_attributes.is_some() == path.is_some() {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            causes.push(StatusCause::invalid("spec", path, why));
        }
        let Some(attributes) = &self.resource_attributes else {
            return causes;
        };
        let at = "spec.resourceAttributes";
        if let Some(selector) = &attributes.field_selector {
            causes.extend(selector.check(&format!("{at}.fieldSelector")));
        }
        if let Some(selector) = &attributes.label_selector {
            causes.extend(selector.check(&format!("{at}.labelSelector")));
        }
        causes
    }

    /// A local review is about resources of its own namespace only.
    fn check_here(&self, namespace: &str) -> Option<StatusCause> {
        if let Some(path) = &self.non_resource_attributes {
            let field = "spec.nonResourceAttributes";
            return Some(StatusCause::invalid(
                field,
                path,
                "disallowed on this kind of request",
            ));
        }
        let named = &self.resource_attributes.as_ref()?.namespace;
        (named != namespace).then(|| {
            let field = "spec.resourceAttributes.namespace";
            StatusCause::invalid(field, named, "must match metadata.namespace")
        })
    }

    fn subject(&self) -> User {
        User {
            name: self.user.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            extra: self.extra.clone(),
        }
    }

    /// What is wrong with the selectors, for those who read the answer.
    fn selector_errors(&self) -> Vec<String> {
        let Some(attributes) = &self.resource_attributes else {
            return Vec::new();
        };
        let named = [
            ("fieldSelector", &attributes.field_selector),
            ("labelSelector", &attributes.label_selector),
        ];
        named
            .into_iter()
            .filter(|(_, selector)| selector.as_ref().is_some_and(|s| !s.is_readable()))
            .map(|(name, _)| format!("spec.resourceAttributes.{name} ignored due to parse error"))
            .collect()
    }
}

impl Selector {
    fn check(&self, at: &str) -> Option<StatusCause> {
        let raw = &self.raw_selector;
        if !raw.is_empty() && !self.requirements.is_empty() {
            let why = "may not specified at the same time as requirements";
            return Some(StatusCause::invalid(format!("{at}.rawSelector"), raw, why));
        }
        if raw.is_empty() && self.requirements.is_empty() {
            let why = "when specified, requirements or rawSelector is required";
            return Some(StatusCause::required(format!("{at}.requirements"), why));
        }
        None
    }

    /// Whether every requirement has an operator of its kind, with as many values as that wants.
    fn is_readable(&self) -> bool {
        self.requirements.iter().all(|r| {
            !r.key.is_empty()
                && match r.operator.as_str() {
                    "In" | "NotIn" => !r.values.is_empty(),
                    "Exists" | "DoesNotExist" => r.values.is_empty(),
                    _ => false,
                }
        })
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

fn shown(spec: &Spec, decision: &Decision) -> Value {
    let mut status = json!({ "allowed": decision.allowed });
    let reason = decision.reason();
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    let errors = spec.selector_errors();
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors.join(", "));
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
