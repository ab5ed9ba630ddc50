//! Decisions over small sets of roles and bindings.

use serde_json::{Value, json};

use super::*;

/// Kind, namespace, name, and the rest of a stored role or binding.
type Stored = (&'static str, &'static str, &'static str, Value);

fn rbac(objects: &[Stored]) -> Rbac {
    let mut rbac = Rbac::default();
    for (kind, namespace, name, rest) in objects.iter().filter(|o| o.0.ends_with("Role")) {
        let rules = serde_json::from_value(rest["rules"].clone()).unwrap();
        let role = Arc::new(Role { revision: 1, rules });
        match *kind {
            "ClusterRole" => rbac.cluster_roles.insert((*name).into(), role),
            _ => rbac
                .roles
                .insert(format!("{namespace}/{name}").into(), role),
        };
    }
    for (kind, namespace, name, rest) in objects.iter().filter(|o| o.0.ends_with("Binding")) {
        let mut object = rest.clone();
        object["kind"] = json!(kind);
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        object["metadata"] = json!({ "name": name, "namespace": namespace });
        let full = match *namespace {
            "" => (*name).to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        let kv = peerage_store::KeyValue {
            key: bytes::Bytes::new(),
            value: object.to_string().into(),
            create_revision: 1,
            mod_revision: 1,
            version: 1,
            lease: 0,
        };
        let object = CachedObject::load(full.into(), &kv, None);
        let file = object.parse::<BindingFile>().unwrap();
        rbac.bind(&object, &file);
    }
    rbac
}

fn cluster_role(name: &'static str, rules: Value) -> Stored {
    ("ClusterRole", "", name, json!({ "rules": rules }))
}

fn bound(at: (&'static str, &'static str), role: [&str; 2], subjects: Value) -> Stored {
    let kind = match at.0 {
        "" => "ClusterRoleBinding",
        _ => "RoleBinding",
    };
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role[0], "name": role[1] });
    (
        kind,
        at.0,
        at.1,
        json!({ "roleRef": role, "subjects": subjects }),
    )
}

fn cluster() -> Rbac {
    let user = |name: &str| json!([{ "kind": "User", "name": name }]);
    let devs = || json!([{ "kind": "Group", "name": "devs" }]);
    rbac(&[
        cluster_role(
            "reader",
            json!([{ "apiGroups": [""], "resources": ["pods", "pods/log", "*/scale"], "verbs": ["get", "list"] }]),
        ),
        cluster_role(
            "all-of-apps",
            json!([{ "apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"] }]),
        ),
        cluster_role(
            "pages",
            json!([{ "nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"] }]),
        ),
        cluster_role(
            "everything",
            json!([
                { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
                { "nonResourceURLs": ["*"], "verbs": ["*"] }
            ]),
        ),
        (
            "Role",
            "shop",
            "one",
            json!({ "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["seen"], "verbs": ["get", "list", "update"] }] }),
        ),
        bound(("", "devs-apps"), ["ClusterRole", "all-of-apps"], devs()),
        bound(("", "devs-pages"), ["ClusterRole", "pages"], devs()),
        bound(("", "gone"), ["ClusterRole", "absent"], user("zoe")),
        bound(("", "rooty"), ["ClusterRole", "everything"], user("rooty")),
        bound(
            ("shop", "readers"),
            ["ClusterRole", "reader"],
            json!([
                { "kind": "User", "name": "alice" },
                { "kind": "ServiceAccount", "name": "robot" },
                { "kind": "ServiceAccount", "name": "robot", "namespace": "bank" },
                { "kind": "Robot", "name": "mallory" }
            ]),
        ),
        bound(("shop", "one"), ["Role", "one"], user("alice")),
        // A Role of another namespace is not meant.
        bound(("bank", "one"), ["Role", "one"], user("alice")),
        bound(
            ("shop", "rooty"),
            ["ClusterRole", "everything"],
            user("boss"),
        ),
    ])
}

/// What is asked: a path, or `group resource [subresource]` in a namespace, of a name.
#[derive(Debug, Clone, Copy)]
enum What {
    Path(&'static str),
    /// Group, resource, subresource, namespace, name.
    Object([&'static str; 5]),
}

fn decide(rbac: &Rbac, user: &User, verb: &str, what: What) -> Decision {
    let attributes = match what {
        What::Path(path) => Attributes {
            verb,
            path,
            ..Attributes::default()
        },
        What::Object([group, resource, subresource, namespace, name]) => Attributes {
            verb,
            resource_request: true,
            group,
            resource,
            subresource,
            namespace,
            name,
            path: "",
        },
    };
    rbac.decide(user, &attributes)
}

#[test]
fn decisions_follow_subjects_scopes_names_subresources_and_wildcards() {
    use What::{Object, Path};
    let rows: &[(&str, &[&str], &str, What, bool)] = &[
        // A role bound in a namespace counts there and nowhere else.
        (
            "alice",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            true,
        ),
        (
            "alice",
            &[],
            "get",
            Object(["", "pods", "", "bank", "p"]),
            false,
        ),
        (
            "alice",
            &[],
            "list",
            Object(["", "pods", "", "", ""]),
            false,
        ),
        (
            "alice",
            &[],
            "delete",
            Object(["", "pods", "", "shop", "p"]),
            false,
        ),
        // Subresources are asked for by name.
        (
            "alice",
            &[],
            "get",
            Object(["", "pods", "log", "shop", "p"]),
            true,
        ),
        (
            "alice",
            &[],
            "get",
            Object(["", "pods", "status", "shop", "p"]),
            false,
        ),
        (
            "alice",
            &[],
            "get",
            Object(["", "things", "scale", "shop", "t"]),
            true,
        ),
        (
            "alice",
            &[],
            "get",
            Object(["", "things", "", "shop", "t"]),
            false,
        ),
        // Names: only the named one, and never what has no name.
        (
            "alice",
            &[],
            "get",
            Object(["", "configmaps", "", "shop", "seen"]),
            true,
        ),
        (
            "alice",
            &[],
            "get",
            Object(["", "configmaps", "", "shop", "unseen"]),
            false,
        ),
        (
            "alice",
            &[],
            "list",
            Object(["", "configmaps", "", "shop", "seen"]),
            true,
        ),
        (
            "alice",
            &[],
            "list",
            Object(["", "configmaps", "", "shop", ""]),
            false,
        ),
        (
            "alice",
            &[],
            "get",
            Object(["", "configmaps", "", "bank", "seen"]),
            false,
        ),
        // Groups, and the wildcard within an API group.
        (
            "zed",
            &["devs"],
            "frob",
            Object(["apps", "deployments", "scale", "x", "d"]),
            true,
        ),
        (
            "zed",
            &["devs"],
            "get",
            Object(["", "pods", "", "x", "p"]),
            false,
        ),
        (
            "devs",
            &[],
            "get",
            Object(["apps", "deployments", "", "x", "d"]),
            false,
        ),
        (
            "zed",
            &["dev", "devs2"],
            "get",
            Object(["apps", "deployments", "", "x", "d"]),
            false,
        ),
        // Service accounts are users of a fixed name, by default of the binding's namespace.
        (
            "system:serviceaccount:shop:robot",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            true,
        ),
        (
            "system:serviceaccount:bank:robot",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            true,
        ),
        (
            "system:serviceaccount:other:robot",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            false,
        ),
        (
            "robot",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            false,
        ),
        // An unknown kind of subject is nobody.
        (
            "mallory",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            false,
        ),
        // Paths: exact, by prefix, and never by rules for resources.
        ("zed", &["devs"], "get", Path("/metrics"), true),
        ("zed", &["devs"], "post", Path("/metrics"), false),
        ("zed", &["devs"], "get", Path("/metrics/more"), false),
        ("zed", &["devs"], "get", Path("/logs/a/b"), true),
        ("zed", &["devs"], "get", Path("/logs"), false),
        ("rooty", &[], "get", Path("/anything"), true),
        // A wildcard bound in a namespace says nothing about paths or the cluster.
        (
            "boss",
            &[],
            "delete",
            Object(["", "secrets", "", "shop", "s"]),
            true,
        ),
        ("boss", &[], "get", Path("/anything"), false),
        (
            "boss",
            &[],
            "get",
            Object(["", "nodes", "", "", "n"]),
            false,
        ),
        ("rooty", &[], "*", Object(["*", "*", "", "", ""]), true),
        ("zed", &["devs"], "*", Object(["*", "*", "", "", ""]), false),
        // A binding to a role that is not there gives nothing.
        (
            "zoe",
            &[],
            "get",
            Object(["", "pods", "", "shop", "p"]),
            false,
        ),
        ("", &[], "get", Object(["", "pods", "", "shop", "p"]), false),
    ];
    let rbac = cluster();
    for (name, groups, verb, what, expected) in rows {
        let user = User::new(*name, groups.iter().copied());
        let decision = decide(&rbac, &user, verb, *what);
        assert_eq!(
            decision.allowed, *expected,
            "{name} {groups:?} {verb} {what:?}"
        );
    }
}

#[test]
fn reasons_name_the_binding_the_role_and_the_subject() {
    let pods = What::Object(["", "pods", "", "shop", "p"]);
    let deployments = What::Object(["apps", "deployments", "", "x", "d"]);
    let rows = [
        (
            User::new("zed", ["devs"]),
            deployments,
            r#"RBAC: allowed by ClusterRoleBinding "devs-apps" of ClusterRole "all-of-apps" to Group "devs""#,
        ),
        (
            User::new("alice", ["x"]),
            pods,
            r#"RBAC: allowed by RoleBinding "readers/shop" of ClusterRole "reader" to User "alice""#,
        ),
        (
            User::new("system:serviceaccount:shop:robot", ["x"]),
            pods,
            r#"RBAC: allowed by RoleBinding "readers/shop" of ClusterRole "reader" to ServiceAccount "robot/shop""#,
        ),
        (User::new("mallory", ["x"]), pods, ""),
        (
            User::new("zoe", ["x"]),
            pods,
            r#"RBAC: clusterrole.rbac.authorization.k8s.io "absent" not found"#,
        ),
    ];
    let rbac = cluster();
    for (user, what, expected) in rows {
        let reason = decide(&rbac, &user, "get", what).reason();
        assert_eq!(reason, expected, "{}", user.name);
    }
}

#[test]
fn rules_are_those_of_the_cluster_and_of_the_asked_namespace() {
    let rbac = cluster();
    let alice = User::new("alice", ["devs"]);
    let count = |namespace: &str| rbac.rules(&alice, namespace).0.len();
    assert_eq!(count(""), 2);
    assert_eq!(count("shop"), 4);
    let missing = rbac.rules(&alice, "bank").1;
    assert_eq!(
        missing,
        [r#"role.rbac.authorization.k8s.io "one" not found"#]
    );
}
