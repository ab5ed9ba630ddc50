//! Horizontal pod autoscalers: `autoscaling/v2`, as which they are stored, and `autoscaling/v1`, which knows only
//! processor use and keeps all else in annotations.
//!
//! Invariant: the annotations are the texts that kube-apiserver writes, so that either can read the other's.

use serde_json::{Map, Value, json};

use super::{Fields, made, object, text};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

pub(super) fn to_v1(fields: &mut Fields) {
    let mut notes: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = object(fields, "spec") {
        let metrics = take_list(spec, "metrics");
        let (cpu, rest) = split_cpu(metrics, "target");
        if let Some(percent) = cpu {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
        }
        if !rest.is_empty() {
            notes.push((METRICS, list(rest.iter().map(|m| metric_text(m, "target")))));
        }
        if let Some(behavior) = spec.remove("behavior").filter(Value::is_object) {
            notes.push((BEHAVIOR, behavior_text(&behavior)));
        }
    }
    if let Some(status) = object(fields, "status") {
        let metrics = take_list(status, "currentMetrics");
        let (cpu, rest) = split_cpu(metrics, "current");
        if let Some(percent) = cpu {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
        }
        if !rest.is_empty() {
            notes.push((
                CURRENT,
                list(rest.iter().map(|m| metric_text(m, "current"))),
            ));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            let names = ["type", "status", "lastTransitionTime", "reason", "message"];
            notes.push((
                CONDITIONS,
                list(conditions.iter().map(|c| ordered(c, &names))),
            ));
        }
        status.entry("currentReplicas").or_insert(json!(0));
    }
    let annotations = made(fields, "metadata").filter(|_| !notes.is_empty());
    if let Some(annotations) = annotations.and_then(|m| made(m, "annotations")) {
        for (key, value) in notes {
            annotations.insert(key.to_owned(), value.into());
        }
    }
}

pub(super) fn to_v2(fields: &mut Fields) {
    let mut taken: Map<String, Value> = Map::new();
    if let Some(metadata) = object(fields, "metadata")
        && let Some(annotations) = object(metadata, "annotations")
    {
        for key in [METRICS, CURRENT, CONDITIONS, BEHAVIOR] {
            let parsed = serde_json::from_str(text(annotations, key)).ok();
            annotations.remove(key);
            if let Some(value) = parsed {
                taken.insert(key.to_owned(), value);
            }
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    if let Some(spec) = object(fields, "spec") {
        let cpu = spec
            .remove("targetCPUUtilizationPercentage")
            .filter(Value::is_number);
        let metrics = join_cpu(cpu, taken.remove(METRICS), "target");
        if !metrics.is_empty() {
            spec.insert("metrics".to_owned(), Value::Array(metrics));
        }
        if let Some(behavior) = taken.remove(BEHAVIOR) {
            spec.insert("behavior".to_owned(), behavior_fields(behavior));
        }
    }
    if let Some(status) = object(fields, "status") {
        let cpu = status
            .remove("currentCPUUtilizationPercentage")
            .filter(Value::is_number);
        let metrics = join_cpu(cpu, taken.remove(CURRENT), "current");
        if !metrics.is_empty() {
            status.insert("currentMetrics".to_owned(), Value::Array(metrics));
        }
        if let Some(conditions) = taken.remove(CONDITIONS) {
            status.insert("conditions".to_owned(), conditions);
        }
        if status.get("currentReplicas") == Some(&json!(0)) {
            status.remove("currentReplicas");
        }
    }
}

fn take_list(fields: &mut Fields, name: &str) -> Vec<Value> {
    match fields.remove(name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// The percentage of processor use, and the other metrics. `side` is `target` or `current`.
fn split_cpu(metrics: Vec<Value>, side: &str) -> (Option<Value>, Vec<Value>) {
    let mut cpu = None;
    let mut rest = Vec::new();
    for metric in metrics {
        let percent = metric.pointer(&format!("/resource/{side}/averageUtilization"));
        let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
        match percent {
            Some(percent) if is_cpu && cpu.is_none() => cpu = Some(percent.clone()),
            _ => rest.push(metric),
        }
    }
    (cpu, rest)
}

fn join_cpu(cpu: Option<Value>, rest: Option<Value>, side: &str) -> Vec<Value> {
    let mut metrics = Vec::new();
    if let Some(percent) = cpu {
        let mut value = json!({"averageUtilization": percent});
        if side == "target" {
            value["type"] = "Utilization".into();
        }
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", side: value}}));
    }
    if let Some(Value::Array(rest)) = rest {
        metrics.extend(rest.iter().map(|m| metric_fields(m, side)));
    }
    metrics
}

/// For each kind of metric: its field, the other fields of `v1` in their order with where `v2` has them.
fn metric_names(side: &str) -> [(&'static str, Vec<(String, String)>); 5] {
    let word = |name: &str| match side {
        "target" => format!("target{name}"),
        _ => format!("current{name}"),
    };
    let pair = |v1: &str, v2: &str| (v1.to_owned(), v2.to_owned());
    let value = |v1: &str, name: &str| (v1.to_owned(), format!("{side}/{name}"));
    let resource = |container: bool| {
        let mut names = vec![pair("name", "name")];
        names.push((
            word("AverageUtilization"),
            format!("{side}/averageUtilization"),
        ));
        names.push((word("AverageValue"), format!("{side}/averageValue")));
        if container {
            names.push(pair("container", "container"));
        }
        names
    };
    [
        (
            "object",
            vec![
                pair("target", "describedObject"),
                pair("metricName", "metric/name"),
                (word("Value"), format!("{side}/value")),
                pair("selector", "metric/selector"),
                value("averageValue", "averageValue"),
            ],
        ),
        (
            "pods",
            vec![
                pair("metricName", "metric/name"),
                (word("AverageValue"), format!("{side}/averageValue")),
                pair("selector", "metric/selector"),
            ],
        ),
        ("resource", resource(false)),
        ("containerResource", resource(true)),
        (
            "external",
            vec![
                pair("metricName", "metric/name"),
                pair("metricSelector", "metric/selector"),
                (word("Value"), format!("{side}/value")),
                (word("AverageValue"), format!("{side}/averageValue")),
            ],
        ),
    ]
}

/// A metric of `v2` as `v1` writes it.
fn metric_text(metric: &Value, side: &str) -> String {
    let mut parts = vec![format!("\"type\":{}", metric["type"])];
    for (field, names) in metric_names(side) {
        if let Some(source) = metric.get(field).filter(|v| v.is_object()) {
            let pairs = names.iter().filter_map(|(v1, v2)| {
                let value = source.pointer(&format!("/{v2}")).filter(|v| !v.is_null())?;
                Some(format!("\"{v1}\":{value}"))
            });
            let pairs: Vec<String> = pairs.collect();
            parts.push(format!("\"{field}\":{{{}}}", pairs.join(",")));
        }
    }
    format!("{{{}}}", parts.join(","))
}

/// A metric of `v1` as `v2` has it.
fn metric_fields(metric: &Value, side: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (field, names) in metric_names(side) {
        let Some(source) = metric.get(field).filter(|v| v.is_object()) else {
            continue;
        };
        let mut made = json!({});
        for (v1, v2) in &names {
            if let Some(value) = source.get(v1).filter(|v| !v.is_null()) {
                match v2.split_once('/') {
                    Some((outer, inner)) => made[outer][inner] = value.clone(),
                    None => made[v2] = value.clone(),
                }
            }
        }
        if side == "target" {
            let kind = ["averageUtilization", "averageValue", "value"]
                .into_iter()
                .zip(["Utilization", "AverageValue", "Value"])
                .find(|(name, _)| made["target"].get(name).is_some());
            if let Some((_, kind)) = kind {
                made["target"]["type"] = kind.into();
            }
        }
        out[field] = made;
    }
    out
}

/// The names of a behaviour's fields and those of its annotation, in their order.
const RULES: [(&str, &str); 4] = [
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("tolerance", "Tolerance"),
];
const POLICY: [(&str, &str); 3] = [
    ("type", "Type"),
    ("value", "Value"),
    ("periodSeconds", "PeriodSeconds"),
];

fn behavior_text(behavior: &Value) -> String {
    let sides = [("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown")].map(|(name, word)| {
        let rules = match behavior.get(name).filter(|v| v.is_object()) {
            Some(rules) => object_text(rules, &RULES, |name, value| match name {
                "policies" => {
                    let policies = value.as_array().into_iter().flatten();
                    list(policies.map(|p| object_text(p, &POLICY, |_, v| v.to_string())))
                }
                _ => value.to_string(),
            }),
            None => "null".to_owned(),
        };
        format!("\"{word}\":{rules}")
    });
    format!("{{{}}}", sides.join(","))
}

fn object_text(
    value: &Value,
    names: &[(&str, &str)],
    write: impl Fn(&str, &Value) -> String,
) -> String {
    let pairs = names.iter().map(|(name, word)| {
        let text = value
            .get(name)
            .map_or_else(|| "null".to_owned(), |v| write(name, v));
        format!("\"{word}\":{text}")
    });
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

/// The annotation's names with a small first letter, without nulls.
fn behavior_fields(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, v)| !v.is_null());
            kept.map(|(name, v)| (small(&name), behavior_fields(v)))
                .collect()
        }
        Value::Array(list) => list.into_iter().map(behavior_fields).collect(),
        other => other,
    }
}

fn small(name: &str) -> String {
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

fn ordered(value: &Value, names: &[&str]) -> String {
    let pairs = names
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", value.get(name)?)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}
