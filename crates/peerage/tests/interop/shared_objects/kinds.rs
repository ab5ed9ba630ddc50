//! The kinds that are compared, with an object of each: all that a kube-apiserver serves and stores.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use peerage_testkit::wire::{AGGREGATED, Outgoing};
use serde_json::{Value, json};

use super::BOTH;

/// A kind.
#[derive(Clone, serde::Deserialize)]
pub(super) struct Row {
    /// The path of its collection.
    pub(super) path: String,
    /// An object of it, without a name.
    pub(super) object: Value,
}

/// All kinds.
pub(super) fn kinds() -> Vec<Row> {
    serde_json::from_str(include_str!("kinds.json")).unwrap()
}

/// The object with a name, which some kinds want in more places.
pub(super) fn named(row: &Row, name: &str) -> (String, Value) {
    let mut object = row.object.clone();
    let bare = name.replace('-', "");
    let name = match object["kind"].as_str() {
        Some("CustomResourceDefinition") => {
            object["spec"]["names"] = json!({"plural": name, "kind": format!("Kind{bare}")});
            format!("{name}.example.com")
        }
        Some("APIService") => {
            object["spec"]["version"] = json!(format!("v1{bare}"));
            format!("v1{bare}.g.example.com")
        }
        // The two kinds of Events are one in the store.
        Some("Event") if !row.path.starts_with("/api/") => format!("new-{name}"),
        Some("StorageVersion") => format!("{name}.example.com"),
        Some("IPAddress") => address(name).to_string(),
        _ => name.to_owned(),
    };
    object["metadata"] = json!({"name": name});
    (name, object)
}

/// A name as an address.
fn address(name: &str) -> Ipv6Addr {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&[0x20, 0x01]);
    bytes[16 - name.len()..].copy_from_slice(name.as_bytes());
    bytes.into()
}

#[tokio::test]
async fn every_kind_that_a_real_server_stores_is_compared() {
    let both = BOTH.get().await;
    let rows: BTreeSet<String> = kinds().iter().map(|row| plural(&row.path)).collect();
    let (mut found, mut missing) = (0, Vec::new());
    for path in ["/api", "/apis"] {
        let client = both.real().client("admin");
        let answer = client.send(&Outgoing::get_as(path, AGGREGATED)).await;
        let document = answer.unwrap().json();
        // Those of `example.com` are other tests' definitions.
        let built_in = |kind: &String| !kind.contains("example.com/");
        for kind in stored(&document).into_iter().filter(built_in) {
            found += 1;
            if !rows.contains(&kind) {
                missing.push(kind);
            }
        }
    }
    eprintln!("{found} kinds are stored, {} rows", rows.len());
    assert_eq!(missing, Vec::<String>::new(), "they are not compared");
}

/// `group/plural` of the path of a collection.
fn plural(path: &str) -> String {
    let mut parts = path.split('/');
    let (_, api) = (parts.next(), parts.next());
    let group = (api == Some("apis")).then(|| parts.next()).flatten();
    let plural = parts.next_back().unwrap_or_default();
    format!("{}/{plural}", group.unwrap_or_default())
}

/// The same of everything in a discovery document that can be created and read.
fn stored(document: &Value) -> BTreeSet<String> {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut stored = BTreeSet::new();
    for group in all(&document["items"]) {
        let name = group["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        for resource in all(&group["versions"])
            .iter()
            .flat_map(|version| all(&version["resources"]))
        {
            let verbs = all(&resource["verbs"]);
            if verbs.contains(&json!("create")) && verbs.contains(&json!("get")) {
                let plural = resource["resource"].as_str().unwrap_or_default();
                stored.insert(format!("{name}/{plural}"));
            }
        }
    }
    stored
}
