//! Events: `v1`, as which they are stored, and `events.k8s.io/v1`. The same fields under other names.

use super::{Fields, rename};

/// Core's name and the newer one.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The two that the core version always shows, and the newer one only when they say something.
const SHOWN: [(&str, &str); 2] = [
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

pub(super) fn to_events(fields: &mut Fields) {
    for (core, newer) in NAMES {
        rename(fields, core, newer);
    }
    for (_, newer) in SHOWN {
        if fields.get(newer).is_some_and(|v| v == "") {
            fields.remove(newer);
        }
    }
}

pub(super) fn to_core(fields: &mut Fields) {
    for (core, newer) in NAMES {
        rename(fields, newer, core);
    }
    for (core, _) in SHOWN {
        fields.entry(core).or_insert_with(|| "".into());
    }
}
