//! Which discovery document a request for `/api`, `/apis` or below gets, and how it is written.

use super::accept::Clauses;
use super::{
    JSON, Media, NotAcceptable, PROTOBUF, YAML, negotiate_plain, passes_router, refused_by_handler,
};

/// A path that is answered with discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiscoveryPath {
    /// `/apis`: all groups, aggregated or legacy.
    Groups,
    /// `/apis/` with its slash: the legacy list alone.
    GroupsSlash,
    /// `/api`: the core versions, aggregated or legacy.
    Core,
    /// `/apis/GROUP`.
    Group,
    /// `/api/v1` and `/apis/GROUP/VERSION`.
    Resources,
}

/// A kind of discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiscoveryDocument {
    /// `apidiscovery.k8s.io/v2`.
    AggregatedV2,
    /// `apidiscovery.k8s.io/v2beta1`.
    AggregatedV2Beta1,
    /// The unversioned document of the path.
    Legacy,
}

/// What a discovery request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiscoveryAccept {
    /// The document.
    pub document: DiscoveryDocument,
    /// Whether only what this server serves itself is wanted (`profile=nopeer`).
    pub no_peer: bool,
    /// The media type.
    pub media: Media,
    /// Whether the clause asks for indented JSON; [`super::is_pretty`] may too.
    pub pretty: bool,
}

impl DiscoveryAccept {
    /// The value of Content-Type. The profile is never in it.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        use DiscoveryDocument::{AggregatedV2, AggregatedV2Beta1, Legacy};
        match (self.document, self.media) {
            (AggregatedV2, Media::Json) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (AggregatedV2, Media::Yaml) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (AggregatedV2Beta1, Media::Json) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (AggregatedV2Beta1, Media::Yaml) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Legacy, media) => media.content_type(),
        }
    }
}

/// Negotiates a discovery document. `serves_v2beta1` is whether this server still knows aggregated v2beta1.
///
/// An aggregated clause anywhere beats every plain one, whatever its quality.
///
/// # Errors
/// Nothing that is accepted is offered, in the two forms that depend on the path.
pub fn negotiate_discovery(
    accept: Option<&str>,
    path: DiscoveryPath,
    serves_v2beta1: bool,
) -> Result<DiscoveryAccept, NotAcceptable> {
    use DiscoveryPath::{Core, Group, Groups, GroupsSlash, Resources};
    if matches!(path, Core | Resources) {
        passes_router(accept, &[JSON, YAML, PROTOBUF])?;
    }
    let header = accept.unwrap_or_default();
    let aggregated = match path {
        Groups | Core => find_aggregated(header, serves_v2beta1),
        GroupsSlash | Group | Resources => None,
    };
    if let Some(aggregated) = aggregated {
        return Ok(aggregated);
    }
    let plain = negotiate_plain(accept).ok_or_else(|| refused_by_handler(header))?;
    Ok(DiscoveryAccept {
        document: DiscoveryDocument::Legacy,
        no_peer: false,
        media: plain.media,
        pretty: plain.pretty,
    })
}

fn find_aggregated(header: &str, serves_v2beta1: bool) -> Option<DiscoveryAccept> {
    let document = |clause: &super::Clause<'_>| {
        let wanted = clause.conversion()?;
        if wanted.group != "apidiscovery.k8s.io" || wanted.kind != "APIGroupDiscoveryList" {
            return None;
        }
        match wanted.version {
            "v2" => Some(DiscoveryDocument::AggregatedV2),
            "v2beta1" if serves_v2beta1 => Some(DiscoveryDocument::AggregatedV2Beta1),
            _ => None,
        }
    };
    let clauses = Clauses::parse(header);
    let (media, clause) = clauses.find(|clause, media| {
        document(clause).is_some()
            && clause.fits_stream(media)
            && clause.get("sv").is_none_or(str::is_empty)
    })?;
    Some(DiscoveryAccept {
        document: document(clause)?,
        no_peer: clause.get("profile") == Some("nopeer"),
        media,
        pretty: clause.is_pretty(),
    })
}
