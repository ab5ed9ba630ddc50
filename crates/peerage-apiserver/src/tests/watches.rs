//! A watch is the store's history of what it selects, each change once.

use futures::future::join;
use peerage_store::testing::{FaultPlan, FaultyStore};

use super::*;

#[tokio::test]
async fn a_watch_from_a_version_shows_each_later_change_once_and_in_order() {
    let server = Server::new().await;
    let from = server.revision().await;
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
    let path = format!("{CONFIG_MAPS}/one");
    let mut versions = vec![version_of(
        &server.create(CONFIG_MAPS, config_map("one")).await.ok(),
    )];
    for n in 0..20 {
        let patched = server
            .merge(&path, json!({ "data": { "n": n.to_string() } }))
            .await;
        versions.push(version_of(&patched.ok()));
    }
    server.delete(&path).await.ok();
    let mut seen = Vec::new();
    for _ in 0..21 {
        let frame = watch.next().await.unwrap();
        seen.push(version_of(&frame["object"]));
    }
    assert_eq!(seen, versions);
    let last = watch.next().await.unwrap();
    assert_eq!(last["type"], "DELETED");
    assert!(version_of(&last["object"]) > *versions.last().unwrap());
    // The same again, from where the first one began.
    let mut again = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
    assert_eq!(again.shown().await, ("ADDED".to_owned(), "one".to_owned()));
    let second = again.next().await.unwrap();
    assert_eq!(version_of(&second["object"]), versions[1]);
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_and_one_that_enters_is_added() {
    let server = Server::new().await;
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=a%3D1"))
        .await;
    let path = format!("{CONFIG_MAPS}/one");
    let label = |value: &str| json!({ "metadata": { "labels": { "a": value } } });
    let mut one = label("2");
    one["metadata"]["name"] = json!("one");
    server.create(CONFIG_MAPS, one).await.ok();
    server.merge(&path, label("1")).await.ok();
    server
        .merge(&path, json!({ "data": { "x": "y" } }))
        .await
        .ok();
    let left = server.merge(&path, label("2")).await.ok();
    server
        .merge(&path, json!({ "data": { "x": "z" } }))
        .await
        .ok();
    server.merge(&path, label("1")).await.ok();
    server.delete(&path).await.ok();
    let mut types = Vec::new();
    for _ in 0..5 {
        let frame = watch.next().await.unwrap();
        if types.len() == 2 {
            assert_eq!(version_of(&frame["object"]), version_of(&left));
            assert_eq!(
                frame["object"]["metadata"]["labels"]["a"], "1",
                "as it was last selected"
            );
        }
        types.push(frame["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
}

#[tokio::test]
async fn a_watch_by_name_shows_only_that_object() {
    let server = Server::new().await;
    let mut by_field = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dtwo"
        ))
        .await;
    let mut by_path = server
        .watch("/api/v1/watch/namespaces/default/configmaps/two")
        .await;
    for name in ["one", "two"] {
        server.create(CONFIG_MAPS, config_map(name)).await.ok();
    }
    assert_eq!(by_field.shown().await.1, "two");
    assert_eq!(by_path.shown().await.1, "two");
}

#[tokio::test]
async fn the_initial_events_end_with_a_bookmark_at_their_version() {
    let server = Server::new().await;
    for n in 0..700 {
        server
            .create(CONFIG_MAPS, config_map(&format!("c{n:03}")))
            .await
            .ok();
    }
    let options =
        "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{options}")).await;
    for n in 0..700 {
        assert_eq!(
            watch.shown().await,
            ("ADDED".to_owned(), format!("c{n:03}"))
        );
    }
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(version_of(&end["object"]), server.revision().await);
}

/// The store's watch ends again and again; the server resumes it where it was.
#[tokio::test(start_paused = true)]
async fn watches_lose_and_repeat_nothing_when_the_stores_watch_is_cut_off() {
    let mut plan = FaultPlan::slow(Duration::from_millis(1));
    plan.cut_off_after = Some(3);
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new(memory(), plan));
    let server = Server::of("1.37", store).await;
    let from = server.revision().await;
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
    let writes = async {
        let mut versions = Vec::new();
        for n in 0..50 {
            let made = server
                .create(CONFIG_MAPS, config_map(&format!("c{n}")))
                .await;
            versions.push(version_of(&made.ok()));
        }
        versions
    };
    let reads = async {
        let mut seen = Vec::new();
        while seen.len() < 50 {
            seen.push(version_of(&watch.next().await.unwrap()["object"]));
        }
        seen
    };
    let (versions, seen) = join(writes, reads).await;
    assert_eq!(versions, seen);
}

#[tokio::test]
async fn a_watch_from_before_what_is_remembered_is_told_to_list_again() {
    let store = memory();
    let old = store.status().await.unwrap().revision;
    let first = Server::of("1.37", store.clone()).await;
    first.create(CONFIG_MAPS, config_map("one")).await.ok();
    // A server that starts now knows nothing of what was before.
    let second = Server::of("1.37", store).await;
    let mut watch = second
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={}",
            old.max(1)
        ))
        .await;
    let frame = watch.next().await.unwrap();
    assert_eq!(
        (frame["type"].as_str(), frame["object"]["code"].as_i64()),
        (Some("ERROR"), Some(410))
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watch_ends_after_its_time() {
    let server = Server::new().await;
    tokio::time::pause();
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0"
        ))
        .await;
    assert!(watch.next().await.is_none());
}
