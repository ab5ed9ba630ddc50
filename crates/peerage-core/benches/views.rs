//! Routing, and folding documents into a view.
//!
//! What is asked for: routing a request that is served here under 300 ns without allocating; the index of five
//! servers with a thousand groups each under 20 ms; the same with one group of one server changed under 2 ms.

#![allow(missing_docs)]

use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use peerage_core::discovery::*;
use peerage_core::view::*;
use peerage_core::{RequestInfo, Rules, route};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const SERVERS: usize = 5;
const GROUPS: usize = 1_000;

fn main() {
    divan::main();
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|it| (*it).to_owned()).collect()
}

fn resource(name: String) -> Arc<ApiResourceDiscovery> {
    let status = ApiSubresourceDiscovery {
        subresource: "status".into(),
        response_kind: Some(ResponseKind::of("Thing")),
        accepted_types: Vec::new(),
        verbs: words(&["get", "patch", "update"]),
    };
    Arc::new(ApiResourceDiscovery {
        singular_resource: name.trim_end_matches('s').into(),
        resource: name,
        response_kind: Some(ResponseKind::of("Thing")),
        scope: Scope::Namespaced,
        verbs: words(&[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]),
        short_names: words(&["th"]),
        categories: words(&["all"]),
        subresources: vec![status],
    })
}

fn group(name: &str, resources: usize) -> Arc<ApiGroupDiscovery> {
    let version = |version: &str| ApiVersionDiscovery {
        version: version.into(),
        resources: (0..resources)
            .map(|n| resource(format!("things{n:02}")))
            .collect(),
        freshness: Freshness::Current,
    };
    Arc::new(ApiGroupDiscovery::new(
        name,
        vec![version("v1"), version("v1beta1")],
    ))
}

/// A server with a thousand groups of two versions; each server's documents differ in one group in ten.
fn lists(server: usize) -> (ApiGroupDiscoveryList, ApiGroupDiscoveryList) {
    let one = |n: usize| {
        let resources = if n % 10 == server { 4 } else { 3 };
        group(&format!("group{n:04}.example.com"), resources)
    };
    let core = ApiGroupDiscoveryList {
        items: vec![group("", 20)],
    };
    (
        ApiGroupDiscoveryList {
            items: (0..GROUPS).map(one).collect(),
        },
        core,
    )
}

fn documents(server: usize) -> Arc<Documents> {
    let (apis, core) = lists(server);
    Arc::new(Documents::new(apis, core))
}

fn inputs() -> ViewInputs {
    let peers = (1..SERVERS).map(|server| {
        Arc::new(Peer {
            state: PeerState::Live,
            documents: Some(documents(server)),
            ..Peer::new(format!("server{server}"), "192.0.2.1:6443")
        })
    });
    ViewInputs {
        local: LocalApis {
            id: "server0".into(),
            documents: Some(documents(0)),
            server_address: "192.0.2.1:6443".into(),
            is_front: false,
        },
        peers: peers.collect(),
        synced: true,
        hold: Millis(600_000),
        ..ViewInputs::default()
    }
}

/// The inputs after one group of one peer changed, as its poll would find it.
fn changed(before: &ViewInputs) -> ViewInputs {
    let mut inputs = before.clone();
    let peer = &inputs.peers[2];
    let (mut apis, core) = lists(3);
    apis.items[500] = group("group0500.example.com", 7);
    let previous = peer.documents.as_ref().expect("the peer was heard");
    let renewed = Documents::renewed(previous, apis, core);
    inputs.peers[2] = Arc::new(Peer {
        documents: Some(Arc::new(renewed)),
        ..(**peer).clone()
    });
    inputs
}

#[divan::bench(args = [
    "/api/v1/namespaces/default/things07/x",
    "/apis/group0500.example.com/v1/namespaces/default/things01",
    "/apis/group0999.example.com/v1beta1/namespaces/default/things02/x/status",
])]
fn route_served_here(bencher: Bencher, target: &str) {
    let view = PeerView::build(inputs());
    let info = RequestInfo::parse("GET", target).expect("a good path");
    let rules = Rules::default();
    bencher
        .counter(ItemsCount::new(1_usize))
        .bench_local(|| black_box(route(black_box(&info), &view, &rules)));
}

#[divan::bench(args = [
    "/apis/group0001.example.com/v1/namespaces/default/things03",
    "/apis/nosuch.example.com/v1/namespaces/default/things03",
])]
fn route_elsewhere(bencher: Bencher, target: &str) {
    let view = PeerView::build(inputs());
    let info = RequestInfo::parse("GET", target).expect("a good path");
    let rules = Rules::default();
    bencher.bench_local(|| black_box(route(black_box(&info), &view, &rules)));
}

/// From parsed documents to something that can route: what starting with five servers costs.
#[divan::bench(sample_count = 20)]
fn index_five_servers(bencher: Bencher) {
    let lists: Vec<_> = (0..SERVERS).map(lists).collect();
    bencher.bench_local(|| {
        let mut servers = lists
            .iter()
            .cloned()
            .map(|(apis, core)| Arc::new(Documents::new(apis, core)));
        let local = servers.next();
        let peer = |(n, documents)| {
            Arc::new(Peer {
                state: PeerState::Live,
                documents: Some(documents),
                ..Peer::new(format!("server{n}"), "192.0.2.1:6443")
            })
        };
        let peers = servers.enumerate().map(peer).collect();
        PeerView::build(ViewInputs {
            local: LocalApis {
                documents: local,
                ..LocalApis::default()
            },
            peers,
            synced: true,
            ..ViewInputs::default()
        })
    });
}

/// The new view alone, from documents that share what did not change.
#[divan::bench]
fn one_group_of_one_server_changed(bencher: Bencher) {
    let before = inputs();
    let view = PeerView::build(before.clone());
    let after = changed(&before);
    bencher.bench_local(|| PeerView::rebuild(&view, after.clone()));
}

/// The same with comparing the new document to the old, which is the poller's work.
#[divan::bench]
fn one_group_of_one_server_changed_with_comparison(bencher: Bencher) {
    let before = inputs();
    let view = PeerView::build(before.clone());
    bencher
        .with_inputs(|| {
            let (mut apis, core) = lists(3);
            apis.items[500] = group("group0500.example.com", 7);
            (apis, core)
        })
        .bench_local_values(|(apis, core)| {
            let mut inputs = before.clone();
            let peer = &inputs.peers[2];
            let previous = peer.documents.as_ref().expect("the peer was heard");
            let documents = Some(Arc::new(Documents::renewed(previous, apis, core)));
            inputs.peers[2] = Arc::new(Peer {
                documents,
                ..(**peer).clone()
            });
            PeerView::rebuild(&view, inputs)
        });
}

/// Nothing changed but how a peer is.
#[divan::bench]
fn one_latency_changed(bencher: Bencher) {
    let before = inputs();
    let view = PeerView::build(before.clone());
    let mut after = before.clone();
    after.peers[1] = Arc::new(Peer {
        latency: Some(std::time::Duration::from_millis(3)),
        ..(*after.peers[1]).clone()
    });
    bencher.bench_local(|| PeerView::rebuild(&view, after.clone()));
}

/// The order of a thousand groups when servers contradict each other: the slow way.
#[divan::bench(sample_count = 20)]
fn order_of_contradicting_servers(bencher: Bencher) {
    let names: Vec<String> = (0..GROUPS).map(|n| format!("group{n:04}")).collect();
    let list = |server: usize| {
        let mut list: Vec<&str> = names.iter().map(String::as_str).collect();
        list.rotate_left(server * 100);
        list.remove(server);
        list
    };
    let lists: Vec<Vec<&str>> = (0..SERVERS).map(list).collect();
    bencher.bench_local(|| peerage_core::merge::order::consensus(&lists, str::cmp));
}

/// The first request for the merged document.
#[divan::bench(sample_count = 20)]
fn render_the_first_time(bencher: Bencher) {
    bencher
        .with_inputs(|| PeerView::build(inputs()))
        .bench_local_refs(|view| render(view));
}

/// The first request for it after one group changed.
#[divan::bench(sample_count = 20)]
fn render_after_one_group_changed(bencher: Bencher) {
    let before = inputs();
    let view = PeerView::build(before.clone());
    render(&view);
    let after = changed(&before);
    bencher
        .with_inputs(|| PeerView::rebuild(&view, after.clone()))
        .bench_local_refs(|view| render(view));
}

fn render(view: &PeerView) -> usize {
    let rendered = view.aggregated_apis(ViewScope::Merged, DiscoveryVersion::V2);
    black_box(rendered.bytes.len())
}
