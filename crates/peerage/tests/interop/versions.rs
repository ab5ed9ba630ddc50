//! Which versions a run is about: `PEERAGE_INTEROP_PAIR=1.34,1.37`, the older first.
//!
//! A version with `*` is made by the newest kube-apiserver that says it is older (`--emulated-version`), which needs no
//! program of its own.

use peerage_testkit::kube::{Apiserver, ApiserverSpec, Backend, ControlPlane, KubeApiserver};

/// What only the newer version serves.
pub(crate) const NEWER_ONLY: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
/// The program that makes older versions.
const NEWEST: &str = "1.37";
/// The pair when none is named: two programs, since a newer one that emulates an older keeps fields that that one
/// would erase.
const DEFAULT: &str = "1.35,1.37";

fn pair() -> (String, String) {
    let pair = std::env::var("PEERAGE_INTEROP_PAIR").unwrap_or_else(|_| DEFAULT.to_owned());
    let (older, newer) = pair
        .split_once(',')
        .unwrap_or_else(|| panic!("PEERAGE_INTEROP_PAIR={pair}: write it like {DEFAULT}"));
    (older.to_owned(), newer.to_owned())
}

/// The older version.
pub(crate) fn older() -> String {
    pair().0
}

/// The newer version.
pub(crate) fn newer() -> String {
    pair().1
}

/// A version as a number such as `1.34`.
pub(crate) fn number(version: &str) -> String {
    version.trim_end_matches('*').to_owned()
}

/// A real kube-apiserver of a version.
pub(crate) fn kube_apiserver(version: &str) -> ApiserverSpec {
    match version.strip_suffix('*') {
        Some(emulated) => KubeApiserver::of(NEWEST).emulating(emulated),
        None => KubeApiserver::of(version),
    }
}

/// The same, with a host name and without its own proxy.
pub(crate) fn without_own_proxy(version: &str, name: &str) -> ApiserverSpec {
    let server = kube_apiserver(version).named(name);
    server.gate("UnknownVersionInteroperabilityProxy=false")
}

/// The pair on one etcd, `older` and `newer`, without their own proxies.
pub(crate) async fn pair_without_own_proxies() -> ControlPlane {
    ControlPlane::on(Backend::Etcd("3.6"))
        .server(without_own_proxy(&older(), "older"))
        .server(without_own_proxy(&newer(), "newer"))
        .start()
        .await
}

/// The minor version of a version.
pub(crate) fn minor(version: &str) -> u32 {
    let number = number(version);
    let minor = number
        .split_once('.')
        .and_then(|(_, minor)| minor.parse().ok());
    minor.unwrap_or_else(|| panic!("{version} is no version such as 1.34"))
}

/// The version of the kube-controller-manager that works behind the older server: that server's where it is built, as by
/// Kubernetes' version skew policy it must not be newer; else the newest.
pub(crate) fn controllers() -> &'static str {
    match number(&older()).as_str() {
        "1.36" => "1.36",
        _ => NEWEST,
    }
}

/// Whether kube-apiservers of a version list what their peers serve; before 1.35 they only send requests on.
pub(crate) fn merges_discovery(version: &str) -> bool {
    // One that emulates an older version merges as its own does.
    version.ends_with('*') || minor(version) >= 35
}

/// The older server, with its own proxy unless that ends it when a peer goes: before 1.35 it reads a nil error then.
pub(crate) fn older_among_peers_that_go() -> ApiserverSpec {
    let spec = kube_apiserver(&older()).named("older");
    match merges_discovery(&older()) {
        true => spec.own_proxy(),
        false => spec,
    }
}

/// Waits until the older server of a pair, by its own proxy, knows the newer one.
pub(crate) async fn acquaint(older_server: &Apiserver) {
    if !merges_discovery(&older()) {
        // One before 1.35 asks five times in a fifth of a second where a new peer is, and then never again.
        older_server.stop().await;
        older_server.restart().await;
    }
    older_server.serves(NEWER_ONLY).await;
}
