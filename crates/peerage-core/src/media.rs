//! In which form a request may be answered, and in which form its body comes.
//!
//! Accept is negotiated as kube-apiserver does it, in two stages: the router compares bare media types and knows
//! only `*/*` as a wildcard; then the handler weighs the clauses with their parameters (conversion to a Table,
//! aggregated discovery, pretty printing). Each stage refuses with its own text, and `/apis` and `/apis/GROUP` have
//! no router before them. Encoding is left to [`crate::json`] and to the servers.
//!
//! Protobuf is offered for discovery and failures alone, and there only if the server says so: elsewhere a client that
//! accepts it and JSON gets JSON, one that accepts nothing else is refused.
//! The texts of refusals list the media types that Kubernetes lists, since clients compare them, except to a client
//! that asked for protobuf: that one is told what there is.

mod accept;
mod body;
mod discovery;
mod page;
mod resource;

use crate::query::Query;
use crate::status::Status;

pub use body::{BodyType, PatchType, UnsupportedMediaType, body_type, patch_type};
pub use discovery::{
    DiscoveryAccept, DiscoveryDocument, DiscoveryOffer, DiscoveryPath, negotiate_discovery,
};
pub use page::{PageAccept, negotiate_page};
pub use resource::{Convert, Endpoint, MetaVersion, ResourceAccept, negotiate_resource};

use accept::{Clause, Clauses};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A media type in which answers are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Media {
    /// `application/json`.
    #[default]
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`, of discovery and of failures.
    Protobuf,
}

impl Media {
    /// What is offered, the preferred first.
    pub const OFFERED: &[Media] = &[Media::Json, Media::Yaml];

    /// What is offered by who also writes protobuf.
    pub const OFFERED_WITH_PROTOBUF: &[Media] = &[Media::Json, Media::Yaml, Media::Protobuf];

    /// The value of Content-Type, without parameters.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Media::Json => JSON,
            Media::Yaml => YAML,
            Media::Protobuf => PROTOBUF,
        }
    }

    fn subtype(self) -> &'static str {
        match self {
            Media::Json => "json",
            Media::Yaml => "yaml",
            Media::Protobuf => "vnd.kubernetes.protobuf",
        }
    }
}

/// How an answer without any conversion is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// The media type.
    pub media: Media,
    /// Indented; only JSON knows a difference.
    pub pretty: bool,
}

/// Nothing that the client accepts is offered. The text is the message of the 406 answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAcceptable {
    /// The router refused; holds what the path can represent.
    #[error("406: Not Acceptable\n\nAvailable representations: {0}")]
    Router(String),
    /// The handler refused; holds what it accepts.
    #[error("only the following media types are accepted: {0}")]
    Handler(String),
}

impl From<NotAcceptable> for Status {
    fn from(refusal: NotAcceptable) -> Self {
        let message = refusal.to_string();
        match refusal {
            NotAcceptable::Router(_) => Status::generic(406, &message),
            NotAcceptable::Handler(_) => Status::not_acceptable(message),
        }
    }
}

/// How to write a Status to this client: as it accepts, or as indented JSON when it accepts nothing of what there
/// is, or only conversions.
#[must_use]
pub fn negotiate_status(accept: Option<&str>, offered: &[Media]) -> Encoding {
    negotiate_plain(accept, offered).unwrap_or(Encoding {
        media: Media::Json,
        pretty: true,
    })
}

/// The first acceptable encoding without a conversion.
fn negotiate_plain(accept: Option<&str>, offered: &[Media]) -> Option<Encoding> {
    let Some(accept) = accept.filter(|accept| !accept.is_empty()) else {
        return Some(Encoding::default());
    };
    let clauses = Clauses::parse(accept);
    let (media, clause) = clauses.find(offered, |clause, media| {
        clause.conversion().is_none()
            && clause.fits_stream(media)
            && clause.get("sv").is_none_or(str::is_empty)
    })?;
    Some(Encoding {
        media,
        pretty: clause.is_pretty(),
    })
}

/// Whether the query or the client's kind asks for indented JSON. A `pretty` parameter decides alone when it has a
/// value; otherwise it is what is usually read by people: curl, wget and browsers.
#[must_use]
pub fn is_pretty(query: &Query<'_>, user_agent: Option<&str>) -> bool {
    match query.first("pretty").filter(|value| !value.is_empty()) {
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => user_agent.is_some_and(|agent| {
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|prefix| agent.starts_with(prefix))
        }),
    }
}

/// Whether the client takes gzip, by kube-apiserver's rule for objects and discovery: the bare word, without a weight.
#[must_use]
pub fn takes_gzip(accept_encoding: Option<&str>) -> bool {
    let mut codings = accept_encoding.unwrap_or_default().split(',');
    codings.any(|coding| coding.trim() == "gzip")
}

/// The same by the rule of OpenAPI's handler, which looks at weights (RFC 9110 section 12.4.2).
#[must_use]
pub fn weighs_gzip(accept_encoding: Option<&str>) -> bool {
    let mut codings = accept_encoding.unwrap_or_default().split(',');
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.trim().strip_prefix("q=");
        let weight = weight.map_or(Some(1.0), |weight| weight.trim().parse::<f64>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
    })
}

/// Whether the client takes JSON from a handler that writes nothing else. It is OpenAPI's rule, which looks at types
/// alone and not at their quality.
#[must_use]
pub fn takes_json(accept: Option<&str>) -> bool {
    let header = accept.unwrap_or_default();
    header.is_empty()
        || header.split(',').map(bare_type).any(|bare| {
            matches!(
                bare,
                "application/json" | "application/*" | "*/*" | "*" | ""
            )
        })
}

/// The router's stage for a document that has these media types and no handler that looks closer.
///
/// # Errors
/// None of them is accepted.
pub fn negotiate_document(
    accept: Option<&str>,
    representations: &[&str],
) -> Result<(), NotAcceptable> {
    passes_router(accept, representations)
}

/// The router's stage: one of the bare types must be among those of the path, or `*/*`.
fn passes_router(accept: Option<&str>, representations: &[&str]) -> Result<(), NotAcceptable> {
    let Some(accept) = accept.filter(|accept| !accept.is_empty()) else {
        return Ok(());
    };
    let passes = accept
        .split(',')
        .map(bare_type)
        .any(|bare| bare == "*/*" || representations.contains(&bare));
    if passes {
        Ok(())
    } else {
        Err(NotAcceptable::Router(listed(representations, accept)))
    }
}

/// A clause without its parameters.
fn bare_type(clause: &str) -> &str {
    clause
        .split(';')
        .next()
        .unwrap_or_default()
        .trim_matches(' ')
}

/// The media types in a refusal; without protobuf for a client that asked for it.
fn listed(types: &[&str], header: &str) -> String {
    offered(types, header).join(", ")
}

fn offered<'t>(types: &[&'t str], header: &str) -> Vec<&'t str> {
    let asks_for_protobuf = header.to_ascii_lowercase().contains(PROTOBUF);
    types
        .iter()
        .copied()
        .filter(|name| !asks_for_protobuf || !name.starts_with(PROTOBUF))
        .collect()
}

/// The handler's refusal with the media types of documents that are not streamed.
fn refused_by_handler(accept: &str) -> NotAcceptable {
    NotAcceptable::Handler(listed(&[JSON, YAML, PROTOBUF], accept))
}

impl Clause<'_> {
    /// Streams are JSON only.
    fn fits_stream(&self, media: Media) -> bool {
        match self.get("stream") {
            None | Some("") => true,
            Some(stream) => stream == "watch" && media == Media::Json,
        }
    }

    fn is_pretty(&self) -> bool {
        self.get("pretty") == Some("1")
    }
}
