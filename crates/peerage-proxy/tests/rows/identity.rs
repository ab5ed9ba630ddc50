//! A front is given addresses; which server answers where, it finds out itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerage_core::{Exclusions, LocalApis, Status};
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, HttpService};
use peerage_proxy::{DebugPeers, FrontOptions, PeerProxy, PeerRecord, ProxyOptions, Writes};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};

use super::support::world::{jane, request};
use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";
const ALPN: [&str; 2] = ["h2", "http/1.1"];

/// A balancer.
pub(super) struct Balancer {
    pub(super) proxy: PeerProxy,
    records: watch::Sender<Arc<[PeerRecord]>>,
    service: HttpService,
}

impl Balancer {
    pub(super) fn start(pki: &Pki, records: Vec<PeerRecord>) -> Balancer {
        Balancer::holding(pki, records, Duration::from_secs(600))
    }

    fn holding(pki: &Pki, records: Vec<PeerRecord>, hold: Duration) -> Balancer {
        let options = WorldBuilder::default().options;
        Balancer::with(pki, records, ProxyOptions { hold, ..options })
    }

    pub(super) fn with(pki: &Pki, records: Vec<PeerRecord>, options: ProxyOptions) -> Balancer {
        let mut tls = ClientTlsOptions::new(pki.ca());
        tls.identity = Some(pki.client("front-proxy-client").pems());
        let tls = ClientTls::load(tls).unwrap();
        let options = ProxyOptions {
            tls: Some(tls.clone()),
            front: Some(FrontOptions {
                beside: None,
                passing: tls,
                zone: None,
                writes: Writes::Local,
                bound: Default::default(),
                family: Default::default(),
            }),
            ..options
        };
        let local = LocalApis {
            id: "gateway".into(),
            documents: None,
            server_address: "127.0.0.1:6443".into(),
            is_front: true,
        };
        let (records, followed) = watch::channel(records.into());
        let (_, local) = watch::channel(Arc::new(local));
        let (_, exclusions) = watch::channel(Arc::new(Exclusions::default()));
        let proxy = PeerProxy::start(options, followed, local, exclusions);
        let service = HttpService::new(proxy.layer().layer(proxy.behind()));
        Balancer {
            proxy,
            records,
            service,
        }
    }

    pub(super) async fn until(&self, what: &str, fits: impl Fn(&DebugPeers) -> bool) {
        let wait = async {
            let mut views = self.proxy.views();
            while !fits(&self.proxy.debug()) {
                let _ = tokio::time::timeout(Duration::from_millis(20), views.changed()).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), wait)
            .await
            .is_err()
        {
            panic!("not in time: {what}: {:#?}", self.proxy.debug());
        }
    }

    pub(super) async fn until_serving(&self, ids: &[&str]) {
        let serving = |debug: &DebugPeers| {
            let serving = debug.peers.iter().filter(|peer| peer.state == "serving");
            serving.map(|peer| peer.id.clone()).collect::<Vec<_>>() == ids
        };
        self.until(&format!("{ids:?} serve"), serving).await;
    }

    async fn until_aside(&self, id: &str, kind: &str) {
        let is = |debug: &DebugPeers| debug.aside.iter().any(|it| it.id == id && it.kind == kind);
        self.until(&format!("{id} is set aside as {kind}"), is)
            .await;
    }

    pub(super) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target).await
    }

    pub(super) async fn send(&self, method: &str, target: &str) -> Answer {
        let mut request = request(method, target);
        request.extensions_mut().insert(Arc::new(jane()));
        Answer::of(self.service.clone().oneshot(request).await.unwrap()).await
    }
}

/// One more address of a server, that may become another's.
pub(super) struct Door {
    pub(super) address: SocketAddr,
    to: Arc<Mutex<(SocketAddr, CancellationToken)>>,
}

impl Door {
    pub(super) async fn to(server: SocketAddr) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let to = Arc::new(Mutex::new((server, CancellationToken::new())));
        let door = to.clone();
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let (server, end) = door.lock().unwrap().clone();
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(server).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut from, &mut to) => {}
                        () = end.cancelled() => {}
                    }
                });
            }
        });
        Door { address, to }
    }

    /// From now on another server answers here; connections to the one before end.
    pub(super) fn lead_to(&self, server: SocketAddr) {
        let mut to = self.to.lock().unwrap();
        let old = std::mem::replace(&mut *to, (server, CancellationToken::new()));
        old.1.cancel();
    }
}

async fn newer(pki: &Pki, id: &str) -> FakePeer {
    FakePeer::start(pki, id, &documents::core(), &documents::new()).await
}

#[tokio::test]
async fn an_impostor_is_told_nothing_and_costs_nothing() {
    let pki = Pki::new();
    let good = newer(&pki, "good").await;
    let wrong_authority = newer(&Pki::new(), "forged").await;
    let wrong_name = FakePeer::start_with(
        &pki,
        "kubelet",
        &documents::core(),
        &documents::new(),
        &ALPN,
        "node-1.example",
    )
    .await;
    let records = [&wrong_authority, &wrong_name, &good].map(|it| live(&it.id, it.address));
    let balancer = Balancer::start(&pki, records.to_vec());
    balancer.until_serving(&["good"]).await;
    balancer.until_aside("forged", "stranger").await;
    balancer.until_aside("kubelet", "stranger").await;
    for _ in 0..20 {
        assert_eq!(balancer.get(WIDGETS).await.text(), "good");
    }
    // What nobody serves is known to be served by nobody: the impostors leave no doubt behind.
    balancer.get("/apis/nowhere.example.com/v1/things").await;
    let known = balancer.proxy.view().absence_is_certain();
    assert!(known, "{:#?}", balancer.proxy.debug());
    for impostor in [&wrong_authority, &wrong_name] {
        assert!(impostor.requests().is_empty(), "{:?}", impostor.requests());
        assert!(impostor.polls().is_empty(), "{:?}", impostor.polls());
    }
}

#[tokio::test]
async fn a_server_that_was_never_heard_gets_no_request() {
    let pki = Pki::new();
    // It accepts connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let records = vec![live("silent", silent.local_addr().unwrap())];
    let balancer = Balancer::start(&pki, records);
    let answer = balancer.get("/version").await;
    let status: Status = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer.status, 503, "{status:?}");
}

#[tokio::test]
async fn an_address_where_nobody_ever_answers_leaves_no_doubt_behind_for_ever() {
    let pki = Pki::new();
    let good = newer(&pki, "good").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let records = vec![live("good", good.address), live("nobody", address)];
    let balancer = Balancer::holding(&pki, records, Duration::from_millis(100));
    balancer.until_aside("nobody", "never_heard").await;
    // On a busy machine the good one may have taken as long.
    balancer.until_serving(&["good"]).await;
    assert!(balancer.proxy.view().absence_is_certain());
    assert_eq!(balancer.get(WIDGETS).await.text(), "good");
}

#[tokio::test]
async fn an_address_that_leads_back_here_is_set_aside() {
    let pki = Pki::new();
    let good = newer(&pki, "good").await;
    let oneself = newer(&pki, "virtual").await;
    oneself.name_itself("gateway");
    let records = [&oneself, &good].map(|it| live(&it.id, it.address));
    let balancer = Balancer::start(&pki, records.to_vec());
    balancer.until_serving(&["good"]).await;
    balancer.until_aside("virtual", "oneself").await;
    assert!(balancer.proxy.view().absence_is_certain());
    for _ in 0..10 {
        assert_eq!(balancer.get(WIDGETS).await.text(), "good");
    }
    assert!(oneself.requests().is_empty());
}

#[tokio::test]
async fn one_server_at_two_addresses_is_asked_at_one_of_them_while_that_answers() {
    let pki = Pki::new();
    let server = newer(&pki, "server").await;
    let (front, back) = (
        Door::to(server.address).await,
        Door::to(server.address).await,
    );
    let records = vec![live("front", front.address), live("back", back.address)];
    let balancer = Balancer::start(&pki, records);
    balancer.until_aside("back", "same_server").await;
    balancer.until_serving(&["front"]).await;
    assert_eq!(balancer.get(WIDGETS).await.status, 200);

    // The first way is cut: nothing listens where it led to.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    front.lead_to(nobody);
    balancer
        .until("the other way is taken", |debug| {
            debug.aside.is_empty()
                && debug
                    .peers
                    .iter()
                    .any(|it| it.id == "back" && it.state == "serving")
        })
        .await;
    assert_eq!(balancer.get(WIDGETS).await.status, 200);
    front.lead_to(server.address);
    balancer.until_aside("back", "same_server").await;
}

#[tokio::test]
async fn two_servers_that_share_a_certificate_are_two() {
    let pki = Pki::new();
    let certificate = pki.server(PEER_NAME);
    let (core, new) = (documents::core(), documents::new());
    let a = FakePeer::start_showing(&pki, "a", &core, &new, &ALPN, &certificate).await;
    let b = FakePeer::start_showing(&pki, "b", &core, &new, &ALPN, &certificate).await;
    let balancer = Balancer::start(&pki, vec![live("a", a.address), live("b", b.address)]);
    balancer.until_serving(&["a", "b"]).await;
    // Each is compared with the other: that takes three connections, of which each sends one anonymous request.
    let compared = |peer: &FakePeer| peer.requests().iter().any(|it| it.target == "/livez");
    balancer
        .until("they were compared", |_| compared(&a) && compared(&b))
        .await;
    balancer.until_serving(&["a", "b"]).await;
    assert!(balancer.proxy.debug().aside.is_empty());
    let named = |it: &Seen| {
        it.headers
            .keys()
            .any(|name| name.as_str().starts_with("x-remote"))
    };
    let probes = [a.requests(), b.requests()].concat();
    assert!(!probes.iter().any(named), "{probes:?}");
}

/// One more address of one of many is found out, however many they are.
#[tokio::test]
async fn of_a_dozen_servers_with_one_certificate_one_more_address_is_still_found_out() {
    let pki = Pki::new();
    let certificate = pki.server(PEER_NAME);
    let (core, new) = (documents::core(), documents::new());
    let mut servers = Vec::new();
    for number in 0..12 {
        let id = format!("server-{number:02}");
        let server = FakePeer::start_showing(&pki, &id, &core, &new, &ALPN, &certificate);
        servers.push(server.await);
    }
    let door = Door::to(servers[11].address).await;
    let mut records: Vec<_> = servers.iter().map(|it| live(&it.id, it.address)).collect();
    records.push(live("zz-door", door.address));
    let balancer = Balancer::start(&pki, records);
    balancer.until_aside("zz-door", "same_server").await;
    let ids: Vec<&str> = servers.iter().map(|it| &*it.id).collect();
    balancer.until_serving(&ids).await;
}

#[tokio::test]
async fn an_address_that_becomes_another_servers_is_noticed() {
    let pki = Pki::new();
    let (old, other) = (newer(&pki, "old").await, newer(&pki, "other").await);
    let door = Door::to(old.address).await;
    let records = vec![live("other", other.address), live("door", door.address)];
    let balancer = Balancer::start(&pki, records);
    balancer.until_serving(&["door", "other"]).await;
    door.lead_to(other.address);
    old.kill();
    balancer.until_aside("door", "same_server").await;
    let registry = peerage_http::metrics::Registry::default();
    balancer.proxy.register_metrics(&registry);
    let text = registry.text();
    for reason in ["changed_hands", "same_server"] {
        let line = format!(r#"peerage_peer_errors_total{{peer="door",reason="{reason}"}} 1"#);
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert_eq!(balancer.get(WIDGETS).await.text(), "other");
}

#[tokio::test]
async fn a_server_that_is_taken_off_the_list_keeps_its_streams() {
    let pki = Pki::new();
    let (a, b) = (newer(&pki, "a").await, newer(&pki, "b").await);
    let (sender, body) = tokio::sync::mpsc::channel::<bytes::Bytes>(4);
    let body = Mutex::new(Some(body));
    a.on_request(move |_| {
        let parts = body.lock().unwrap().take();
        async move {
            let Some(mut parts) = parts else {
                return text(http::StatusCode::OK, "a");
            };
            let frames = futures::stream::poll_fn(move |context| {
                let part = parts.poll_recv(context);
                part.map(|it| it.map(|data| Ok(http_body::Frame::data(data))))
            });
            http::Response::new(http_body_util::BodyExt::boxed(
                http_body_util::StreamBody::new(frames),
            ))
        }
    });
    let balancer = Balancer::start(&pki, vec![live("a", a.address)]);
    balancer.until_serving(&["a"]).await;
    let mut watch = request("GET", &format!("{WIDGETS}?watch=true"));
    watch.extensions_mut().insert(Arc::new(jane()));
    let response = balancer.service.clone().oneshot(watch).await.unwrap();
    let mut events = response.into_body();
    balancer
        .records
        .send_replace(Arc::from([live("b", b.address)]));
    balancer.until_serving(&["b"]).await;
    balancer
        .until("it is not asked any more", |debug| {
            debug
                .peers
                .iter()
                .all(|it| it.id != "a" || it.address.is_none())
        })
        .await;
    for part in ["one", "two"] {
        sender.send(part.into()).await.unwrap();
        let frame = http_body_util::BodyExt::frame(&mut events)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), part);
    }
    drop(sender);
    let rest = http_body_util::BodyExt::collect(events).await.unwrap();
    assert!(rest.to_bytes().is_empty(), "it ends in good order");
    assert_eq!(balancer.get(WIDGETS).await.text(), "b");
}
