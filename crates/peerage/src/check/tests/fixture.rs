//! A pair of kube-apiservers as they should be, made by hand, to be changed.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use peerage_apiserver::server_id;
use peerage_catalogue::{Catalogue, RuntimeConfig};
use peerage_core::discovery::{ApiGroupDiscoveryList, DiscoveryVersion};
use rcgen::{
    CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::check::counters::Counted;
use crate::check::gather::PEER_NAME;
use crate::check::handshake::{Handshake, HandshakeError};
use crate::check::world::{
    Ahead, Answers, Asked, Gateway, Got, Port, ReadThrough, Server, Shown, World,
};
use crate::client::Answer;
use crate::discovery::Form;
use crate::pki::kubeconfig::Connection;

pub(super) const NOW: &str = "2030-06-01T12:00:00Z";

/// A certificate authority and what it signs, with any dates.
pub(super) struct Pki(CertifiedIssuer<'static, KeyPair>);

/// A serving certificate as it should be, to be changed.
pub(super) struct Leaf {
    pub(super) names: Vec<&'static str>,
    pub(super) years: (i32, i32),
    pub(super) usage: ExtendedKeyUsagePurpose,
}

pub(super) fn leaf() -> Leaf {
    Leaf {
        names: vec!["10.0.0.1", PEER_NAME],
        years: (2029, 2032),
        usage: ExtendedKeyUsagePurpose::ServerAuth,
    }
}

impl Pki {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2040, 1, 1);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn issue(&self, name: &str, leaf: &Leaf) -> (CertificateDer<'static>, String) {
        let names: Vec<String> = leaf.names.iter().map(|it| (*it).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(leaf.years.0, 1, 1);
        params.not_after = date_time_ymd(leaf.years.1, 1, 1);
        params.extended_key_usages = vec![leaf.usage.clone()];
        let signed = params
            .signed_by(&KeyPair::generate().unwrap(), &self.0)
            .unwrap();
        (signed.der().clone(), signed.pem())
    }

    pub(super) fn serving(&self, leaf: &Leaf) -> Result<Handshake, HandshakeError> {
        Ok(Handshake {
            certificates: vec![self.issue("kube-apiserver", leaf).0],
            took: Duration::from_millis(3),
            at: None,
        })
    }
}

pub(super) fn answer(status: u16, body: impl Into<Bytes>) -> Got {
    Ok(Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: body.into(),
    })
}

pub(super) fn document(status: u16, value: &Value) -> Got {
    answer(status, value.to_string())
}

pub(super) fn forbidden() -> Got {
    document(403, &json!({"kind": "Status", "message": "forbidden"}))
}

pub(super) fn missing() -> Got {
    answer(404, "404 page not found\n")
}

pub(super) fn tagged(list: &ApiGroupDiscoveryList) -> Got {
    let mut got = answer(200, list.to_json(DiscoveryVersion::V2)).unwrap();
    got.headers.insert("etag", list.etag().parse().unwrap());
    Ok(got)
}

pub(super) const METRICS: &str = "kubernetes_feature_enabled{name=\"UnknownVersionInteroperabilityProxy\",stage=\"BETA\"} 1\n\
    apiserver_rerouted_request_total{code=\"200\"} 4\n";
pub(super) const READY: &str = "[+]ping ok\n[+]poststarthook/mixed-version-proxy-handler ok\n";

/// A kube-apiserver of a release with its own proxy, beside one of the newest.
pub(super) fn server(pki: &Pki, name: &str, release: &str, host: &str) -> Server {
    let load = |it: &str| Catalogue::load(it, &RuntimeConfig::default()).unwrap();
    let (own, newest) = (load(release), load("1.37"));
    let merged = newest.groups_discovery();
    let minor = release.trim_start_matches("1.");
    let version = json!({"gitVersion": format!("v{release}.1"), "emulationMajor": "1", "emulationMinor": minor});
    Server {
        name: name.to_owned(),
        also: Vec::new(),
        connection: Connection {
            url: format!("https://{host}:6443"),
            server_name: None,
            authority: Some(pki.pem()),
            authority_from: "--certificate-authority ca.crt".to_owned(),
            certificate: None,
            key: None,
            token: Some("t".to_owned()),
        },
        address: format!("{host}:6443"),
        handshake: pki.serving(&Leaf {
            names: vec!["10.0.0.1", "10.0.0.2", PEER_NAME],
            ..leaf()
        }),
        answers: Ok(Answers {
            ready: answer(200, READY),
            version: document(200, &version),
            metrics: answer(200, METRICS),
            debug: missing(),
            own: Ok(Shown {
                apis: own.groups_discovery(),
                core: own.core_discovery(),
                form: Form::V2,
            }),
            merged: tagged(&merged),
            merged_core: tagged(&newest.core_discovery()),
            legacy: document(200, &json!(own.groups_discovery().to_legacy())),
            openapi: document(200, &openapi_index(&own.groups_discovery())),
            ahead: Some(Ahead {
                least: -0.5,
                most: 0.5,
            }),
        }),
        as_peer: None,
    }
}

pub(super) fn openapi_index(apis: &ApiGroupDiscoveryList) -> Value {
    let mut paths = serde_json::Map::new();
    for group in &apis.items {
        for version in &group.versions {
            paths.insert(
                format!("apis/{}/{}", group.name(), version.version),
                json!({}),
            );
        }
    }
    json!({"paths": paths})
}

pub(super) fn lease(hostname: &str, address: &str) -> Value {
    json!({
        "metadata": {
            "name": server_id(hostname),
            "labels": {"kubernetes.io/hostname": hostname, "apiserver.kubernetes.io/identity": "kube-apiserver"},
            "annotations": {"kubernetes.io/peer-advertise-address": address},
        },
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 3600, "renewTime": "2030-06-01T11:59:55Z"},
    })
}

/// What an older and a newer kube-apiserver answer when they are asked for the documents of an API that the newer has.
pub(super) fn only_in_the_newer() -> Asked {
    let list = json!({"kind": "APIResourceList", "groupVersion": "storagemigration.k8s.io/v1",
        "resources": [{"name": "storageversionmigrations", "singularName": "", "namespaced": false,
            "kind": "StorageVersionMigration", "verbs": ["get", "list"]}]});
    let paths = json!({"paths": {"/apis/storagemigration.k8s.io/v1/storageversionmigrations": {}}});
    Asked {
        api_version: "storagemigration.k8s.io/v1".to_owned(),
        legacy: vec![missing(), document(200, &list)],
        openapi: vec![missing(), document(200, &paths)],
    }
}

pub(super) fn world(pki: &Pki) -> World {
    let servers = vec![
        server(pki, "old", "1.36", "10.0.0.1"),
        server(pki, "new", "1.37", "10.0.0.2"),
    ];
    let leases = json!({"items": [lease("old", "10.0.0.1:6443"), lease("new", "10.0.0.2:6443")]});
    let endpoints = json!({"items": [{"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}]});
    let config = json!({"data": {
        "requestheader-client-ca-file": Pki::new("front-proxy-ca").pem(),
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]"}});
    let port = |hostname: &str, host: &str| Port {
        lease: server_id(hostname),
        address: format!("{host}:6443"),
        handshake: pki.serving(&leaf()),
    };
    let read = ReadThrough {
        path: "/apis/storagemigration.k8s.io/v1/storageversionmigrations".to_owned(),
        list: vec![document(200, &json!({})); 2],
        object: None,
    };
    World {
        now: NOW.parse::<Timestamp>().unwrap(),
        servers,
        unusable: Vec::new(),
        gateways: Vec::new(),
        leases: document(200, &leases),
        endpoints: document(200, &endpoints),
        config: document(200, &config),
        pods: document(200, &json!({"items": []})),
        manifests: Vec::new(),
        front_proxy: None,
        ports: vec![port("old", "10.0.0.1"), port("new", "10.0.0.2")],
        asked: vec![only_in_the_newer()],
        read: vec![read],
        left_out: Vec::new(),
        before: Counted::default(),
    }
}

pub(super) fn answers(world: &mut World, at: usize) -> &mut Answers {
    world.servers[at].answers.as_mut().unwrap()
}

/// Sets a server's clock, as far as its date tells it.
pub(super) fn clock(world: &mut World, at: usize, ahead: f64) {
    answers(world, at).ahead = Some(Ahead {
        least: ahead - 0.5,
        most: ahead + 0.5,
    });
}

/// The same, with its Lease, which it writes by that clock.
pub(super) fn wrong_clock_of_old(world: &mut World, ahead: i64) {
    clock(world, 0, ahead as f64);
    let mut old = lease("old", "10.0.0.1:6443");
    let renewed = Timestamp::from_second(world.now.as_second() - 5 + ahead).unwrap();
    old["spec"]["renewTime"] = json!(renewed.to_string());
    let leases = json!({"items": [old, lease("new", "10.0.0.2:6443")]});
    world.leases = document(200, &leases);
}

/// Makes a server one that is reached through a gateway.
pub(super) fn through_a_gateway(world: &mut World, at: usize) {
    let version = answers(world, at).version.as_mut().unwrap();
    peerage_proxy::headers::mark_gateway(&mut version.headers);
}

pub(super) fn gateway(peers: Value) -> Gateway {
    Gateway {
        url: "http://127.0.0.1:10440".to_owned(),
        ready: answer(200, "ok"),
        debug: document(200, &json!({"server": "gateway", "peers": peers})),
        metrics: missing(),
    }
}
