//! How objects, lists and watches are answered: media type, conversion, stream.

use super::accept::{Clause, Clauses};
use super::{
    JSON, Media, NotAcceptable, PROTOBUF, YAML, listed, passes_router, refused_by_handler,
};

/// What kind of answer a request to a resource gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// One object, or a Status: everything but list and watch.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// A version of `meta.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// The `apiVersion` of converted documents.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What the client wants made of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Convert {
    /// Rows and columns.
    Table(MetaVersion),
    /// The metadata of one object.
    PartialObjectMetadata(MetaVersion),
    /// The metadata of the objects of a list.
    PartialObjectMetadataList(MetaVersion),
}

impl Convert {
    /// Refuses metadata of one object for a list, and the other way round, as Kubernetes does once it has the
    /// object. `go_type` is what it calls the object (`core.ConfigMapList`).
    ///
    /// # Errors
    /// The text of the 406 answer.
    pub fn check(self, is_list: bool, go_type: &str) -> Result<(), String> {
        match self {
            Convert::PartialObjectMetadata(_) if is_list => Err(format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{go_type})"
            )),
            Convert::PartialObjectMetadataList(_) if !is_list => Err(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{go_type})"
            )),
            _ => Ok(()),
        }
    }
}

/// How a request to a resource is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ResourceAccept {
    /// The media type; its Content-Type carries no parameters.
    pub media: Media,
    /// What the object is converted to.
    pub convert: Option<Convert>,
    /// Whether the clause named the watch stream. A watch streams with and without.
    pub stream: bool,
    /// Whether the clause asks for indented JSON; [`super::is_pretty`] may too.
    pub pretty: bool,
}

/// Negotiates the answer of a resource. `has_table` is false for the few that cannot be shown as a Table.
///
/// # Errors
/// Nothing that is accepted is offered; YAML cannot be streamed.
pub fn negotiate_resource(
    accept: Option<&str>,
    endpoint: Endpoint,
    has_table: bool,
) -> Result<ResourceAccept, NotAcceptable> {
    const STREAMS: [&str; 2] = [
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
    ];
    match endpoint {
        Endpoint::Object => passes_router(accept, &[JSON, YAML, PROTOBUF])?,
        Endpoint::List | Endpoint::Watch => {
            passes_router(accept, &[JSON, YAML, PROTOBUF, STREAMS[0], STREAMS[1]])?
        }
    }
    let Some(header) = accept.filter(|header| !header.is_empty()) else {
        return Ok(ResourceAccept::default());
    };
    let clauses = Clauses::parse(header);
    let found = clauses.find(Media::OFFERED, |clause, media| {
        fits(clause, media, has_table)
    });
    match found {
        Some((Media::Yaml, _)) | None if endpoint == Endpoint::Watch => {
            Err(NotAcceptable::Handler(listed(&STREAMS, header)))
        }
        None => Err(refused_by_handler(header)),
        Some((media, clause)) => Ok(ResourceAccept {
            media,
            convert: conversion(clause),
            stream: clause.get("stream") == Some("watch"),
            pretty: clause.is_pretty(),
        }),
    }
}

fn fits(clause: &Clause<'_>, media: Media, has_table: bool) -> bool {
    let converts = match conversion(clause) {
        Some(Convert::Table(_)) => has_table,
        Some(_) => true,
        None => clause.conversion().is_none(),
    };
    converts
        && clause.fits_stream(media)
        && clause
            .get("sv")
            .is_none_or(|version| matches!(version, "" | "v1"))
}

fn conversion(clause: &Clause<'_>) -> Option<Convert> {
    let wanted = clause.conversion()?;
    let version = match (wanted.group, wanted.version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    match wanted.kind {
        "Table" => Some(Convert::Table(version)),
        "PartialObjectMetadata" => Some(Convert::PartialObjectMetadata(version)),
        "PartialObjectMetadataList" => Some(Convert::PartialObjectMetadataList(version)),
        _ => None,
    }
}
