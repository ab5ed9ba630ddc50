//! Faults in what becomes of a misbehaving server's answer, behind a gateway beside the older server and a balancer.

use http::StatusCode;
use peerage_testkit::odd::{ODDITIES, Odd, set, text};
use peerage_testkit::wire::Outgoing;

use super::odd_servers::serving;
use super::{FRONTS, get, header, send};

/// CVE-2022-3172 (kubernetes/kubernetes#112513): a server sends clients, with their credentials, somewhere else.
/// kubernetes/kubernetes#48610: a server that is too busy. #128497: a form that the proxy does not know.
#[tokio::test]
async fn what_a_server_answers_is_passed_on_once_and_nobody_is_sent_away() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let odd = Odd::start(fronts.plane.pki(), |request| {
        let name = request.uri.path().strip_prefix(ODDITIES)?;
        let mut answer = text(StatusCode::OK, "\u{0}\u{1}oddly\n");
        match name {
            "/elsewhere" => {
                *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
                set(&mut answer, "location", "https://elsewhere.example.com/api");
            }
            "/busy" => {
                *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                set(&mut answer, "retry-after", "7");
            }
            "/sequence" => set(&mut answer, "content-type", "application/cbor-seq"),
            _ => return None,
        }
        Some(answer)
    })
    .await;
    for (name, gateway) in fronts.more(&[&format!("--peer={}", odd.url)]).await {
        serving(&gateway, &odd).await;
        let before = odd.asked_by_clients().len();
        let away = get(
            &gateway,
            &format!("{ODDITIES}/elsewhere"),
            "application/json",
        )
        .await;
        assert_eq!(away.status(), 503, "{name}: {}", away.in_words());
        assert_eq!(header(&away, "location"), None, "{name}");
        assert!(
            !away.in_words().contains("elsewhere.example.com/api"),
            "{name}"
        );
        let busy = get(&gateway, &format!("{ODDITIES}/busy"), "application/json").await;
        assert_eq!(
            (busy.status(), header(&busy, "retry-after")),
            (429, Some("7".to_owned())),
            "{name}"
        );
        let sequence = get(
            &gateway,
            &format!("{ODDITIES}/sequence"),
            "application/cbor-seq",
        )
        .await;
        assert_eq!(
            header(&sequence, "content-type").as_deref(),
            Some("application/cbor-seq")
        );
        for answer in [&busy, &sequence] {
            assert_eq!(answer.body, b"\0\x01oddly\n", "{name}");
        }
        assert_eq!(
            odd.asked_by_clients().len(),
            before + 3,
            "{name}: each once"
        );
    }
}

/// What kube-apiserver's proxy answers for a peer that refuses connections: plain text, without Retry-After.
#[tokio::test]
async fn a_server_that_is_gone_is_a_status_whatever_the_client_reads() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let odd = Odd::start(fronts.plane.pki(), |_| None).await;
    let ways = fronts.more(&[&format!("--peer={}", odd.url)]).await;
    for (_, gateway) in &ways {
        serving(gateway, &odd).await;
    }
    drop(odd);
    for (name, gateway) in &ways {
        for (accept, form) in [
            ("application/json", "application/json"),
            ("application/yaml", "application/yaml"),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                "application/vnd.kubernetes.protobuf",
            ),
            (
                "application/cbor,application/json;q=0.9",
                "application/json",
            ),
            (
                "application/vnd.kubernetes.protobuf",
                "application/vnd.kubernetes.protobuf",
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                "application/json",
            ),
        ] {
            for method in ["GET", "POST", "DELETE"] {
                let mut request = Outgoing::get_as(ODDITIES, accept);
                method.clone_into(&mut request.method);
                let answer = send(gateway, "admin", &request).await;
                let what = format!("{name} {method} {accept}: {}", answer.in_words());
                assert_eq!(answer.status(), 503, "{what}");
                assert!(header(&answer, "retry-after").is_some(), "{what}");
                assert_eq!(
                    header(&answer, "content-type").as_deref(),
                    Some(form),
                    "{what}"
                );
                assert!(
                    String::from_utf8_lossy(&answer.body).contains("Status"),
                    "{what}"
                );
            }
        }
    }
}

/// CVE-2018-1002105 (kubernetes/kubernetes#71411), CVE-2020-8559 (#92941): what a server answers to an upgrade instead of
/// the switch joins nothing, and sends nobody elsewhere.
#[tokio::test]
async fn an_upgrade_that_is_answered_otherwise_joins_nothing() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    let odd = Odd::start(fronts.plane.pki(), |request| {
        let name = request.uri.path().strip_prefix(ODDITIES)?;
        let status = match name {
            "/refused/log" => StatusCode::BAD_REQUEST,
            "/well/log" => StatusCode::OK,
            "/moved/log" => StatusCode::FOUND,
            "/second" => StatusCode::OK,
            _ => return None,
        };
        let mut answer = text(status, "odd");
        if status == StatusCode::FOUND {
            set(
                &mut answer,
                "location",
                "/apis/odd.example.com/v1/oddities/second",
            );
        }
        Some(answer)
    })
    .await;
    for (name, gateway) in fronts.more(&[&format!("--peer={}", odd.url)]).await {
        serving(&gateway, &odd).await;
        for (what, expected) in [("refused", 400), ("well", 503), ("moved", 503)] {
            let upgrade = Outgoing::new("GET", &format!("{ODDITIES}/{what}/log"))
                .header("Connection", "Upgrade")
                .header("Upgrade", "SPDY/3.1");
            // Who could speak to the server with the gateway's rights would say who it is.
            let second = Outgoing::new("GET", &format!("{ODDITIES}/second"))
                .header("X-Remote-User", "root")
                .header("X-Remote-Group", "system:masters");
            let client = gateway.client("alice");
            let (first, second) = client.send_two(&upgrade, &second).await.unwrap();
            assert_eq!(
                first.status(),
                expected,
                "{name} {what}: {}",
                first.in_words()
            );
            assert_eq!(header(&first, "location"), None, "{name} {what}");
            assert_eq!(second.status(), 200, "{name} {what}: {}", second.in_words());
            let last = odd
                .asked()
                .into_iter()
                .rfind(|it| it.line.ends_with("/second"));
            let last = last.unwrap();
            assert_eq!(
                last.user.as_deref(),
                Some("alice"),
                "{name} {what}: {last:?}"
            );
        }
    }
}

/// Errors in the log for what is no fault: kubernetes/kubernetes#130410 for watches that end, and kube-apiserver's peer proxy
/// for each resource that nobody has.
#[tokio::test]
async fn what_is_no_fault_does_not_fill_the_log() {
    let fronts = FRONTS.get().await;
    let _unchanged = fronts.served.read().await;
    for (name, gateway) in fronts.more(&[]).await {
        let way = gateway.multiplexed("admin").await;
        let unknown = Outgoing::new("GET", "/apis/nobody.example.com/v1/things");
        let watch = Outgoing::new(
            "GET",
            &format!("{}?watch=true", crate::versions::NEWER_ONLY),
        );
        for number in 0..300 {
            let answer = way.send(&unknown).await.unwrap();
            assert_eq!(answer.status(), 404, "{name}");
            if number % 3 == 0 {
                drop(gateway.client("admin").open(&watch).await.unwrap());
            }
        }
        let log = std::fs::read_to_string(gateway.log_file()).unwrap();
        let faults = log
            .lines()
            .filter(|it| it.contains(" ERROR ") || it.contains(" WARN "));
        assert_eq!(faults.count(), 0, "{name}: {log}");
        let of_it = log.lines().filter(|it| it.contains("nobody.example.com"));
        assert!(of_it.count() <= 3, "{name}: {log}");
    }
}
