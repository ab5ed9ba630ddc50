//! What the table cannot say: named functions, one file per kind.
//!
//! A default function gets the fields of the type that it belongs to, after OpenAPI's defaults; a create or update
//! function the whole object; a check function the fields before and after. None of them looks beyond its object.

mod admission;
mod autoscaling;
mod certificates;
mod daemonset;
mod job;
mod limits;
mod metadata;
mod node;
mod pod;
mod rbac;
mod secret;
mod service;
mod workload;

use peerage_core::User;
use peerage_objects::field::FieldError;
use serde_json::{Map, Value};

/// What is known of a create besides the object.
#[derive(Debug, Clone, Copy)]
pub struct Create<'a> {
    /// When, in RFC 3339.
    pub now: &'a str,
    /// Who creates it.
    pub user: &'a User,
}

type Fields = Map<String, Value>;
type DefaultFn = fn(&mut Fields);
type CreateFn = fn(&mut Value, &Create<'_>);
type UpdateFn = fn(&mut Value, &Value);
type CheckFn = fn(&str, &Fields, Option<&Fields>, &mut Vec<FieldError>);

const DEFAULTS: &[(&str, DefaultFn)] = &[
    ("pod", pod::pod),
    ("pod-service-account", pod::service_account),
    ("image-pull-policy", pod::image_pull_policy),
    ("image-volume-pull-policy", pod::image_volume_pull_policy),
    ("volume-source", pod::volume_source),
    ("node-pod-cidrs", node::pod_cidrs),
    ("node-allocatable", node::allocatable),
    ("resource-lists", limits::resource_lists),
    ("pod-grace", pod::positive_grace),
    ("service", service::service),
    ("secret", secret::string_data),
    ("job", job::job),
    ("workload-labels", workload::labels_from_template),
    ("replication-controller", workload::replication_controller),
    ("hpa", autoscaling::v2),
    ("network-policy", admission::network_policy),
    ("limit-range-item", limits::limit_range_item),
    (
        "custom-resource-definition",
        admission::custom_resource_definition,
    ),
    ("rbac-subject", rbac::subject),
    ("claim-data-source", pod::claim_data_source),
    ("namespace-label", metadata::namespace_label),
];

const CREATES: &[(&str, CreateFn)] = &[
    ("pod-qos", pod::qos),
    ("pod-scheduling-gates", pod::scheduling_gates),
    ("node-not-ready", node::not_ready_taint),
    ("crd-stored-versions", admission::stored_versions),
    ("job-selector", job::generate_selector),
    ("namespace-finalizer", metadata::namespace_finalizer),
    ("daemonset-generation", daemonset::first_generation),
    ("pv-transition-time", metadata::volume_transition_time),
    ("taint-time", metadata::taint_time),
    ("api-service-local", admission::local_api_service),
    ("csr-requester", certificates::requester),
];

const UPDATES: &[(&str, UpdateFn)] = &[
    ("daemonset-generation", daemonset::next_generation),
    ("namespace-finalizer", metadata::keep_namespace_finalizers),
    ("taint-time", metadata::keep_taint_time),
    ("service-given", service::keep_given),
    ("csr-spec", certificates::keep_spec),
];

const CHECKS: &[(&str, CheckFn)] = &[
    ("service-addresses", service::check_addresses),
    ("deployment-selector", workload::check_deployment),
    ("stateful-set-selector", workload::check_stateful_set),
    ("daemon-set-selector", workload::check_daemon_set),
    ("job-restart-policy", workload::check_job_restart),
    ("deployment-strategy", workload::check_strategy),
    ("disruption-budget", workload::check_budget),
    ("secret-type", secret::check_type),
    ("service-ports", service::check_ports),
    ("pod-mounts", pod::check_mounts),
    ("env-var", pod::check_env),
    ("config-keys", secret::check_keys),
    ("restart-policy-always", workload::check_restart_policy),
];

/// Whether there is a function of that name.
pub(super) fn exists(name: &str) -> bool {
    DEFAULTS.iter().any(|(n, _)| *n == name)
        || CREATES.iter().any(|(n, _)| *n == name)
        || UPDATES.iter().any(|(n, _)| *n == name)
        || CHECKS.iter().any(|(n, _)| *n == name)
}

pub(super) fn run_default(name: &str, fields: &mut Fields) {
    if let Some((_, function)) = DEFAULTS.iter().find(|(n, _)| *n == name) {
        function(fields);
    }
}

pub(super) fn run_create(name: &str, object: &mut Value, create: &Create<'_>) {
    if let Some((_, function)) = CREATES.iter().find(|(n, _)| *n == name) {
        function(object, create);
    }
}

pub(super) fn run_update(name: &str, new: &mut Value, old: &Value) {
    if let Some((_, function)) = UPDATES.iter().find(|(n, _)| *n == name) {
        function(new, old);
    }
}

pub(super) fn run_check(
    name: &str,
    path: &str,
    fields: &Fields,
    old: Option<&Fields>,
    errors: &mut Vec<FieldError>,
) {
    if let Some((_, function)) = CHECKS.iter().find(|(n, _)| *n == name) {
        function(path, fields, old, errors);
    }
}

/// A field's text, empty if it is not there.
fn text<'v>(fields: &'v Fields, name: &str) -> &'v str {
    fields.get(name).and_then(Value::as_str).unwrap_or("")
}

/// Sets a field that is not there, null, or an empty text.
fn set_default(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    let unset = match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if unset {
        fields.insert(name.to_owned(), value.into());
    }
}

/// An object field that is there.
fn object<'v>(fields: &'v mut Fields, name: &str) -> Option<&'v mut Fields> {
    fields.get_mut(name)?.as_object_mut()
}

/// An object field, made if it is not there.
fn made<'v>(fields: &'v mut Fields, name: &str) -> Option<&'v mut Fields> {
    fields
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}
