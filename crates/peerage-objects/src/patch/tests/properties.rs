//! What holds for any document and any patch.

use proptest::prelude::*;

use super::*;

/// The merge patch that makes one document of another.
fn diff(from: &Value, to: &Value) -> Value {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for name in from.keys().filter(|name| !to.contains_key(*name)) {
                patch.insert(name.clone(), Value::Null);
            }
            for (name, to) in to {
                match from.get(name) {
                    Some(from) if from == to => {}
                    Some(from) => drop(patch.insert(name.clone(), diff(from, to))),
                    None => drop(patch.insert(name.clone(), to.clone())),
                }
            }
            Value::Object(patch)
        }
        (_, to) => to.clone(),
    }
}

/// Documents without nulls, which a merge patch cannot say.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..5i64).prop_map(Value::from),
        "[a-c]".prop_map(Value::from)
    ];
    let inner = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[abc/~]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    proptest::collection::btree_map("[abc]", inner, 0..3)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn containers() -> impl Strategy<Value = Vec<Value>> {
    let container =
        ("[abcd]", 0..3i64).prop_map(|(name, image)| json!({"name": name, "image": image}));
    proptest::collection::vec(container, 0..4).prop_map(|mut list: Vec<Value>| {
        let mut seen = std::collections::HashSet::new();
        list.retain(|c| seen.insert(c["name"].to_string()));
        list
    })
}

proptest! {
    #[test]
    fn a_merge_patch_of_the_difference_gives_the_other_document(from in documents(), to in documents()) {
        let patch = diff(&from, &to);
        let patch = Patch::parse_merge(patch.to_string().as_bytes()).unwrap();
        let mut result = from;
        patch.apply(&Types::new(), TypeId(0), &mut result).unwrap();
        prop_assert_eq!(&result, &to);
        patch.apply(&Types::new(), TypeId(0), &mut result).unwrap();
        prop_assert_eq!(result, to);
    }

    #[test]
    fn removing_what_was_added_gives_the_document_back(document in documents(), key in "[x-z~/]{1,3}", value in documents()) {
        let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        let added = json_patch(document.clone(), json!([{"op": "add", "path": path, "value": value}])).unwrap();
        prop_assert_eq!(&added[&key], &value);
        prop_assert_eq!(json_patch(added, json!([{"op": "remove", "path": path}])).unwrap(), document);
    }

    #[test]
    fn any_json_patch_applies_or_fails_without_a_panic(
        document in documents(),
        operations in proptest::collection::vec(
            (prop_oneof!["add", "remove", "replace", "move", "copy", "test"], "(/[abc0-9-]{0,2}){0,3}", "(/[abc0-9-]{0,2}){0,3}"), 0..5)
    ) {
        let operations: Vec<Value> = operations.into_iter()
            .map(|(op, path, from)| json!({"op": op, "path": path, "from": from, "value": {"a": [1]}})).collect();
        let _ = json_patch(document, Value::from(operations));
    }

    #[test]
    fn an_ordered_strategic_patch_gives_the_other_list(from in containers(), to in containers()) {
        let name = |c: &Value| json!({"name": c["name"]});
        let mut changes: Vec<Value> = to.clone();
        changes.extend(from.iter().filter(|c| !to.iter().any(|d| d["name"] == c["name"]))
            .map(|c| json!({"$patch": "delete", "name": c["name"]})));
        let order: Vec<Value> = to.iter().map(name).collect();
        let patch = pod(json!({"containers": changes, "$setElementOrder/containers": order}));
        let result = strategic(pod(json!({"containers": from})), patch).unwrap();
        prop_assert_eq!(&result["spec"]["template"]["spec"]["containers"], &Value::from(to));
    }

    #[test]
    fn any_strategic_patch_applies_or_fails_without_a_panic(from in containers(), patch in documents(), directive in prop_oneof![
        Just("$patch"), Just("$retainKeys"), Just("$setElementOrder/containers"), Just("$deleteFromPrimitiveList/containers")]) {
        let mut spec = patch.clone();
        spec[directive] = patch["a"].clone();
        spec["containers"] = patch["b"].clone();
        let _ = strategic(pod(json!({"containers": from})), pod(spec));
    }
}
