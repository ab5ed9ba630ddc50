//! The checklist again and again.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use peerage_testkit::odd::{self, Odd, shared_pair};
use peerage_testkit::pki::Pki;
use peerage_testkit::process::ServerProcess;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::{check, fake};

/// `check --watch` without a terminal.
pub(crate) struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    pub(crate) fn start(mut command: Command) -> Self {
        command.args([
            "--watch",
            "--interval=100ms",
            "--timeout=5s",
            "--exit-with-stdin",
        ]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) async fn wait_for(&mut self, text: &str) -> String {
        let found = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("it ended without {text:?}"));
                if line.contains(text) {
                    return line;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("no line with {text:?}"))
    }

    pub(crate) async fn stop(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(Duration::from_secs(60), self.child.wait());
        ended.await.unwrap().unwrap().code()
    }
}

pub(crate) async fn a_server_that_dies_is_told_while_watching(
    pki: &Pki,
    urls: &[String],
    new: ServerProcess,
) {
    let mut watching = Watching::start(check(pki, "admin", urls, &[]));
    watching.wait_for("pass: ").await;
    let name = new.address.to_string();
    new.process.kill();
    let line = watching
        .wait_for(&format!("pass -> fail reachable of {name}"))
        .await;
    assert!(line.contains("cannot connect"), "{line}");
    assert_eq!(watching.stop().await, Some(2));
}

#[tokio::test]
async fn a_watch_as_json_is_a_document_in_each_line() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let fake = fake(shared_pair(&pki), 0).await;
    let urls = std::slice::from_ref(&fake.url);
    let words = ["--output=json", "--only-problems"];
    let mut watching = Watching::start(check(&pki, "admin", urls, &words));
    for _ in 0..2 {
        let report: Value = serde_json::from_str(&watching.wait_for("").await).unwrap();
        let items = report["items"].as_array().unwrap();
        assert!(!items.is_empty() && items.iter().all(|it| it["verdict"] != "pass"));
    }
    watching.stop().await;
}

#[tokio::test]
async fn what_went_wrong_before_anybody_watched_is_a_statement_and_what_goes_wrong_now_a_warning() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let asked = AtomicU32::new(0);
    let server = Odd::with(shared_pair(&pki), move |parts| {
        let text = match parts.uri.path() {
            "/metrics" => {
                // Every second look finds one more.
                let failed = 7 + asked.fetch_add(1, Ordering::Relaxed) / 2;
                format!("apiserver_rerouted_request_total{{code=\"503\"}} {failed}\n")
            }
            _ => "{\"gitVersion\": \"v1.37.2\"}".to_owned(),
        };
        Some(odd::text(StatusCode::OK, &text))
    })
    .await;
    let urls = std::slice::from_ref(&server.url);
    let mut watching = Watching::start(check(&pki, "admin", urls, &["--output=json"]));
    for (verdict, says) in [
        (
            "pass",
            "since it started: 7 rerouted, 7 answered 5xx; whether that grows is seen with --watch",
        ),
        (
            "pass",
            "nothing went wrong in this round; since it started: 7 rerouted",
        ),
        (
            "warn",
            "in this round: 1 rerouted, 1 answered 5xx; since it started: 8 rerouted",
        ),
        (
            "pass",
            "nothing went wrong in this round; since it started: 8 rerouted",
        ),
    ] {
        let report: Value = serde_json::from_str(&watching.wait_for("").await).unwrap();
        let mut items = report["items"].as_array().unwrap().iter();
        let item = items.find(|it| it["check"] == "rerouted").unwrap();
        assert_eq!(item["verdict"], verdict, "{item}");
        assert!(item["says"].as_str().unwrap().starts_with(says), "{item}");
    }
    watching.stop().await;
}
