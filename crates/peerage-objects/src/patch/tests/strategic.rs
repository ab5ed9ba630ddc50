//! Strategic merge patches, and how patches and refused results are shown.

use super::*;

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
