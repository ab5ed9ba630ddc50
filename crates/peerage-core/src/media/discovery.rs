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
            (AggregatedV2, Media::Protobuf) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (AggregatedV2Beta1, Media::Protobuf) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Legacy, media) => media.content_type(),
        }
    }
}

/// What a server can answer discovery with, beside what all do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiscoveryOffer {
    /// Whether it still knows aggregated v2beta1.
    pub v2beta1: bool,
    /// Whether it writes protobuf.
    pub protobuf: bool,
}

impl DiscoveryOffer {
    fn media(self) -> &'static [Media] {
        if self.protobuf {
            Media::OFFERED_WITH_PROTOBUF
        } else {
            Media::OFFERED
        }
    }
}

/// Negotiates a discovery document.
///
/// An aggregated clause anywhere beats every plain one, whatever its quality.
///
/// # Errors
/// Nothing that is accepted is offered, in the two forms that depend on the path.
pub fn negotiate_discovery(
    accept: Option<&str>,
    path: DiscoveryPath,
    offer: DiscoveryOffer,
) -> Result<DiscoveryAccept, NotAcceptable> {
    use DiscoveryPath::{Core, Group, Groups, GroupsSlash, Resources};
    if matches!(path, Core | Resources) {
        router(accept, offer)?;
    }
    let header = accept.unwrap_or_default();
    let aggregated = match path {
        Groups | Core => find_aggregated(header, offer),
        GroupsSlash | Group | Resources => None,
    };
    if let Some(aggregated) = aggregated {
        return Ok(aggregated);
    }
    let plain = negotiate_plain(accept, offer.media());
    let plain = plain.ok_or_else(|| refusal(header, offer))?;
    Ok(DiscoveryAccept {
        document: DiscoveryDocument::Legacy,
        no_peer: false,
        media: plain.media,
        pretty: plain.pretty,
    })
}

const ALL: [&str; 3] = [JSON, YAML, PROTOBUF];

fn router(accept: Option<&str>, offer: DiscoveryOffer) -> Result<(), NotAcceptable> {
    passes_router(accept, &ALL).map_err(|refusal| match refusal {
        NotAcceptable::Router(_) if offer.protobuf => NotAcceptable::Router(ALL.join(", ")),
        as_it_is => as_it_is,
    })
}

fn refusal(header: &str, offer: DiscoveryOffer) -> NotAcceptable {
    if offer.protobuf {
        return NotAcceptable::Handler(ALL.join(", "));
    }
    refused_by_handler(header)
}

fn find_aggregated(header: &str, offer: DiscoveryOffer) -> Option<DiscoveryAccept> {
    let document = |clause: &super::Clause<'_>| {
        let wanted = clause.conversion()?;
        if wanted.group != "apidiscovery.k8s.io" || wanted.kind != "APIGroupDiscoveryList" {
            return None;
        }
        match wanted.version {
            "v2" => Some(DiscoveryDocument::AggregatedV2),
            "v2beta1" if offer.v2beta1 => Some(DiscoveryDocument::AggregatedV2Beta1),
            _ => None,
        }
    };
    let clauses = Clauses::parse(header);
    let (media, clause) = clauses.find(offer.media(), |clause, media| {
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
