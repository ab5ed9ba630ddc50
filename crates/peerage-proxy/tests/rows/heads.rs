//! What HEAD is answered through the proxy: a length where the peer states one, and none where it does not.

use http::StatusCode;
use http_body_util::{BodyExt, StreamBody};

use super::support::*;

const WIDGETS: &str = "/apis/new.example.com/v1/widgets";

#[tokio::test]
async fn the_length_in_the_answer_to_a_head_is_the_peers_or_none() {
    for alpn in ["h2", "http/1.1"] {
        let pki = Pki::new();
        let (core, new) = (documents::core(), documents::new());
        let peer = FakePeer::start_with(&pki, "new", &core, &new, &[alpn], PEER_NAME).await;
        let world = World::start(pki, vec![live("new", peer.address)]);
        world.until_state("new", "serving").await;
        let front = Front::start(&world).await;
        peer.on_request(|request| async move {
            let name = request.uri().query().unwrap_or_default().to_owned();
            match &*name {
                "stated" => response(StatusCode::OK, &[("content-length", "42")], ""),
                "zero" => response(StatusCode::OK, &[("content-length", "0")], ""),
                "refused" => response(
                    StatusCode::METHOD_NOT_ALLOWED,
                    &[("content-length", "7")],
                    "",
                ),
                _ => {
                    let never = futures::stream::pending();
                    http::Response::new(BodyExt::boxed(StreamBody::new(never)))
                }
            }
        });
        for (query, expected) in [
            ("stated", Some("42")),
            ("zero", Some("0")),
            ("refused", Some("7")),
            ("unknown", None),
        ] {
            let mut client = front.connect().await;
            client
                .write(&format!(
                    "HEAD {WIDGETS}?{query} HTTP/1.1\r\nHost: x\r\n\r\n"
                ))
                .await;
            let head = client.head().await.to_ascii_lowercase();
            let mut lengths = head
                .lines()
                .filter_map(|it| it.strip_prefix("content-length: "));
            assert_eq!(lengths.next(), expected, "{alpn} {query}: {head}");
            assert!(
                !head.contains("transfer-encoding"),
                "{alpn} {query}: {head}"
            );
        }
    }
}
