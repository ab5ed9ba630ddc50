//! What is refused before anybody is asked.

use peerage_testkit::pki::Pki;
use tokio::process::Command;

use crate::{check, executable};

#[tokio::test]
async fn a_command_line_that_is_wrong_is_told_from_a_check_that_fails() {
    for (words, code, expected) in [
        (&["--kubeconfig=/there/is/none"][..], 3, "/there/is/none"),
        (
            &["https://127.0.0.1:1", "--kubeconfig=/there/is/none"],
            2,
            "--certificate-authority",
        ),
        (
            &["--manifest=/there/is/none", "--print=kubeadm"],
            3,
            "/there/is/none",
        ),
        (
            &["127.0.0.1:21000", "--print=static-pod"],
            2,
            "write https://127.0.0.1:21000",
        ),
        (&["127.0.0.1:21000"], 2, "write https://127.0.0.1:21000"),
        (&["http://127.0.0.1:1"], 2, "write https://127.0.0.1:1"),
        (&["--print=nothing"], 2, "network-policy"),
        (
            &["--print=static-pod", "--kubeconfig=/there/is/none"],
            3,
            "/there/is/none",
        ),
        (
            &["--gateway=https://127.0.0.1:1", "https://127.0.0.1:1"],
            2,
            "is plain HTTP: write http://",
        ),
        (
            &["--print=kubeadm", "--output=json"],
            2,
            "cannot be used with",
        ),
        (
            &["--print=kubeadm", "--only-problems"],
            2,
            "cannot be used with",
        ),
        (&["--timeout=0s"], 2, "more than 0"),
    ] {
        let output = Command::new(executable())
            .arg("check")
            .args(words)
            .env_remove("KUBECONFIG")
            .output()
            .await
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[tokio::test]
async fn credentials_that_no_request_can_have_are_refused_by_flag_and_file() {
    let (temp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pki, other) = (Pki::create(temp.path()), Pki::create(other.path()));
    let file = |pki: &Pki, name: &str| pki.file(name).display().to_string();
    let (certificate, key) = (file(&other, "alice.crt"), file(&pki, "admin.key"));
    let token = |name: &str, text: &str| {
        std::fs::write(pki.file(name), text).unwrap();
        vec![format!("--token-file={}", file(&pki, name))]
    };
    for (words, says) in [
        (
            vec![
                format!("--proxy-client-cert-file={certificate}"),
                format!("--proxy-client-key-file={key}"),
            ],
            vec![
                "--proxy-client-cert-file, --proxy-client-key-file: ",
                &*certificate,
                &*key,
            ],
        ),
        (
            token("empty", "\n"),
            vec!["--token-file: ", "/empty is empty"],
        ),
        (token("two", "a\nb\n"), vec!["/two holds more than a token"]),
        (token("odd", "a b"), vec!["/odd holds more than a token"]),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let urls = ["https://127.0.0.1:1".to_owned()];
        refused(check(&pki, "admin", &urls, &words), &says).await;
    }
    let mut command = Command::new(executable());
    command.args([
        "check",
        "https://127.0.0.1:1",
        "--kubeconfig=/there/is/none",
    ]);
    command.arg(format!("--certificate-authority={}", file(&pki, "ca.crt")));
    command.args([
        format!("--client-certificate={certificate}"),
        format!("--client-key={key}"),
    ]);
    let says = ["--client-certificate, --client-key: ", &*certificate, &*key];
    refused(command, &says).await;
}

async fn refused(mut command: Command, says: &[&str]) {
    let output = command.output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for says in says {
        assert!(error.contains(says), "{says}: {error}");
    }
}
