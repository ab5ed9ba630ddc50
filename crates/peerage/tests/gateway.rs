//! `peerage gateway` as who runs it sees it: what its log says of whether it is ready, and what it says of requests.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use peerage_testkit::cluster::until;
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{GatewayProcess, ServerProcess, ServerSpec};
use serde_json::Value;

fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_peerage"))
}

/// A server that believes gateways.
async fn server(pki: &Pki) -> ServerProcess {
    let spec = ServerSpec {
        store: None,
        ..ServerSpec::peer("one", "1.37", "")
    };
    ServerProcess::start(executable(), pki, &spec).await
}

/// What the log says of readiness, in order.
fn told(gateway: &GatewayProcess) -> Vec<(String, String)> {
    let printed = std::fs::read_to_string(gateway.process.log_file()).unwrap();
    let entries = printed.lines().map(serde_json::from_str::<Value>);
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let entries = entries.filter_map(Result::ok);
    let told = entries.map(|it| (text(&it["message"]), text(&it["why"])));
    told.filter(|(message, _)| {
        ["listening", "not ready yet", "not ready", "ready"].contains(&&**message)
    })
    .collect()
}

#[tokio::test]
async fn a_gateway_says_that_it_is_ready_when_it_is_and_otherwise_who_is_missing() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let list = pki.file("peers.yaml");
    let name = |url: &str| std::fs::write(&list, format!("- url: {url}\n")).unwrap();
    // Nobody is there, and no port is written.
    name("https://127.0.10.1");
    let servers = format!("--peers-file={}", list.display());
    let gateway = GatewayProcess::listening(executable(), &pki, servers).await;
    until("the gateway says that nobody can be used", || async {
        told(&gateway)
            .iter()
            .any(|(message, _)| message == "not ready")
    })
    .await;
    let so_far = told(&gateway);
    assert_eq!(so_far[0].0, "listening", "{so_far:?}");
    assert!(
        so_far.iter().all(|(message, _)| message != "ready"),
        "{so_far:?}"
    );
    let (_, why) = so_far.last().unwrap();
    assert!(
        why.starts_with("no server behind this gateway can be used; 127.0.10.1:443: "),
        "{why}"
    );
    assert!(why.contains("at 127.0.10.1:443"), "{why}");

    let server = server(&pki).await;
    name(&format!("https://{}", server.address));
    until("the gateway says that it is ready", || async {
        told(&gateway).last().unwrap().0 == "ready"
    })
    .await;
    server.process.kill();
    until("the gateway says that it is no longer ready", || async {
        told(&gateway).last().unwrap().0 == "not ready"
    })
    .await;
    let all = told(&gateway);
    let (_, why) = all.last().unwrap();
    assert!(why.contains(&server.address.to_string()), "{why}");
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    // On a machine that has no time for it a question may fail now and then, but no line comes with each.
    assert!(all.len() <= 12, "{all:?}");
}

async fn explained(gateway: &GatewayProcess, words: &[&str]) -> (Option<i32>, String, String) {
    let output = tokio::process::Command::new(executable())
        .arg("explain")
        .args(words)
        .arg(format!("--gateway=http://{}", gateway.admin))
        .output()
        .await
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn a_gateway_answers_nothing_itself_that_it_passes_on() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let server = server(&pki).await;
    let gateway = GatewayProcess::start(executable(), &pki, server.address).await;
    let on = format!("  is passed on to https://{}: ", server.address);
    for (words, says) in [
        (
            &["/version"][..],
            format!("GET /version\n{on}it is not a request for a resource\n"),
        ),
        (
            &["POST", "/api/v1/namespaces/x/pods"],
            format!("{on}a server behind this gateway serves it\n"),
        ),
        (
            &["/apis"],
            "  is answered by this gateway, of what the servers behind it serve\n".to_owned(),
        ),
        (
            &["/apis/no.example.com/v1/things"],
            "  is 404: no server has the group\n".to_owned(),
        ),
    ] {
        let (code, shown, error) = explained(&gateway, words).await;
        assert_eq!((code, &*error), (Some(0), ""), "{words:?}");
        assert!(shown.contains(&says), "{words:?}: {shown}");
        assert!(!shown.contains("answered here"), "{words:?}: {shown}");
    }
    // What is no request is refused by the gateway as well, whoever asks it.
    for (question, says) in [
        ("FOO", "is not a path"),
        ("FOO%20/x", "is no method"),
        ("get%20/x", "is no method"),
    ] {
        let path = format!("/debug/peers?explain={question}");
        let url = format!("http://{}", gateway.admin);
        let client = peerage::client::ApiClient::plain(&url, peerage::client::PATIENCE).unwrap();
        let answer = client.get(&path).await.unwrap();
        assert_eq!(
            answer.status.as_u16(),
            400,
            "{question}: {}",
            answer.in_words()
        );
        assert!(
            answer.in_words().contains(says),
            "{question}: {}",
            answer.in_words()
        );
    }
}

#[tokio::test]
async fn a_gateway_whose_source_says_nothing_stops_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let mut gateway = tokio::process::Command::new(executable())
        .args([
            "gateway".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--etcd-servers=http://{}", silent.local_addr().unwrap()),
            file("tls-cert-file", "server.crt"),
            file("tls-private-key-file", "server.key"),
            file("client-ca-file", "ca.crt"),
            file("peer-ca-file", "ca.crt"),
            file("proxy-client-cert-file", "front-proxy-client.crt"),
            file("proxy-client-key-file", "front-proxy-client.key"),
        ])
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let _connection = silent.accept().await.unwrap();
    let asked = std::time::Instant::now();
    let pid = nix::unistd::Pid::from_raw(gateway.id().unwrap().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = gateway.wait().await.unwrap();
    assert!(ended.success(), "{ended}");
    let took = asked.elapsed();
    assert!(took < std::time::Duration::from_millis(4500), "{took:?}");
}
