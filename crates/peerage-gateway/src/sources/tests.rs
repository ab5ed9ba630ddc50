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
    let (_, state) = sources
        .states
        .iter()
        .find(|(it, _)| it.as_str() == name)
        .unwrap();
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

/// The query of a request, and as whom it was sent.
type Asked = (String, Option<String>);

/// A server that is asked for Leases: what it lists, and what its watches say from then on.
struct LeaseServer {
    address: std::net::SocketAddr,
    lines: tokio::sync::broadcast::Sender<Option<String>>,
    seen: Arc<std::sync::Mutex<Vec<Asked>>>,
    _stop: DropGuard,
}

impl LeaseServer {
    async fn start(status: u16, listed: Vec<serde_json::Value>) -> LeaseServer {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (lines, _) = tokio::sync::broadcast::channel::<Option<String>>(16);
        let seen = Arc::new(std::sync::Mutex::new(Vec::<Asked>::new()));
        let (told, noted) = (lines.clone(), seen.clone());
        let list = serde_json::json!({"metadata": {"resourceVersion": "7"}, "items": listed});
        let service = tower::service_fn(move |request: peerage_http::Request| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let user = request.headers().get("x-remote-user");
            let user = user.map(|it| it.to_str().unwrap().to_owned());
            noted.lock().unwrap().push((query.clone(), user));
            let mut events = told.subscribe();
            let list = list.to_string();
            async move {
                let body = if query.contains("watch=true") {
                    let (mut sender, body) = peerage_http::channel(16);
                    tokio::spawn(async move {
                        while let Ok(Some(line)) = events.recv().await {
                            let _ = sender.send_data(line.into()).await;
                        }
                    });
                    peerage_http::body::boxed(body)
                } else {
                    peerage_http::full(list)
                };
                let mut response = peerage_http::Response::new(body);
                *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let stop = CancellationToken::new();
        tokio::spawn(peerage_http::Server::serve(
            listener,
            peerage_http::ServerTls::plain(),
            peerage_http::HttpService::new(service),
            peerage_http::ServerOptions::default(),
            stop.clone(),
        ));
        LeaseServer {
            address,
            lines,
            seen,
            _stop: stop.drop_guard(),
        }
    }

    async fn until_watched(&self, times: usize) {
        let watches = || {
            let seen = self.seen.lock().unwrap();
            seen.iter()
                .filter(|(query, _)| query.contains("watch=true"))
                .count()
        };
        let wait = async {
            while watches() < times || self.lines.receiver_count() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .unwrap();
    }

    fn say(&self, kind: &str, lease: &serde_json::Value) {
        let line = serde_json::json!({"type": kind, "object": lease});
        self.lines.send(Some(format!("{line}\n"))).unwrap();
    }
}

fn lease(id: &str, address: &str) -> serde_json::Value {
    serde_json::json!({
        "metadata": {
            "name": id, "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
            "annotations": {"kubernetes.io/peer-advertise-address": address},
        },
        // Far ahead: a clock that is wrong in this direction makes nobody dead.
        "spec": {"holderIdentity": format!("{id}_1"), "leaseDurationSeconds": 3600, "renewTime": "2126-01-01T00:00:00.000000Z"},
    })
}

#[tokio::test]
async fn leases_are_followed_through_a_server_that_answers() {
    let broken = LeaseServer::start(500, Vec::new()).await;
    let server = LeaseServer::start(200, vec![lease("apiserver-a", "10.0.0.1:6443")]).await;
    let at = |server: &LeaseServer| Found::at(server.address.to_string().parse().unwrap());
    let sources = Sources::start(SourceOptions {
        fixed: vec![at(&broken), at(&server)],
        leases: Some(LeaseOptions {
            tls: ClientTls::plain(),
            user: Some(LeaseUser {
                user: User {
                    name: "peerage-gateway".to_owned(),
                    ..User::default()
                },
                family: Family::default(),
            }),
        }),
        ..nothing()
    })
    .await;
    let (first, second) = (broken.address.to_string(), server.address.to_string());
    let are = |more: &'static [&'static str]| {
        let fixed = [first.clone(), second.clone()];
        move |ids: &[String]| ids[..2] == fixed && ids[2..] == *more
    };
    until(&sources, "the listed one", are(&["apiserver-a"])).await;
    server.until_watched(1).await;
    server.say("ADDED", &lease("apiserver-b", "10.0.0.2:6443"));
    until(&sources, "one more", are(&["apiserver-a", "apiserver-b"])).await;
    server.say("DELETED", &lease("apiserver-a", "10.0.0.1:6443"));
    until(&sources, "one less", are(&["apiserver-b"])).await;
    // A watch that ends is begun anew, with a list that says what is so now.
    server.lines.send(None).unwrap();
    until(&sources, "the list again", are(&["apiserver-a"])).await;
    let seen = server.seen.lock().unwrap().clone();
    assert!(
        seen.iter()
            .all(|(_, user)| user.as_deref() == Some("peerage-gateway")),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .all(|(query, _)| query.contains("labelSelector=")),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|(query, _)| query.contains("resourceVersion=7")),
        "{seen:?}"
    );
}
