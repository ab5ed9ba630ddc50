//! What is printed to be filled in, and for whom it is not.

use peerage_testkit::pki::Pki;
use serde_json::json;
use tokio::process::Command;

use crate::pair::Pair;
use crate::{check, executable};

pub(crate) async fn what_is_printed_knows_the_servers(pair: &Pair) {
    let output = check(
        &pair.pki,
        "admin",
        &pair.urls(),
        &["--print=network-policy"],
    )
    .output()
    .await
    .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for server in [&pair.old, &pair.new] {
        assert!(
            shown.contains(&format!("port: {}", server.address.port())),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn what_is_printed_is_made_up_of_no_server_that_does_not_answer() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    // A port that was free a moment ago and has nobody.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let kubeconfig = pki.file("kubeconfig");
    let contexts = "current-context: a\ncontexts:\n- {name: a, context: {cluster: a, user: a}}\n";
    let cluster = format!(
        "clusters:\n- name: a\n  cluster: {{server: '{url}', certificate-authority: ca.crt}}\n"
    );
    let user = "users:\n- {name: a, user: {token: t}}\n";
    std::fs::write(&kubeconfig, format!("{contexts}{cluster}{user}")).unwrap();
    let printing = |what: &str| {
        let mut command = Command::new(executable());
        command.arg("check").arg(format!("--print={what}"));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command
    };
    let manifest = pki.file("kube-apiserver.yaml");
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"command": ["kube-apiserver"]}]}});
    std::fs::write(&manifest, pod.to_string()).unwrap();
    let mut with_file = printing("kubeadm");
    with_file.arg(format!("--manifest={}", manifest.display()));
    for (mut command, code) in [
        (check(&pki, "admin", &[url], &["--print=static-pod"]), 3),
        (printing("static-pod"), 3),
        (printing("kubeadm"), 3),
        (with_file, 0),
    ] {
        let output = command.output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {error}");
        let says = "none of the servers answers";
        assert_eq!(error.contains(says), code == 3, "{error}");
        assert_eq!(output.stdout.is_empty(), code == 3);
    }
}
