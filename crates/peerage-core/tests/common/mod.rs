//! What the tests of discovery and routing share: recorded documents, and a short way to write made-up ones.

#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use peerage_core::discovery::*;
use peerage_core::view::*;
use peerage_core::{Exclusion, Exclusions};

/// A document of a real kube-apiserver, as it was sent.
pub fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.json.gz"));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

pub fn recorded_groups(version: &str) -> ApiGroupDiscoveryList {
    read_groups(&recorded(&format!("{version}-aggregated-apis"))).unwrap()
}

pub fn recorded_core(version: &str) -> ApiGroupDiscoveryList {
    read_core(&recorded(&format!("{version}-aggregated-api"))).unwrap()
}

pub fn recorded_documents(version: &str) -> Arc<Documents> {
    Arc::new(Documents::new(
        recorded_groups(version),
        recorded_core(version),
    ))
}

/// Writes a list of groups: `"apps/v1: deployments[get,list] deployments/scale[get]; batch/v1!"`.
///
/// Items are separated by `;`, in order; versions of one group follow each other. `!` marks a stale version,
/// a resource without brackets has the verb `get`.
pub fn groups(text: &str) -> ApiGroupDiscoveryList {
    let mut items: Vec<ApiGroupDiscovery> = Vec::new();
    for item in text.split(';').map(str::trim).filter(|it| !it.is_empty()) {
        let (name, resources) = item.split_once(':').unwrap_or((item, ""));
        let (name, stale) = match name.strip_suffix('!') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (group, version) = name.split_once('/').unwrap_or(("", name));
        let version = ApiVersionDiscovery {
            version: version.into(),
            resources: resources_of(resources),
            freshness: if stale {
                Freshness::Stale
            } else {
                Freshness::Current
            },
        };
        match items.last_mut() {
            Some(last) if last.name() == group => last.versions.push(version),
            _ => items.push(ApiGroupDiscovery::new(group, vec![version])),
        }
    }
    ApiGroupDiscoveryList {
        items: items.into_iter().map(Arc::new).collect(),
    }
}

fn resources_of(text: &str) -> Vec<Arc<ApiResourceDiscovery>> {
    let mut resources: Vec<ApiResourceDiscovery> = Vec::new();
    for word in text.split_whitespace() {
        let (name, verbs) = match word.split_once('[') {
            Some((name, verbs)) => (name, verbs.trim_end_matches(']')),
            None => (word, "get"),
        };
        let verbs: Vec<String> = verbs.split(',').map(str::to_owned).collect();
        match name.split_once('/') {
            None => resources.push(ApiResourceDiscovery {
                resource: name.into(),
                response_kind: Some(ResponseKind::of(name.to_uppercase())),
                scope: Scope::Namespaced,
                singular_resource: name.trim_end_matches('s').into(),
                verbs,
                ..ApiResourceDiscovery::default()
            }),
            Some((_, subresource)) => {
                let parent = resources.last_mut().unwrap();
                parent.subresources.push(ApiSubresourceDiscovery {
                    subresource: subresource.into(),
                    response_kind: Some(ResponseKind::of("Sub")),
                    verbs,
                    ..ApiSubresourceDiscovery::default()
                });
            }
        }
    }
    resources.into_iter().map(Arc::new).collect()
}

/// The reverse of [`groups`].
pub fn spelled(list: &ApiGroupDiscoveryList) -> String {
    let mut items = Vec::new();
    for group in &list.items {
        for version in &group.versions {
            let mut item = match group.name() {
                "" => version.version.clone(),
                group => format!("{group}/{}", version.version),
            };
            if version.freshness.is_stale() {
                item.push('!');
            }
            let mut words = Vec::new();
            for resource in &version.resources {
                words.push(word(&resource.resource, &resource.verbs));
                for it in &resource.subresources {
                    let name = format!("{}/{}", resource.resource, it.subresource);
                    words.push(word(&name, &it.verbs));
                }
            }
            if !words.is_empty() {
                item = format!("{item}: {}", words.join(" "));
            }
            items.push(item);
        }
    }
    items.join("; ")
}

fn word(name: &str, verbs: &[String]) -> String {
    match verbs {
        [only] if only == "get" => name.into(),
        verbs => format!("{name}[{}]", verbs.join(",")),
    }
}

pub fn documents(text: &str) -> Arc<Documents> {
    let all = groups(text);
    let (core, apis): (Vec<_>, Vec<_>) = all.items.into_iter().partition(|it| it.name().is_empty());
    Arc::new(Documents::new(
        ApiGroupDiscoveryList { items: apis },
        ApiGroupDiscoveryList { items: core },
    ))
}

pub fn local(text: &str) -> LocalApis {
    LocalApis {
        id: "local".into(),
        documents: Some(documents(text)),
        server_address: "192.0.2.1:6443".into(),
        is_front: false,
    }
}

/// A live peer that serves `text`.
pub fn peer(id: &str, text: &str) -> Peer {
    Peer {
        state: PeerState::Live,
        readiness: Readiness::Ready,
        documents: Some(documents(text)),
        heard_at: Some(Millis(1_000)),
        ..Peer::new(id, "192.0.2.9:6443")
    }
}

/// The same, gone since the given time.
pub fn gone(peer: Peer, since: u64) -> Peer {
    Peer {
        state: PeerState::Gone,
        gone_since: Some(Millis(since)),
        ..peer
    }
}

/// A view at 10 s, all heard, with a hold time of one minute.
pub fn inputs(local: LocalApis, peers: Vec<Peer>) -> ViewInputs {
    ViewInputs {
        local,
        peers: peers.into_iter().map(Arc::new).collect(),
        exclusions: Arc::default(),
        now: Millis(10_000),
        synced: true,
        hold: Millis(60_000),
    }
}

/// `"group/version"` or `"group/version/resource"`, several separated by spaces.
pub fn exclusions(text: &str) -> Arc<Exclusions> {
    let one = |word: &str| {
        let parts: Vec<&str> = word.split('/').collect();
        match parts[..] {
            [group, version] => Exclusion::version(group, version),
            [group, version, resource] => Exclusion::resource(group, version, resource),
            _ => panic!("{word}"),
        }
    };
    Arc::new(text.split_whitespace().map(one).collect())
}
