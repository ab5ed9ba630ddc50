//! Rows while all servers are there.

use peerage_testkit::cluster::until;
use peerage_testkit::wire::{Answer, Outgoing};
use serde_json::{Value, json};

use super::{Row, World, has};
use crate::versions::NEWER_ONLY;

pub(super) async fn while_all_is_well(world: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    let newer = world.server("newer-a").client("admin");
    let node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": []}});
    let create =
        Outgoing::new("POST", "/apis/storage.k8s.io/v1/csinodes").json("application/json", &node);
    assert_eq!(newer.send(&create).await.unwrap().status(), 201);
    let status = Outgoing::new("GET", "/apis/storage.k8s.io/v1/csinodes/n/status");
    let row = world
        .ask(1, "GET a subresource that only the newer has", &status)
        .await;
    rows.push(row.expect(has("200")));

    let legacy = Outgoing::new("GET", "/apis/storagemigration.k8s.io/v1");
    let row = world
        .ask(2, "legacy discovery of a newer-only group-version", &legacy)
        .await;
    rows.push(row.expect(has("200")));
    let openapi = Outgoing::new("GET", "/openapi/v3/apis/storagemigration.k8s.io/v1");
    let row = world
        .ask(2, "OpenAPI of a newer-only group-version", &openapi)
        .await;
    rows.push(row.expect(has("200")));

    let watch = Outgoing::websocket(&format!("{NEWER_ONLY}?watch=true&timeoutSeconds=2"));
    let row = world.ask(8, "a watch over WebSocket", &watch).await;
    rows.push(row.expect(has("101")));
    let h2c = Outgoing::new("GET", NEWER_ONLY)
        .header("Connection", "Upgrade, HTTP2-Settings")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__");
    let row = world.ask(8, "a GET that offers h2c", &h2c).await;
    rows.push(row.expect(has("200")));

    let guard = Outgoing::new("GET", NEWER_ONLY).header("X-Kubernetes-Peer-Proxied", "true");
    let row = world
        .ask(9, "a client sends the guard header", &guard)
        .await;
    rows.push(row.expect(has("200")));

    rows.push(targets(world).await);
    rows.push(headers_once(world).await);

    let big = json!({"apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": "Not A Name", "annotations": {"a": "x".repeat(200_000)}}, "spec": {"resource": {"resource": "secrets"}}});
    let expect = Outgoing::new("POST", NEWER_ONLY)
        .json("application/json", &big)
        .header("Expect", "100-continue");
    let row = world
        .ask(16, "an invalid create that waits for 100", &expect)
        .await;
    rows.push(row.expect(has("422 Status")));
    rows
}

/// Row 10: the target as the newer server saw it.
async fn targets(world: &World) -> Row {
    let mut seen = Vec::new();
    for (at, way) in world.ways().into_iter().enumerate() {
        let id = format!("11111111-0000-4000-8000-00000000000{at}");
        let target = format!("{NEWER_ONLY}/a%2Fb?z=1&a=%41&b;c=2&watch=");
        let ask = Outgoing::new("GET", &target).header("Audit-Id", &id);
        if let Err(error) = way.client("admin").send(&ask).await {
            seen.push(error.to_string());
            continue;
        }
        let mut event = Value::Null;
        until("a newer server audited it", || {
            let both = ["newer-a", "newer-b"].map(|name| world.server(name).audit());
            let found = both
                .into_iter()
                .flatten()
                .find(|e| e["auditID"] == id.as_str());
            let there = found.is_some();
            event = found.unwrap_or_default();
            std::future::ready(there)
        })
        .await;
        let uri = event["requestURI"].as_str().unwrap_or_default();
        seen.push(uri.strip_prefix(NEWER_ONLY).unwrap_or(uri).to_owned());
    }
    let seen: [String; 3] = seen.try_into().unwrap();
    let row = Row::of(10, "GET …/a%2Fb?z=1&a=%41&b;c=2&watch= arrives as", seen);
    row.expect(|words| words == "/a%2Fb?z=1&a=%41&b;c=2&watch=")
}

/// Row 13: header lines that should come once.
async fn headers_once(world: &World) -> Row {
    let seen = world
        .each(&Outgoing::new("GET", NEWER_ONLY))
        .await
        .map(|seen| {
            let Some(Answer { head, .. }) = &seen.answer else {
                return seen.words();
            };
            let count = |name: &str| {
                let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
                head.headers.iter().filter(named).count()
            };
            let named = head.header("x-peerage-peer").is_some();
            let told = if named {
                "server named"
            } else {
                "server not named"
            };
            format!(
                "{} × Audit-Id, {} × Cache-Control, {told}",
                count("audit-id"),
                count("cache-control")
            )
        });
    let row = Row::of(
        13,
        "header lines of a forwarded answer, to an administrator",
        seen,
    );
    row.expect(|words| words == "1 × Audit-Id, 1 × Cache-Control, server named")
}
