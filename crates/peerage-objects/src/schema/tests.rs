use proptest::prelude::*;
use serde_json::json;

use super::examples::{Examples, examples};
use super::*;
use crate::json::{self, Node};

fn read(kind: fn(&Examples) -> TypeId, text: &str) -> Result<Decoded, String> {
    let e = examples();
    let node = json::parse(text.as_bytes()).map_err(|e| e.to_string())?;
    decode(&e.types, kind(&e), &node).map_err(|e| e.to_string())
}

#[test]
fn values_of_the_wrong_type_are_refused_in_the_words_of_go() {
    let config_map: fn(&Examples) -> TypeId = |e| e.config_map;
    let deployment: fn(&Examples) -> TypeId = |e| e.deployment;
    let service: fn(&Examples) -> TypeId = |e| e.service;
    let pod = |spec: &str| format!("{{\"spec\":{{\"template\":{{\"spec\":{spec}}}}}}}");
    let limit = |value: &str| {
        pod(&format!(
            "{{\"containers\":[{{\"resources\":{{\"limits\":{{\"cpu\":{value}}}}}}}]}}"
        ))
    };
    let regex = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let cases = [
        (
            config_map,
            r#"{"data":{"a":1}}"#.to_owned(),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            config_map,
            r#"{"data":{"a":true}}"#.to_owned(),
            "json: cannot unmarshal bool into Go struct field ConfigMap.data of type string",
        ),
        (
            config_map,
            r#"{"data":{"a":{}}}"#.to_owned(),
            "json: cannot unmarshal object into Go struct field ConfigMap.data of type string",
        ),
        (
            config_map,
            r#"{"data":["a"]}"#.to_owned(),
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            config_map,
            r#"{"metadata":"name"}"#.to_owned(),
            "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            config_map,
            r#"{"metadata":{"labels":{"a":1}}}"#.to_owned(),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            config_map,
            r#"{"metadata":{"creationTimestamp":"yesterday"}}"#.to_owned(),
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
        ),
        (
            config_map,
            r#"{"metadata":{"creationTimestamp":5}}"#.to_owned(),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            config_map,
            "[]".to_owned(),
            "json: cannot unmarshal array into Go value of type v1.ConfigMap",
        ),
        (
            deployment,
            r#"{"spec":{"replicas":"3"}}"#.to_owned(),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            deployment,
            r#"{"spec":{"replicas":1.5}}"#.to_owned(),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            deployment,
            r#"{"spec":{"replicas":2.0}}"#.to_owned(),
            "json: cannot unmarshal number 2.0 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            deployment,
            r#"{"spec":{"replicas":3000000000}}"#.to_owned(),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            deployment,
            pod(r#"{"hostNetwork":"true"}"#),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.template.spec.hostNetwork of type bool",
        ),
        (
            deployment,
            pod(r#"{"containers":{}}"#),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            service,
            r#"{"spec":{"ports":[{"targetPort":1.5}]}}"#.to_owned(),
            "json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            service,
            r#"{"spec":{"ports":[{"targetPort":[]}]}}"#.to_owned(),
            "json: cannot unmarshal array into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            |e| e.secret,
            r#"{"data":{"k":"***"}}"#.to_owned(),
            "illegal base64 data at input byte 0",
        ),
        (deployment, limit("\"many\""), regex),
        (deployment, limit("\"1gb\""), regex),
        (deployment, limit("\"\""), regex),
        (deployment, limit("true"), regex),
    ];
    for (kind, text, error) in cases {
        assert_eq!(read(kind, &text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn results_of_strategic_patches_are_refused_in_the_words_of_the_converter() {
    let e = examples();
    let cases = [
        (r#"{"spec":{"replicas":"3"}}"#, "unrecognized type: int32"),
        (
            r#"{"spec":{"template":{"spec":{"containers":"x"}}}}"#,
            "cannot restore slice from string",
        ),
        (
            r#"{"metadata":{"labels":"x"}}"#,
            "cannot restore map from string",
        ),
        (r#"{"metadata":[]}"#, "cannot restore struct from: slice"),
        (
            r#"{"metadata":{"name":1}}"#,
            "cannot convert int64 to string",
        ),
    ];
    for (text, error) in cases {
        let node = json::parse(text.as_bytes()).unwrap();
        let found = decode(&e.types, e.deployment, &node).unwrap_err();
        assert_eq!(found.conversion_text(), error);
    }
}

#[test]
fn unknown_and_duplicate_fields_are_listed_in_their_order() {
    let text = r#"{"metadata":{"name":"x","colour":"red"},"datum":{"a":"b"},"Data":{}}"#;
    let decoded = read(|e| e.config_map, text).unwrap();
    assert_eq!(
        decoded.strict,
        [
            r#"unknown field "metadata.colour""#,
            r#"unknown field "datum""#,
            r#"unknown field "Data""#
        ]
    );
    assert_eq!(decoded.value, json!({"metadata": {"name": "x"}}));

    let text = r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","imag":"y","ports":[{"containerPort":80,"protcol":"TCP"}]}],"hostNetwrk":true}}}}"#;
    assert_eq!(
        strict_error(&read(|e| e.deployment, text).unwrap().strict),
        r#"strict decoding error: unknown field "spec.template.spec.containers[0].imag", unknown field "spec.template.spec.containers[0].ports[0].protcol", unknown field "spec.template.spec.hostNetwrk""#
    );

    let text = r#"{"data":{"a":"1"},"data":{"b":"2","b":"3"}}"#;
    let decoded = read(|e| e.config_map, text).unwrap();
    assert_eq!(
        decoded.strict,
        [r#"duplicate field "data""#, r#"duplicate field "data.b""#]
    );
    assert_eq!(decoded.value, json!({"data": {"a": "1", "b": "3"}}));
}

#[test]
fn unknown_fields_are_counted_only_so_far() {
    let fields: Vec<String> = (0..1000).map(|n| format!("\"f{n}\":1")).collect();
    let decoded = read(|e| e.config_map, &format!("{{{}}}", fields.join(","))).unwrap();
    assert_eq!(decoded.strict.len(), 100);
}

#[test]
fn values_are_brought_into_the_form_that_go_writes() {
    let text = r#"{"metadata":{"creationTimestamp":null,"labels":{},"annotations":{"a":null}},
        "spec":{"replicas":0,"selector":{},"template":{"spec":{"containers":[
            {"name":"","args":[],"resources":{"limits":{"cpu":0.25,"memory":"1024Mi"}}}, null]}}}}"#;
    let decoded = read(|e| e.deployment, text).unwrap();
    assert_eq!(
        decoded.value,
        json!({
            "metadata": {"annotations": {"a": ""}},
            "spec": {"replicas": 0, "selector": {}, "template": {"spec": {"containers": [
                {"name": "", "resources": {"limits": {"cpu": "250m", "memory": "1Gi"}}}, {}
            ]}}}
        })
    );
    assert_eq!(read(|e| e.config_map, "null").unwrap().value, json!({}));
}

#[test]
fn defaults_fill_all_levels() {
    let e = examples();
    let mut value = json!({"spec": {"template": {"spec": {"containers": [{"ports": [{}]}]}}}});
    apply_defaults(&e.types, e.deployment, &mut value);
    let spec = json!({"strategy": {}, "template": {"metadata": {}, "spec": {"containers": [{
        "name": "", "resources": {}, "ports": [{"containerPort": 0, "protocol": "TCP"}]
    }]}}});
    assert_eq!(value, json!({"metadata": {}, "spec": spec}));
}

#[test]
fn an_absent_required_list_is_shown_as_null() {
    let e = examples();
    let node = json::parse(br#"{"rules":[]}"#).unwrap();
    let mut value = decode(&e.types, e.role, &node).unwrap().value;
    show_nil_lists(&e.types, e.role, &mut value);
    assert_eq!(value, json!({"rules": null}));
}

#[test]
fn a_default_that_contains_itself_ends() {
    let mut types = Types::new();
    let ty = types.push(Schema::anonymous(SchemaKind::Any));
    let mut again = Property::new(ty);
    again.default = Some(json!({}));
    let fields = examples::fields(vec![("again", again)], &[]);
    types.set(ty, Schema::anonymous(SchemaKind::Struct(fields)));
    let mut value = json!({});
    apply_defaults(&types, ty, &mut value);
    assert!(value.get("again").is_some());
}

fn errors(kind: TypeId, e: &Examples, mut value: Value, checks: Checks<'_>) -> Vec<String> {
    apply_defaults(&e.types, kind, &mut value);
    let errors = validate(&e.types, kind, &value, "", checks);
    errors.iter().map(crate::field::FieldError::line).collect()
}

#[test]
fn required_fields_and_allowed_values_are_checked() {
    let e = examples();
    assert_eq!(
        errors(e.deployment, &e, json!({}), Checks::default()),
        [
            "spec.selector: Required value",
            "spec.template.spec.containers: Required value"
        ]
    );
    let value = json!({"spec": {"selector": {}, "template": {"spec": {"containers": [
        {"name": "", "ports": [{"containerPort": 1, "protocol": "HTTP"}]}
    ]}}}});
    assert_eq!(
        errors(e.deployment, &e, value, Checks::default()),
        [
            "spec.template.spec.containers[0].name: Required value",
            "spec.template.spec.containers[0].ports[0].protocol: Unsupported value: \"HTTP\": supported values: \"SCTP\", \"TCP\", \"UDP\""
        ]
    );
    let waived = |ty: &str, field: &str| ty.ends_with(".Role") && field == "rules";
    let checks = Checks {
        waived: &waived,
        ..Checks::default()
    };
    assert!(errors(e.role, &e, json!({}), checks).is_empty());
}

#[test]
fn the_status_is_looked_into_only_where_wanted() {
    let mut types = Types::new();
    let text = types.push(Schema::anonymous(SchemaKind::String(StringFormat::Any)));
    let status = examples::fields(vec![("phase", Property::new(text))], &["phase"]);
    let status = types.push(Schema::anonymous(SchemaKind::Struct(status)));
    let kind = examples::fields(vec![("status", Property::new(status))], &[]);
    let kind = types.push(Schema::anonymous(SchemaKind::Struct(kind)));
    let value = json!({"status": {}});
    let checks = |status| Checks {
        status,
        ..Checks::default()
    };
    assert!(validate(&types, kind, &value, "", checks(false)).is_empty());
    assert_eq!(
        validate(&types, kind, &value, "", checks(true))[0].line(),
        "status.phase: Required value"
    );
}

#[test]
fn elements_that_must_differ_are_checked_where_wanted() {
    let e = examples();
    let value = json!({"metadata": {"finalizers": ["a/b", "a/b"]}, "spec": {"selector": {}, "template": {"spec": {"containers": [
        {"name": "x"}, {"name": "x"}
    ]}}}});
    let checks = Checks {
        unique: true,
        ..Checks::default()
    };
    assert!(errors(e.deployment, &e, value.clone(), Checks::default()).is_empty());
    assert_eq!(
        errors(e.deployment, &e, value, checks),
        [
            "metadata.finalizers[1]: Duplicate value: \"a/b\"",
            "spec.template.spec.containers[1]: Duplicate value: {\"name\":\"x\"}"
        ]
    );
}

#[test]
fn an_id_outside_of_the_table_is_any_json() {
    let types = Types::new();
    let node = Node::from_value(&Value::Bool(true)).to_value();
    let decoded = decode(&types, TypeId(7), &Node::from_value(&node)).unwrap();
    assert_eq!(decoded.value, json!(true));
}

/// Deployments, roughly: known and unknown fields, right and wrong types.
fn deployment_like() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!("1500m")),
        Just(json!("2026-01-01T00:00:00Z")),
        (0..9i64).prop_map(Value::from),
        Just(json!(1.5)),
        any::<bool>().prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("labels"),
        Just("replicas"),
        Just("template"),
        Just("containers"),
        Just("name"),
        Just("ports"),
        Just("limits"),
        Just("resources"),
        Just("odd"),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(name.clone(), inner, 0..4).prop_map(|map| {
                Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn decoding_what_was_decoded_changes_nothing(value in deployment_like()) {
        let e = examples();
        if let Ok(once) = decode(&e.types, e.deployment, &Node::from_value(&value)) {
            let twice = decode(&e.types, e.deployment, &Node::from_value(&once.value)).unwrap();
            prop_assert_eq!(&twice.value, &once.value);
            prop_assert!(twice.strict.is_empty(), "{:?}", twice.strict);
            let over = decode_over(&e.types, e.deployment, &Node::from_value(&once.value), &once.value).unwrap();
            prop_assert_eq!(over.value, once.value);
        }
    }
}
