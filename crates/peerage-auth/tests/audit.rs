//! What the audit log says of requests that end in every way a request may.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use peerage_auth::audit::{self, AuditOptions, Rotation, observe};
use peerage_auth::{AuditContext, AuditLog};
use peerage_core::audit::{Event, Level, Policy, Stage};
use peerage_core::{GroupResource, RequestInfo, Status, User};
use peerage_http::{ConnInfo, Response, body, full};
use serde_json::json;

struct Fixture {
    dir: tempfile::TempDir,
    log: AuditLog,
}

impl Fixture {
    fn new(policy: Policy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = AuditOptions::new(policy);
        options.path = Some(dir.path().join("audit.log"));
        let log = AuditLog::open(options).unwrap();
        Self { dir, log }
    }

    fn begin(&self, target: &str, headers: &HeaderMap) -> AuditContext {
        let info = RequestInfo::parse("GET", target).unwrap();
        let connection = ConnInfo {
            remote: "[::ffff:10.0.0.9]:1".parse().unwrap(),
            local: "127.0.0.1:2".parse().unwrap(),
            tls: None,
        };
        self.log.begin(
            "id-1",
            &User::new("alice", ["dev"]),
            &info,
            headers,
            &connection,
        )
    }

    async fn events(&self) -> Vec<Event> {
        self.log.flush().await;
        read(&self.dir.path().join("audit.log"))
    }

    /// Each event's stage, code and message.
    async fn told(&self) -> Vec<(Stage, u16, String)> {
        let told = |event: Event| {
            let status = event.response_status.unwrap_or_default();
            (event.stage, status.code, status.message.clone())
        };
        self.events().await.into_iter().map(told).collect()
    }
}

fn read(path: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn row(stage: Stage, code: u16, message: &str) -> (Stage, u16, String) {
    (stage, code, message.to_owned())
}

#[tokio::test]
async fn a_request_is_recorded_when_it_comes_and_when_its_answer_has_ended() {
    let f = Fixture::new(Policy::uniform(Level::Metadata));
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", "1.2.3.4, junk, 5.6.7.8".parse().unwrap());
    headers.insert("x-real-ip", "9.9.9.9".parse().unwrap());
    headers.insert("user-agent", "u".repeat(2000).parse().unwrap());
    let context = f.begin("/api/v1/namespaces/ns/pods/p?x=1", &headers);
    context.annotate("k", "first");
    context.annotate("k", "second");
    context.request_object(b"{}");
    let response = context.respond(Response::new(full("body")), false);
    drop(context);
    assert_eq!(f.events().await.len(), 1);
    response.into_body().collect().await.unwrap();
    let events = f.events().await;
    let stages: Vec<_> = events.iter().map(|event| event.stage).collect();
    assert_eq!(stages, [Stage::RequestReceived, Stage::ResponseComplete]);
    let last = &events[1];
    assert_eq!(
        (
            last.audit_id.as_str(),
            last.user.name.as_str(),
            last.verb.as_str()
        ),
        ("id-1", "alice", "get")
    );
    assert_eq!(
        last.source_ips,
        ["1.2.3.4", "5.6.7.8", "9.9.9.9", "10.0.0.9"]
    );
    assert_eq!(last.user_agent.len(), 1024 + "...TRUNCATED".len());
    assert_eq!(last.annotations.get("k").map(String::as_str), Some("first"));
    assert_eq!(last.response_status.as_ref().unwrap().code, 200);
    assert!(last.request_object.is_none());
    assert_eq!(last.object_ref.as_ref().unwrap().resource, "pods");
    let time = &last.stage_timestamp;
    assert!(
        time.ends_with('Z') && time.len() == "2026-01-02T03:04:05.000006Z".len(),
        "{time}"
    );
}

#[tokio::test]
async fn every_end_of_a_request_is_its_last_event() {
    let closed = "Connection closed early";
    let f = Fixture::new(Policy::uniform(Level::Metadata));
    drop(f.begin("/api/v1/pods", &HeaderMap::new()));
    assert_eq!(
        f.told().await[1..],
        [row(Stage::ResponseComplete, 200, closed)]
    );

    let f = Fixture::new(Policy::uniform(Level::Metadata));
    let context = f.begin("/api/v1/pods/p", &HeaderMap::new());
    context.fail(&Status::not_found(GroupResource::new("", "pods"), "p"));
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    drop(context.respond(response, false));
    drop(context);
    let missing = row(Stage::ResponseComplete, 404, "pods \"p\" not found");
    assert_eq!(f.told().await[1..], [missing]);

    let f = Fixture::new(Policy::uniform(Level::Metadata));
    let context = f.begin("/api/v1/pods?watch=true", &HeaderMap::new());
    let (mut sender, watch) = body::channel(1);
    let watch = context.respond(Response::new(watch), true);
    sender.send_data(Bytes::from("event")).await.unwrap();
    let started = row(Stage::ResponseStarted, 200, "");
    assert_eq!(f.told().await.last(), Some(&started));
    drop(watch);
    assert_eq!(
        f.told().await[1..],
        [started, row(Stage::ResponseComplete, 200, "")]
    );

    let f = Fixture::new(Policy::uniform(Level::Metadata));
    let context = f.begin("/api/v1/pods", &HeaderMap::new());
    let response = observe(&context, false, async { panic!("oh") }).await;
    assert_eq!(response.status(), 500);
    drop((context, response));
    assert_eq!(
        f.told().await[1..],
        [row(Stage::Panic, 500, "APIServer panic'd: oh")]
    );
}

#[tokio::test]
async fn a_tunnel_is_complete_when_whoever_runs_it_lets_go() {
    let f = Fixture::new(Policy::uniform(Level::Metadata));
    let context = f.begin("/api/v1/namespaces/ns/pods/p/exec", &HeaderMap::new());
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    drop(context.respond(response, true));
    assert_eq!(f.told().await.len(), 2);
    drop(context);
    assert_eq!(f.told().await[2], row(Stage::ResponseComplete, 101, ""));
}

#[tokio::test]
async fn the_policy_decides_what_is_recorded() {
    let policy = json!({
        "kind": "Policy", "apiVersion": "audit.k8s.io/v1", "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz"]},
            {"level": "RequestResponse"},
        ],
    });
    let f = Fixture::new(Policy::parse(policy).unwrap());
    let unseen = f.begin("/healthz", &HeaderMap::new());
    assert!(!unseen.is_recorded());
    assert_eq!(unseen.audit_id(), "id-1");
    drop(unseen);
    let context = f.begin("/api/v1/pods", &HeaderMap::new());
    context.request_object(br#"{"metadata":{"name":"p","managedFields":[1]}}"#);
    context.response_object(br#"{"items":[{"metadata":{"managedFields":[1]},"a":1}]}"#);
    context.impersonate(&User::new("bob", ["ops"]));
    context.refer(|object| object.name = "p".to_owned());
    drop(context);
    let events = f.events().await;
    assert_eq!(events.len(), 1);
    let object = |object: &Option<Box<serde_json::value::RawValue>>| {
        object.as_ref().unwrap().get().to_owned()
    };
    assert_eq!(
        object(&events[0].request_object),
        r#"{"metadata":{"name":"p"}}"#
    );
    assert_eq!(
        object(&events[0].response_object),
        r#"{"items":[{"a":1,"metadata":{}}]}"#
    );
    assert_eq!(events[0].impersonated_user.as_ref().unwrap().name, "bob");
    assert_eq!(events[0].object_ref.as_ref().unwrap().name, "p");
}

#[tokio::test]
async fn a_log_that_cannot_keep_up_costs_requests_a_bounded_wait_and_loses_by_count() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success());
    // Opened for both directions, so that nobody waits for the other end; nobody reads.
    let mut held = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    held.flush().unwrap();
    let mut options = AuditOptions::new(Policy::uniform(Level::Metadata));
    options.path = Some(pipe);
    options.queue = 4;
    options.patience = Duration::from_millis(20);
    options.rotation = Rotation {
        max_bytes: u64::MAX,
        ..Rotation::default()
    };
    let metrics = options.metrics.clone();
    let log = AuditLog::open(options).unwrap();
    let f = Fixture { dir, log };
    let mut requests = 0;
    while metrics.lost.get() == 0 {
        f.log.ready().await;
        drop(f.begin("/api/v1/pods", &HeaderMap::new()));
        requests += 1;
    }
    assert!(requests > 4, "{requests}");
    let waiting = tokio::time::timeout(Duration::from_secs(10), f.log.ready()).await;
    assert!(waiting.is_ok());
    assert_eq!(metrics.events.get(), requests * 2);
}

#[test]
fn a_request_keeps_its_number_and_the_client_is_told_so_much_of_it() {
    let mut headers = HeaderMap::new();
    let made = audit::audit_id(&headers);
    assert_eq!(made.len(), 36);
    assert_ne!(made, audit::audit_id(&headers));
    let long = "x".repeat(100);
    headers.insert(audit::AUDIT_ID, long.parse().unwrap());
    assert_eq!(audit::audit_id(&headers), long);
    assert_eq!(audit::told_id(&long), "x".repeat(64));
    assert_eq!(audit::told_id("short"), "short");
    headers.insert(audit::AUDIT_ID, "".parse().unwrap());
    assert_eq!(audit::audit_id(&headers).len(), 36);
}
