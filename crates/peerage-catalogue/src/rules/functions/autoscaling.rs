//! Horizontal pod autoscalers: by how much and how fast.

use serde_json::{Value, json};

use super::{Fields, made, object, set_default};

/// The defaults of `autoscaling/v2`: by processor use, and a behaviour only as far as one is said.
pub(super) fn v2(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    let none = spec
        .get("metrics")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty);
    if none {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(behavior) = object(spec, "behavior") else {
        return;
    };
    let up = json!([
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    if let Some(rules) = made(behavior, "scaleUp") {
        set_default(rules, "stabilizationWindowSeconds", 0);
        set_default(rules, "selectPolicy", "Max");
        set_default(rules, "policies", up);
    }
    if let Some(rules) = made(behavior, "scaleDown") {
        set_default(rules, "selectPolicy", "Max");
        set_default(rules, "policies", down);
    }
}
