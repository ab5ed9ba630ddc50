//! `Priority`: a pod's number comes from its class, or from the class that is the default of all.

use serde_json::{Value, json};

use super::{find, forbidden};
use crate::call::Call;
use crate::error::ApiError;

const CLASSES: (&str, &str, &str) = ("scheduling.k8s.io", "v1", "priorityclasses");
const PREEMPTS: &str = "PreemptLowerPriority";

/// Sets priority and preemption policy of a new pod; an update that leaves them out keeps them.
pub(super) async fn admit(
    call: &Call,
    pod: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if !pod["spec"].is_object() {
        return Ok(());
    }
    if let Some(old) = old {
        for field in ["priority", "preemptionPolicy"] {
            if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
                pod["spec"][field] = old["spec"][field].clone();
            }
        }
        return Ok(());
    }
    let class = class_of(call, pod).await?;
    let value = class
        .as_ref()
        .and_then(|c| c["value"].as_i64())
        .unwrap_or(0);
    let policy = class
        .as_ref()
        .and_then(|c| c["preemptionPolicy"].as_str())
        .unwrap_or(PREEMPTS);
    if let Some(sent) = pod["spec"]["priority"].as_i64().filter(|p| *p != value) {
        let why = format!(
            "the integer value of priority ({sent}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(forbidden(call, pod, &why));
    }
    if let Some(sent) = pod["spec"]["preemptionPolicy"]
        .as_str()
        .filter(|p| *p != policy)
    {
        let why = format!(
            "the string value of PreemptionPolicy ({sent}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(call, pod, &why));
    }
    if let Some(name) = class.as_ref().and_then(|c| c["metadata"]["name"].as_str()) {
        pod["spec"]["priorityClassName"] = json!(name);
    }
    pod["spec"]["priority"] = json!(value);
    pod["spec"]["preemptionPolicy"] = json!(policy);
    Ok(())
}

async fn class_of(call: &Call, pod: &Value) -> Result<Option<Value>, ApiError> {
    let name = pod["spec"]["priorityClassName"]
        .as_str()
        .unwrap_or_default();
    if name.is_empty() {
        return Ok(default_class(call));
    }
    match find(call, CLASSES, name).await? {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("no PriorityClass with name {name} was found");
            Err(forbidden(call, pod, &why))
        }
    }
}

/// The class with `globalDefault`; of several, the one of the lowest value.
fn default_class(call: &Call) -> Option<Value> {
    let (group, version, plural) = CLASSES;
    let place = call
        .api()
        .resources
        .get(group, version, plural)?
        .place
        .as_ref()?;
    let classes = place.cache.snapshot("", 0).objects;
    let classes = classes.iter().filter_map(|class| class.parse::<Value>());
    classes
        .filter(|class| class["globalDefault"] == true)
        .min_by_key(|class| class["value"].as_i64())
}
