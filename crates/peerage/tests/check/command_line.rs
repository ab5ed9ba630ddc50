//! What is refused before anybody is asked.

use tokio::process::Command;

use crate::executable;

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
