//! What differs between a recorded answer and one of ours. An empty list is agreement.

use serde_json::{Map, Value};

/// How much of a value is shown.
const SHOWN: usize = 200;

fn shown(value: &Value) -> String {
    value.to_string().chars().take(SHOWN).collect()
}

fn place(at: &str) -> &str {
    if at.is_empty() { "/" } else { at }
}

/// Every difference between two values, with where it is.
pub fn differences(want: &Value, got: &Value, at: &str) -> Vec<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => members(want, got, at),
        (Value::Array(want), Value::Array(got)) if want.len() != got.len() => {
            vec![format!(
                "{at}: want {} items, got {}",
                want.len(),
                got.len()
            )]
        }
        (Value::Array(want), Value::Array(got)) => {
            let pairs = want.iter().zip(got).enumerate();
            pairs
                .flat_map(|(i, (want, got))| differences(want, got, &format!("{at}/{i}")))
                .collect()
        }
        _ if want == got => Vec::new(),
        _ => vec![format!(
            "{}: want {}, got {}",
            place(at),
            shown(want),
            shown(got)
        )],
    }
}

fn members(want: &Map<String, Value>, got: &Map<String, Value>, at: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (key, wanted) in want {
        match got.get(key) {
            None => all.push(format!("{at}/{key}: missing, want {}", shown(wanted))),
            Some(found) => all.extend(differences(wanted, found, &format!("{at}/{key}"))),
        }
    }
    for (key, found) in got.iter().filter(|(key, _)| !want.contains_key(*key)) {
        all.push(format!(
            "{at}/{key}: not in the recording, got {}",
            shown(found)
        ));
    }
    all
}

/// What of `want` is not in `got`: members that are missing or differ; of a list, elements like none of `got`'s.
pub fn missing(want: &Value, got: &Value, at: &str) -> Vec<String> {
    match (want, got) {
        (Value::Object(members), Value::Object(found)) => members
            .iter()
            .flat_map(|(key, value)| match found.get(key) {
                Some(found) => missing(value, found, &format!("{at}/{key}")),
                None => vec![format!("{at}/{key}: missing")],
            })
            .collect(),
        (Value::Array(items), got) => {
            let found = got.as_array().map(Vec::as_slice).unwrap_or_default();
            let absent = |item: &&Value| !found.iter().any(|f| missing(item, f, "").is_empty());
            let absent = items.iter().filter(absent);
            absent
                .map(|item| format!("{at}: no element like {}", shown(item)))
                .collect()
        }
        _ if want == got => Vec::new(),
        _ => vec![format!(
            "{}: want {}, got {}",
            place(at),
            shown(want),
            shown(got)
        )],
    }
}

/// Puts `<ignored>` wherever a pointer leads; `*` is any member.
pub fn ignore(value: &mut Value, pointer: &str) {
    let parts: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    ignore_parts(value, &parts);
}

fn ignore_parts(value: &mut Value, parts: &[String]) {
    let Some((part, rest)) = parts.split_first() else {
        return;
    };
    let reached = |key: &str| part == "*" || part == key;
    let descend = |value: &mut Value| match rest {
        [] => *value = "<ignored>".into(),
        _ => ignore_parts(value, rest),
    };
    match value {
        Value::Object(members) => members
            .iter_mut()
            .filter(|(key, _)| reached(key))
            .for_each(|(_, value)| descend(value)),
        Value::Array(items) => items
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| reached(&i.to_string()))
            .for_each(|(_, value)| descend(value)),
        _ => {}
    }
}

/// Without the members of these names, wherever they are.
pub fn without(value: &Value, names: &[&str]) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(key, _)| !names.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), without(value, names)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|item| without(item, names)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_difference_is_named_with_its_place() {
        let want = json!({"a": [1, {"b": 2}], "c": "x", "d": 1});
        assert!(differences(&want, &want, "").is_empty());
        let got = json!({"a": [1, {"b": 2.0}], "d": true, "e": null});
        assert_eq!(
            differences(&want, &got, ""),
            [
                "/a/1/b: want 2, got 2.0",
                "/c: missing, want \"x\"",
                "/d: want 1, got true",
                "/e: not in the recording, got null",
            ]
        );
        assert_eq!(
            differences(&json!([1]), &json!([]), "/x"),
            ["/x: want 1 items, got 0"]
        );
    }

    #[test]
    fn a_subset_asks_for_its_own_members_only() {
        let got = json!({"a": [{"n": 1, "m": 2}, {"n": 3}], "b": 1});
        assert!(missing(&json!({"a": [{"n": 3}, {"n": 1}]}), &got, "").is_empty());
        assert_eq!(
            missing(&json!({"a": [{"n": 4}], "c": 1}), &got, ""),
            ["/a: no element like {\"n\":4}", "/c: missing"]
        );
        assert_eq!(
            missing(&json!({"a": {}}), &got, "").len(),
            1,
            "a list is no object"
        );
    }

    #[test]
    fn pointers_reach_what_they_name_and_stars_everything() {
        let mut value = json!({"rows": [{"cells": [1, 2]}, {"cells": [3, 4]}], "a/b": 1});
        ignore(&mut value, "/rows/*/cells/1");
        ignore(&mut value, "/a~1b");
        ignore(&mut value, "/nothing/there");
        assert_eq!(
            value,
            json!({"rows": [{"cells": [1, "<ignored>"]}, {"cells": [3, "<ignored>"]}], "a/b": "<ignored>"})
        );
    }

    #[test]
    fn members_are_left_out_wherever_they_are() {
        let value = json!([{"managedFields": 1, "a": {"managedFields": []}}]);
        assert_eq!(without(&value, &["managedFields"]), json!([{"a": {}}]));
    }
}
