//! JSON patches and merge patches.

use super::*;

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
