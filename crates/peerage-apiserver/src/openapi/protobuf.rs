//! `/openapi/v2` as protobuf: older kubectl reads it in no other form.
//!
//! A layer around everything that makes the JSON document, peers included, which it asks for in the client's place
//! and encodes. The messages are those of OpenAPI version 2 in gnostic's `openapi.v2` package, of which the fields
//! that a Kubernetes document uses are written; what has no field of its own (`x-kubernetes-…`) is an extension,
//! whose value is YAML, and JSON is YAML.
//!
//! Invariant: a document that is no JSON object is answered as it came.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue};
use http::{Method, StatusCode};
use peerage_http::{Request, Response, body};
use serde_json::{Map, Value};
use tower::Service;

/// What is asked for and answered; some clients write the first dot of the version as `@`.
const ANSWERED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const ASKED_TOO: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The document of a server with thousands of custom resources is some tens of megabytes.
const LARGEST: usize = 64 << 20;
/// A document that is made in memory does not pause for long.
const PAUSE: Duration = Duration::from_secs(30);

/// The last document encoded, and the tag of the one it was made from.
type Last = Arc<Mutex<Option<(HeaderValue, Bytes)>>>;

/// The layer.
#[derive(Debug, Clone)]
pub(crate) struct V2Protobuf<S> {
    inner: S,
    last: Last,
}

impl<S> V2Protobuf<S> {
    /// Around what answers with JSON.
    pub(crate) fn new(inner: S) -> Self {
        Self {
            inner,
            last: Last::default(),
        }
    }
}

impl<S> Service<Request> for V2Protobuf<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let path = request.uri().path() == "/openapi/v2";
        if !path || request.method() != Method::GET || !wants_protobuf(&request) {
            return Box::pin(self.inner.call(request));
        }
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.remove(ACCEPT_ENCODING);
        let answer: Self::Future = Box::pin(self.inner.call(request));
        let last = self.last.clone();
        Box::pin(async move { Ok(encoded(answer.await?, &last).await) })
    }
}

/// Whether protobuf comes before JSON in what the client takes.
fn wants_protobuf(request: &Request) -> bool {
    let accept = request.headers().get(ACCEPT);
    let accept = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let bare = |clause: &str| {
        clause
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let mut known = accept
        .split(',')
        .map(bare)
        .filter_map(|media_type| match &*media_type {
            ANSWERED | ASKED_TOO => Some(true),
            "application/json" | "application/*" | "*/*" | "*" => Some(false),
            _ => None,
        });
    known.next().unwrap_or(false)
}

/// A good answer with its document encoded; any other one as it is.
async fn encoded(response: Response, last: &Last) -> Response {
    if response.status() != StatusCode::OK {
        return response;
    }
    let (mut head, stream) = response.into_parts();
    let tag = head.headers.get(ETAG).cloned();
    let known = last.lock().ok().and_then(|last| last.clone());
    let bytes = match known.filter(|(of, _)| Some(of) == tag.as_ref()) {
        Some((_, bytes)) => bytes,
        None => {
            let Ok(json) = body::collect(stream, LARGEST, PAUSE).await else {
                let mut failed = Response::new(body::empty());
                *failed.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                return failed;
            };
            let whole = json.clone();
            let made = tokio::task::spawn_blocking(move || encode(&whole)).await;
            let Ok(Some(bytes)) = made else {
                return Response::from_parts(head, body::full(json));
            };
            if let (Some(tag), Ok(mut last)) = (tag, last.lock()) {
                *last = Some((tag, bytes.clone()));
            }
            bytes
        }
    };
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static(ANSWERED));
    head.headers
        .insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Response::from_parts(head, body::full(bytes))
}

fn encode(json: &[u8]) -> Option<Bytes> {
    let document: Value = serde_json::from_slice(json).ok()?;
    Some(self::document(document.as_object()?).0.into())
}

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.number(field << 3 | 2);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, value: Option<&Value>) {
        for text in items(value) {
            self.text(field, Some(text));
        }
    }

    fn flag(&mut self, field: u64, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.number(field << 3);
            self.number(1);
        }
    }

    fn integer(&mut self, field: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_i64) {
            self.number(field << 3);
            self.number(value as u64);
        }
    }

    fn double(&mut self, field: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64) {
            self.number(field << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn any(&mut self, field: u64, value: Option<&Value>) {
        if let Some(value) = value {
            self.message(field, &any(value));
        }
    }

    /// A repeated pair of a name and a message.
    fn named(&mut self, field: u64, name: &str, value: &Message) {
        let mut pair = Message::default();
        pair.bytes(1, name.as_bytes());
        pair.message(2, value);
        self.message(field, &pair);
    }

    fn extensions(&mut self, field: u64, of: &Map<String, Value>) {
        for (name, value) in of.iter().filter(|(name, _)| name.starts_with("x-")) {
            self.named(field, name, &any(value));
        }
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    let items = value.and_then(Value::as_array);
    items.map(Vec::as_slice).unwrap_or_default()
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.as_str(), value.as_object()?)))
}

/// A value as YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.bytes(2, value.to_string().as_bytes());
    message
}

fn document(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    message.text(1, of.get("swagger"));
    let mut info = Message::default();
    if let Some(Value::Object(given)) = of.get("info") {
        info.text(1, given.get("title"));
        info.text(2, given.get("version"));
    }
    message.message(2, &info);
    let mut paths = Message::default();
    for (path, item) in members(of.get("paths")) {
        paths.named(2, path, &path_item(item));
    }
    message.message(8, &paths);
    let mut definitions = Message::default();
    for (name, definition) in members(of.get("definitions")) {
        definitions.named(1, name, &schema(definition));
    }
    message.message(9, &definitions);
    message
}

fn path_item(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    let methods = ["get", "put", "post", "delete", "options", "head", "patch"];
    for (field, method) in (2..).zip(methods) {
        if let Some(Value::Object(given)) = of.get(method) {
            message.message(field, &operation(given));
        }
    }
    parameters(&mut message, 9, of.get("parameters"));
    message.extensions(10, of);
    message
}

fn operation(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    message.texts(1, of.get("tags"));
    message.text(3, of.get("description"));
    message.text(5, of.get("operationId"));
    message.texts(6, of.get("produces"));
    message.texts(7, of.get("consumes"));
    parameters(&mut message, 8, of.get("parameters"));
    let mut responses = Message::default();
    for (code, given) in members(of.get("responses")) {
        let mut response = Message::default();
        response.text(1, given.get("description"));
        if let Some(Value::Object(given)) = given.get("schema") {
            response.message(2, &choice(1, &schema(given)));
        }
        responses.named(1, code, &choice(1, &response));
    }
    message.message(9, &responses);
    message.texts(10, of.get("schemes"));
    message.extensions(13, of);
    message
}

/// A message that is one of several.
fn choice(field: u64, chosen: &Message) -> Message {
    let mut message = Message::default();
    message.message(field, chosen);
    message
}

fn parameters(into: &mut Message, field: u64, all: Option<&Value>) {
    for given in items(all).iter().filter_map(Value::as_object) {
        let parameter = match given.get("in").and_then(Value::as_str) {
            Some("body") => choice(1, &body_parameter(given)),
            Some("query") => choice(2, &choice(3, &query_parameter(given))),
            Some("path") => choice(2, &choice(4, &path_parameter(given))),
            _ => continue,
        };
        into.message(field, &choice(1, &parameter));
    }
}

fn body_parameter(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    message.text(2, of.get("name"));
    message.text(3, of.get("in"));
    message.flag(4, of.get("required"));
    if let Some(Value::Object(given)) = of.get("schema") {
        message.message(5, &schema(given));
    }
    message
}

fn query_parameter(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    message.flag(1, of.get("required"));
    message.text(2, of.get("in"));
    message.text(4, of.get("name"));
    message.text(6, of.get("type"));
    message.flag(20, of.get("uniqueItems"));
    message
}

fn path_parameter(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    message.flag(1, of.get("required"));
    message.text(2, of.get("in"));
    message.text(4, of.get("name"));
    message.text(5, of.get("type"));
    message.flag(19, of.get("uniqueItems"));
    message
}

fn schema(of: &Map<String, Value>) -> Message {
    let mut message = Message::default();
    message.text(1, of.get("$ref"));
    message.text(2, of.get("format"));
    message.text(4, of.get("description"));
    message.any(5, of.get("default"));
    message.double(7, of.get("maximum"));
    message.double(9, of.get("minimum"));
    message.integer(11, of.get("maxLength"));
    message.integer(12, of.get("minLength"));
    message.text(13, of.get("pattern"));
    message.integer(14, of.get("maxItems"));
    message.integer(15, of.get("minItems"));
    message.texts(19, of.get("required"));
    for value in items(of.get("enum")) {
        message.any(20, Some(value));
    }
    match of.get("additionalProperties") {
        Some(Value::Object(given)) => message.message(21, &choice(1, &schema(given))),
        Some(given) => {
            let mut item = Message::default();
            item.flag(2, Some(given));
            message.message(21, &item);
        }
        None => {}
    }
    if of.contains_key("type") {
        let mut types = Message::default();
        types.text(1, of.get("type"));
        message.message(22, &types);
    }
    if let Some(Value::Object(given)) = of.get("items") {
        message.message(23, &choice(1, &schema(given)));
    }
    for given in items(of.get("allOf")).iter().filter_map(Value::as_object) {
        message.message(24, &schema(given));
    }
    if of.contains_key("properties") {
        let mut properties = Message::default();
        for (name, given) in members(of.get("properties")) {
            properties.named(1, name, &schema(given));
        }
        message.message(25, &properties);
    }
    message.extensions(31, of);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asks(accept: &str) -> bool {
        let request = http::Request::builder().header(ACCEPT, accept);
        wants_protobuf(&request.body(body::empty()).unwrap())
    }

    #[test]
    fn protobuf_is_for_who_asks_for_it_first() {
        assert!(asks(ANSWERED) && asks(ASKED_TOO));
        assert!(asks(&format!("text/html, {ASKED_TOO}, application/json")));
        assert!(!asks(&format!("application/json, {ANSWERED}")));
        assert!(!asks("*/*") && !asks("") && !asks("application/yaml"));
    }

    #[test]
    fn messages_have_the_numbers_of_the_published_package() {
        let document = json!({
            "swagger": "2.0",
            "definitions": {"a": {"type": "string", "x-b": [1]}},
        });
        let bytes = encode(document.to_string().as_bytes()).unwrap();
        let expected = [
            &b"\x0a\x032.0"[..],
            b"\x12\x00",
            b"\x42\x00",
            // definitions: a pair of "a" and its schema: the type, and an extension
            b"\x4a\x21\x0a\x1f\x0a\x01a\x12\x1a",
            b"\xb2\x01\x08\x0a\x06string",
            b"\xfa\x01\x0c\x0a\x03x-b\x12\x05\x12\x03[1]",
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn what_is_no_document_is_not_encoded() {
        assert_eq!(encode(b"[]"), None);
        assert_eq!(encode(b"not JSON"), None);
    }
}
