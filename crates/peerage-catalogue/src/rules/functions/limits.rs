//! Amounts of resources: how fine they are, and limits and requests that follow from each other.

use peerage_objects::quantity::Quantity;
use serde_json::{Map, Value};

use super::{Fields, text};

/// For containers, what has a maximum defaults to it; what has a default limit, or a minimum, requests it.
pub(super) fn limit_range_item(item: &mut Fields) {
    if text(item, "type") != "Container" {
        return;
    }
    let side = |item: &Fields, name: &str| -> Map<String, Value> {
        let map = item.get(name).and_then(Value::as_object);
        map.cloned().unwrap_or_default()
    };
    let mut default = side(item, "default");
    for (name, value) in side(item, "max") {
        default.entry(name).or_insert(value);
    }
    let mut request = side(item, "defaultRequest");
    for (name, value) in &default {
        request.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let lower = side(item, "min");
    let said = side(item, "defaultRequest");
    for (name, value) in lower {
        if !said.contains_key(&name) && !default.contains_key(&name) {
            request.entry(name).or_insert(value);
        }
    }
    item.insert("default".to_owned(), Value::Object(default));
    item.insert("defaultRequest".to_owned(), Value::Object(request));
}

/// The fields that hold amounts by resource.
const LISTS: [&str; 10] = [
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "hard",
    "default",
    "defaultRequest",
    "max",
    "min",
    "maxLimitRequestRatio",
];

/// Nothing finer than a thousandth is counted.
pub(super) fn resource_lists(fields: &mut Fields) {
    for name in LISTS {
        let list = fields.get_mut(name).and_then(Value::as_object_mut);
        for amount in list.into_iter().flat_map(|l| l.values_mut()) {
            if let Some(quantity) = amount.as_str().and_then(|t| Quantity::parse(t).ok()) {
                *amount = quantity.rounded_to_milli().to_string().into();
            }
        }
    }
}
