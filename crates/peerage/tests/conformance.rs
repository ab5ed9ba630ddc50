//! The executable beside a real kube-apiserver: recorded conversations, asked again, and `docs/conformance.md`.
//!
//! The steps that differ are in the document; what has to agree at least is here. `PEERAGE_WRITE=1`, which
//! `cargo xtask conformance` sets, writes the document anew; without it the document has to be as the runs are.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use peerage_testkit::pki::Pki;
use peerage_testkit::process::{ServerProcess, ServerSpec, StoreProcess};
use peerage_testkit::recording::{NAMES, Reasons, Recording, Replayer, Run, report};
use serde_json::Value;
use tokio::sync::OnceCell;

const PEERAGE: &str = env!("CARGO_BIN_EXE_peerage");

/// Steps of a hundred that agree at least. Only ever raised.
const FLOORS: [(&str, usize); 6] = [
    ("negotiation", 95),
    ("nonresource", 84),
    ("verbs", 98),
    ("lists-watches", 97),
    ("patches", 98),
    ("auth", 90),
];

/// Steps of `mvp` that may differ, each with its reason.
const MOST_REASONS_OF_MVP: usize = 10;

/// A conversation with one server of the newest version, on memory, without controllers.
async fn one_server(name: &str) -> Run {
    let recording = Recording::load(name);
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let spec = ServerSpec::alone("1.37");
    let server = ServerProcess::start(Path::new(PEERAGE), &pki, &spec).await;
    let run = Replayer::new(server.address, &pki).run(&recording).await;
    server.stop().await;
    run
}

/// The conversation with the older server of a pair, and what both wrote down.
struct Pair {
    run: Run,
    audit_of_newer: Vec<Value>,
}

async fn pair(proxy: bool) -> Pair {
    let recording = Recording::load("mvp");
    let directory = tempfile::tempdir().unwrap();
    let pki = Pki::create(directory.path());
    let executable = Path::new(PEERAGE);
    let store = StoreProcess::start(executable, "memory").await;
    let mut older = ServerSpec::peer("older", "1.34", &store.url);
    older.proxy = proxy;
    let newer = ServerSpec::peer("newer", "1.37", &store.url);
    let older = ServerProcess::start(executable, &pki, &older).await;
    let newer = ServerProcess::start(executable, &pki, &newer).await;
    if proxy {
        peerage_testkit::cluster::knows_peer_apis(&older.client("admin")).await;
    }
    let run = Replayer::new(older.address, &pki).run(&recording).await;
    older.stop().await;
    let audit_of_newer = newer.stop().await;
    store.process.stop().await;
    Pair {
        run,
        audit_of_newer,
    }
}

/// Each run once, whichever test needs it first.
async fn run_of(name: &str) -> &'static Run {
    static RUNS: [OnceCell<Run>; NAMES.len()] = [const { OnceCell::const_new() }; NAMES.len()];
    let at = NAMES.iter().position(|n| *n == name).unwrap();
    RUNS[at]
        .get_or_init(|| async {
            match name {
                "mvp" => mvp().await.run.clone(),
                name => one_server(name).await,
            }
        })
        .await
}

async fn mvp() -> &'static Pair {
    static PAIR: OnceCell<Pair> = OnceCell::const_new();
    PAIR.get_or_init(|| pair(true)).await
}

/// Runs a future to its end; runs that several tests share outlive each test's own runtime.
fn wait<F: Future + Send>(future: F) -> F::Output
where
    F::Output: Send,
{
    static RUNTIME: std::sync::LazyLock<tokio::runtime::Runtime> = std::sync::LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    });
    RUNTIME.block_on(future)
}

fn agrees_at_least(name: &str) {
    let floor = FLOORS.iter().find(|(n, _)| *n == name).unwrap().1;
    let run = wait(run_of(name));
    assert!(
        run.percent() >= floor,
        "{name}: {} of {} steps agree, {} of 100; at least {floor} have to\n{}",
        run.agreeing(),
        run.outcomes.len(),
        run.percent(),
        run.in_words()
    );
    let reasons = Reasons::load(name);
    let stale = reasons.stale(run);
    assert!(stale.is_empty(), "reasons without a difference: {stale:?}");
}

#[test]
fn negotiation_agrees() {
    agrees_at_least("negotiation");
}

#[test]
fn paths_without_a_resource_agree() {
    agrees_at_least("nonresource");
}

#[test]
fn verbs_agree() {
    agrees_at_least("verbs");
}

#[test]
fn lists_and_watches_agree() {
    agrees_at_least("lists-watches");
}

#[test]
fn patches_agree() {
    agrees_at_least("patches");
}

#[test]
fn authentication_and_authorization_agree() {
    agrees_at_least("auth");
}

#[test]
fn an_older_server_answers_for_a_newer_peer() {
    let pair = wait(mvp());
    let reasons = Reasons::load("mvp");
    assert!(reasons.len() <= MOST_REASONS_OF_MVP, "{}", reasons.len());
    let unexplained = reasons.unexplained(&pair.run);
    assert!(
        unexplained.is_empty(),
        "{} of {} steps agree; without a reason differ {unexplained:#?}\n{}",
        pair.run.agreeing(),
        pair.run.outcomes.len(),
        pair.run.in_words()
    );
    let stale = reasons.stale(&pair.run);
    assert!(stale.is_empty(), "reasons without a difference: {stale:?}");
}

/// Whether a request is one that only the newer server can have answered: of a resource of its own, with an answer
/// that comes from looking at objects.
fn needs_the_newer(step: &peerage_testkit::recording::Step) -> bool {
    let path = step.request.path.split('?').next().unwrap();
    let own = [
        "/apis/storagemigration.k8s.io/v1/storageversionmigrations",
        "/apis/resource.k8s.io/v1/devicetaintrules",
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    ];
    let better = step.better_response.as_ref().map(|b| u64::from(b.status));
    let status = better.or(step.response["status"].as_u64()).unwrap();
    own.iter().any(|own| path.starts_with(own)) && matches!(status, 200 | 201 | 409 | 422)
}

#[test]
fn each_forwarded_request_is_in_the_newer_servers_audit_log() {
    let pair = wait(mvp());
    let recording = Recording::load("mvp");
    let mut forwarded = 0;
    for (step, outcome) in recording.steps.iter().zip(&pair.run.outcomes) {
        if !needs_the_newer(step) {
            continue;
        }
        forwarded += 1;
        let id = outcome.trail.audit_id.as_deref().unwrap_or_default();
        let event = pair.audit_of_newer.iter().find(|e| e["auditID"] == id);
        let event = event.unwrap_or_else(|| panic!("{}: {id:?} is not in the log", step.name));
        let path = step.request.path.split(['?', '$']).next().unwrap();
        let uri = event["requestURI"].as_str().unwrap();
        assert!(uri.starts_with(path), "{}: {uri}", step.name);
    }
    assert!(forwarded > 40, "only {forwarded} steps are about the peer");
}

#[test]
fn without_the_proxy_the_older_server_cannot_answer_for_the_newer() {
    let pair = wait(pair(false));
    let recording = Recording::load("mvp");
    let steps = recording.steps.iter().zip(&pair.run.outcomes);
    let needed: Vec<_> = steps.filter(|(step, _)| needs_the_newer(step)).collect();
    for (step, outcome) in &needed {
        assert!(
            !outcome.differences.is_empty(),
            "{} agrees all the same",
            step.name
        );
        let id = outcome.trail.audit_id.as_deref().unwrap_or("none");
        assert!(
            !pair.audit_of_newer.iter().any(|e| e["auditID"] == id),
            "{}",
            step.name
        );
    }
    let differing = pair.run.differing().count();
    assert!(
        differing > MOST_REASONS_OF_MVP + 40,
        "only {differing} steps differ"
    );
}

#[test]
fn the_document_says_what_the_runs_show() {
    let runs = wait(futures::future::join_all(NAMES.map(run_of)));
    let runs: Vec<Run> = runs.into_iter().cloned().collect();
    let document = report::document(&runs);
    if std::env::var_os("PEERAGE_WRITE").is_some() {
        std::fs::create_dir_all(report::path().parent().unwrap()).unwrap();
        std::fs::write(report::path(), document).unwrap();
        return;
    }
    let written = std::fs::read_to_string(report::path()).unwrap_or_default();
    let hidden: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("- ") && !written.contains(line))
        .collect();
    assert!(
        hidden.is_empty(),
        "docs/conformance.md is out of date; `cargo xtask conformance` writes it. New in it: {hidden:#?}"
    );
}
