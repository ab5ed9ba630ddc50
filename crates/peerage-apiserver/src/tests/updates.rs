//! Many writers, one object.

use futures::future::join_all;

use super::*;

#[tokio::test]
async fn of_sixteen_writers_with_the_same_version_one_wins() {
    let server = Server::new().await;
    let made = server.create(CONFIG_MAPS, config_map("one")).await.ok();
    let writes = (0..16).map(|n| {
        let mut new = made.clone();
        new["data"] = json!({ "writer": n.to_string() });
        let server = &server;
        async move { server.put(&format!("{CONFIG_MAPS}/one"), new).await }
    });
    let answers = join_all(writes).await;
    let won = answers.iter().filter(|a| a.code.is_success()).count();
    let lost = answers
        .iter()
        .filter(|a| a.code == StatusCode::CONFLICT)
        .count();
    assert_eq!((won, lost), (1, 15), "{answers:?}");
}

#[tokio::test]
async fn sixteen_writers_that_read_again_after_a_conflict_lose_nothing() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/sum");
    server.create(CONFIG_MAPS, config_map("sum")).await.ok();
    let writers = (0..16).map(|n| {
        let (server, path) = (&server, &path);
        async move {
            loop {
                let mut now = server.get(path).await.ok();
                now["data"][format!("w{n}")] = json!("1");
                let answer = server.put(path, now).await;
                if answer.code.is_success() {
                    return;
                }
                assert_eq!(answer.code, StatusCode::CONFLICT);
            }
        }
    });
    join_all(writers).await;
    let sum = server.get(&path).await.ok();
    assert_eq!(sum["data"].as_object().map(|d| d.len()), Some(16));
}

#[tokio::test]
async fn patches_of_sixteen_writers_all_count() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/sum");
    server.create(CONFIG_MAPS, config_map("sum")).await.ok();
    let patches = (0..16).map(|n| {
        let (server, path) = (&server, &path);
        async move {
            server
                .merge(path, json!({ "data": { format!("w{n}"): "1" } }))
                .await
                .ok()
        }
    });
    join_all(patches).await;
    let sum = server.get(&path).await.ok();
    assert_eq!(sum["data"].as_object().map(|d| d.len()), Some(16));
}

#[tokio::test]
async fn a_patch_with_an_old_version_is_refused() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/one");
    let made = server.create(CONFIG_MAPS, config_map("one")).await.ok();
    server
        .merge(&path, json!({ "data": { "a": "1" } }))
        .await
        .ok();
    let version = &made["metadata"]["resourceVersion"];
    let patch = json!({ "metadata": { "resourceVersion": version }, "data": { "a": "2" } });
    assert_eq!(server.merge(&path, patch).await.code, StatusCode::CONFLICT);
    assert_eq!(server.get(&path).await.ok()["data"]["a"], "1");
}

#[tokio::test]
async fn a_write_that_changes_nothing_writes_nothing() {
    let server = Server::new().await;
    let made = server.create(CONFIG_MAPS, config_map("one")).await.ok();
    let before = server.revision().await;
    let again = server
        .put(&format!("{CONFIG_MAPS}/one"), config_map("one"))
        .await
        .ok();
    assert_eq!(again, made);
    assert_eq!(server.revision().await, before);
}

/// The other server's cache may still have the state before; it must not take the write for one that changes nothing.
#[tokio::test]
async fn a_write_that_would_change_nothing_of_an_old_state_counts() {
    let store = memory();
    let first = Server::of("1.37", store.clone()).await;
    let second = Server::of("1.37", store).await;
    let path = format!("{CONFIG_MAPS}/one");
    let data = |value: &str| json!({ "metadata": { "name": "one" }, "data": { "a": value } });
    first.create(CONFIG_MAPS, data("0")).await.ok();
    second.get(&path).await.ok();
    for _ in 0..50 {
        first.put(&path, data("1")).await.ok();
        second.put(&path, data("0")).await.ok();
        assert_eq!(first.get(&path).await.ok()["data"]["a"], "0");
    }
}

#[tokio::test]
async fn dry_runs_change_nothing_and_show_what_would_be() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/one");
    let all = "dryRun=All";
    let before = server.revision().await;
    let shown = server
        .create(&format!("{CONFIG_MAPS}?{all}"), config_map("one"))
        .await
        .ok();
    assert!(shown["metadata"]["uid"].is_string());
    assert_eq!(server.revision().await, before);
    assert_eq!(server.get(&path).await.code, StatusCode::NOT_FOUND);

    let made = server.create(CONFIG_MAPS, config_map("one")).await.ok();
    let before = server.revision().await;
    let taken = server
        .create(&format!("{CONFIG_MAPS}?{all}"), config_map("one"))
        .await;
    assert_eq!(taken.code, StatusCode::CONFLICT);
    let patched = server
        .merge(&format!("{path}?{all}"), json!({ "data": { "a": "1" } }))
        .await;
    assert_eq!(patched.ok()["data"]["a"], "1");
    let mut new = made.clone();
    new["data"] = json!({ "b": "1" });
    assert_eq!(
        server.put(&format!("{path}?{all}"), new).await.ok()["data"]["b"],
        "1"
    );
    server.delete(&format!("{path}?{all}")).await.ok();
    server.delete(&format!("{CONFIG_MAPS}?{all}")).await.ok();
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    let services = format!("/api/v1/namespaces/default/services?{all}");
    let service = server.create(&services, service).await.ok();
    assert!(service["spec"]["clusterIP"].is_string());
    assert_eq!(server.revision().await, before);
    assert_eq!(server.get(&path).await.ok(), made);
}

#[tokio::test]
async fn generated_names_that_are_taken_are_drawn_again() {
    let server = Server::new().await;
    let body = json!({ "metadata": { "generateName": "x-" } });
    let creates = (0..64).map(|_| server.create(CONFIG_MAPS, body.clone()));
    let made = join_all(creates).await;
    let mut names: Vec<String> = made
        .into_iter()
        .map(|a| a.ok()["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 64);
}

#[tokio::test]
async fn the_uid_of_another_object_is_refused() {
    let server = Server::new().await;
    let path = format!("{CONFIG_MAPS}/one");
    server.create(CONFIG_MAPS, config_map("one")).await.ok();
    let other =
        json!({ "metadata": { "name": "one", "uid": "7d3a5a3c-0000-4000-8000-000000000000" } });
    assert_eq!(
        server.put(&path, other.clone()).await.code,
        StatusCode::CONFLICT
    );
    let patched = server.merge(&path, other).await;
    assert_eq!(patched.code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn labels_alone_do_not_raise_a_generation() {
    let server = Server::new().await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let mut deployment = json!({
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    });
    server.create(all, deployment.clone()).await.ok();
    deployment["metadata"]["labels"] = json!({ "x": "y" });
    let path = format!("{all}/d");
    let put = server.put(&path, deployment.clone()).await.ok();
    assert_eq!(put["metadata"]["generation"], 1);
    deployment["spec"]["replicas"] = json!(2);
    let put = server.put(&path, deployment).await.ok();
    assert_eq!(put["metadata"]["generation"], 2);
}

#[tokio::test]
async fn of_many_updates_of_a_missing_lease_one_creates_it_and_all_count() {
    let server = Server::new().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let puts = (0..16).map(|n| {
        let server = &server;
        let name = format!("c{n}");
        async move {
            let endpoints = json!({
                "metadata": { "name": "e" },
                "subsets": [{ "addresses": [{ "ip": format!("10.1.1.{n}") }] }],
            });
            let body = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": name } });
            let created = server.put(path, body).await.code == StatusCode::CREATED;
            let endpoints = server
                .put("/api/v1/namespaces/default/endpoints/e", endpoints)
                .await;
            (created, endpoints.ok())
        }
    });
    let answers = join_all(puts).await;
    assert_eq!(answers.iter().filter(|(created, _)| *created).count(), 1);
}
