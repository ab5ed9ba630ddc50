#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::directory::*;
use super::*;

fn new() -> (tempfile::TempDir, PkiDirectory) {
    let temp = tempfile::tempdir().unwrap();
    let pki = PkiDirectory::new(temp.path().join("pki"));
    (temp, pki)
}

fn facts(pki: &PkiDirectory, name: &str) -> Facts {
    pki.entries()
        .unwrap()
        .into_iter()
        .find(|entry| entry.name == name)
        .unwrap()
        .facts
}

#[test]
fn a_new_directory_has_all_pairs_with_their_purposes_and_names() {
    let (_temp, pki) = new();
    let plan = Plan {
        alt_names: vec![
            "10.0.0.1".parse().unwrap(),
            "API.example.org".parse().unwrap(),
        ],
        ..Plan::default()
    };
    pki.create(&plan, false).unwrap();

    let rows: Vec<_> = pki
        .entries()
        .unwrap()
        .into_iter()
        .map(|e| (e.name, e.facts.purpose, e.facts.common_name, e.facts.issuer))
        .collect();
    let row = |name: &str, purpose, common_name: &str, issuer: &str| {
        (
            name.to_owned(),
            purpose,
            common_name.to_owned(),
            issuer.to_owned(),
        )
    };
    assert_eq!(
        rows,
        [
            row("ca", Purpose::Authority, "kubernetes", "kubernetes"),
            row("etcd-ca", Purpose::Authority, "etcd-ca", "etcd-ca"),
            row(
                "front-proxy-ca",
                Purpose::Authority,
                "front-proxy-ca",
                "front-proxy-ca"
            ),
            row("admin", Purpose::Client, "kubernetes-admin", "kubernetes"),
            row(
                "apiserver",
                Purpose::Serving,
                "kube-apiserver",
                "kubernetes"
            ),
            row(
                "apiserver-etcd-client",
                Purpose::Client,
                "kube-apiserver-etcd-client",
                "etcd-ca"
            ),
            row("etcd-server", Purpose::Both, "etcd-server", "etcd-ca"),
            row(
                "front-proxy-client",
                Purpose::Client,
                "front-proxy-client",
                "front-proxy-ca"
            ),
        ]
    );
    assert_eq!(
        facts(&pki, "apiserver").alt_names,
        [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
            "127.0.0.1",
            "::1",
            "10.0.0.1",
            "api.example.org",
        ]
    );
    assert_eq!(facts(&pki, "admin").organizations, ["system:masters"]);
}

#[test]
fn private_keys_are_for_their_owner_alone() {
    let (_temp, pki) = new();
    pki.create(&Plan::default(), false).unwrap();
    for file in std::fs::read_dir(pki.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        let secret = file.path().extension().unwrap() == "key";
        assert_eq!(
            mode,
            if secret { 0o600 } else { 0o644 },
            "{:?}",
            file.path()
        );
    }
}

#[test]
fn making_everything_again_is_refused_until_it_is_forced() {
    let (_temp, pki) = new();
    pki.create(&Plan::default(), false).unwrap();
    let before = facts(&pki, "ca");
    let refusal = pki.create(&Plan::default(), false).unwrap_err();
    assert!(refusal.to_string().contains("--force"), "{refusal}");
    assert_eq!(facts(&pki, "ca"), before);
    pki.create(&Plan::default(), true).unwrap();
    assert_ne!(facts(&pki, "ca").serial, before.serial);
}

#[test]
fn completing_makes_only_what_is_missing_and_what_a_new_authority_has_to_sign() {
    let (_temp, pki) = new();
    assert_eq!(pki.complete(&Plan::default()).unwrap().len(), 9);
    assert!(pki.complete(&Plan::default()).unwrap().is_empty());
    std::fs::remove_file(pki.key("admin")).unwrap();
    assert_eq!(pki.complete(&Plan::default()).unwrap(), ["admin"]);
    let named = Plan {
        alt_names: vec!["10.0.0.1".parse().unwrap()],
        ..Plan::default()
    };
    assert_eq!(pki.complete(&named).unwrap(), ["apiserver"]);
    assert!(pki.complete(&named).unwrap().is_empty());
    std::fs::remove_file(pki.key("front-proxy-ca")).unwrap();
    assert_eq!(
        pki.complete(&Plan::default()).unwrap(),
        ["front-proxy-ca", "front-proxy-client"]
    );
}

#[test]
fn a_client_may_be_in_many_groups() {
    let (_temp, pki) = new();
    pki.create(&Plan::default(), false).unwrap();
    for count in [0, 1, 2, 3, 40] {
        let groups: Vec<String> = (0..count).map(|n| format!("group-{n}-é")).collect();
        let subject = client_subject("alice", &groups, 30);
        pki.add("alice", "ca", &subject, true).unwrap();
        let facts = facts(&pki, "alice");
        assert_eq!(facts.common_name, "alice");
        assert_eq!(facts.organizations, groups);
        assert_eq!(facts.purpose, Purpose::Client);
        assert_eq!(facts.days_made_for(), 30);
        let pem = |name: &str| std::fs::read_to_string(pki.certificate(name)).unwrap();
        assert!(
            inspect::signed_by(&pem("alice"), &pem("ca")).unwrap(),
            "{count} groups"
        );
        assert!(!inspect::signed_by(&pem("alice"), &pem("etcd-ca")).unwrap());
    }
}

#[test]
fn renewal_says_the_same_with_the_same_key_and_leaves_authorities_alone() {
    let (_temp, pki) = new();
    pki.create(
        &Plan {
            leaf_days: 20,
            alt_names: vec!["api.example.org".parse().unwrap()],
            ..Plan::default()
        },
        false,
    )
    .unwrap();
    let groups = ["devs".to_owned(), "ops".to_owned()];
    pki.add("alice", "ca", &client_subject("alice", &groups, 300), false)
        .unwrap();
    let (before, key) = (
        pki.entries().unwrap(),
        std::fs::read(pki.key("apiserver")).unwrap(),
    );

    let near = PkiDirectory::near_their_end(30, jiff::Timestamp::now());
    let mut renewed = pki.renew(near, false).unwrap();
    renewed.sort();
    assert_eq!(
        renewed,
        [
            "admin",
            "apiserver",
            "apiserver-etcd-client",
            "etcd-server",
            "front-proxy-client"
        ]
    );
    assert_eq!(std::fs::read(pki.key("apiserver")).unwrap(), key);
    for (old, new) in before.iter().zip(pki.entries().unwrap()) {
        assert_eq!(
            old.facts.serial == new.facts.serial,
            !renewed.contains(&new.name)
        );
        assert_eq!(old.facts.alt_names, new.facts.alt_names);
        assert_eq!(old.facts.organizations, new.facts.organizations);
        assert_eq!(old.facts.issuer, new.facts.issuer);
    }

    // Only what users are known by is in kubeconfigs.
    let note = super::command::of_kubeconfigs(&pki, &renewed).unwrap();
    let note = note.unwrap();
    assert!(note.contains("those of admin anew"), "{note}");
    let serving = ["apiserver".to_owned(), "front-proxy-client".to_owned()];
    assert_eq!(
        super::command::of_kubeconfigs(&pki, &serving).unwrap(),
        None
    );

    pki.renew(|entry| entry.name == "alice", true).unwrap();
    assert_eq!(facts(&pki, "alice").organizations, groups);
    assert_eq!(facts(&pki, "alice").days_made_for(), 300);
}

#[test]
fn names_of_authorities_are_not_given_to_pairs() {
    let (_temp, pki) = new();
    pki.create(&Plan::default(), false).unwrap();
    for name in ["ca", "front-proxy-ca", "sa", "", "../x", ".hidden"] {
        let subject = client_subject("x", &[], 1);
        assert!(pki.add(name, "ca", &subject, true).is_err(), "{name:?}");
    }
}

#[test]
fn alternative_names_are_checked() {
    for good in ["a", "a.b-c.d", "*.example.org", "10.1.2.3", "fe80::1"] {
        assert!(good.parse::<AltName>().is_ok(), "{good}");
    }
    for bad in [
        "",
        ".",
        "a..b",
        "-a",
        "a b",
        "a/b",
        "*",
        "a.*",
        &"a".repeat(64),
    ] {
        assert!(bad.parse::<AltName>().is_err(), "{bad}");
    }
}

#[test]
fn a_kubeconfig_written_is_a_kubeconfig_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("kubeconfig");
    let server = |name: &str, port: u16| kubeconfig::Server {
        name: name.to_owned(),
        url: format!("https://127.0.0.1:{port}"),
    };
    let kubeconfig = kubeconfig::Kubeconfig {
        servers: vec![server("old", 1), server("new", 2)],
        authority: "CA".to_owned(),
        user: "admin".to_owned(),
        certificate: "CERT".to_owned(),
        key: "KEY".to_owned(),
    };
    kubeconfig.write(&path, false).unwrap();
    assert!(matches!(
        kubeconfig.write(&path, false),
        Err(PkiError::Exists { .. })
    ));
    kubeconfig.write(&path, true).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let current = kubeconfig::read(&path, None).unwrap();
    assert_eq!(current.url, "https://127.0.0.1:1");
    assert_eq!(current.authority.as_deref(), Some("CA"));
    assert_eq!(current.certificate.as_deref(), Some("CERT"));
    assert_eq!(current.key.as_deref(), Some("KEY"));
    assert_eq!(
        kubeconfig::read(&path, Some("new")).unwrap().url,
        "https://127.0.0.1:2"
    );
    let missing = kubeconfig::read(&path, Some("other"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("it has old, new"), "{missing}");
}

#[test]
fn a_kubeconfig_says_who_one_is_or_that_it_does_not() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("token"), "from-file\n").unwrap();
    let path = temp.path().join("config");
    let read = |user: &str| {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://a:1'}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}, {{name: anonymous, context: {{cluster: c}}}}]\n\
             current-context: x\nusers: [{user}]\n"
        );
        std::fs::write(&path, text).unwrap();
        kubeconfig::read(&path, None)
    };
    let token = |user: &str| read(user).unwrap().token;
    assert_eq!(token("{name: u, user: {token: t}}").as_deref(), Some("t"));
    assert_eq!(
        token("{name: u, user: {token: t, tokenFile: token, exec: {command: c}}}").as_deref(),
        Some("from-file")
    );
    for (user, expected) in [
        ("", "no user \"u\""),
        ("{name: u, user: {exec: {command: aws}}}", "(exec)"),
        (
            "{name: u, user: {auth-provider: {name: gcp}}}",
            "auth-provider",
        ),
        ("{name: u, user: {username: a, password: b}}", "password"),
    ] {
        let error = read(user).unwrap_err().to_string();
        assert!(error.contains(expected), "{user}: {error}");
    }
    let anonymous = kubeconfig::read(&path, Some("anonymous")).unwrap();
    assert_eq!((anonymous.token, anonymous.certificate), (None, None));
}

#[test]
fn of_several_kubeconfigs_the_first_that_is_there_counts() {
    let temp = tempfile::tempdir().unwrap();
    let there = temp.path().join("there");
    std::fs::write(&there, "").unwrap();
    let list = format!(
        "{}:{}:/nowhere",
        temp.path().join("not").display(),
        there.display()
    );
    assert_eq!(kubeconfig::first_file(&list), Ok(there));
    assert_eq!(kubeconfig::first_file("/a:/b"), Ok("/a".into()));
    assert_eq!(kubeconfig::first_file("/a"), Ok("/a".into()));
    assert_eq!(kubeconfig::first_file(":/a:"), Ok("/a".into()));
    for empty in ["", ":", "::"] {
        let default = kubeconfig::default_file();
        assert_eq!(kubeconfig::first_file(empty), Ok(default), "{empty:?}");
    }
}

#[test]
fn an_etcds_pair_may_be_shown_on_either_side_and_a_servers_on_one() {
    let (_temp, pki) = new();
    pki.create(&Plan::default(), false).unwrap();
    let usages = |name: &str| {
        let usages = inspect::usages(&std::fs::read_to_string(pki.certificate(name)).unwrap());
        let usages = usages.unwrap();
        (usages.serving, usages.client)
    };
    assert_eq!(usages("etcd-server"), (true, true));
    assert_eq!(usages("apiserver"), (true, false));
    assert_eq!(usages("front-proxy-client"), (false, true));
    assert_eq!(
        pki.renew(|it| it.name == "etcd-server", false).unwrap(),
        ["etcd-server"]
    );
    assert_eq!(usages("etcd-server"), (true, true));
}
