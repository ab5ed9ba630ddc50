//! Lists in pages, and at older versions.

use super::*;

async fn with(names: &[&str]) -> Server {
    let server = Server::new().await;
    for name in names {
        server.create(CONFIG_MAPS, config_map(name)).await.ok();
    }
    server
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_show_the_collection_as_it_was_at_the_first_one() {
    let server = with(&["a", "b", "c", "d", "e"]).await;
    let first = server.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.delete(&format!("{CONFIG_MAPS}/c")).await.ok();
    server.create(CONFIG_MAPS, config_map("bb")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = server
        .get(&format!("{CONFIG_MAPS}?limit=9&continue={token}"))
        .await
        .ok();
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!(version_of(&rest), version_of(&first));
}

#[tokio::test]
async fn a_page_of_a_compacted_version_is_gone() {
    let server = with(&["a", "b", "c"]).await;
    let first = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    server.delete(&format!("{CONFIG_MAPS}/b")).await.ok();
    server.store.compact(server.revision().await).await.unwrap();
    // As long as the cache has not heard of the change it is still at the version of the page, and may answer.
    assert_eq!(names(&server.get(CONFIG_MAPS).await.ok()), ["a", "c"]);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let answer = server
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!(answer.code, StatusCode::GONE);
    assert_eq!(answer.body["reason"], "Expired");
}

#[tokio::test]
async fn an_exact_version_shows_what_was_deleted_since() {
    let server = with(&["a", "b"]).await;
    let before = server.revision().await;
    server.delete(&format!("{CONFIG_MAPS}/b")).await.ok();
    let exact = format!("{CONFIG_MAPS}?resourceVersion={before}&resourceVersionMatch=Exact");
    assert_eq!(names(&server.get(&exact).await.ok()), ["a", "b"]);
    // A server that starts now has never seen it, and must not take its cache for the state of then.
    let other = Server::of("1.37", server.store.clone()).await;
    assert_eq!(names(&other.get(&exact).await.ok()), ["a", "b"]);
}

#[tokio::test]
async fn a_list_after_a_write_shows_it_whichever_server_is_asked() {
    let store = memory();
    let first = Server::of("1.37", store.clone()).await;
    let second = Server::of("1.34", store).await;
    for n in 0..20 {
        first
            .create(CONFIG_MAPS, config_map(&format!("c{n}")))
            .await
            .ok();
        let list = second.get(CONFIG_MAPS).await.ok();
        assert_eq!(names(&list).len(), n + 1);
    }
}

#[tokio::test]
async fn a_version_of_the_future_is_waited_for_and_then_refused() {
    let server = with(&[]).await;
    tokio::time::pause();
    let far = server.revision().await + 1_000;
    let answer = server
        .get(&format!("{CONFIG_MAPS}?resourceVersion={far}"))
        .await;
    assert_eq!(answer.code, StatusCode::GATEWAY_TIMEOUT);
    assert!(
        answer.refusal().1.contains("Too large resource version"),
        "{answer:?}"
    );
}
