//! Rows that want a peer that does as it is told: 4, 9, 11 and 22. It is registered as kube-apiservers register themselves,
//! by a Lease and an endpoint key, so that the older server takes it for one; the gateways find it by its Lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use peerage_etcd::{EtcdOptions, EtcdStore};
use peerage_http::Response;
use peerage_store::StoreExt as _;
use peerage_testkit::odd::{self, Odd};
use peerage_testkit::pki::Pki;
use peerage_testkit::wire::{AGGREGATED, Outgoing};
use serde_json::{Value, json};

use super::records::{Finders, all_serve, register, register_again, withdraw};
use super::{Row, Seen, World, has, later, send_each};

const NAME: &str = "apiserver-standin";
const GROUP: &str = "standin.example.com";
const VERSION: &str = "standin.example.com/v1";
const THINGS: &str = "/apis/standin.example.com/v1/things";
const LATER: &str = "/apis/standin.example.com/v1/laters";
/// Where it sends who asks for what has moved.
const ELSEWHERE: &str = "/apis/standin.example.com/v1/things/there?x=1";

/// Where it says how the guard against loops came.
const GUARD: &str = "/apis/standin.example.com/v1/things/guard";

/// What it has been told.
#[derive(Default)]
struct Orders {
    /// It fails to say what it serves.
    silent: AtomicBool,
    /// It serves one more resource.
    grown: AtomicBool,
}

struct StandIn {
    server: Odd,
    orders: Arc<Orders>,
}

impl StandIn {
    async fn start(pki: &Pki) -> StandIn {
        let orders: Arc<Orders> = Arc::default();
        let told = orders.clone();
        let server = Odd::start(pki, move |request| match request.uri.path() {
            GUARD => Some(odd::text(StatusCode::OK, &guard(&request.headers))),
            path => told.answer(path),
        })
        .await;
        StandIn { server, orders }
    }

    /// Takes its place among the servers.
    async fn join(&self, world: &World) {
        let endpoints = json!({
            "kind": "Endpoints", "apiVersion": "v1",
            "metadata": {"labels": {"apiserverIdentity": NAME}},
            "subsets": [{
                "addresses": [{"ip": self.server.address.ip()}],
                "ports": [{"name": "https", "port": self.server.address.port(), "protocol": "TCP"}],
            }],
        });
        let etcd = EtcdOptions::new([world.plane.etcd().url()]);
        let etcd = EtcdStore::connect(etcd).await.unwrap();
        let key = format!("/registry/peerserverleases/{NAME}");
        etcd.create(key, endpoints.to_string(), 0).await.unwrap();
        let address = self.server.address.to_string();
        register(world.server("older"), "kube-system", NAME, &address).await;
    }

    /// Leaves as servers do, so that nobody goes on asking for it.
    async fn leave(self, world: &World) {
        withdraw(world.server("newer-a"), "kube-system", NAME).await;
        let etcd = EtcdOptions::new([world.plane.etcd().url()]);
        let etcd = EtcdStore::connect(etcd).await.unwrap();
        let key = format!("/registry/peerserverleases/{NAME}");
        etcd.delete(key, None).await.unwrap();
    }
}

impl Orders {
    /// What its own group has.
    fn resources(&self) -> &'static [&'static str] {
        match self.grown.load(Ordering::Relaxed) {
            true => &["things", "laters"],
            false => &["things"],
        }
    }

    fn answer(&self, path: &str) -> Option<Response> {
        let silent = self.silent.load(Ordering::Relaxed);
        Some(match path {
            "/version" => {
                odd::json_answer(&json!({"major": "1", "minor": "37", "gitVersion": "v1.37.2"}))
            }
            "/api" | "/apis" if silent => odd::text(StatusCode::INTERNAL_SERVER_ERROR, ""),
            "/apis" => odd::document(&odd::list(&self.groups())),
            "/apis/standin.example.com/v1" => odd::legacy_list(VERSION, self.resources()),
            "/apis/autoscaling/v3" => odd::legacy_list("autoscaling/v3", &["scalers"]),
            THINGS | LATER => {
                odd::json_answer(&json!({"kind": "List", "apiVersion": "v1", "items": []}))
            }
            _ if path.starts_with(THINGS) => {
                let mut response = odd::text(StatusCode::TEMPORARY_REDIRECT, "");
                odd::set(&mut response, "location", ELSEWHERE);
                response
            }
            _ => return None,
        })
    }

    /// Its own group, and a version of a group that all servers have.
    fn groups(&self) -> [Value; 2] {
        let common = odd::group("autoscaling", "v3", &["scalers"]);
        [odd::group(GROUP, "v1", self.resources()), common]
    }
}

pub(super) async fn with_a_peer_that_does_as_told(world: &World, finders: &Finders) -> Vec<Row> {
    let stand_in = StandIn::start(world.plane.pki()).await;
    stand_in.join(world).await;
    let ways = finders.ways(world);
    all_serve(ways, THINGS).await;
    let mut rows = vec![order_of_versions(finders, world).await];
    rows.push(a_redirect(finders, world).await);
    rows.push(a_guard_of_another_value(finders, world).await);

    stand_in.orders.grown.store(true, Ordering::Relaxed);
    later(Duration::from_secs(8)).await;
    let what = "a read of what a peer began to serve 8 s ago";
    let row = ask(finders, world, what, LATER).await;
    rows.push(row.expect(has("200")));

    stand_in.orders.silent.store(true, Ordering::Relaxed);
    register_again(world.server("older"), NAME).await;
    finders
        .fail_to_read(&stand_in.server.address.to_string())
        .await;
    later(Duration::from_secs(3)).await;
    let what = "a read at a peer that has just failed to say what it serves";
    let row = ask(finders, world, what, THINGS).await;
    let mut row = row.expect(has("200"));
    stand_in.leave(world).await;
    let older = world.server("older");
    if older.ended().is_some() {
        // 1.34 hands on what it could not read and falls over it.
        row.kubernetes = "none: kube-apiserver crashed".to_owned();
        older.kill();
        older.restart().await;
    }
    rows.push(row);
    rows
}

/// Row 4.
async fn ask(finders: &Finders, world: &World, what: &'static str, target: &str) -> Row {
    let read = Outgoing::new("GET", target);
    let seen = send_each(finders.ways(world), "admin", &read).await;
    Row::of(4, what, seen.map(|seen| seen.words()))
}

/// Row 11.
async fn order_of_versions(finders: &Finders, world: &World) -> Row {
    let read = Outgoing::get_as("/apis", AGGREGATED);
    let seen = send_each(finders.ways(world), "admin", &read).await;
    let listed = |seen: &Seen| {
        let document = seen.answer.as_ref()?.json();
        let mut groups = document["items"].as_array()?.iter();
        let group = groups.find(|group| group["metadata"]["name"] == "autoscaling")?;
        let versions = group["versions"].as_array()?.iter();
        let versions = versions.filter_map(|version| version["version"].as_str());
        Some(versions.collect::<Vec<_>>().join(", "))
    };
    let versions = |seen: Seen| listed(&seen).unwrap_or_else(|| seen.words());
    let what = "versions of a group of which a peer has a newer one, in order";
    let row = Row::of(11, what, seen.map(versions));
    row.expect(|words| words == "v3, v2, v1")
}

/// Row 22.
async fn a_redirect(finders: &Finders, world: &World) -> Row {
    let read = Outgoing::new("GET", &format!("{THINGS}/moved"));
    let seen = send_each(finders.ways(world), "admin", &read).await;
    let location = |seen: Seen| {
        let Some(answer) = &seen.answer else {
            return seen.words();
        };
        let location = answer.head.header("location").unwrap_or("none");
        match location.strip_prefix("https://") {
            Some(there) => format!(
                "https://ADDRESS-OF-THE-PEER{}",
                &there[there.find('/').unwrap()..]
            ),
            None => location.to_owned(),
        }
    };
    let row = Row::of(
        22,
        "a peer's Location: /apis/… arrives as",
        seen.map(location),
    );
    row.expect(|words| words == ELSEWHERE)
}

/// The values of the header that says that a request has been forwarded.
fn guard(headers: &HeaderMap) -> String {
    let values = headers.get_all("x-kubernetes-peer-proxied").iter();
    let values: Vec<_> = values.filter_map(|it| it.to_str().ok()).collect();
    values.join(", ")
}

/// Row 9: kube-apiservers look at the first value only, so that one that is another makes them forward on and on.
async fn a_guard_of_another_value(finders: &Finders, world: &World) -> Row {
    let read = Outgoing::new("GET", GUARD).header("X-Kubernetes-Peer-Proxied", "no");
    let seen = send_each(finders.ways(world), "admin", &read).await;
    let came = |seen: Seen| match &seen.answer {
        Some(answer) if answer.status() == 200 => {
            String::from_utf8_lossy(&answer.body).into_owned()
        }
        _ => seen.words(),
    };
    let what = "a client's X-Kubernetes-Peer-Proxied: no arrives at the peer as";
    let row = Row::of(9, what, seen.map(came));
    row.expect(|words| words == "true")
}
