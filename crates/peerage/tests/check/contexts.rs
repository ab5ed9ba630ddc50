//! Servers of a kubeconfig, each of which counts once, whoever asks it.

use peerage_testkit::odd::shared_pair;
use peerage_testkit::pki::Pki;
use serde_json::Value;
use tokio::process::Command;

use crate::{executable, fake};

fn kubeconfig(pki: &Pki, url: &str) -> String {
    let context = |name: &str, user: &str| {
        format!("- {{name: {name}, context: {{cluster: one, user: {user}}}}}\n")
    };
    let user = |name: &str| {
        format!(
            "- {{name: {name}, user: {{client-certificate: {name}.crt, client-key: {name}.key}}}}\n"
        )
    };
    format!(
        "current-context: alice\ncontexts:\n{}{}{}clusters:\n- name: one\n  cluster: {{server: '{url}', certificate-authority: {}}}\n\
         users:\n{}{}",
        context("as-admin", "admin"),
        context("alice", "alice"),
        context("again", "admin"),
        pki.file("ca.crt").display(),
        user("admin"),
        user("alice"),
    )
}

#[tokio::test]
async fn several_contexts_of_one_server_are_one_server_and_the_others_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let server = fake(shared_pair(&pki), 0).await;
    let file = pki.file("kubeconfig");
    std::fs::write(&file, kubeconfig(&pki, &server.url)).unwrap();
    for (contexts, also) in [
        (
            &[][..],
            "it is asked as as-admin, and not as alice, again, ",
        ),
        (
            &["alice", "again"],
            "it is asked as alice, and not as again, ",
        ),
    ] {
        let mut command = Command::new(executable());
        command.arg("check").args(contexts).arg("--output=json");
        // An empty name counts for nothing.
        command.env("KUBECONFIG", format!(":{}", file.display()));
        let output = command.output().await.unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let items = report["items"].as_array().unwrap().iter();
        let reached: Vec<_> = items.filter(|it| it["check"] == "reachable").collect();
        let [item] = reached[..] else {
            panic!("{reached:#?}");
        };
        assert!(item["says"].as_str().unwrap().contains(also), "{item}");
    }
}
