//! `ServiceAccount`: a pod runs as an account of its namespace, uses its pull secrets, and finds a token for it at a
//! place that every client library knows.

use peerage_objects::meta;
use serde_json::{Value, json};

use super::{find, forbidden};
use crate::call::Call;
use crate::error::ApiError;

/// What the volume's name begins with.
const VOLUME: &str = "kube-api-access-";
/// Where containers find the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and seven seconds: so that tokens of this volume are told from those that were asked for.
const TOKEN_SECONDS: i64 = 3_607;
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Completes a new pod.
pub(super) async fn admit(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    if !pod["spec"].is_object() {
        return Ok(());
    }
    if pod["metadata"]["annotations"][MIRROR].is_string() {
        return mirror(call, pod);
    }
    let named = pod["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or_default();
    let name = if named.is_empty() { "default" } else { named }.to_owned();
    pod["spec"]["serviceAccountName"] = json!(name);
    pod["spec"]["serviceAccount"] = json!(name);
    let namespace = call.info.namespace();
    let key = format!("{namespace}/{name}");
    let Some(account) = find(call, ("", "v1", "serviceaccounts"), &key).await? else {
        let why =
            format!("error looking up service account {key}: serviceaccount \"{name}\" not found");
        return Err(forbidden(call, pod, &why));
    };
    if account["metadata"]["annotations"][ENFORCE] == "true" {
        check_secrets(call, pod, &account, &name)?;
    }
    let wanted = [
        pod["spec"].get("automountServiceAccountToken"),
        account.get("automountServiceAccountToken"),
    ];
    if wanted.into_iter().flatten().find_map(Value::as_bool) != Some(false) {
        mount_token(&mut pod["spec"]);
    }
    let own = pod["spec"]["imagePullSecrets"].as_array();
    if own.is_none_or(Vec::is_empty) && account["imagePullSecrets"].is_array() {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    Ok(())
}

/// A node's own pods have no account here.
fn mirror(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let spec = &pod["spec"];
    if spec["serviceAccountName"]
        .as_str()
        .is_some_and(|n| !n.is_empty())
    {
        let why = "a mirror pod may not reference service accounts";
        return Err(forbidden(call, pod, why));
    }
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        if volume["secret"].is_object() {
            return Err(forbidden(
                call,
                pod,
                "a mirror pod may not reference secrets",
            ));
        }
        let sources = volume["projected"]["sources"].as_array();
        if sources
            .into_iter()
            .flatten()
            .any(|s| s["serviceAccountToken"].is_object())
        {
            let why = "a mirror pod may not use ServiceAccountToken volume projections";
            return Err(forbidden(call, pod, why));
        }
    }
    Ok(())
}

/// An account may say that its pods use no other secrets than its own.
fn check_secrets(call: &Call, pod: &Value, account: &Value, name: &str) -> Result<(), ApiError> {
    let listed = |list: &str, secret: &str| {
        let list = account[list].as_array();
        list.into_iter().flatten().any(|s| s["name"] == secret)
    };
    let spec = &pod["spec"];
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        if let Some(secret) = volume["secret"]["secretName"].as_str()
            && !listed("secrets", secret)
        {
            let why = format!(
                "volume with secret.secretName={secret:?} is not allowed because service account {name} does not reference that secret"
            );
            return Err(forbidden(call, pod, &why));
        }
    }
    for container in containers(spec) {
        for env in container["env"].as_array().into_iter().flatten() {
            if let Some(secret) = env["valueFrom"]["secretKeyRef"]["name"].as_str()
                && !listed("secrets", secret)
            {
                let why = format!(
                    "container {} with envVar {} referencing secret.secretName={secret:?} is not allowed because service account {name} does not reference that secret",
                    container["name"].as_str().unwrap_or_default(),
                    env["name"].as_str().unwrap_or_default(),
                );
                return Err(forbidden(call, pod, &why));
            }
        }
    }
    let pull = spec["imagePullSecrets"].as_array();
    for (at, secret) in pull.into_iter().flatten().enumerate() {
        let secret = secret["name"].as_str().unwrap_or_default();
        if !listed("imagePullSecrets", secret) {
            let why = format!(
                "imagePullSecrets[{at}].name={secret:?} is not allowed because service account {name} does not reference that imagePullSecret"
            );
            return Err(forbidden(call, pod, &why));
        }
    }
    Ok(())
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten())
}

/// Mounts the token into each container that has nothing at its place.
fn mount_token(spec: &mut Value) {
    let present = spec["volumes"].as_array().into_iter().flatten();
    let present = present
        .filter_map(|v| v["name"].as_str())
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let name = match &present {
        Some(name) => name.clone(),
        None => meta::generate_name(VOLUME, rand::random()),
    };
    let mut used = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|c| c.is_object()) {
            used |= mount(container, &name);
        }
    }
    if used && present.is_none() {
        push(spec, "volumes", volume(&name));
    }
}

/// Whether the container has been given the mount.
fn mount(container: &mut Value, volume: &str) -> bool {
    let mounts = container["volumeMounts"].as_array();
    if mounts
        .into_iter()
        .flatten()
        .any(|m| m["mountPath"] == MOUNT)
    {
        return false;
    }
    push(
        container,
        "volumeMounts",
        json!({ "name": volume, "readOnly": true, "mountPath": MOUNT }),
    );
    true
}

fn push(object: &mut Value, list: &str, item: Value) {
    if !object[list].is_array() {
        object[list] = json!([]);
    }
    object[list]
        .as_array_mut()
        .into_iter()
        .for_each(|l| l.push(item.clone()));
}

/// The token, the cluster's CA and the namespace's name.
fn volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": { "defaultMode": 420, "sources": [
            { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [
                { "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } },
            ] } },
        ] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_with_their_own_mount_keep_it() {
        let mut spec = json!({ "containers": [
            { "name": "a" },
            { "name": "b", "volumeMounts": [{ "name": "own", "mountPath": MOUNT }] },
        ] });
        mount_token(&mut spec);
        assert_eq!(
            spec["volumes"][0]["name"],
            spec["containers"][0]["volumeMounts"][0]["name"]
        );
        assert_eq!(
            spec["containers"][1]["volumeMounts"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
    }

    #[test]
    fn a_volume_of_that_name_is_used_and_none_is_added_where_all_have_mounts() {
        let mut spec = json!({
            "volumes": [{ "name": "kube-api-access-mine1", "emptyDir": {} }],
            "containers": [{ "name": "a" }],
        });
        mount_token(&mut spec);
        assert_eq!(spec["volumes"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            spec["containers"][0]["volumeMounts"][0]["name"],
            "kube-api-access-mine1"
        );
        let mut spec =
            json!({ "containers": [{ "volumeMounts": [{ "name": "x", "mountPath": MOUNT }] }] });
        mount_token(&mut spec);
        assert!(spec["volumes"].is_null());
    }
}
