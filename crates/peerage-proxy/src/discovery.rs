//! Answering discovery: aggregated and legacy documents, of all servers or of this one alone.
//!
//! Documents, tags and merging are the view's, the choice among them `peerage_core::media`'s; here they become
//! answers with the header fields that kube-apiserver's aggregated discovery gives them, compressed as it does (`gzip`).
//!
//! Differs: kube-apiserver merges nothing but the aggregated document of `/apis`.
//!
//! Invariants: a verified peer gets local documents whatever it asks; what is not known for sure is 503, what nobody
//! has is the local service's 404.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH,
    USER_AGENT, VARY,
};
use http::{Method, StatusCode};
use peerage_core::discovery::DiscoveryVersion;
use peerage_core::media::{
    self, DiscoveryAccept, DiscoveryDocument, DiscoveryOffer, DiscoveryPath, Media,
    negotiate_discovery,
};
use peerage_core::{DocumentForm, Lookup, PeerView, Rendered, Status, ViewScope, etag};
use peerage_http::{Request, Response, body};

use crate::answer::{Form, text};
use crate::error::ProxyError;
use crate::render::indent;
use crate::service::Call;
use crate::{gzip, headers};

/// A discovery path with what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    path: DiscoveryPath,
    group: String,
    version: String,
}

impl Asked {
    /// What this decoded path asks for, if it is one of discovery's.
    pub(crate) fn of(path: &str) -> Option<Asked> {
        let asked = |path, group: &str, version: &str| {
            Some(Asked {
                path,
                group: group.to_owned(),
                version: version.to_owned(),
            })
        };
        let named: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        match named[..] {
            ["api"] | ["api", ""] => asked(DiscoveryPath::Core, "", ""),
            ["apis"] => asked(DiscoveryPath::Groups, "", ""),
            ["apis", ""] => asked(DiscoveryPath::GroupsSlash, "", ""),
            ["api", version] | ["api", version, ""] if !version.is_empty() => {
                asked(DiscoveryPath::Resources, "", version)
            }
            ["apis", group] | ["apis", group, ""] if !group.is_empty() => {
                asked(DiscoveryPath::Group, group, "")
            }
            ["apis", group, version] | ["apis", group, version, ""]
                if !group.is_empty() && !version.is_empty() =>
            {
                asked(DiscoveryPath::Resources, group, version)
            }
            _ => None,
        }
    }

    /// Whether the merged documents have this one, or may have it when more is known.
    pub(crate) fn may_be_in(&self, view: &PeerView) -> bool {
        let scope = ViewScope::Merged;
        let lookup = match self.path {
            DiscoveryPath::Group => view.legacy_group(scope, &self.group),
            DiscoveryPath::Resources => view.legacy_resources(scope, &self.group, &self.version),
            _ => return true,
        };
        lookup != Lookup::Unknown || !view.absence_is_certain()
    }

    /// kube-apiserver's router lets nothing but GET through on these.
    fn is_routed(&self) -> bool {
        matches!(self.path, DiscoveryPath::Core | DiscoveryPath::Resources)
    }
}

/// The answer; `None` if the local service has to say that there is no such document.
pub(crate) fn answer(call: &Call, asked: &Asked, request: &Request) -> Option<Response> {
    let form = Form::of(request, &call.info);
    let accept = text(request.headers(), ACCEPT);
    let rendering = &call.shared.options.rendering;
    let offer = DiscoveryOffer {
        v2beta1: rendering.serves_v2beta1,
        protobuf: rendering.writes_protobuf,
    };
    let negotiated = negotiate_discovery(accept, asked.path, offer);
    let scope = match &negotiated {
        Ok(accept) => call.scope(accept.no_peer),
        Err(_) => call.scope(false),
    };
    let document = match &negotiated {
        Ok(accept) => accept.document,
        Err(_) => DiscoveryDocument::Legacy,
    };
    let rendered = match find(call, asked, document, scope) {
        Found::Here(rendered) => rendered,
        Found::Nowhere => return None,
        Found::NotNow(why) => {
            let why = why.to_owned();
            return Some(form.refuse(call, &ProxyError::NotKnown { why }));
        }
    };
    if asked.is_routed() && *request.method() != Method::GET {
        return Some(form.say(&Status::method_not_allowed(), rendering));
    }
    match negotiated {
        Ok(accept) => {
            count(call, asked, &accept, scope, rendered);
            let mut response = respond(call, request, &accept, rendered);
            if call.verified {
                headers::name_server(response.headers_mut(), call.snapshot.view.local_id());
            }
            Some(response)
        }
        Err(refusal) => Some(form.say(&Status::from(refusal), rendering)),
    }
}

enum Found<'v> {
    Here(&'v Rendered),
    NotNow(&'static str),
    Nowhere,
}

fn find<'v>(
    call: &'v Call,
    asked: &Asked,
    document: DiscoveryDocument,
    scope: ViewScope,
) -> Found<'v> {
    let view = &call.snapshot.view;
    if view.local_documents().is_none() {
        return Found::NotNow("this server does not know yet what it serves");
    }
    if view.is_front() && !front_knows(view, scope) {
        return Found::NotNow("no server behind this gateway has said yet what it serves");
    }
    let version = match document {
        DiscoveryDocument::AggregatedV2 => Some(DiscoveryVersion::V2),
        DiscoveryDocument::AggregatedV2Beta1 => Some(DiscoveryVersion::V2Beta1),
        DiscoveryDocument::Legacy => None,
    };
    let lookup = match (asked.path, version) {
        (DiscoveryPath::Groups, Some(version)) => {
            return Found::Here(view.aggregated_apis(scope, version));
        }
        (DiscoveryPath::Core, Some(version)) => {
            return Found::Here(view.aggregated_core(scope, version));
        }
        (DiscoveryPath::Groups | DiscoveryPath::GroupsSlash, None) => {
            return Found::Here(view.legacy_groups(scope));
        }
        (DiscoveryPath::Core, None) => return Found::Here(view.legacy_versions(scope)),
        (DiscoveryPath::Group, _) => view.legacy_group(scope, &asked.group),
        _ => view.legacy_resources(scope, &asked.group, &asked.version),
    };
    match lookup {
        Lookup::Found(rendered) => Found::Here(rendered),
        Lookup::Stale => Found::NotNow("the servers that have it do not answer at the moment"),
        Lookup::Unknown if scope == ViewScope::Merged && !view.absence_is_certain() => {
            Found::NotNow("not every server has said yet what it serves")
        }
        Lookup::Unknown => Found::Nowhere,
    }
}

/// Whether a front has heard enough for a document that says something: an empty one would tell clients that there is
/// nothing.
fn front_knows(view: &PeerView, scope: ViewScope) -> bool {
    let beside = || view.local_documents().is_some_and(|own| !own.is_empty());
    let any = || view.peers().any(|(peer, _)| peer.documents.is_some());
    match scope {
        ViewScope::Local => beside(),
        ViewScope::Merged => view.synced() && any(),
    }
}

fn respond(
    call: &Call,
    request: &Request,
    accept: &DiscoveryAccept,
    rendered: &Rendered,
) -> Response {
    let headers = request.headers();
    let tag = rendered.etag.as_deref();
    let asked_tag = headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes);
    if let Some(tag) = tag
        && etag::none_match(asked_tag, tag)
    {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        mark(&mut response, Some(tag));
        return response;
    }
    let pretty = accept.pretty || media::is_pretty(&call.info.query(), text(headers, USER_AGENT));
    let gzip = gzip::takes_discovery(headers);
    let encoded = encode(call, accept, rendered, pretty, gzip);
    let length = HeaderValue::from(encoded.bytes.len());
    let mut response = Response::new(body::full(encoded.bytes));
    mark(&mut response, tag);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(encoded.content_type));
    headers.insert(CONTENT_LENGTH, length);
    if encoded.gzip {
        gzip::mark(headers);
        gzip::vary(headers);
    }
    response
}

/// Tagged documents may be kept by anyone who asks again with the tag.
fn mark(response: &mut Response, tag: Option<&str>) {
    let tag = tag.and_then(|tag| HeaderValue::from_str(tag).ok());
    let headers = response.headers_mut();
    let Some(tag) = tag else {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        return;
    };
    headers.insert(ETAG, tag);
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
}

/// A document in the form that it is sent in.
struct Encoded {
    content_type: &'static str,
    bytes: Bytes,
    gzip: bool,
}

fn encode(
    call: &Call,
    accept: &DiscoveryAccept,
    rendered: &Rendered,
    pretty: bool,
    gzip: bool,
) -> Encoded {
    let json = DiscoveryAccept {
        media: Media::Json,
        ..*accept
    };
    let (form, content_type) = match accept.media {
        Media::Yaml => (DocumentForm::Yaml, accept.content_type()),
        Media::Protobuf if rendered.protobuf().is_some() => {
            (DocumentForm::Protobuf, accept.content_type())
        }
        _ if pretty => (DocumentForm::Indented, json.content_type()),
        _ => (DocumentForm::Json, json.content_type()),
    };
    let pack = || gzip::discovery(&write(call, rendered, form)?);
    let packed = gzip.then(|| rendered.packed(form, pack)).flatten();
    if let Some(packed) = packed {
        return Encoded {
            content_type,
            bytes: share(packed),
            gzip: true,
        };
    }
    let (content_type, bytes) = match write(call, rendered, form) {
        Some(bytes) => (content_type, bytes),
        None => (json.content_type(), share(&rendered.bytes)),
    };
    Encoded {
        content_type,
        bytes,
        gzip: false,
    }
}

fn write(call: &Call, rendered: &Rendered, form: DocumentForm) -> Option<Bytes> {
    match form {
        DocumentForm::Json => Some(share(&rendered.bytes)),
        DocumentForm::Indented => Some(indent(&rendered.bytes).into()),
        DocumentForm::Protobuf => rendered.protobuf().map(share),
        DocumentForm::Yaml => {
            let yaml = call.shared.options.rendering.yaml.write(&rendered.bytes);
            yaml.map(Into::into)
        }
    }
}

fn share(bytes: &Arc<[u8]>) -> Bytes {
    Bytes::from_owner(bytes.clone())
}

fn count(
    call: &Call,
    asked: &Asked,
    accept: &DiscoveryAccept,
    scope: ViewScope,
    rendered: &Rendered,
) {
    let shared = &call.shared;
    if accept.document == DiscoveryDocument::Legacy || shared.options.tls.is_none() {
        return;
    }
    if accept.no_peer {
        shared.metrics.nopeer.inc();
    }
    if scope == ViewScope::Merged && asked.path == DiscoveryPath::Groups {
        let now = rendered.bytes.as_ptr() as usize;
        if shared.last_merged.swap(now, Ordering::Relaxed) == now {
            shared.metrics.merged_hits.inc();
        } else {
            shared.metrics.merged_misses.inc();
            shared.metrics.aggregated.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_paths_are_told_from_others_with_and_without_a_last_slash() {
        use DiscoveryPath::{Core, Group, Groups, GroupsSlash, Resources};
        type Expected = Option<(DiscoveryPath, &'static str, &'static str)>;
        let rows: &[(&str, Expected)] = &[
            ("/api", Some((Core, "", ""))),
            ("/api/", Some((Core, "", ""))),
            ("/apis", Some((Groups, "", ""))),
            ("/apis/", Some((GroupsSlash, "", ""))),
            ("/api/v1", Some((Resources, "", "v1"))),
            ("/api/v1/", Some((Resources, "", "v1"))),
            ("/apis/apps", Some((Group, "apps", ""))),
            ("/apis/apps/", Some((Group, "apps", ""))),
            ("/apis/apps/v1", Some((Resources, "apps", "v1"))),
            ("/apis/apps/v1/", Some((Resources, "apps", "v1"))),
            ("/api//v1", None),
            ("/apis//", None),
            ("/apis//v1", None),
            ("/api/v1//", None),
            ("/apis/apps/v1/deployments", None),
            ("/", None),
            ("", None),
            ("/version", None),
            ("/API", None),
        ];
        for (path, expected) in rows {
            let expected = expected.map(|(path, group, version)| Asked {
                path,
                group: group.to_owned(),
                version: version.to_owned(),
            });
            assert_eq!(Asked::of(path), expected, "{path:?}");
        }
    }
}
