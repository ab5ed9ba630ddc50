//! `peerage check` as a shell sees it, against servers of two versions on one store: that all is well, and each thing
//! that goes wrong.
//!
//! | file | shows |
//! |---|---|
//! | `pair` | a pair as it should be, and what breaks |
//! | `faults` | servers that are not as they should be from the start |
//! | `gateways` | that a gateway is known for one, and taken for no server |
//! | `contexts` | that a server counts once, whoever asks it |
//! | `printing` | `--print` |
//! | `watching` | `--watch` |
//! | `command_line` | what is refused, and with which exit code |

#![allow(clippy::unwrap_used, missing_docs)]

mod command_line;
mod contexts;
mod faults;
mod gateways;
mod pair;
mod printing;
mod watching;

use std::path::Path;

use http::StatusCode;
use jiff::Timestamp;
use peerage_http::Pem;
use peerage_testkit::odd::{self, Odd};
use peerage_testkit::pki::Pki;
use serde_json::Value;
use tokio::process::Command;

pub(crate) fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_peerage"))
}

pub(crate) fn check(pki: &Pki, user: &str, urls: &[String], words: &[&str]) -> Command {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let mut command = Command::new(executable());
    command
        .arg("check")
        .args(urls)
        .args(words)
        .arg("--kubeconfig=/there/is/none")
        .arg(file("certificate-authority", "ca.crt"))
        .arg(file("client-certificate", &format!("{user}.crt")))
        .arg(file("client-key", &format!("{user}.key")))
        .env_remove("KUBECONFIG")
        .kill_on_drop(true);
    command
}

/// What came of a check.
pub(crate) struct Checked {
    pub(crate) code: Option<i32>,
    pub(crate) items: Vec<Value>,
    pub(crate) text: String,
}

pub(crate) async fn checked(pki: &Pki, user: &str, urls: &[String], words: &[&str]) -> Checked {
    let words = [words, &["--output=json"]].concat();
    let output = check(pki, user, urls, &words).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    Checked {
        code: output.status.code(),
        items: report["items"].as_array().unwrap().clone(),
        text,
    }
}

impl Checked {
    /// The items that turned out in this way, as `check of subject: what it says`.
    pub(crate) fn of(&self, verdict: &str) -> Vec<String> {
        let text = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
        let items = self.items.iter().filter(|it| it["verdict"] == verdict);
        items
            .map(|it| {
                let (check, subject) = (text(it, "check"), text(it, "subject"));
                format!("{check} of {subject}: {}", text(it, "says"))
            })
            .collect()
    }

    /// Exactly these turned out in this way.
    pub(crate) fn assert(&self, verdict: &str, expected: &[&str]) {
        let found = self.of(verdict);
        let all = expected
            .iter()
            .all(|it| found.iter().any(|found| found.starts_with(it)));
        assert!(
            all && found.len() == expected.len(),
            "{verdict}: {found:#?}, expected {expected:#?}\n{}",
            self.text
        );
    }
}

/// A server that answers everything with the same, by a clock of its own.
pub(crate) async fn fake(pair: (Pem, Pem), ahead: i64) -> Odd {
    Odd::with(pair, move |_| {
        let now = Timestamp::from_second(Timestamp::now().as_second() + ahead).unwrap();
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mut answer = odd::text(StatusCode::OK, "{\"gitVersion\": \"v1.37.2\"}");
        odd::set(&mut answer, "date", &date);
        Some(answer)
    })
    .await
}
