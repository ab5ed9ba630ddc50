//! The sources at work: files that change and break, names, servers that say who else is there.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;

fn nothing() -> SourceOptions {
    SourceOptions {
        fixed: Vec::new(),
        file: None,
        names: Vec::new(),
        leases: None,
        etcd: None,
    }
}

fn ids(sources: &Sources) -> Vec<String> {
    let records = sources.records();
    let records = records.borrow();
    records.iter().map(|record| record.id.to_string()).collect()
}

async fn until(sources: &Sources, what: &str, is: impl Fn(&[String]) -> bool) {
    let mut records = sources.records();
    let wait = records.wait_for(|list| {
        let ids: Vec<_> = list.iter().map(|record| record.id.to_string()).collect();
        is(&ids)
    });
    let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
    assert!(waited.is_ok(), "{what}: {:?}", ids(sources));
}

/// As an editor or a mounted ConfigMap does: the new content is there all at once.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

async fn said(sources: &Sources, name: &str, is: impl Fn(&State) -> bool) -> State {
    let (_, state) = sources.states.iter().find(|(it, _)| *it == name).unwrap();
    let mut state = state.clone();
    let waited = tokio::time::timeout(Duration::from_secs(20), state.wait_for(is)).await;
    waited.unwrap().unwrap().clone()
}

#[tokio::test]
async fn a_file_is_followed_and_a_broken_one_keeps_the_old_list() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("peers.yaml");
    write(&path, "- {url: 'https://10.0.0.1:6443'}\n");
    let sources = Sources::start(SourceOptions {
        fixed: vec![Found::at("10.0.0.9:6443".parse().unwrap())],
        file: Some(path.clone()),
        ..nothing()
    })
    .await;
    let registry = Registry::default();
    sources.register_metrics(&registry);
    until(&sources, "the first list", |ids| {
        ids == ["10.0.0.9:6443", "10.0.0.1:6443"]
    })
    .await;

    write(&path, "- {url: ");
    let broken = said(&sources, "file", |it| it.trouble.is_some()).await;
    assert_eq!(broken.servers.len(), 1, "the old list stays: {broken:?}");
    assert_eq!(ids(&sources).len(), 2);
    let counted = r#"peerage_gateway_source_errors_total{source="file",reason="shape"}"#;
    assert!(registry.text().contains(counted), "{}", registry.text());

    write(
        &path,
        "- {url: 'https://10.0.0.2:6443', id: apiserver-b}\n- {url: nonsense}\n",
    );
    until(&sources, "the next list", |ids| {
        ids == ["10.0.0.9:6443", "apiserver-b"]
    })
    .await;
    let well = said(&sources, "file", |it| it.skipped == 1).await;
    assert_eq!(well.trouble, None);

    std::fs::remove_file(&path).unwrap();
    said(&sources, "file", |it| it.trouble.is_some()).await;
    assert_eq!(
        ids(&sources).len(),
        2,
        "a file that is gone takes nothing away"
    );
    write(&path, "[]");
    until(&sources, "no list", |ids| ids == ["10.0.0.9:6443"]).await;
}

#[tokio::test]
async fn a_name_gives_its_addresses_and_a_start_waits_for_them() {
    let sources = Sources::start(SourceOptions {
        names: vec![DnsName {
            name: "localhost:6443".parse().unwrap(),
            zone: None,
        }],
        ..nothing()
    })
    .await;
    until(&sources, "addresses", |ids| {
        !ids.is_empty() && ids.iter().all(|id| id.ends_with(":6443"))
    })
    .await;
}
