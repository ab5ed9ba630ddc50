use super::*;
use crate::schema::examples::examples;
use proptest::prelude::*;
use serde_json::json;

fn json_patch(document: Value, patch: Value) -> Result<Value, PatchError> {
    let mut document = document;
    let types = Types::new();
    let patch = Patch::parse_json(patch.to_string().as_bytes())?;
    patch
        .apply(&types, TypeId(0), &mut document)
        .map(|()| document)
}

fn strategic(object: Value, patch: Value) -> Result<Value, PatchError> {
    let e = examples();
    let mut object = object;
    let patch = Patch::parse_strategic(patch.to_string().as_bytes())?;
    patch
        .apply(&e.types, e.deployment, &mut object)
        .map(|()| object)
}

#[test]
fn json_patches_that_apply() {
    let document = json!({"data": {"x": "1", "y": null}, "labels": {"b/c": "2", "t~": "3"}, "list": ["a", "b"]});
    let cases = [
        (
            json!({"op": "add", "path": "/data/z", "value": "3"}),
            "/data/z",
            json!("3"),
        ),
        (
            json!({"op": "add", "path": "/data/x", "value": "4"}),
            "/data/x",
            json!("4"),
        ),
        (
            json!({"op": "add", "path": "/data/nv"}),
            "/data/nv",
            json!(null),
        ),
        (
            json!({"op": "add", "path": "data/q", "value": 1}),
            "/q",
            json!(1),
        ),
        (
            json!({"op": "replace", "path": "/data/none", "value": "1"}),
            "/data/none",
            json!("1"),
        ),
        (
            json!({"op": "replace", "path": "/labels/b~1c", "value": "3"}),
            "/labels/b~1c",
            json!("3"),
        ),
        (
            json!({"op": "replace", "path": "/labels/t~0", "value": "4"}),
            "/labels/t~0",
            json!("4"),
        ),
        (
            json!({"op": "move", "from": "/data/x", "path": "/data/moved"}),
            "/data/moved",
            json!("1"),
        ),
        (
            json!({"op": "copy", "from": "/data/x", "path": "/data/copied"}),
            "/data/copied",
            json!("1"),
        ),
        (
            json!({"op": "test", "path": "/data/x", "value": "1"}),
            "/data/x",
            json!("1"),
        ),
        (
            json!({"op": "test", "path": "/data/none", "value": null}),
            "/data/x",
            json!("1"),
        ),
        (
            json!({"op": "add", "path": "/list/-", "value": "c"}),
            "/list",
            json!(["a", "b", "c"]),
        ),
        (
            json!({"op": "add", "path": "/list/2", "value": "c"}),
            "/list",
            json!(["a", "b", "c"]),
        ),
        (
            json!({"op": "add", "path": "/list/1", "value": "m"}),
            "/list",
            json!(["a", "m", "b"]),
        ),
        (
            json!({"op": "add", "path": "/list/-1", "value": "c"}),
            "/list",
            json!(["a", "b", "c"]),
        ),
        (
            json!({"op": "remove", "path": "/list/-1"}),
            "/list",
            json!(["a"]),
        ),
        (
            json!({"op": "replace", "path": "/list/0", "value": "z"}),
            "/list",
            json!(["z", "b"]),
        ),
        (
            json!({"op": "replace", "path": "", "value": {"whole": 1}}),
            "",
            json!({"whole": 1}),
        ),
    ];
    for (operation, path, value) in cases {
        let result = json_patch(document.clone(), json!([operation])).unwrap();
        assert_eq!(result.pointer(path), Some(&value), "{operation}");
    }
    assert_eq!(json_patch(document.clone(), json!([])).unwrap(), document);
    assert_eq!(json_patch(document.clone(), json!(null)).unwrap(), document);
}

#[test]
fn json_patches_that_do_not_apply() {
    let document = json!({"data": {"x": "1"}, "list": ["a"], "n": 1});
    let cases = [
        json!({"op": "remove", "path": "/data/none"}),
        json!({"op": "copy", "path": "/data/q"}),
        json!({"op": "move", "from": "/data/none", "path": "/data/q"}),
        json!({"op": "test", "path": "/data/x", "value": "11"}),
        json!({"op": "test", "path": "/data/none", "value": "x"}),
        json!({"op": "test", "path": "/n", "value": 1.0}),
        json!({"op": "add", "path": "/data/deep/er", "value": "1"}),
        json!({"op": "add", "path": "/none/k", "value": "1"}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "swap", "path": "/data/x", "value": "1"}),
        json!({"path": "/data/x", "value": "1"}),
        json!({"op": "add", "value": "1"}),
        json!({"op": "add", "path": "/list/9", "value": "x"}),
        json!({"op": "add", "path": "/list/-9", "value": "x"}),
        json!({"op": "replace", "path": "/list/one", "value": "q"}),
        json!({"op": "remove", "path": "/list/-"}),
        json!({"op": "replace", "path": "", "value": 1}),
    ];
    for operation in cases {
        let status = json_patch(document.clone(), json!([operation]))
            .unwrap_err()
            .status();
        assert_eq!(status.code(), 422, "{operation}");
        assert_eq!(
            status.message,
            "the server rejected our request due to an error in our request"
        );
    }
}

#[test]
fn copies_do_not_grow_without_bound() {
    let copy = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let result = json_patch(json!({"a": ["x"]}), Value::Array(vec![copy; 100]));
    assert!(matches!(result, Err(PatchError::Operation(_))));
}

#[test]
fn nothing_nests_without_bound() {
    let mut value = json!({});
    for _ in 0..100 {
        value = json!({ "a": value });
    }
    let operations: Vec<Value> = (0..10)
        .map(|n| json!({"op": "add", "path": "/a".repeat(n * 100 + 1), "value": value}))
        .collect();
    assert!(json_patch(json!({}), Value::from(operations)).is_err());
}

#[test]
fn patches_of_the_wrong_shape_are_refused_in_kubernetes_words() {
    let many = format!("[{}]", vec!["{}"; 10_001].join(","));
    let map = "map[string]interface {}";
    let cases = [
        (Patch::parse_json(b"{\"op\": \"add\"}"), "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".to_owned(), 400),
        (Patch::parse_json(b"[{\"op\": 1}]"), "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string".to_owned(), 400),
        (Patch::parse_json(b"[{"), "invalid JSON patch".to_owned(), 400),
        (Patch::parse_json(b""), "invalid JSON patch".to_owned(), 400),
        (Patch::parse_json(many.as_bytes()), "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned(), 413),
        (Patch::parse_merge(b"null"), "Invalid JSON Patch".to_owned(), 400),
        (Patch::parse_merge(b"[]"), format!("error decoding patch: json: cannot unmarshal array into Go value of type {map}"), 400),
        (Patch::parse_merge(b"\"x\""), format!("error decoding patch: json: cannot unmarshal string into Go value of type {map}"), 400),
        (Patch::parse_merge(b"{"), "invalid JSON patch".to_owned(), 400),
        (Patch::parse_strategic(b"[]"), format!("json: cannot unmarshal array into Go value of type {map}"), 400),
        (Patch::parse_strategic(b"{{"), "invalid JSON patch".to_owned(), 400),
    ];
    for (patch, message, code) in cases {
        let status = patch.unwrap_err().status();
        assert_eq!(
            (status.message.as_str(), status.code()),
            (message.as_str(), code)
        );
    }
}

#[test]
fn fields_given_twice_are_named() {
    let patch = Patch::parse_merge(br#"{"data":{"a":"1","a":"2"}}"#).unwrap();
    assert_eq!(patch.strict(), [r#"duplicate field "data.a""#]);
}

#[test]
fn merge_patches_follow_the_rfc() {
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (
            json!({"a": "b", "b": "c"}),
            json!({"a": null}),
            json!({"b": "c"}),
        ),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        ),
        (
            json!({"a": [{"b": "c"}]}),
            json!({"a": [1]}),
            json!({"a": [1]}),
        ),
        (
            json!({"e": null}),
            json!({"a": 1}),
            json!({"e": null, "a": 1}),
        ),
        (
            json!({}),
            json!({"a": {"bb": {"ccc": null}}}),
            json!({"a": {"bb": {}}}),
        ),
        (
            json!({"a": 1}),
            json!({"a": {"b": {"c": 2}}}),
            json!({"a": {"b": {"c": 2}}}),
        ),
    ];
    for (mut document, patch, result) in cases {
        let patch = Patch::parse_merge(patch.to_string().as_bytes()).unwrap();
        patch
            .apply(&Types::new(), TypeId(0), &mut document)
            .unwrap();
        assert_eq!(document, result);
    }
}

fn pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn deployment() -> Value {
    let mut object = pod(json!({
        "containers": [
            {"name": "one", "image": "x:1", "args": ["a", "b"],
             "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}],
             "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 81}]},
            {"name": "two", "image": "y:1"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    }));
    object["metadata"] =
        json!({"labels": {"l": "1"}, "finalizers": ["a.example/1", "a.example/2"]});
    object["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    object
}

#[test]
fn strategic_patches_merge_by_keys_and_obey_directives() {
    let spec = "/spec/template/spec";
    let one = |fields: Value| {
        let mut container = json!({"name": "one"});
        container
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        pod(json!({"containers": [container]}))
    };
    let cases = [
        (
            pod(json!({"containers": [{"name": "two", "image": "y:2"}]})),
            "/containers/1",
            json!({"name": "two", "image": "y:2"}),
        ),
        (
            pod(json!({"containers": [{"name": "ghost", "$patch": "delete"}]})),
            "/containers/1/name",
            json!("two"),
        ),
        (
            pod(json!({"containers": [{"name": "one", "$patch": "delete"}]})),
            "/containers",
            json!([{"name": "two", "image": "y:1"}]),
        ),
        // What is new comes before what it does not name, as kube-apiserver has it.
        (
            pod(json!({"containers": [{"name": "three", "image": "z:1"}]})),
            "/containers/0/name",
            json!("three"),
        ),
        (
            one(json!({"env": [{"name": "E", "value": "9"}, {"name": "G", "value": "3"}]})),
            "/containers/0/env",
            json!([{"name": "E", "value": "9"}, {"name": "G", "value": "3"}, {"name": "F", "value": "2"}]),
        ),
        (
            one(json!({"env": [{"name": "F", "$patch": "delete"}]})),
            "/containers/0/env",
            json!([{"name": "E", "value": "1"}]),
        ),
        (
            one(json!({"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 90}]})),
            "/containers/0/ports",
            json!([{"containerPort": 80, "name": "http"}, {"containerPort": 90}, {"containerPort": 81}]),
        ),
        (
            one(json!({"args": ["c"]})),
            "/containers/0/args",
            json!(["c"]),
        ),
        (
            pod(json!({"volumes": [{"name": "w", "configMap": {"name": "c2"}}]})),
            "/volumes",
            json!([{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c2"}}]),
        ),
        (
            pod(
                json!({"volumes": [{"name": "w", "$retainKeys": ["name", "secret"], "configMap": null, "secret": {"secretName": "q"}}]}),
            ),
            "/volumes/1",
            json!({"name": "w", "secret": {"secretName": "q"}}),
        ),
        (
            pod(json!({"volumes": [{"$patch": "replace"}, {"name": "z", "emptyDir": {}}]})),
            "/volumes",
            json!([{"name": "z", "emptyDir": {}}]),
        ),
        (
            pod(json!({"tolerations": [{"key": "new"}]})),
            "/tolerations",
            json!([{"key": "new"}]),
        ),
        (
            pod(
                json!({"$setElementOrder/containers": [{"name": "two"}, {"name": "one"}], "containers": [{"name": "one", "image": "x:5"}]}),
            ),
            "/containers/1/image",
            json!("x:5"),
        ),
        (pod(json!({"containers": "x"})), "/containers", json!("x")),
    ];
    for (patch, path, value) in cases {
        let result = strategic(deployment(), patch.clone()).unwrap();
        assert_eq!(
            result.pointer(&format!("{spec}{path}")),
            Some(&value),
            "{patch}"
        );
    }
}

#[test]
fn strategic_patches_of_maps_and_scalar_lists() {
    let cases = [
        (
            json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}}),
            "/metadata/labels",
            json!({"only": "this"}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            "/metadata/labels",
            json!({}),
        ),
        (
            json!({"metadata": {"annotations": {"$patch": "shake", "a": "b", "c": null}}}),
            "/metadata/annotations",
            json!({"a": "b"}),
        ),
        (
            json!({"metadata": {"labels": {"x": "1", "l": null}}}),
            "/metadata/labels",
            json!({"x": "1"}),
        ),
        (
            json!({"metadata": {"finalizers": ["a.example/3"]}}),
            "/metadata/finalizers",
            json!(["a.example/3", "a.example/1", "a.example/2"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.example/1"]}}),
            "/metadata/finalizers",
            json!(["a.example/2"]),
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["a.example/3", "a.example/2"], "finalizers": ["a.example/3"]}}),
            "/metadata/finalizers",
            json!(["a.example/3", "a.example/1", "a.example/2"]),
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["a.example/2", "a.example/1"]}}),
            "/metadata/finalizers",
            json!(["a.example/2", "a.example/1"]),
        ),
        (
            json!({"metadata": {"ownerReferences": [{"uid": "u1", "name": "p"}]}}),
            "/metadata/ownerReferences",
            json!([{"uid": "u1", "name": "p"}]),
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
            "/spec/strategy/rollingUpdate",
            json!({"maxSurge": 1}),
        ),
    ];
    for (patch, path, value) in cases {
        let result = strategic(deployment(), patch.clone()).unwrap();
        assert_eq!(result.pointer(path), Some(&value), "{patch}");
    }
}

#[test]
fn wrong_strategic_patches_are_the_clients_fault() {
    let cases = [
        (
            pod(json!({"containers": [{"image": "q"}]})),
            "map: map[image:q] does not contain declared merge key: name",
        ),
        (
            pod(
                json!({"$setElementOrder/containers": [{"name": "two"}], "containers": [{"name": "one", "image": "x:6"}]}),
            ),
            "The order in patch list:\n[map[image:x:6 name:one]]\n doesn't match $setElementOrder list:\n[map[name:two]]\n",
        ),
        (
            json!({"metadata": {"labels": {"$patch": "shake"}}}),
            "unknown patch type: shake in map: map[]",
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}),
            "invalid patch format of retainKeys",
        ),
        (
            pod(json!({"containers": ["x"]})),
            "list element types are not identical",
        ),
        (
            pod(json!({"containers": [["x"]]})),
            "lists of lists are not supported",
        ),
    ];
    for (patch, reason) in cases {
        let error = strategic(deployment(), patch.clone()).unwrap_err();
        assert_eq!(error.to_string(), reason);
        assert_eq!(error.status().code(), 422);
    }
}

#[test]
fn patches_are_shown_as_go_prints_maps() {
    let Patch::Strategic(patch) =
        Patch::parse_strategic(br#"{"spec":{"replicas":"3","l":[1,"a",null]}}"#).unwrap()
    else {
        panic!("another kind of patch");
    };
    assert_eq!(patch.shown(), "map[spec:map[l:[1 a <nil>] replicas:3]]");
    assert_eq!(
        invalid_patch("map[spec:map[replicas:3]]", "unrecognized type: int32").message,
        " \"\" is invalid: patch: Invalid value: \"map[spec:map[replicas:3]]\": unrecognized type: int32"
    );
}

#[test]
fn results_that_are_refused_are_shown_as_kubernetes_does() {
    let e = examples();
    let result = json!({"apiVersion": "v1", "datum": {"x": "y"}, "kind": "ConfigMap", "metadata": {
        "creationTimestamp": "t", "labels": {}, "name": "typeless", "namespace": "n", "resourceVersion": "213", "uid": "u"}});
    let merge = Patch::parse_merge(b"{}").unwrap();
    assert_eq!(
        merge
            .refused(&result, "strict decoding error: unknown field \"datum\"")
            .message,
        " \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\":\\\"v1\\\",\\\"datum\\\":{\\\"x\\\":\\\"y\\\"},\\\"kind\\\":\\\"ConfigMap\\\",\\\"metadata\\\":{\\\"name\\\":\\\"typeless\\\",\\\"namespace\\\":\\\"n\\\",\\\"uid\\\":\\\"u\\\",\\\"resourceVersion\\\":\\\"213\\\",\\\"creationTimestamp\\\":\\\"t\\\",\\\"labels\\\":{}}}\": strict decoding error: unknown field \"datum\""
    );
    let wrong = json!({"spec": {"replicas": "3"}});
    let error =
        crate::schema::decode(&e.types, e.deployment, &Node::from_value(&wrong)).unwrap_err();
    let strategic = Patch::parse_strategic(wrong.to_string().as_bytes()).unwrap();
    assert_eq!(
        strategic.undecodable(&wrong, &error).message,
        " \"\" is invalid: patch: Invalid value: \"map[spec:map[replicas:3]]\": unrecognized type: int32"
    );
}

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
