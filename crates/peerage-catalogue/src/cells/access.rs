//! Role bindings and certificate requests.

use serde_json::Value;

use super::{Entry, NONE, list, text};

pub(super) const CELLS: &[Entry] = &[
    ("RoleBinding", "Role", |o, _| role(o)),
    ("ClusterRoleBinding", "Role", |o, _| role(o)),
    ("*", "Users", |o, _| subjects(o, "User")),
    ("*", "Groups", |o, _| subjects(o, "Group")),
    ("*", "ServiceAccounts", |o, _| subjects(o, "ServiceAccount")),
    (
        "CertificateSigningRequest",
        "RequestedDuration",
        |o, _| match o.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
            Some(seconds) => {
                let span = jiff::SignedDuration::from_secs(seconds);
                peerage_objects::table::human_duration(span).into()
            }
            None => NONE.into(),
        },
    ),
    ("CertificateSigningRequest", "Condition", |o, _| {
        certificate_state(o)
    }),
    ("PodCertificateRequest", "State", |o, _| {
        let states = ["Issued", "Denied", "Failed"];
        let has = |kind: &&&str| {
            list(o, "/status/conditions")
                .iter()
                .any(|c| c["type"] == ***kind)
        };
        states.iter().find(has).copied().unwrap_or("Pending").into()
    }),
];

fn role(binding: &Value) -> Value {
    format!(
        "{}/{}",
        text(binding, "/roleRef/kind"),
        text(binding, "/roleRef/name")
    )
    .into()
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let own = list(binding, "/subjects")
        .iter()
        .filter(|s| s["kind"] == kind);
    let names = own.map(|s| match (kind, text(s, "/namespace")) {
        ("ServiceAccount", namespace) => format!("{namespace}/{}", text(s, "/name")),
        _ => text(s, "/name").to_owned(),
    });
    names.collect::<Vec<_>>().join(", ").into()
}

/// `Pending`, or what was decided, and what came of it.
fn certificate_state(request: &Value) -> Value {
    let has = |kind: &str| {
        list(request, "/status/conditions")
            .iter()
            .any(|c| c["type"] == kind)
    };
    let mut words = Vec::new();
    words.extend(["Approved", "Denied"].into_iter().find(|kind| has(kind)));
    words.extend(has("Failed").then_some("Failed"));
    words.extend((!text(request, "/status/certificate").is_empty()).then_some("Issued"));
    if words.is_empty() {
        return "Pending".into();
    }
    words.join(",").into()
}
