//! Faults of requests and streams: answers that become something else on the way, hops that never end, lists and watches
//! that are torn apart, users who lose or gain rights.

use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Gateway};
use peerage_testkit::wire::{Answer, Outgoing};
use serde_json::json;
use tokio::time::timeout;

use super::{FRONTS, Fronts, get, header, send};
use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

/// The answer without what differs from request to request.
fn as_said(answer: &Answer) -> (u16, Option<String>, Option<String>, Vec<u8>) {
    let header = |name| header(answer, name);
    let (form, after) = (header("content-type"), header("retry-after"));
    (answer.status(), form, after, answer.body.clone())
}

/// How often the servers audited a request.
async fn times_audited(fronts: &Fronts, id: &str) -> usize {
    let servers = ["older", "newer"].map(|name| fronts.plane.server(name));
    let count = || servers.map(|it| it.audit_with(id).len()).iter().sum();
    until("a server has audited it", || {
        std::future::ready(count() > 0)
    })
    .await;
    // A server that was asked beside that one has audited it when it has audited what came later.
    for server in servers {
        let marker = uuid::Uuid::new_v4().to_string();
        let later = Outgoing::new("GET", "/version").header("Audit-Id", &marker);
        send(server, "admin", &later).await;
        server.audited(&marker).await;
    }
    count()
}

/// kubernetes/kubernetes#127316, kube-vip/kube-vip#949, k0sproject/k0s#6202: what a server cannot select by;
/// kubernetes/kubernetes#128497, #128641: a body in a form that it does not read; #91073, #100745, milo-os/milo#671: a version
/// that it has not reached; #138582: forms that it cannot write. The refusal is the server's own, and nobody else is asked.
#[tokio::test]
async fn what_a_server_refuses_is_refused_in_its_own_words_and_asked_of_no_other() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let services = "/api/v1/namespaces/default/services";
    let cbor = |mut request: Outgoing| {
        request.body = Some(vec![0xd9, 0xd9, 0xf7, 0xa0]);
        request.header("Content-Type", "application/apply-patch+nothing")
    };
    let refused = [
        (
            400,
            Outgoing::new("GET", &format!("{services}?fieldSelector=spec.nothing%3Da")),
        ),
        (
            415,
            cbor(Outgoing::new("PATCH", &format!("{services}/kubernetes"))),
        ),
        (
            504,
            Outgoing::new("GET", &format!("{services}?resourceVersion=99999999999")),
        ),
        (
            406,
            Outgoing::get_as(services, "application/x-nothing, text/html;q=0.3"),
        ),
    ];
    let all = refused
        .iter()
        .map(|(status, request)| refused_everywhere(&fronts, *status, request));
    futures::future::join_all(all).await;
}

async fn refused_everywhere(fronts: &Fronts, status: u16, request: &Outgoing) {
    let said = |answer: &Answer| {
        let mut said = as_said(answer);
        if status == 504 {
            // The current version that it names goes on meanwhile.
            said.3.clear();
        }
        said
    };
    let servers = ["older", "newer"].map(|name| send(fronts.plane.server(name), "admin", request));
    let through = fronts.each().map(|(name, gateway)| async move {
        let answer = send(gateway, "admin", request).await;
        (name, answer)
    });
    let (direct, through) = tokio::join!(
        futures::future::join_all(servers),
        futures::future::join_all(through),
    );
    let own = [said(&direct[0]), said(&direct[1])];
    assert_eq!(own[0].0, status, "{}", direct[0].in_words());
    for (name, answer) in through {
        let what = format!("{name}: {} {}", request.method, answer.in_words());
        assert!(own.contains(&said(&answer)), "{what}");
        let id = header(&answer, "audit-id").unwrap();
        assert_eq!(times_audited(fronts, &id).await, 1, "{what}");
    }
}

/// The same reports: with the rule for it, a kubelet is sent to no server that is older than itself.
#[tokio::test]
async fn a_kubelet_is_sent_to_no_server_that_is_older_than_itself() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let newest = versions::minor(&versions::newer());
    for (name, gateway) in fronts.more(&["--version-bound-clients=kubelet"]).await {
        let services = |minor: u32| {
            let agent = format!("kubelet/v1.{minor}.1 (linux/amd64) kubernetes/0123456");
            Outgoing::new("GET", "/api/v1/services").header("User-Agent", &agent)
        };
        for user in ["admin", "alice"] {
            let answer = send(&gateway, user, &services(newest)).await;
            let id = header(&answer, "audit-id").unwrap();
            let event = fronts.plane.server("newer").audited(&id).await;
            assert_eq!(event["requestURI"], "/api/v1/services", "{name}, {user}");
            assert_eq!(times_audited(&fronts, &id).await, 1, "{name}, {user}");
        }
        let answer = send(&gateway, "admin", &services(newest + 1)).await;
        assert_eq!(answer.status(), 503, "{name}: {}", answer.in_words());
        assert_eq!(answer.json()["reason"], "ServiceUnavailable", "{name}");
    }
}

/// kubernetes/kubernetes#46073: an older server erases what it does not know, in a write of the status too.
#[tokio::test]
async fn a_status_written_beside_the_older_server_can_be_sent_to_the_newest() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for (name, gateway) in fronts.more(&["--writes=newest"]).await {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("status-{name}")}});
        gateway.create("/api/v1/nodes", &node).await;
        let target = format!("/api/v1/nodes/status-{name}/status");
        let merge = "application/merge-patch+json";
        let known = json!({"status": {"nodeInfo": {"runningInUserNamespace": true}}});
        let other = json!({"status": {"phase": "Running"}});
        for patch in [&known, &other] {
            let request = Outgoing::new("PATCH", &target).json(merge, patch);
            let answer = send(&gateway, "admin", &request).await;
            assert_eq!(answer.status(), 200, "{name}: {}", answer.in_words());
        }
        let newer = fronts.plane.server("newer");
        let kept = get(newer, &target, "application/json").await.json();
        let kept = &kept["status"]["nodeInfo"]["runningInUserNamespace"];
        assert_eq!(kept, true, "{name}");
    }
}

/// kubernetes/enhancements#4015: two servers that each take the other for the one that has it send a request to and fro.
#[tokio::test]
async fn gateways_that_take_each_other_for_servers_send_a_request_on_once() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let older = fronts.plane.server("older");
    let there = &fronts.beside_newer;
    // One that knows the newer server only through the gateway that stands beside it, and that one knows the older.
    let here = start(&fronts.plane, Gateway::beside(older).peer(there)).await;
    here.serves(NEWER_ONLY).await;
    for (target, status) in [
        (NEWER_ONLY, 200),
        ("/apis/nobody.example.com/v1/things", 404),
    ] {
        let answer = get(&here, target, "application/json").await;
        assert_eq!(answer.status(), status, "{}", answer.in_words());
        let id = header(&answer, "audit-id").unwrap();
        let audited = times_audited(&fronts, &id).await;
        assert_eq!(audited, 1, "{target}");
    }
}

/// kubernetes/kubernetes#91073, #100745, milo-os/milo#671, gardener/dashboard#656: a list at one server and its watch at
/// another, which has not come so far.
#[tokio::test]
async fn what_a_client_lists_it_watches_at_the_same_server() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for (name, gateway) in fronts.each() {
        let mut servers = std::collections::BTreeSet::new();
        for number in 0..12 {
            let agent = format!("client/{number}");
            let target = "/api/v1/namespaces/default/configmaps";
            let ask = |target: &str| Outgoing::new("GET", target).header("User-Agent", &agent);
            let list = send(gateway, "admin", &ask(target)).await;
            let version = list.json()["metadata"]["resourceVersion"].clone();
            let watch = format!(
                "{target}?watch=true&resourceVersion={}",
                version.as_str().unwrap()
            );
            let (head, _body) = gateway.client("admin").open(&ask(&watch)).await.unwrap();
            assert_eq!(head.status, 200, "{name}");
            // Administrators are told who answers.
            let listed = header(&list, "x-peerage-peer").unwrap();
            assert_eq!(
                Some(&*listed),
                head.header("x-peerage-peer"),
                "{name}: {agent}"
            );
            servers.insert(listed);
        }
        println!("{name}: lists and watches of twelve clients at {servers:?}");
        if name == "balancer" {
            assert_eq!(servers.len(), 2, "clients are spread");
        }
    }
}

/// kubernetes/kubernetes#138167: bookmarks whose annotations a proxy does not know.
#[tokio::test]
async fn bookmarks_are_the_servers_own_bytes() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let target = "/apis/apps/v1/deployments?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
                  &resourceVersionMatch=NotOlderThan&resourceVersion=";
    let mut direct = Vec::new();
    for server in ["older", "newer"] {
        direct.push(first_line(fronts.plane.server(server), target).await);
    }
    let newest = direct.last().unwrap();
    assert!(newest.contains("BOOKMARK"), "{newest}");
    for (name, gateway) in fronts.each() {
        let line = first_line(gateway, target).await;
        let own = |it: &String| without_version(it) == without_version(&line);
        assert!(direct.iter().any(own), "{name}: {line}");
    }
}

/// The first line of a watch, or of the answer of a server that is too old to begin one with what is there.
async fn first_line(way: &Apiserver, target: &str) -> String {
    let watch = Outgoing::new("GET", target);
    let (head, mut body) = way.client("admin").open(&watch).await.unwrap();
    assert!(matches!(head.status, 200 | 422), "{}", head.status);
    let line = timeout(Duration::from_secs(20), body.line()).await;
    String::from_utf8(line.unwrap().unwrap().unwrap()).unwrap()
}

fn without_version(line: &str) -> String {
    let Some((before, after)) = line.split_once("\"resourceVersion\":\"") else {
        return line.to_owned();
    };
    let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
    format!("{before}{after}")
}

/// RafPe/kube-oidc-proxy#113: a UID that was allowed and then not sent, or sent and not asked about.
#[tokio::test]
async fn who_may_take_on_a_name_does_not_get_a_uid_with_it() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "names-only"},
        "rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "names-only"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
        "roleRef": {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "names-only"}});
    let older = fronts.plane.server("older");
    older.create(&format!("{rbac}/clusterroles"), &role).await;
    older
        .create(&format!("{rbac}/clusterrolebindings"), &binding)
        .await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = Outgoing::new("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .json("application/json", &review)
        .header("Impersonate-User", "jane");
    let with_uid = ask.clone().header("Impersonate-Uid", "7");
    for server in ["older", "newer"] {
        let server = fronts.plane.server(server);
        until("the server knows of the right", || async {
            send(server, "alice", &ask).await.status() == 201
        })
        .await;
    }
    for (name, gateway) in fronts.each() {
        let taken = send(gateway, "alice", &ask).await;
        assert_eq!(taken.status(), 201, "{name}: {}", taken.in_words());
        let refused = send(gateway, "alice", &with_uid).await;
        assert_eq!(refused.status(), 403, "{name}: {}", refused.in_words());
        let allowed = send(gateway, "admin", &with_uid).await;
        let user = &allowed.json()["status"]["userInfo"];
        assert_eq!(
            (&user["username"], &user["uid"]),
            (&json!("jane"), &json!("7")),
            "{name}"
        );
    }
}

/// rancher/rancher#16297, RafPe/kube-oidc-proxy#118, coreos/tectonic-installer#1623: a user in so many groups that the
/// headers break the connection.
#[tokio::test]
async fn headers_over_the_limit_cost_their_request_and_no_other() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let with = |kilobytes: usize| {
        let mut request = Outgoing::new("GET", "/api/v1/namespaces");
        for number in 0..kilobytes / 8 {
            request = request.header(&format!("X-Large-{number}"), &"x".repeat(8 << 10));
        }
        request
    };
    for (name, gateway) in fronts.each() {
        let way = gateway.multiplexed("admin").await;
        let watch = Outgoing::new("GET", "/api/v1/namespaces?watch=true");
        let (_, _watched) = way.open(&watch).await.unwrap();
        let (large, usual) = tokio::join!(async { way.send(&with(1144)).await }, async {
            way.send(&with(0)).await
        },);
        let large = large.unwrap();
        assert_eq!(large.status(), 431, "{name}: {}", large.in_words());
        assert_eq!(usual.unwrap().status(), 200, "{name}");
        let again = way.send(&with(0)).await.unwrap();
        assert_eq!(again.status(), 200, "{name}");
    }
}

/// traefik/traefik#7489: the client is gone and the server's watch stays, behind a balancer and to another's API too.
#[tokio::test]
async fn watches_of_what_only_the_newer_server_has_end_with_their_clients() {
    let fronts = FRONTS.get().await;
    // Others watch the same while they read.
    let _alone = fronts.served.write().await;
    let newer = fronts.plane.server("newer");
    let watch = Outgoing::new("GET", &format!("{NEWER_ONLY}?watch=true"));
    for (name, gateway) in fronts.each() {
        let mut open = Vec::new();
        for _ in 0..60 {
            open.push(gateway.client("admin").open(&watch).await.unwrap().1);
        }
        until("the newer server has them", || async {
            newer.watches("storageversionmigrations").await >= 60
        })
        .await;
        let begun = std::time::Instant::now();
        for (number, body) in open.into_iter().enumerate() {
            if number % 2 == 0 {
                body.reset()
            } else {
                drop(body)
            }
        }
        until("the newer server has none", || async {
            newer.watches("storageversionmigrations").await == 0
        })
        .await;
        let took = begun.elapsed();
        println!("{name}: 60 watches let go of within {took:?}");
        assert!(took < Duration::from_secs(3), "{name}: {took:?}");
    }
}

/// kubernetes/kubernetes#94301, kubernetes/kubeadm#1685: idle tunnels are cut.
#[tokio::test]
async fn a_tunnel_stays_while_nothing_is_said_on_it() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let tunnel = Outgoing::websocket("/api/v1/namespaces/default/secrets?watch=true");
    let mut tunnels = Vec::new();
    for (name, gateway) in fronts.each() {
        let (head, body) = gateway.client("admin").open(&tunnel).await.unwrap();
        assert_eq!(head.status, 101, "{name}");
        tunnels.push((name, body));
    }
    // The subject: nothing is said for so long.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let secret =
        |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    fronts
        .plane
        .server("older")
        .create(
            "/api/v1/namespaces/default/secrets",
            &secret("after-a-while"),
        )
        .await;
    for (name, mut body) in tunnels {
        // A frame has its object in one line.
        let line = timeout(Duration::from_secs(5), body.line()).await;
        let line = line
            .unwrap_or_else(|_| panic!("{name}: nothing comes"))
            .unwrap()
            .unwrap();
        assert!(
            String::from_utf8_lossy(&line).contains("after-a-while"),
            "{name}"
        );
    }
}
