//! Resource slices: `v1beta1` has what a device is inside of `basic`; since `v1beta2` it is beside its name.

use serde_json::{Map, Value};

use super::{Fields, each, object};

pub(super) fn to_flat(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    for device in each(spec, "devices") {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
        }
    }
}

pub(super) fn to_basic(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else {
        return;
    };
    for device in each(spec, "devices") {
        let names: Vec<String> = device.keys().filter(|n| *n != "name").cloned().collect();
        let mut basic = Map::new();
        for name in names {
            if let Some(value) = device.remove(&name) {
                basic.insert(name, value);
            }
        }
        device.insert("basic".to_owned(), Value::Object(basic));
    }
}
