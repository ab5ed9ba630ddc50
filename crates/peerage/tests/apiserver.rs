//! One API server by itself, as a user starts it: it makes what it needs, can be asked, and stops when it is told.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start(words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_peerage"))
        .arg("apiserver")
        .args([
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--hostname-override=alone",
        ])
        .args(words)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_server_without_any_preparation_can_be_used_and_stops_cleanly() {
    let temp = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", temp.path().display());
    // The second time it finds its certificates and its store.
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = start(&[&data]);
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let mut log = Vec::new();
        let kubeconfig = loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended: {log:?}"))
                .unwrap();
            if let Some((_, path)) = line.split_once("export KUBECONFIG=") {
                break path.trim().to_owned();
            }
            log.push(line);
        };
        let warnings = log
            .iter()
            .filter(|line| line.contains("--peer-ca-file"))
            .count();
        assert_eq!(warnings, 1, "{log:?}");

        let asked = Command::new(env!("CARGO_BIN_EXE_peerage"))
            .args([
                "explain",
                "GET",
                "/apis/apps/v1/deployments",
                "--output=json",
            ])
            .env("KUBECONFIG", kubeconfig)
            .output()
            .unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
        assert_eq!(answer["answer"], "local", "{answer}");
        assert_eq!(answer["request"]["resource"], "deployments");

        kill(Pid::from_raw(i32::try_from(server.id()).unwrap()), signal).unwrap();
        // Read on, or it could wait for a reader of its log.
        lines.for_each(drop);
        assert_eq!(server.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_wrong_setting_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for wrong in [
        "--emulated-version=1.99",
        "--controllers=no-such-controller",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_peerage"))
            .args(["apiserver", "--data-dir", data.to_str().unwrap(), wrong])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!data.exists(), "{wrong} made {}", data.display());
    }
}

#[test]
fn a_server_tied_to_another_process_stops_when_its_standard_input_ends() {
    let temp = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", temp.path().display());
    let mut server = start(&[&data, "--storage=memory", "--exit-with-stdin"]);
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("export KUBECONFIG=")));
    drop(server.stdin.take());
    lines.for_each(drop);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
