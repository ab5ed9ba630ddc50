//! `/statusz` and `/flagz`: what this process is and how it was started, as text for people and as objects for
//! programs (KEP-4827, KEP-4828). Nothing secret is among the settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, WARNING};
use http::request::Parts;
use jiff::Timestamp;
use peerage_core::Status;
use peerage_core::media::{Media, PageAccept, negotiate_page};
use peerage_http::Response;
use serde::Serialize;

use crate::api::Api;
use crate::respond::{self, Respond};

/// Versions of the objects, the oldest first.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// What there is to tell of this process.
#[derive(Debug)]
pub(crate) struct Process {
    started: Timestamp,
    since: Instant,
    /// Settings under their flags' names.
    flags: BTreeMap<&'static str, String>,
}

impl Process {
    /// A process that starts now.
    pub(crate) fn new(flags: BTreeMap<&'static str, String>) -> Self {
        Self {
            started: Timestamp::now(),
            since: Instant::now(),
            flags,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    kind: &'static str,
    api_version: String,
    metadata: Name,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct Name {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statusz {
    start_time: String,
    uptime_seconds: u64,
    go_version: String,
    binary_version: String,
    emulation_version: String,
    paths: Vec<&'static str>,
}

#[derive(Serialize)]
struct Flagz<'a> {
    flags: &'a BTreeMap<&'static str, String>,
}

/// Answers `/statusz`.
pub(super) fn statusz(api: &Api, parts: &Parts, respond: &Respond) -> Response {
    let info = api.catalogue.version_info();
    let process = &api.process;
    let content = Statusz {
        start_time: peerage_objects::time::show(process.started),
        uptime_seconds: process.since.elapsed().as_secs(),
        go_version: info.go_version.to_string(),
        binary_version: info.git_version.trim_start_matches('v').to_owned(),
        emulation_version: api.catalogue.version().to_owned(),
        paths: super::index::FIXED.to_vec(),
    };
    let text = format!(
        "Peerage API server\n\nStarted: {}\nUp: {} s\nCompiler: {}\nVersion: {}\nServes the API of: {}\nPaths: {}\n",
        content.start_time,
        content.uptime_seconds,
        content.go_version,
        content.binary_version,
        content.emulation_version,
        content.paths.join(" "),
    );
    answer(parts, respond, "Statusz", text, content)
}

/// Answers `/flagz`.
pub(super) fn flagz(api: &Api, parts: &Parts, respond: &Respond) -> Response {
    let flags = &api.process.flags;
    let mut text = "Peerage API server\n\n".to_owned();
    for (name, value) in flags {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    answer(parts, respond, "Flagz", text, Flagz { flags })
}

fn answer(
    parts: &Parts,
    respond: &Respond,
    kind: &'static str,
    text: String,
    content: impl Serialize,
) -> Response {
    let accept = super::accept_of(&parts.headers);
    match negotiate_page(accept, kind, &VERSIONS) {
        Err(refusal) => respond.error(&Status::from(refusal).into()),
        Ok(PageAccept::Text) => respond::respond(
            StatusCode::OK,
            peerage_core::PlainError::CONTENT_TYPE,
            text.into(),
        ),
        Ok(PageAccept::Object { media, version }) => {
            let page = Page {
                kind,
                api_version: format!("config.k8s.io/{version}"),
                metadata: Name { name: "apiserver" },
                content,
            };
            let body = match media {
                Media::Json | Media::Protobuf => {
                    serde_json::to_string(&page).map_err(|e| e.to_string())
                }
                Media::Yaml => respond::yaml(&page),
            };
            let Ok(body) = body else {
                return respond.error(&Status::internal("the page cannot be written").into());
            };
            object(kind, media, &version, body)
        }
    }
}

fn object(kind: &str, media: Media, version: &str, body: String) -> Response {
    let mut response = respond::respond(StatusCode::OK, media.content_type(), body.into());
    let exact = format!(
        "{};g=config.k8s.io;v={version};as={kind}",
        media.content_type()
    );
    if let Ok(exact) = HeaderValue::from_str(&exact) {
        response.headers_mut().insert(CONTENT_TYPE, exact);
    }
    let page = kind.to_ascii_lowercase();
    let warning = format!(
        "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
    );
    if version == VERSIONS[0]
        && let Ok(warning) = HeaderValue::from_str(&warning)
    {
        response.headers_mut().insert(WARNING, warning);
    }
    response
}
