//! The objects of a fresh cluster as records. Those that the catalogue makes itself (APIServices) are left out,
//! and times are: the server that writes the objects puts its own.

use anyhow::{Context as _, Result};
use peerage_catalogue::records::Records;
use serde_json::Value;

use super::recording::Recording;

/// The port that the Service `kubernetes` leads to is the recorded server's own; this is kube-apiserver's default.
const SECURE_PORT: u16 = 6443;

pub(super) fn write(recording: &Recording, records: &mut Records) -> Result<()> {
    for object in &recording.default.bootstrap {
        if object["kind"] == "APIService" {
            continue;
        }
        let mut object = object.clone();
        drop_times(&mut object);
        if let Some(port) = object.pointer_mut("/spec/ports/0/targetPort") {
            *port = Value::from(SECURE_PORT);
        }
        let field = |path: &str| object.pointer(path).and_then(Value::as_str);
        let name = format!(
            "{}/{}/{}/{}",
            field("/apiVersion").context("apiVersion")?,
            field("/kind").context("kind")?,
            field("/metadata/namespace").unwrap_or(""),
            field("/metadata/name").context("name")?,
        );
        records.insert(&format!("object {name} {object}"));
    }
    Ok(())
}

/// Empties the times that the recorded server's clock put.
fn drop_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "lastTransitionTime" {
                    *value = Value::String(String::new());
                } else {
                    drop_times(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(drop_times),
        _ => {}
    }
}
