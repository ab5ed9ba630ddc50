//! Who the client is: every way to be somebody, and every way to pretend, through each kind of gateway.
//!
//! The measure is the server itself: what it takes a caller for who asks it without a gateway is what it has to take
//! them for through one. A local API says so in its answer (SelfSubjectReview), one that only the newer server has by
//! that server's audit log, and upgrades as well.

use std::collections::BTreeMap;

use http::HeaderName;
use http::header::CONNECTION;
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Gateway};
use peerage_testkit::wire::{Answer, Outgoing};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::gateway::{GATEWAYS, Gateways};
use crate::ours::start;
use crate::versions;
use crate::versions::NEWER_ONLY;

mod agreement;
mod cases;
mod paths;

use agreement::{Over, Path, Told, audits_agree};
use cases::{Case, Taken};

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What the tests here need beside the servers: certificates, rights, a service account's token.
struct People {
    robots_token: String,
}

static PEOPLE: OnceCell<People> = OnceCell::const_new();

async fn people(gateways: &Gateways) -> &'static People {
    PEOPLE
        .get_or_init(|| async {
            let pki = gateways.plane.pki();
            cases::certificates(pki);
            let older = gateways.plane.server("older").client("admin");
            let robot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
            let accounts = "/api/v1/namespaces/default/serviceaccounts";
            let create = Outgoing::new("POST", accounts).json("application/json", &robot);
            let created = older.send(&create).await.unwrap();
            assert_eq!(created.status(), 201, "{}", created.in_words());
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
            let target = format!("{accounts}/robot/token");
            let ask = Outgoing::new("POST", &target).json("application/json", &request);
            let token = older.send(&ask).await.unwrap();
            assert_eq!(token.status(), 201, "{}", token.in_words());
            let robots_token = token.json()["status"]["token"].as_str().unwrap().to_owned();
            People { robots_token }
        })
        .await
}

/// A request to be sent over each version of HTTP.
async fn ask(way: &Apiserver, case: &Case, request: &Outgoing, http2: bool) -> Answer {
    let mut request = request.clone();
    let headers = case.headers.iter();
    request
        .headers
        .extend(headers.map(|(n, v)| (n.clone(), v.clone())));
    if http2 {
        return way
            .multiplexed(&case.user)
            .await
            .send(&request)
            .await
            .unwrap();
    }
    way.client(&case.user).send(&request).await.unwrap()
}

fn review() -> Outgoing {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    Outgoing::new("POST", REVIEW).json("application/json", &review)
}

/// Over HTTP/2 there are no names that are none, and no `Connection`.
fn versions_of(case: &Case) -> &'static [bool] {
    let plain = |(name, _): &(String, String)| {
        HeaderName::try_from(name.as_str()).is_ok_and(|name| name != CONNECTION)
    };
    match case.headers.iter().all(plain) {
        true => &[false, true],
        false => &[false],
    }
}

/// Whom an answer shows the caller to be taken for: the review's user, or the one who is refused (in words that differ
/// between versions).
fn taken(case: &Case, answer: &Answer) -> (u16, Value) {
    match answer.status() {
        201 => (201, answer.json()["status"]["userInfo"].clone()),
        403 => {
            let message = answer.json()["message"].to_string();
            let named = message.split_once("User \\\"").map(|(_, rest)| rest);
            let name = named.and_then(|rest| rest.split('\\').next());
            (403, json!({"username": name}))
        }
        // Before 1.35 a kube-apiserver calls an impersonation without a user its own fault.
        500 if matches!(case.taken, Taken::Refused(400)) => (400, Value::Null),
        other => (other, Value::Null),
    }
}

fn check(case: &Case, what: &str, (status, user): &(u16, Value)) {
    match &case.taken {
        Taken::For(name) => {
            assert!(matches!(status, 201 | 403), "{what}: {status}");
            assert_eq!(user["username"], *name, "{what}: {status}");
        }
        Taken::Refused(code) => assert_eq!(status, code, "{what}: {user}"),
    }
}

/// Sends every case to a server and through these gateways, to an API that every server has.
async fn reviews_agree(server: &Apiserver, ways: &[(&str, &Apiserver)], cases: &[Case]) {
    for case in cases {
        for &http2 in versions_of(case) {
            let direct = taken(case, &ask(server, case, &review(), http2).await);
            check(case, &format!("{}: without a gateway", case.name), &direct);
            for (name, way) in ways {
                let what = format!("{}: through the {name}, HTTP/2: {http2}", case.name);
                let through = taken(case, &ask(way, case, &review(), http2).await);
                check(case, &what, &through);
                assert_eq!(through, direct, "{what}");
            }
        }
    }
}

/// What only the newer server has.
fn newer_only(newer: &Apiserver) -> Path<'_> {
    Path {
        request: Outgoing::new("GET", NEWER_ONLY),
        server: newer,
        over: Over::All,
    }
}

#[tokio::test]
async fn every_client_is_taken_for_whom_the_server_takes_it_without_a_gateway() {
    let gateways = GATEWAYS.get().await;
    let cases = cases::of_clients(&people(&gateways).await.robots_token);
    let ways = gateways.each().map(|(name, way)| (name, &way.server));
    let newer = gateways.plane.server("newer");
    reviews_agree(gateways.plane.server("older"), &ways, &cases).await;
    audits_agree(&[newer], &ways, &cases, &newer_only(newer), Told::Plainly).await;
}

/// A front proxy is believed by servers; by a gateway only when it was told whom to believe.
#[tokio::test]
async fn a_front_proxy_is_believed_by_a_gateway_that_knows_its_authority_and_by_no_other() {
    let gateways = GATEWAYS.get().await;
    people(&gateways).await;
    let cases = cases::of_front_proxies();
    let ways = gateways.each().map(|(name, way)| (name, &way.server));
    let newer = gateways.plane.server("newer");
    reviews_agree(gateways.plane.server("older"), &ways, &cases).await;
    audits_agree(&[newer], &ways, &cases, &newer_only(newer), Told::Plainly).await;

    let plane = &gateways.plane;
    let strict = Gateway::beside(plane.server("older")).without_front_proxies();
    let strict = start(&gateways.plane, strict.peer(plane.server("newer"))).await;
    for case in &cases {
        for &http2 in versions_of(case) {
            let answer = ask(&strict, case, &review(), http2).await;
            assert_eq!(answer.status(), 401, "{}: {}", case.name, answer.in_words());
        }
    }
}

#[tokio::test]
async fn headers_of_other_names_are_told_to_servers_that_know_them_and_taken_from_clients() {
    let gateways = GATEWAYS.get().await;
    people(&gateways).await;
    let names = [
        "--requestheader-username-headers=X-Acme-User",
        "--requestheader-uid-headers=X-Acme-Uid,X-Remote-Uid",
        "--requestheader-group-headers=X-Acme-Group,X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Acme-Extra-",
    ];
    let plane = &gateways.plane;
    let acme = |version: String, name: &str| {
        let spec = versions::kube_apiserver(&version).named(name);
        plane.start(spec.header_names(&names))
    };
    let (older, newer) = tokio::join!(
        acme(versions::older(), "acme-older"),
        acme(versions::newer(), "acme-newer")
    );
    let beside = || Gateway::beside(&older).peer(&newer).flags(&names);
    let (sidecar, balancer, strict) = tokio::join!(
        start(plane, beside()),
        start(plane, Gateway::balancing(&[&older, &newer]).flags(&names)),
        start(plane, beside().without_front_proxies()),
    );
    let ways: [(&str, &Apiserver); 2] = [("sidecar", &sidecar), ("balancer", &balancer)];
    let strict_way: [(&str, &Apiserver); 1] = [("strict sidecar", &strict)];
    let all = cases::of_other_names();
    reviews_agree(&older, &ways, &all).await;
    audits_agree(&[&newer], &ways, &all, &newer_only(&newer), Told::Plainly).await;
    for upgrade in paths::upgrades(&older, &newer) {
        audits_agree(&[&older, &newer], &ways, &all, &upgrade, Told::Plainly).await;
    }

    let (proxies, clients): (Vec<_>, Vec<_>) =
        (all.into_iter()).partition(|case| case.user == "front-proxy-client");
    reviews_agree(&older, &strict_way, &clients).await;
    let read = newer_only(&newer);
    audits_agree(&[&newer], &strict_way, &clients, &read, Told::Plainly).await;
    for case in proxies {
        for request in [&review(), &read.request] {
            let answer = ask(&strict, &case, request, false).await;
            assert_eq!(answer.status(), 401, "{}", case.name);
        }
    }
}

/// Exec, attach and port-forward (whose pod is not there), and a WebSocket watch, which a real server switches to.
#[tokio::test]
async fn upgrades_carry_the_same_user_as_other_requests() {
    let gateways = GATEWAYS.get().await;
    let robots_token = &people(&gateways).await.robots_token;
    let older = gateways.plane.server("older");
    for (name, way) in gateways.each() {
        let mut ids: Vec<(String, String, &'static str)> = Vec::new();
        for case in cases::of_upgrades(robots_token) {
            for upgrade in cases::upgrades(NEWER_ONLY) {
                let mut request = upgrade.clone();
                request.headers.extend(case.headers.iter().cloned());
                let (head, _body) = way.client(&case.user).open(&request).await.unwrap();
                let what = format!(
                    "{name}, {}: {} {}",
                    case.name, request.method, request.target
                );
                let expected = match (case.taken_for(), request.target.contains("watch=")) {
                    ("admin" | "root", true) => 101,
                    ("admin" | "root", false) => 404,
                    _ => 403,
                };
                assert_eq!(head.status, expected, "{what}");
                let id = head.header("audit-id").unwrap().to_owned();
                ids.push((what, id, case.taken_for()));
            }
        }
        let wanted: Vec<_> = ids.iter().map(|(_, id, _)| id.clone()).collect();
        let mut users = BTreeMap::new();
        until("every upgrade is in an audit log", || {
            for server in [older, gateways.plane.server("newer")] {
                for event in server.audit() {
                    let id = event["auditID"].as_str().unwrap_or_default().to_owned();
                    let whom = match &event["impersonatedUser"] {
                        Value::Null => &event["user"],
                        impersonated => impersonated,
                    };
                    users.insert(id, whom["username"].clone());
                }
            }
            std::future::ready(wanted.iter().all(|id| users.contains_key(id)))
        })
        .await;
        for (what, id, user) in ids {
            assert_eq!(users[&id], user, "{what}");
        }
    }
}

/// Where no front-proxy certificate can be had, the gateway is a user who may impersonate.
#[tokio::test]
async fn a_gateway_that_impersonates_says_who_asks_and_says_so_when_it_cannot() {
    let gateways = GATEWAYS.get().await;
    let robots_token = &people(&gateways).await.robots_token;
    let plane = &gateways.plane;
    cases::let_impersonate(plane.server("older"), "gateway").await;
    let file = |name: &str| plane.pki().file(name).display().to_string();
    let flags = [
        "--identity=impersonate".to_owned(),
        "--discovery-authorization-ttl=0".to_owned(),
        format!("--proxy-client-cert-file={}", file("gateway.crt")),
        format!("--proxy-client-key-file={}", file("gateway.key")),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let beside = Gateway::beside(older).peer(newer).flags(&flags);
    let balancing = Gateway::balancing(&[older, newer]).flags(&flags);
    let (beside, balancing) = tokio::join!(
        start(&gateways.plane, beside),
        start(&gateways.plane, balancing)
    );
    let ways: [(&str, &Apiserver); 2] = [("sidecar", &beside), ("balancer", &balancing)];

    let with_certificate = |case: &Case| case.impersonates() && case.user != "anonymous";
    let all = paths::everybody(robots_token).into_iter();
    let (refused, told): (Vec<_>, Vec<_>) = all.partition(with_certificate);
    let upgrading = cases::of_upgrades(robots_token).into_iter();
    let upgrading: Vec<_> = upgrading.filter(|case| !with_certificate(case)).collect();
    let (servers, by) = ([older, newer], Told::By("gateway"));
    reviews_agree(older, &ways, &told).await;
    audits_agree(&servers, &ways, &told, &newer_only(newer), by).await;
    for upgrade in paths::upgrades(older, newer) {
        audits_agree(&servers, &ways, &told, &upgrade, by).await;
        audits_agree(&servers, &ways, &upgrading, &upgrade, by).await;
    }
    for document in paths::documents(older) {
        let compared = audits_agree(&servers, &ways, &told, &document, by).await;
        println!("{}: {compared} agree", document.request.target);
    }
    for case in refused {
        for (name, way) in ways {
            for request in [&review(), &newer_only(newer).request] {
                let answer = ask(way, &case, request, false).await;
                let words = answer.in_words();
                assert_eq!(answer.status(), 400, "{name}, {}: {words}", case.name);
                assert!(words.contains("--identity=impersonate"), "{words}");
            }
        }
    }
}
