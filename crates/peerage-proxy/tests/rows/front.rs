//! A front: servers of any age behind it, and what a bad one does to the others.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use peerage_auth::VerifiedPeer;
use peerage_auth::identity_headers::Family;
use peerage_core::LocalApis;
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, Request};
use peerage_proxy::debug::DebugPeer;
use peerage_proxy::{
    Behind, DebugPeers, FrontOptions, PeerProxy, PeerRecord, ProxyService, Writes,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{Layer, ServiceExt};

use super::support::world::{request, with};
use super::support::*;

mod believing;
mod reading;
mod versions;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What goes to any of the servers that have it; a list would go to one for each client.
const WIDGET: &str = "/apis/new.example.com/v1/namespaces/a/widgets/w";

/// A front with these servers behind it.
struct Gateway {
    proxy: PeerProxy,
    service: ProxyService<Behind>,
    records: watch::Sender<Arc<[PeerRecord]>>,
}

impl Gateway {
    fn new(pki: &Pki, servers: &[&FakePeer], beside: Option<&FakePeer>) -> Gateway {
        Gateway::writing(pki, servers, beside, Writes::Local)
    }

    fn writing(
        pki: &Pki,
        servers: &[&FakePeer],
        beside: Option<&FakePeer>,
        writes: Writes,
    ) -> Gateway {
        let mut options = WorldBuilder::default().options;
        let mut tls = ClientTlsOptions::new(pki.ca());
        let passing = ClientTls::load(tls.clone()).unwrap();
        tls.identity = Some(pki.client("front-proxy-client").pems());
        options.tls = Some(ClientTls::load(tls).unwrap());
        options.poll.deadline = Duration::from_secs(2);
        options.poll.starting = Duration::from_secs(60);
        options.front = Some(FrontOptions {
            beside: beside.map(|it| it.id.clone()),
            passing,
            zone: None,
            writes,
            bound: Default::default(),
            family: Family::FrontProxy,
        });
        let records = servers.iter().map(|it| record(&it.id, it));
        let (records, received) = watch::channel(records.collect());
        let local = LocalApis {
            id: "gateway".into(),
            is_front: true,
            ..LocalApis::default()
        };
        let (local, exclusions) = (Arc::new(local), Arc::default());
        let (local, exclusions) = (watch::channel(local).1, watch::channel(exclusions).1);
        let proxy = PeerProxy::start(options, received, local, exclusions);
        Gateway {
            service: proxy.layer().layer(proxy.behind()),
            proxy,
            records,
        }
    }

    /// Puts these servers behind it, under these IDs.
    fn list(&self, servers: &[(&str, &FakePeer)]) {
        let records = servers.iter().map(|(id, it)| record(id, it));
        self.records.send_replace(records.collect());
    }

    /// With everybody heard who can be.
    async fn ready(pki: &Pki, servers: &[&FakePeer], beside: Option<&FakePeer>) -> Gateway {
        let gateway = Gateway::new(pki, servers, beside);
        gateway.synced().await;
        gateway
    }

    async fn synced(&self) {
        let mut views = self.proxy.views();
        let wait = async {
            while !self.proxy.view().synced() {
                views.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "{:#?}", self.proxy.debug());
    }

    /// Waits until what is said of this server fits.
    async fn until(&self, id: &str, fits: impl Fn(&DebugPeer) -> bool) {
        let wait = async {
            let mut views = self.proxy.views();
            let fits = |debug: DebugPeers| debug.peers.iter().any(|it| it.id == id && fits(it));
            while !fits(self.proxy.debug()) {
                // Some of what is said changes without a new view.
                let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(waited.is_ok(), "{:#?}", self.proxy.debug());
    }

    async fn send(&self, request: Request) -> Answer {
        Answer::of(self.service.clone().oneshot(request).await.unwrap()).await
    }

    async fn get(&self, target: &str, accept: &str) -> Answer {
        self.send(with(request("GET", target), "accept", accept))
            .await
    }

    async fn groups(&self) -> Vec<String> {
        let list = self.get("/apis", V2).await.json();
        let items = list["items"].as_array().unwrap().clone();
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    }
}

fn record(id: &str, server: &FakePeer) -> PeerRecord {
    PeerRecord {
        identity_lease: None,
        ..live(id, server.address)
    }
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut text)
        .unwrap();
    text
}

fn raw(body: impl Into<Vec<u8>>) -> Document {
    Document::Raw {
        body: body.into(),
        content_type: "application/json".to_owned(),
    }
}

#[tokio::test]
async fn only_a_sidecar_has_documents_of_its_own() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::old()).await;
    let own = format!("{V2};profile=nopeer");
    for (beside, expected) in [(Some(&older), 1), (None, 2)] {
        let gateway = Gateway::ready(&pki, &[&newer, &older], beside).await;
        let asked = gateway.get("/apis", &own).await.json();
        assert_eq!(asked["items"].as_array().unwrap().len(), expected);
        let mut as_peer = with(request("GET", "/apis"), "accept", V2);
        as_peer.extensions_mut().insert(VerifiedPeer);
        let asked = gateway.send(as_peer).await.json();
        assert_eq!(asked["items"].as_array().unwrap().len(), expected);
        assert_eq!(gateway.groups().await.len(), 2);
    }
}

/// Who takes a sidecar for a server gets what the server beside it has, and nobody sends it on from there.
#[tokio::test]
async fn what_another_server_sent_is_handed_to_the_server_beside_and_to_no_other() {
    let pki = Pki::new();
    let newer = FakePeer::start(&pki, "newer", &documents::core(), &documents::new()).await;
    let older = FakePeer::start(&pki, "older", &documents::core(), &documents::old()).await;
    let widgets = "/apis/new.example.com/v1/widgets";
    let sent_on = |target: &str| {
        let mut request = with(request("GET", target), "x-kubernetes-peer-proxied", "true");
        request.extensions_mut().insert(VerifiedPeer);
        request
    };
    for (beside, has_it) in [(&newer, true), (&older, false)] {
        let gateway = Gateway::ready(&pki, &[&newer, &older], Some(beside)).await;
        let (before, others) = (newer.requests().len(), older.requests().len());
        let answer = gateway.send(sent_on(widgets)).await;
        if has_it {
            assert_eq!(answer.text(), "newer");
            let handed = newer.requests().pop().unwrap();
            assert_eq!(handed.headers["x-kubernetes-peer-proxied"], "true");
        } else {
            answer.assert_retryable();
            assert_eq!(newer.requests().len(), before, "sent on");
        }
        assert_eq!(older.requests().len(), others);
        let nowhere = gateway.send(sent_on("/apis/nowhere.example.com/v1/things"));
        nowhere.await;
        let asked = [&newer, &older].map(|it| it.requests().len());
        let local = [has_it, !has_it].map(usize::from);
        assert_eq!(
            asked,
            [before + local[0] + usize::from(has_it), others + local[1]],
            "the server beside alone says what nobody has"
        );
    }
}

/// Before all servers are heard there is no document that says of anything that it is not there.
#[tokio::test]
async fn until_all_servers_are_heard_discovery_is_not_partial() {
    let pki = Pki::new();
    let good = FakePeer::start(&pki, "good", &documents::core(), &documents::old()).await;
    let late = FakePeer::start(&pki, "late", &documents::core(), &documents::new()).await;
    late.set_apis(Document::Silence);
    let gateway = Gateway::new(&pki, &[&good, &late], None);
    let mut views = gateway.proxy.views();
    while gateway
        .proxy
        .view()
        .peer("good")
        .is_none_or(|it| it.documents.is_none())
    {
        views.changed().await.unwrap();
    }
    for path in [
        "/api",
        "/apis",
        "/apis/",
        "/apis/new.example.com",
        "/openapi/v3",
        "/openapi/v2",
    ] {
        gateway
            .get(path, "application/json")
            .await
            .assert_retryable();
    }
    let served = gateway
        .get("/apis/apps/v1/namespaces/a/deployments", "*/*")
        .await;
    assert_eq!(served.text(), "good", "what is known is served");
    late.set_apis(Document::of(&documents::new()));
    while !gateway.proxy.view().synced() {
        views.changed().await.unwrap();
    }
    assert_eq!(gateway.groups().await, ["apps", "new.example.com"]);
}
