//! Which of its documents a gateway compresses: those that a real server does, to the same bytes when unpacked.

use std::io::Read as _;

use flate2::read::GzDecoder;
use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Backend, ControlPlane, Gateway, RunningGateway};
use peerage_testkit::wire::{AGGREGATED, Answer, Client, Outgoing};
use serde_json::{Value, json};

use super::PROTOBUF;
use crate::ours;
use crate::versions;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "/apis/large.example.com/v1";

/// What clients say that they can unpack.
const ENCODINGS: [&str; 8] = [
    "gzip",
    "deflate, gzip",
    "gzip;q=1.0",
    "gzip;q=0",
    "GZIP",
    "br",
    "*",
    "identity",
];

/// A custom resource of so many versions and categories that discovery is larger than what is never compressed.
fn large() -> Value {
    definition("large.example.com", 12, 250)
}

fn definition(group: &str, versions: u32, categories: u32) -> Value {
    let version = |n: u32| {
        json!({"name": format!("v{n}"), "served": true, "storage": n == 1,
               "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let categories: Vec<_> = (0..categories).map(|n| format!("c{n:0>59}")).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "categories": categories},
            "versions": (1..=versions).map(version).collect::<Vec<_>>(),
        },
    })
}

/// What an answer says of itself, in order, and its bytes unpacked.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Seen {
    fn of(answer: &Answer) -> Self {
        let said = [
            "content-encoding",
            "content-type",
            "etag",
            "vary",
            "cache-control",
        ];
        let headers = answer.head.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        let mut headers: Vec<_> = headers
            .filter(|(name, _)| said.contains(&&**name))
            .collect();
        // The order of two fields of one name tells clients nothing here.
        headers.sort();
        let packed = answer.head.header("content-encoding") == Some("gzip");
        Self {
            status: answer.status(),
            headers,
            body: if packed {
                unpacked(&answer.body)
            } else {
                answer.body.clone()
            },
        }
    }

    fn is_packed(&self) -> bool {
        self.headers
            .iter()
            .any(|(name, _)| name == "content-encoding")
    }
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).unwrap();
    text
}

async fn ask(client: &Client, path: &str, accept: &str, encoding: &str) -> Answer {
    let request = Outgoing::get_as(path, accept).header("Accept-Encoding", encoding);
    client.send(&request).await.unwrap()
}

async fn create(client: &Client, definition: &Value) {
    let create = Outgoing::new("POST", DEFINITIONS).json("application/json", definition);
    let created = client.send(&create).await.unwrap();
    assert_eq!(created.status(), 201, "{}", created.in_words());
}

/// A server with a large document, and a gateway in front of it that knows that.
async fn start() -> (ControlPlane, RunningGateway) {
    let server = versions::kube_apiserver(&versions::newer()).named("alone");
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(server)
        .start()
        .await;
    let server = plane.server("alone");
    create(&server.client("admin"), &large()).await;
    server.serves(GROUP).await;
    let described =
        |index: &Answer| String::from_utf8_lossy(&index.body).contains("large.example.com/v12");
    let direct = server.client("admin");
    until("the server describes all of it", async || {
        described(&ask(&direct, "/openapi/v3", "application/json", "identity").await)
    })
    .await;
    let gateway = Gateway::balancing(&[server]);
    let gateway = ours::start(&plane, gateway).await;
    let through = gateway.client("admin");
    until(
        "the gateway knows the large document, and what the server says of it",
        || async {
            let mut equal = true;
            for (path, accept) in [("/apis", AGGREGATED), ("/openapi/v2", "application/json")] {
                let theirs = ask(&direct, path, accept, "identity").await;
                equal &= ask(&through, path, accept, "identity").await.body == theirs.body;
            }
            equal
        },
    )
    .await;
    (plane, gateway)
}

/// What of documents in all forms and encodings is not as the server itself has it, and which the server compresses.
async fn differences(direct: &Client, through: &Client) -> (Vec<String>, Vec<String>) {
    let protobuf = AGGREGATED.replace("application/json", PROTOBUF);
    let yaml = AGGREGATED.replace("application/json", "application/yaml");
    let json = "application/json";
    let rows = [
        ("/api", AGGREGATED),
        ("/apis", AGGREGATED),
        ("/apis", &*protobuf),
        ("/apis", &*yaml),
        ("/apis", json),
        ("/apis?pretty=1", AGGREGATED),
        ("/api/v1", json),
        (GROUP, json),
        (GROUP, "application/yaml"),
        (GROUP, PROTOBUF),
        ("/openapi/v2", json),
        ("/openapi/v3", json),
        ("/openapi/v3/apis/apps/v1", json),
    ];
    let (mut wrong, mut packed) = (Vec::new(), Vec::new());
    for (path, accept) in rows {
        for encoding in ENCODINGS {
            let theirs = Seen::of(&ask(direct, path, accept, encoding).await);
            // Twice: what is made for the first is kept for the second.
            for _ in 0..2 {
                let ours = Seen::of(&ask(through, path, accept, encoding).await);
                if (ours.status, &ours.headers) != (theirs.status, &theirs.headers) {
                    let headers = (&ours.headers, &theirs.headers);
                    wrong.push(format!("{path} {accept} {encoding}: {headers:?}"));
                } else if ours.body != theirs.body {
                    let lengths = (ours.body.len(), theirs.body.len());
                    wrong.push(format!(
                        "{path} {accept} {encoding}: other bytes {lengths:?}"
                    ));
                }
            }
            if theirs.is_packed() {
                packed.push(format!("{path} as {accept:.40} to {encoding}"));
            }
        }
    }
    (wrong, packed)
}

#[tokio::test]
async fn a_gateway_compresses_what_a_real_server_does() {
    let (plane, gateway) = start().await;
    let direct = plane.server("alone").client("admin");
    let (wrong, packed) = differences(&direct, &gateway.client("admin")).await;
    eprintln!("measured: compressed are {packed:#?}");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        packed.iter().any(|it| it.starts_with("/apis as")),
        "{packed:?}"
    );

    // What a real server takes, however absurd, does not cost the gateway what else there is.
    create(&direct, &definition("absurd.example.com", 1, 2500)).await;
    gateway.serves("/apis/absurd.example.com/v1/things").await;
}
