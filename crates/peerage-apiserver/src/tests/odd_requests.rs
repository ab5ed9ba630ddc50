//! Bodies and parameters that nobody means well: answered, never a panic.

use super::*;

#[tokio::test]
async fn odd_bodies_are_refused_as_bad_requests() {
    let server = Server::new().await;
    let nested = |open: &str, close: &str, depth: usize| {
        format!(
            "{{\"metadata\":{{\"name\":\"x\"}},\"data\":{}{}}}",
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let bodies: Vec<Bytes> = vec![
        "".into(),
        "null".into(),
        "[]".into(),
        "\"text\"".into(),
        "{".into(),
        nested("[", "]", 100_000).into(),
        nested("{\"a\":", "1}", 100_000).replace("11}", "1}").into(),
        Bytes::from_static(b"{\"metadata\":{\"name\":\"\xff\xfe\"}}"),
        Bytes::from_static(b"{\"metadata\":{\"name\":\"\\ud800\"}}"),
        "{\"metadata\":{\"name\":\"x\",\"generation\":1e999}}".into(),
        "{\"metadata\":{\"name\":\"x\",\"generation\":99999999999999999999999}}".into(),
        "{\"metadata\":[]}".into(),
        "{\"metadata\":{\"labels\":{\"a\":1}}}".into(),
    ];
    for body in bodies {
        for content_type in [JSON, "application/yaml"] {
            let answer = server
                .send(Method::POST, CONFIG_MAPS, content_type, body.clone())
                .await;
            let code = answer.code.as_u16();
            assert!(
                (400..500).contains(&code),
                "{code} for {:?}",
                &body[..body.len().min(60)]
            );
        }
    }
}

#[tokio::test]
async fn odd_patches_are_refused() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/one");
    server.create(CONFIG_MAPS, config_map("one")).await.ok();
    let json_patch = "application/json-patch+json";
    let strategic = "application/strategic-merge-patch+json";
    let deep = format!("{}{}", "{\"data\":".repeat(50_000), "}".repeat(50_000));
    let many = format!(
        "[{}]",
        vec!["{\"op\":\"test\",\"path\":\"/kind\",\"value\":\"x\"}"; 20_000].join(",")
    );
    let rows = [
        (
            json_patch,
            "[{\"op\":\"copy\",\"from\":\"\",\"path\":\"/data\"}]".to_owned(),
        ),
        (
            json_patch,
            "[{\"op\":\"remove\",\"path\":\"/metadata\"}]".to_owned(),
        ),
        (
            json_patch,
            "[{\"op\":\"add\",\"path\":\"/data/99999999999999999999\",\"value\":1}]".to_owned(),
        ),
        (
            json_patch,
            "[{\"op\":\"replace\",\"path\":\"\",\"value\":[]}]".to_owned(),
        ),
        (json_patch, many),
        (MERGE, "[]".to_owned()),
        (MERGE, deep.clone()),
        (MERGE, "{\"metadata\":null}".to_owned()),
        (MERGE, "{\"metadata\":7}".to_owned()),
        (strategic, deep),
        (strategic, "{\"metadata\":{\"$patch\":\"nope\"}}".to_owned()),
        (strategic, "{\"$patch\":\"delete\"}".to_owned()),
    ];
    let before = server.get(&path).await.ok();
    for (kind, body) in rows {
        let answer = server.send(Method::PATCH, &path, kind, body.clone()).await;
        let code = answer.code.as_u16();
        assert!(
            (400..500).contains(&code),
            "{code} for {}",
            &body[..body.len().min(80)]
        );
    }
    assert_eq!(server.get(&path).await.ok(), before);
}

/// A copy that doubles what it copies could make an object of any size out of a small patch.
#[tokio::test]
async fn a_patch_cannot_grow_an_object_without_bound() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/one");
    let mut one = config_map("one");
    one["data"] = json!({ "a": "x".repeat(1_000) });
    server.create(CONFIG_MAPS, one).await.ok();
    let mut steps = Vec::new();
    for n in 0..40 {
        let from = if n == 0 {
            "/data".to_owned()
        } else {
            "/metadata/annotations".to_owned()
        };
        steps.push(json!({ "op": "copy", "from": from, "path": format!("/data/k{n}") }));
        steps.push(json!({ "op": "copy", "from": "/data", "path": "/metadata/annotations" }));
    }
    let patch = json!(steps).to_string();
    let answer = server
        .send(Method::PATCH, &path, "application/json-patch+json", patch)
        .await;
    assert!(answer.code.is_client_error(), "{}", answer.code);
}

#[tokio::test]
async fn odd_parameters_are_answered() {
    let server = Server::new().await;
    for query in [
        "limit=-1",
        "limit=99999999999999999999",
        "limit=1&continue=%00",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTcsInN0YXJ0IjoieFx1MDAwMCJ9",
        "resourceVersion=-1",
        "resourceVersion=18446744073709551615",
        "labelSelector=%ff%fe",
        "labelSelector=((((((",
        "fieldSelector=%5C",
        "watch=1&resourceVersion=99999999999999999999",
        "watch=1&timeoutSeconds=-5&resourceVersion=1",
        "watch=1&timeoutSeconds=9223372036854775807&resourceVersion=-1",
        "watch=1&timeoutSeconds=9223372036854775807",
    ] {
        let path = format!("{CONFIG_MAPS}?{query}");
        let response = server.respond(Method::GET, &path, JSON, Bytes::new()).await;
        assert!(response.status().as_u16() < 505, "{query}");
    }
    for name in ["%ff", "%00", "..%2f..%2fsecrets%2fx", "%2e%2e", "a%0ab"] {
        let answer = server.get(&format!("{CONFIG_MAPS}/{name}")).await;
        assert!(answer.code.is_client_error(), "{name}: {}", answer.code);
    }
}
