//! Pods, and the kinds that make them.

use peerage_objects::table::human_duration;
use peerage_objects::time;
use serde_json::Value;

use super::{
    Entry, NONE, UNKNOWN, ago, condition, joined, labels, list, number, or, selector, text,
};

pub(super) const CELLS: &[Entry] = &[
    ("Pod", "Ready", |o, _| {
        let ready = list(o, "/status/containerStatuses")
            .iter()
            .filter(|s| s["ready"] == true);
        format!("{}/{}", ready.count(), list(o, "/spec/containers").len()).into()
    }),
    ("Pod", "Status", |o, _| pod_status(o).into()),
    ("Pod", "Restarts", |o, _| {
        let statuses = list(o, "/status/containerStatuses").iter();
        let restarts: i64 = statuses.map(|s| number(s, "/restartCount")).sum();
        restarts.to_string().into()
    }),
    ("Pod", "IP", |o, _| or(text(o, "/status/podIP"), NONE)),
    ("Pod", "Node", |o, _| or(text(o, "/spec/nodeName"), NONE)),
    ("Pod", "Nominated Node", |o, _| {
        or(text(o, "/status/nominatedNodeName"), NONE)
    }),
    ("Pod", "Readiness Gates", |o, _| readiness_gates(o)),
    ("PodTemplate", "Containers", |o, _| {
        names(o, "/template/spec/containers", "/name")
    }),
    ("PodTemplate", "Images", |o, _| {
        names(o, "/template/spec/containers", "/image")
    }),
    ("PodTemplate", "Pod Labels", |o, _| {
        labels(o.pointer("/template/metadata/labels"))
    }),
    ("CronJob", "Containers", |o, _| {
        names(
            o,
            "/spec/jobTemplate/spec/template/spec/containers",
            "/name",
        )
    }),
    ("CronJob", "Images", |o, _| {
        names(
            o,
            "/spec/jobTemplate/spec/template/spec/containers",
            "/image",
        )
    }),
    ("CronJob", "Selector", |o, _| {
        selector(o.pointer("/spec/jobTemplate/spec/selector"))
    }),
    ("CronJob", "Timezone", |o, _| {
        or(text(o, "/spec/timeZone"), NONE)
    }),
    ("CronJob", "Suspend", |o, _| {
        let suspended = o.pointer("/spec/suspend") == Some(&Value::Bool(true));
        if suspended { "True" } else { "False" }.into()
    }),
    ("CronJob", "Active", |o, _| {
        list(o, "/status/active").len().into()
    }),
    ("CronJob", "Last Schedule", |o, now| {
        ago(o, "/status/lastScheduleTime", now, NONE)
    }),
    ("Job", "Status", |o, _| job_status(o).into()),
    ("Job", "Completions", |o, _| completions(o).into()),
    ("Job", "Duration", duration),
    ("Deployment", "Ready", |o, _| ready_of_wanted(o)),
    ("StatefulSet", "Ready", |o, _| ready_of_wanted(o)),
    ("DaemonSet", "Node Selector", |o, _| {
        labels(o.pointer("/spec/template/spec/nodeSelector"))
    }),
    ("ReplicationController", "Selector", |o, _| {
        labels(o.pointer("/spec/selector"))
    }),
    ("ControllerRevision", "Controller", |o, _| controller(o)),
    ("HorizontalPodAutoscaler", "Reference", |o, _| {
        let target = o.pointer("/spec/scaleTargetRef").unwrap_or(&Value::Null);
        format!("{}/{}", text(target, "/kind"), text(target, "/name")).into()
    }),
    ("HorizontalPodAutoscaler", "MinPods", |o, _| {
        match o.pointer("/spec/minReplicas") {
            Some(least) => least.to_string().into(),
            None => "<unset>".into(),
        }
    }),
    ("HorizontalPodAutoscaler", "MaxPods", |o, _| {
        number(o, "/spec/maxReplicas").into()
    }),
    ("HorizontalPodAutoscaler", "Replicas", |o, _| {
        number(o, "/status/currentReplicas").into()
    }),
    ("HorizontalPodAutoscaler", "Targets", |o, _| targets(o)),
    ("PodDisruptionBudget", "Min Available", |o, _| {
        bound(o, "/spec/minAvailable")
    }),
    ("PodDisruptionBudget", "Max Unavailable", |o, _| {
        bound(o, "/spec/maxUnavailable")
    }),
    ("*", "Containers", |o, _| {
        names(o, "/spec/template/spec/containers", "/name")
    }),
    ("*", "Images", |o, _| {
        names(o, "/spec/template/spec/containers", "/image")
    }),
    ("*", "Selector", |o, _| {
        selector(o.pointer("/spec/selector"))
    }),
];

fn names(object: &Value, containers: &str, field: &str) -> Value {
    let names = list(object, containers).iter().map(|c| text(c, field));
    Value::from(names.collect::<Vec<_>>().join(","))
}

fn ready_of_wanted(object: &Value) -> Value {
    let ready = number(object, "/status/readyReplicas");
    format!("{ready}/{}", number(object, "/spec/replicas")).into()
}

/// The word for how a pod is: its phase, unless a container or its deletion says more.
fn pod_status(pod: &Value) -> String {
    let mut reason = or(text(pod, "/status/reason"), text(pod, "/status/phase"));
    if let Some(gated) = condition(pod, "PodScheduled").filter(|c| c["reason"] == "SchedulingGated")
    {
        reason = gated["reason"].clone();
    }
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        let waiting = text(status, "/state/waiting/reason");
        let ended = text(status, "/state/terminated/reason");
        if !waiting.is_empty() {
            reason = waiting.into();
        } else if !ended.is_empty() {
            reason = ended.into();
        } else if let Some(ended) = status.pointer("/state/terminated") {
            reason = match number(ended, "/signal") {
                0 => format!("ExitCode:{}", number(ended, "/exitCode")),
                signal => format!("Signal:{signal}"),
            }
            .into();
        }
    }
    if !text(pod, "/metadata/deletionTimestamp").is_empty() {
        let lost = text(pod, "/status/reason") == "NodeLost";
        reason = if lost { "Unknown" } else { "Terminating" }.into();
    }
    reason.as_str().unwrap_or_default().to_owned()
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let passed = gates.iter().filter(|gate| {
        let met = condition(pod, text(gate, "/conditionType"));
        met.is_some_and(|c| c["status"] == "True")
    });
    format!("{}/{}", passed.count(), gates.len()).into()
}

fn job_status(job: &Value) -> &'static str {
    let is = |kind: &str| condition(job, kind).is_some_and(|c| c["status"] == "True");
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if !text(job, "/metadata/deletionTimestamp").is_empty() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let done = number(job, "/status/succeeded");
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{done}/{wanted}"),
        None => match number(job, "/spec/parallelism") {
            many if many > 1 => format!("{done}/1 of {many}"),
            _ => format!("{done}/1"),
        },
    }
}

fn duration(job: &Value, now: jiff::Timestamp) -> Value {
    let at = |pointer: &str| time::parse(text(job, pointer)).ok();
    match (at("/status/startTime"), at("/status/completionTime")) {
        (Some(start), end) => human_duration(end.unwrap_or(now).duration_since(start)).into(),
        (None, _) => "".into(),
    }
}

fn controller(revision: &Value) -> Value {
    let owner = list(revision, "/metadata/ownerReferences")
        .iter()
        .find(|o| o["controller"] == true);
    let Some(owner) = owner else {
        return NONE.into();
    };
    let group = text(owner, "/apiVersion")
        .rsplit_once('/')
        .map_or("", |(group, _)| group);
    let kind = text(owner, "/kind").to_lowercase();
    let kind = if group.is_empty() {
        kind
    } else {
        format!("{kind}.{group}")
    };
    format!("{kind}/{}", text(owner, "/name")).into()
}

fn bound(budget: &Value, pointer: &str) -> Value {
    match budget.pointer(pointer) {
        Some(Value::String(percent)) => percent.clone().into(),
        Some(Value::Number(count)) => count.to_string().into(),
        _ => "N/A".into(),
    }
}

/// What an autoscaler wants of each metric: `cpu: <unknown>/50%`.
fn targets(autoscaler: &Value) -> Value {
    if let Some(percent) = autoscaler.pointer("/spec/targetCPUUtilizationPercentage") {
        let current = autoscaler.pointer("/status/currentCPUUtilizationPercentage");
        let current = current.map_or_else(|| UNKNOWN.to_owned(), |c| format!("{c}%"));
        return format!("cpu: {current}/{percent}%").into();
    }
    let metrics = list(autoscaler, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(at, metric)| {
            let source = match text(metric, "/type") {
                "ContainerResource" => "containerResource",
                "Pods" => "pods",
                "Object" => "object",
                "External" => "external",
                _ => "resource",
            };
            let current =
                autoscaler.pointer(&format!("/status/currentMetrics/{at}/{source}/current"));
            let target = metric
                .pointer(&format!("/{source}/target"))
                .unwrap_or(&Value::Null);
            let shown = |value: &Value| {
                let percent = value.get("averageUtilization").map(|p| format!("{p}%"));
                let plain = ["averageValue", "value"]
                    .iter()
                    .find_map(|name| Some(value.get(name)?.as_str()?.to_owned()));
                percent.or(plain)
            };
            let current = current
                .and_then(shown)
                .unwrap_or_else(|| UNKNOWN.to_owned());
            let name = metric
                .pointer(&format!("/{source}/name"))
                .and_then(Value::as_str);
            let prefix = name.map(|n| format!("{n}: ")).unwrap_or_default();
            format!("{prefix}{current}/{}", shown(target).unwrap_or_default())
        });
    let metrics: Vec<String> = metrics.collect();
    let shown = joined(metrics.iter().map(String::as_str).take(2));
    match metrics.len() {
        0..=2 => Value::from(shown.as_str().unwrap_or_default().replace(",", ", ")),
        more => format!("{} + {} more...", metrics[..2].join(", "), more - 2).into(),
    }
}
