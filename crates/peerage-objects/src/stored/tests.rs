use super::*;
use proptest::prelude::*;
use serde_json::json;

fn written(text: &str, types: TypeFields) -> String {
    let stored = StoredJson::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let mut out = Vec::new();
    stored.write(&mut out, types, 42);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_revision_is_put_where_it_belongs() {
    for (stored, shown) in [
        (
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"42"}}"#,
        ),
        (
            r#"{"metadata":{"name":"a","uid":"u"}}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"42","uid":"u"}}"#,
        ),
        (
            r#"{"metadata":{"resourceVersion":"7","uid":"u"}}"#,
            r#"{"metadata":{"resourceVersion":"42","uid":"u"}}"#,
        ),
        (
            r#"{ "metadata" : { "labels" : {"resourceVersion":"7"} } }"#,
            r#"{ "metadata" : { "labels" : {"resourceVersion":"7"},"resourceVersion":"42" } }"#,
        ),
    ] {
        assert_eq!(written(stored, TypeFields::Keep), shown);
    }
}

#[test]
fn type_fields_are_left_out_of_lists() {
    for (stored, shown) in [
        (
            r#"{"apiVersion":"v1","data":{"kind":"x"},"kind":"ConfigMap","metadata":{}}"#,
            r#"{"data":{"kind":"x"},"metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"metadata":{},"kind":"ConfigMap","apiVersion":"v1"}"#,
            r#"{"metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"kind":"ConfigMap","metadata":{},"apiVersion":"v1"}"#,
            r#"{"metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"apiVersion":"v1","metadata":{},"kind":"ConfigMap"}"#,
            r#"{"metadata":{"resourceVersion":"42"}}"#,
        ),
    ] {
        assert_eq!(written(stored, TypeFields::Omit), shown, "{stored}");
    }
}

#[test]
fn types_are_read_without_parsing() {
    let text = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{}}"#;
    let stored = StoredJson::new(Bytes::from_static(text.as_bytes())).unwrap();
    assert_eq!(
        (stored.api_version(), stored.kind()),
        ("apps/v1", "Deployment")
    );
    assert_eq!(
        stored.to_value(3).unwrap()["metadata"]["resourceVersion"],
        json!("3")
    );
}

#[test]
fn what_is_no_object_is_refused() {
    for text in [
        "",
        "[]",
        "{",
        "{}",
        "null",
        r#"{"metadata":1}"#,
        r#"{"metadata":{}"#,
        r#"{"metadata":{}} x"#,
        r#"{"a":,"metadata":{}}"#,
        r#"{"a"#,
    ] {
        assert!(
            StoredJson::new(Bytes::copy_from_slice(text.as_bytes())).is_err(),
            "{text}"
        );
    }
}

fn objects() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![Just("a".to_owned()), Just("\\\"{[".to_owned()), "\\PC{0,4}"];
    let leaf = prop_oneof![
        texts.prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!([])),
        Just(json!(null))
    ];
    let inner = leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[ab\"]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let names = prop_oneof![
        Just("name"),
        Just("resourceVersion"),
        Just("uid"),
        Just("labels")
    ];
    let meta = proptest::collection::btree_map(names, inner.clone(), 0..4);
    let more = proptest::collection::btree_map(
        prop_oneof![Just("data"), Just("spec"), Just("zzz")],
        inner,
        0..3,
    );
    (meta, more, any::<bool>()).prop_map(|(meta, more, typed)| {
        let mut object = json!({});
        for (name, value) in more {
            object[name] = value;
        }
        object["metadata"] =
            Value::Object(meta.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
        if typed {
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("X");
        }
        object
    })
}

proptest! {
    #[test]
    fn splicing_is_what_parsing_and_writing_would_give(object in objects(), pretty: bool) {
        let text = if pretty { format!("{object:#}") } else { object.to_string() };
        let mut wanted = object;
        crate::meta::set_resource_version(&mut wanted, "42");
        let found: Value = serde_json::from_str(&written(&text, TypeFields::Keep)).unwrap();
        prop_assert_eq!(&found, &wanted);
        let fields = wanted.as_object_mut().unwrap();
        fields.remove("apiVersion");
        fields.remove("kind");
        let found: Value = serde_json::from_str(&written(&text, TypeFields::Omit)).unwrap();
        prop_assert_eq!(&found, &wanted);
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(bytes in proptest::collection::vec(
        prop_oneof![Just(b'{'), Just(b'}'), Just(b'['), Just(b'"'), Just(b':'), Just(b','), Just(b'\\'), Just(b'm')], 0..16),
        at in 0..32usize) {
        let mut text = br#"{"metadata":{"a":["b\"",{}]},"kind":"x"}"#.to_vec();
        let at = at.min(text.len());
        text.splice(at..at, bytes.iter().copied());
        if let Ok(stored) = StoredJson::new(Bytes::from(text)) {
            stored.write(&mut Vec::new(), TypeFields::Omit, 1);
            stored.write(&mut Vec::new(), TypeFields::Keep, 1);
        }
        let _ = StoredJson::new(Bytes::from(bytes));
    }
}
