//! `DefaultTolerationSeconds`: a pod that does not say how long it stays on a node that is not ready, or that nobody
//! can reach, stays five minutes.

use serde_json::{Value, json};

/// kube-apiserver's `--default-not-ready-toleration-seconds` and `--default-unreachable-toleration-seconds`.
const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Adds what the pod does not tolerate already.
pub(super) fn admit(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else {
        return;
    };
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    let missing: Vec<&str> = TAINTS
        .into_iter()
        .filter(|taint| !list.iter().any(|t| tolerates(t, taint)))
        .collect();
    list.extend(missing.into_iter().map(|taint| {
        json!({
            "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
        })
    }));
}

fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    (text("key").is_empty() || text("key") == taint) && matches!(text("effect"), "" | "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_tolerated_is_added() {
        let rows = [
            (json!([]), 2),
            (json!([{ "operator": "Exists" }]), 1),
            (
                json!([{ "key": TAINTS[0], "operator": "Exists", "effect": "NoExecute" }]),
                2,
            ),
            (
                json!([{ "key": TAINTS[0], "operator": "Exists", "effect": "NoSchedule" }]),
                3,
            ),
        ];
        for (tolerations, count) in rows {
            let mut pod = json!({ "spec": { "tolerations": tolerations } });
            admit(&mut pod);
            assert_eq!(
                pod["spec"]["tolerations"].as_array().map(Vec::len),
                Some(count)
            );
            let before = pod.clone();
            admit(&mut pod);
            assert_eq!(pod, before, "a second run adds nothing");
        }
    }
}
