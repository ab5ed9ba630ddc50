//! One request's record, from its first event to its last.

use std::borrow::Cow;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use peerage_core::audit::{Decision, Event, Level, ObjectReference, Stage};
use peerage_core::{RequestInfo, Status, User};
use peerage_http::{ConnInfo, Response, body};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Log;

/// Bytes of a `User-Agent` that are recorded; apiserver's `maxUserAgentLength`.
const USER_AGENT_KEPT: usize = 1024;
/// The message recorded of a request whose answer never began.
const CLOSED_EARLY: &str = "Connection closed early";
/// What kube-apiserver answers when a handler panicked.
const PANIC_TEXT: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

/// The record of one request. In its extensions; clones are the same record, whose last event is written when
/// the answer is complete, or else when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct AuditContext(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    record: Option<Record>,
}

#[derive(Debug)]
struct Record {
    log: Arc<Log>,
    decision: Decision,
    /// Until the last event is written.
    event: Mutex<Option<Event>>,
}

impl AuditContext {
    /// A number without a record, for requests that are not recorded and for tests.
    #[must_use]
    pub fn unrecorded(id: &str) -> Self {
        Self(Arc::new(Inner {
            id: id.to_owned(),
            record: None,
        }))
    }

    pub(super) fn begin(
        log: Arc<Log>,
        decision: Decision,
        id: &str,
        user: &User,
        info: &RequestInfo<'_>,
        headers: &HeaderMap,
        connection: &ConnInfo,
    ) -> Self {
        let mut event = Event::received(decision.level, id, user, info, &now());
        event.source_ips = source_ips(headers, connection);
        event.user_agent = user_agent(headers);
        let record = Record {
            log,
            decision,
            event: Mutex::new(Some(event)),
        };
        record.write(Stage::RequestReceived, |_| {});
        Self(Arc::new(Inner {
            id: id.to_owned(),
            record: Some(record),
        }))
    }

    /// The request's number.
    #[must_use]
    pub fn audit_id(&self) -> &str {
        &self.0.id
    }

    /// Whether anything is recorded of this request.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.record.is_some()
    }

    /// Notes something under a key; what is noted first under a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.edit(|event| {
            event
                .annotations
                .entry(key.into())
                .or_insert_with(|| value.into());
        });
    }

    /// Notes on whose behalf the request is carried out.
    pub fn impersonate(&self, user: &User) {
        self.edit(|event| event.impersonated_user = Some(user.clone()));
    }

    /// Notes what the object is called, when the request line does not say so.
    pub fn refer(&self, edit: impl FnOnce(&mut ObjectReference)) {
        self.edit(|event| edit(event.object_ref.get_or_insert_default()));
    }

    /// Notes the failure that the answer tells.
    pub fn fail(&self, status: &Status) {
        self.edit(|event| event.set_response(status.code(), Some(status)));
    }

    /// Whether the request's object is recorded.
    #[must_use]
    pub fn wants_request_object(&self) -> bool {
        self.0
            .record
            .as_ref()
            .is_some_and(|record| record.decision.level >= Level::Request)
    }

    /// Whether the answer's object is recorded.
    #[must_use]
    pub fn wants_response_object(&self) -> bool {
        self.0
            .record
            .as_ref()
            .is_some_and(|record| record.decision.level >= Level::RequestResponse)
    }

    /// Records the request's object, if it is wanted and `json` is JSON.
    pub fn request_object(&self, json: &[u8]) {
        if self.wants_request_object() {
            let object = self.object(json);
            self.edit(|event| event.request_object = object);
        }
    }

    /// Records the answer's object, if it is wanted and `json` is JSON.
    pub fn response_object(&self, json: &[u8]) {
        if self.wants_response_object() {
            let object = self.object(json);
            self.edit(|event| event.response_object = object);
        }
    }

    fn object(&self, json: &[u8]) -> Option<Box<RawValue>> {
        let omit = self
            .0
            .record
            .as_ref()
            .is_some_and(|record| record.decision.omit_managed_fields);
        if !omit {
            return serde_json::from_slice(json).ok();
        }
        let mut value: Value = serde_json::from_slice(json).ok()?;
        omit_managed_fields(&mut value);
        serde_json::value::to_raw_value(&value).ok()
    }

    /// The answer, with its head recorded now and its end when its body has ended. `long_running` answers
    /// (watches, logs) also get an event for their beginning.
    #[must_use]
    pub fn respond(&self, response: Response, long_running: bool) -> Response {
        let Some(record) = &self.0.record else {
            return response;
        };
        let code = response.status().as_u16();
        let answered = |event: &mut Event| {
            // A Status that was noted says more, unless the answer turned out otherwise.
            if event
                .response_status
                .as_ref()
                .is_none_or(|noted| noted.code != code)
            {
                event.set_response(code, None);
            }
        };
        if long_running {
            record.write(Stage::ResponseStarted, answered);
        } else {
            record.edit(answered);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // Whoever runs the tunnel holds a clone of this; the end of the last one is that of the request.
            return response;
        }
        response.map(|body| body::guarded(body, Complete(self.clone())))
    }

    /// Writes the last event; what is noted from now on is lost.
    pub fn complete(&self) {
        if let Some(record) = &self.0.record {
            record.complete();
        }
    }

    /// Writes the last event of a request whose handling panicked.
    fn panicked(&self, text: &str) {
        let Some(record) = &self.0.record else { return };
        record.write(Stage::Panic, |event| {
            event.set_response(500, Some(&panic_status(text)));
        });
        record.take();
    }

    fn edit(&self, edit: impl FnOnce(&mut Event)) {
        if let Some(record) = &self.0.record {
            record.edit(edit);
        }
    }
}

impl Record {
    fn edit(&self, edit: impl FnOnce(&mut Event)) {
        if let Some(event) = self
            .event
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            edit(event);
        }
    }

    fn write(&self, stage: Stage, edit: impl FnOnce(&mut Event)) {
        let mut event = self.event.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(event) = event.as_mut() else { return };
        edit(event);
        event.reach(stage, &now());
        if self.decision.records(stage) {
            self.log.sink.write(event);
        }
    }

    fn take(&self) {
        *self.event.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn complete(&self) {
        self.write(Stage::ResponseComplete, |event| {
            if event.response_status.is_none() {
                let mut closed = Status::default();
                closed.status = "Success".to_owned();
                closed.message = CLOSED_EARLY.to_owned();
                event.set_response(200, Some(&closed));
            }
        });
        self.take();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.complete();
    }
}

/// Completes a record when the answer's body has ended.
struct Complete(AuditContext);

impl Drop for Complete {
    fn drop(&mut self) {
        self.0.complete();
    }
}

/// Waits for the answer to a recorded request and records it. A panic is recorded as such and answered with
/// kube-apiserver's text.
pub async fn observe(
    context: &AuditContext,
    long_running: bool,
    answer: impl Future<Output = Response> + Send,
) -> Response {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => context.respond(response, long_running),
        Err(panic) => {
            let text = panic_text(panic.as_ref());
            tracing::error!(
                audit_id = context.audit_id(),
                panic = text,
                "handling a request panicked"
            );
            context.panicked(text);
            let mut response = Response::new(body::full(Bytes::from_static(PANIC_TEXT.as_bytes())));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, plain);
            response
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

fn panic_status(text: &str) -> Status {
    let mut status = Status::default();
    status.status = "Failure".to_owned();
    status.reason = "InternalError".to_owned();
    status.message = format!("APIServer panic'd: {text}");
    status.code = 500;
    status
}

/// Now, as Kubernetes' MicroTime: RFC 3339, microseconds, UTC.
fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// The addresses that proxies tell, then the one that cannot be made up.
fn source_ips(headers: &HeaderMap, connection: &ConnInfo) -> Vec<String> {
    let first = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let parse = |text: &str| {
        text.trim()
            .parse::<IpAddr>()
            .ok()
            .map(|ip| ip.to_canonical())
    };
    let mut ips: Vec<IpAddr> = first("x-forwarded-for")
        .split(',')
        .filter_map(parse)
        .collect();
    if let Some(real) = parse(first("x-real-ip")).filter(|ip| !ips.contains(ip)) {
        ips.push(real);
    }
    let remote = connection.remote.ip().to_canonical();
    if ips.last() != Some(&remote) {
        ips.push(remote);
    }
    ips.iter().map(ToString::to_string).collect()
}

fn user_agent(headers: &HeaderMap) -> String {
    let sent = headers
        .get(USER_AGENT)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let kept = String::from_utf8_lossy(&sent[..sent.len().min(USER_AGENT_KEPT)]);
    let kept = if sent.len() > USER_AGENT_KEPT {
        Cow::Owned(format!("{kept}...TRUNCATED"))
    } else {
        kept
    };
    kept.into_owned()
}

/// Removes the managed fields of an object, and of those in a list.
fn omit_managed_fields(value: &mut Value) {
    if let Some(Value::Object(meta)) = value.get_mut("metadata") {
        meta.remove("managedFields");
    }
    if let Some(Value::Array(items)) = value.get_mut("items") {
        items.iter_mut().for_each(omit_managed_fields);
    }
}
