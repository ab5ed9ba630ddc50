//! Policies against Kubernetes' documented matching, field by field.

#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn policy(rules: Value) -> Policy {
    Policy::parse(json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        .unwrap()
}

fn is_recorded(rule: Value, method: &str, target: &str) -> bool {
    let mut rule = rule;
    rule["level"] = json!("Metadata");
    let user = User::new("alice", ["devs", "system:authenticated"]);
    let info = RequestInfo::parse(method, target).unwrap();
    policy(json!([rule])).decide(Some(&user), &info).level == Level::Metadata
}

#[test]
fn a_rule_matches_when_all_its_conditions_do() {
    let pod = "/api/v1/namespaces/ns/pods/p";
    let log = "/api/v1/namespaces/ns/pods/p/log";
    let scale = "/apis/apps/v1/namespaces/ns/deployments/d/scale";
    for (rule, target, expected) in [
        (json!({}), pod, true),
        (json!({}), "/healthz", true),
        (json!({"users": ["alice"]}), pod, true),
        (json!({"users": ["bob"]}), pod, false),
        (json!({"userGroups": ["ops", "devs"]}), pod, true),
        (json!({"userGroups": ["ops"]}), pod, false),
        (
            json!({"users": ["alice"], "userGroups": ["ops"]}),
            pod,
            false,
        ),
        (json!({"verbs": ["get"]}), pod, true),
        (json!({"verbs": ["list"]}), pod, false),
        (json!({"verbs": ["get"]}), "/healthz", true),
        (json!({"namespaces": ["ns"]}), pod, true),
        (json!({"namespaces": ["other"]}), pod, false),
        (json!({"namespaces": [""]}), "/api/v1/nodes/n", true),
        (json!({"namespaces": ["ns"]}), "/healthz", false),
        (json!({"resources": [{"group": ""}]}), log, true),
        (json!({"resources": [{}]}), scale, false),
        (json!({"resources": [{"group": "apps"}]}), scale, true),
        (json!({"resources": [{"resources": ["pods"]}]}), pod, true),
        (json!({"resources": [{"resources": ["pods"]}]}), log, false),
        (
            json!({"resources": [{"resources": ["pods/log"]}]}),
            log,
            true,
        ),
        (
            json!({"resources": [{"resources": ["pods/log"]}]}),
            pod,
            false,
        ),
        (json!({"resources": [{"resources": ["pods/*"]}]}), log, true),
        (json!({"resources": [{"resources": ["pods/*"]}]}), pod, true),
        (json!({"resources": [{"resources": ["*/log"]}]}), log, true),
        (json!({"resources": [{"resources": ["*/log"]}]}), pod, false),
        (json!({"resources": [{"resources": ["*"]}]}), log, true),
        (
            json!({"resources": [{"resources": ["*"]}]}),
            "/healthz",
            false,
        ),
        (
            json!({"resources": [{"group": "apps", "resources": ["*/scale"]}]}),
            scale,
            true,
        ),
        (
            json!({"resources": [{"resources": ["pods"], "resourceNames": ["p", "q"]}]}),
            pod,
            true,
        ),
        (
            json!({"resources": [{"resources": ["pods"], "resourceNames": ["q"]}]}),
            pod,
            false,
        ),
        (json!({"nonResourceURLs": ["/healthz"]}), "/healthz", true),
        (
            json!({"nonResourceURLs": ["/healthz"]}),
            "/healthz/ping",
            false,
        ),
        (
            json!({"nonResourceURLs": ["/healthz*"]}),
            "/healthz/ping",
            true,
        ),
        (json!({"nonResourceURLs": ["/livez/*"]}), "/livez", false),
        (json!({"nonResourceURLs": ["*"]}), "/version", true),
        (json!({"nonResourceURLs": ["*"]}), pod, false),
    ] {
        assert_eq!(
            is_recorded(rule.clone(), "GET", target),
            expected,
            "{rule} {target}"
        );
    }
}

#[test]
fn the_first_matching_rule_decides_and_without_one_nothing_is_recorded() {
    let policy = Policy::parse(json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "metadata": {"creationTimestamp": null},
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "verbs": ["watch"]},
            {"level": "Request", "verbs": ["get"], "omitStages": ["ResponseStarted"], "omitManagedFields": false},
            {"level": "RequestResponse", "users": ["alice"], "resources": null},
        ],
    }))
    .unwrap();
    let decide = |user: Option<&User>, method: &str, target: &str| {
        policy.decide(user, &RequestInfo::parse(method, target).unwrap())
    };
    let alice = User::new("alice", ["devs"]);
    let got = decide(Some(&alice), "GET", "/api/v1/nodes/n");
    assert_eq!(
        (got.level, got.omit_managed_fields),
        (Level::Request, false)
    );
    let recorded: Vec<Stage> = Stage::ALL
        .into_iter()
        .filter(|stage| got.records(*stage))
        .collect();
    assert_eq!(recorded, [Stage::ResponseComplete, Stage::Panic]);
    let created = decide(Some(&alice), "POST", "/api/v1/nodes");
    assert_eq!(
        (created.level, created.omit_managed_fields),
        (Level::RequestResponse, true)
    );
    assert!(!created.records(Stage::RequestReceived) && created.records(Stage::ResponseStarted));
    for (user, method, target) in [
        (Some(&alice), "GET", "/api/v1/pods?watch=1"),
        (None, "POST", "/api/v1/nodes"),
    ] {
        let decision = decide(user, method, target);
        assert_eq!(decision.level, Level::None);
        assert!(!Stage::ALL.into_iter().any(|stage| decision.records(stage)));
    }
    let every =
        Policy::uniform(Level::Metadata).decide(None, &RequestInfo::parse("GET", "/x").unwrap());
    assert!(every.records(Stage::RequestReceived));
}

#[test]
fn all_faults_of_a_policy_are_told_at_once() {
    let error = Policy::parse(json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["Later"],
        "rules": [
            {},
            {"level": "Everything"},
            {"level": "None", "nonResourceURLs": ["healthz", "/a*b", "/ok*"], "namespaces": ["ns"]},
            {"level": "None", "resources": [{"group": "apps/v1"}, {"resourceNames": ["x"]}], "omitStages": ["Panic", "x"]},
        ],
    }))
    .unwrap_err();
    let PolicyError::Invalid(faults) = error else {
        panic!("{error}")
    };
    let lines: Vec<String> = faults.iter().map(StatusCause::line).collect();
    let stages = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
    let expected = [
        format!(r#"omitStages[0]: Invalid value: "Later": {stages}"#),
        "rules[0].level: Required value".to_owned(),
        r#"rules[1].level: Unsupported value: "Everything": supported values: "None", "Metadata", "Request", "RequestResponse""#.to_owned(),
        r#"rules[2].nonResourceURLs[0]: Invalid value: "healthz": non-resource URL rules must begin with a '/' character"#.to_owned(),
        r#"rules[2].nonResourceURLs[1]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#.to_owned(),
        r#"rules[2].nonResourceURLs: Invalid value: ["healthz","/a*b","/ok*"]: rules cannot apply to both regular resources and non-resource URLs"#.to_owned(),
    ];
    assert_eq!(lines[..6], expected);
    assert!(lines[6].starts_with(
        r#"rules[3].resources[0].group: Invalid value: "apps/v1": a lowercase RFC 1123"#
    ));
    assert_eq!(
        lines[7],
        r#"rules[3].resources[1].resourceNames: Invalid value: ["x"]: using resourceNames requires at least one resource"#
    );
    assert_eq!(
        lines[8],
        format!(r#"rules[3].omitStages[1]: Invalid value: "x": {stages}"#)
    );
    assert_eq!(lines.len(), 9);
}

#[test]
fn what_is_no_policy_is_refused() {
    let refused = |document: Value| Policy::parse(document).unwrap_err().to_string();
    let rules = json!([{"level": "None"}]);
    assert_eq!(
        refused(json!({"apiVersion": "audit.k8s.io/v1beta1", "kind": "Policy", "rules": rules})),
        "the audit policy is a Policy of audit.k8s.io/v1beta1, but has to be a Policy of audit.k8s.io/v1"
    );
    assert_eq!(
        refused(json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy"})),
        "the audit policy has no rules; to record nothing, leave the policy out"
    );
    let misspelt = json!([{"level": "None", "user": ["alice"]}]);
    let text =
        refused(json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": misspelt}));
    assert!(
        text.starts_with("the audit policy cannot be read: unknown field `user`"),
        "{text}"
    );
    assert!(refused(json!("x")).starts_with("the audit policy cannot be read"));
}
