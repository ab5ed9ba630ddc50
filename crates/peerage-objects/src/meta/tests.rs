use super::*;
use crate::field::FieldError;
use crate::names::NameRule;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn now() -> Timestamp {
    "2026-11-29T20:00:00Z".parse().unwrap()
}

fn creation(namespace: Option<&str>) -> Creation<'_> {
    Creation {
        namespace,
        uid: "u-1",
        now: now(),
        random: 12345,
    }
}

fn lines(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(FieldError::line).collect()
}

fn create_errors(metadata: Value) -> Vec<String> {
    let mut object = json!({"metadata": metadata});
    prepare_create(&mut object, creation(Some("default"))).unwrap();
    lines(&validate_create(&object, true, NameLimits::default()))
}

#[test]
fn a_new_object_gets_what_the_server_decides() {
    let mut object = json!({"metadata": {
        "name": "one", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x",
        "deletionGracePeriodSeconds": 4, "resourceVersion": "0", "generation": 9, "labels": {}, "generateName": "",
    }});
    prepare_create(&mut object, creation(Some("default"))).unwrap();
    assert_eq!(
        object["metadata"],
        json!({"name": "one", "namespace": "default", "uid": "u-1", "generation": 9,
            "creationTimestamp": "2026-11-29T20:00:00Z"})
    );
}

#[test]
fn a_new_object_must_fit_the_request() {
    let mut object = json!({"metadata": {"name": "one", "namespace": "other"}});
    let error = prepare_create(&mut object, creation(Some("default"))).unwrap_err();
    assert_eq!(error, MetaError::Namespace);
    prepare_create(&mut object, creation(None)).unwrap();
    assert_eq!(Meta::of(&object).namespace(), "");
    let mut object = json!({"metadata": {"name": "one", "resourceVersion": "5"}});
    let error = prepare_create(&mut object, creation(None)).unwrap_err();
    assert_eq!(
        (error.status().code(), error),
        (400, MetaError::ResourceVersion)
    );
    assert_eq!(
        check_name(&object, "two").unwrap_err().to_string(),
        "the name of the object (one) does not match the name on the URL (two)"
    );
    assert_eq!(
        check_name(&json!({}), "two").unwrap_err().to_string(),
        "the name of the object (two based on URL) was undeterminable: name must be provided"
    );
}

#[test]
fn names_are_generated_only_where_there_is_none() {
    let mut object = json!({"metadata": {"generateName": "gen-"}});
    prepare_create(&mut object, creation(None)).unwrap();
    let name = Meta::of(&object).name().to_owned();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let mut object = json!({"metadata": {"name": "both", "generateName": "gen-"}});
    prepare_create(&mut object, creation(None)).unwrap();
    assert_eq!(Meta::of(&object).name(), "both");
    assert_eq!(generate_name(&"x".repeat(90), 0).len(), 63);
}

#[test]
fn metadata_is_checked_in_kubernetes_words_and_order() {
    let long = "k".repeat(64);
    let cases = [
        (json!({}), vec!["metadata.name: Required value: name or generateName is required".to_owned()]),
        (json!({"name": "x", "labels": {"a b": "c"}}), vec![format!("metadata.labels: Invalid value: \"a b\": {NAME_PART}")]),
        (json!({"name": "x", "labels": {"": "d"}}), vec![
            "metadata.labels: Invalid value: \"\": name part must be non-empty".to_owned(),
            format!("metadata.labels: Invalid value: \"\": {NAME_PART}"),
        ]),
        (json!({"name": "x", "labels": {long.clone(): "d"}}), vec![format!("metadata.labels: Invalid value: \"{long}\": name part must be no more than 63 bytes")]),
        (json!({"name": "x", "annotations": {"a b": "c"}}), vec![format!("metadata.annotations: Invalid value: \"a b\": {NAME_PART}")]),
        (json!({"name": "x", "annotations": {"Example.com/x": "c"}}), vec![]),
        (json!({"name": "x", "annotations": {"big": "x".repeat(262_144)}}), vec!["metadata.annotations: Too long: may not be more than 262144 bytes".to_owned()]),
        (json!({"name": "x", "finalizers": ["bad"]}), vec!["metadata.finalizers[0]: Invalid value: \"bad\": name is neither a standard finalizer name nor is it fully qualified".to_owned()]),
        (json!({"name": "x", "ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}),
            ["apiVersion", "kind", "name", "uid"].map(|f| format!("metadata.ownerReferences[0].{f}: Required value: must not be empty")).to_vec()),
        (json!({"name": "x", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a", "controller": true},
            {"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "b", "controller": true}]}),
            vec!["metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"a\",\"uid\":\"a\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"b\",\"uid\":\"b\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/a and Pod/b".to_owned()]),
        (json!({"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}),
            vec!["metadata.ownerReferences[0]: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed from being an owner".to_owned()]),
        (json!({"name": "x", "generation": -1}), vec!["metadata.generation: Invalid value: -1: must be greater than or equal to 0".to_owned()]),
    ];
    for (metadata, errors) in cases {
        assert_eq!(create_errors(metadata.clone()), errors, "{metadata}");
    }
}

#[test]
fn a_kind_may_want_shorter_names() {
    let object = json!({"metadata": {"name": "c".repeat(53), "namespace": "default"}});
    let limits = NameLimits {
        rule: NameRule::Dns1123Subdomain,
        longest: Some(52),
    };
    let name = "c".repeat(53);
    assert_eq!(
        lines(&validate_create(&object, true, limits)),
        [format!(
            "metadata.name: Invalid value: \"{name}\": must be no more than 52 characters"
        )]
    );
    assert_eq!(
        lines(&validate_create(&object, false, NameLimits::default())),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
}

fn stored() -> Value {
    json!({"metadata": {"name": "one", "namespace": "default", "uid": "u-1", "resourceVersion": "7",
        "generation": 3, "creationTimestamp": "2026-11-29T20:00:00Z"}, "spec": {"a": 1}})
}

fn update(metadata: Value) -> (Value, Vec<String>) {
    let mut new = json!({"metadata": metadata, "spec": {"a": 1}});
    prepare_update(&mut new, &stored(), Some("default")).unwrap();
    let errors = lines(&validate_update(&new, &stored()));
    (new, errors)
}

#[test]
fn an_update_cannot_change_what_is_the_servers() {
    let sent = json!({"name": "one", "generation": 44, "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"});
    let (new, errors) = update(sent);
    assert_eq!((new, errors), (stored(), vec![]));

    let (_, errors) = update(json!({"name": "one", "uid": "other"}));
    assert_eq!(
        errors,
        ["metadata.uid: Invalid value: \"other\": field is immutable"]
    );

    let (_, errors) = update(json!({"name": "one", "deletionTimestamp": "2030-01-01T00:00:00Z"}));
    assert_eq!(
        errors,
        ["metadata.deletionTimestamp: Invalid value: \"2030-01-01T00:00:00Z\": field is immutable"]
    );
}

#[test]
fn no_finalizer_is_added_once_deletion_has_begun() {
    let mut old = stored();
    old["metadata"]["finalizers"] = json!(["example.com/one"]);
    mark_deleting(&mut old, now(), 0);
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["example.com/one", "example.com/three"]);
    meta_mut(&mut new).remove("deletionTimestamp");
    prepare_update(&mut new, &old, Some("default")).unwrap();
    assert_eq!(
        lines(&validate_update(&new, &old)),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/three\"}"
        ]
    );
    assert!(Meta::of(&new).deletion_timestamp().is_some());
}

#[test]
fn a_list_of_many_controllers_is_not_repeated_for_each_of_them() {
    let owners: Vec<Value> = (0..2000)
        .map(|i| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{i}"), "uid": "u", "controller": true}))
        .collect();
    let size = Value::from(owners.clone()).to_string().len();
    let errors = create_errors(json!({"name": "x", "ownerReferences": owners}));
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().map(String::len).sum::<usize>() < 3 * size);
}

#[test]
fn a_deletion_that_has_begun_is_only_brought_forward() {
    let mut object = stored();
    mark_deleting(&mut object, now(), 30);
    let meta = Meta::of(&object);
    assert_eq!(meta.deletion_timestamp(), Some("2026-11-29T20:00:30Z"));
    assert_eq!(
        (meta.deletion_grace_period_seconds(), meta.generation()),
        (Some(30), 4)
    );
    let first = object.clone();
    mark_deleting(&mut object, now(), 60);
    assert_eq!(object, first);
    mark_deleting(&mut object, now(), 1);
    let meta = Meta::of(&object);
    assert_eq!(meta.deletion_timestamp(), Some("2026-11-29T20:00:01Z"));
    assert_eq!(
        (meta.deletion_grace_period_seconds(), meta.generation()),
        (Some(1), 4)
    );
}

#[test]
fn the_policy_decides_about_finalizers() {
    use Propagation::{Background, Foreground, Orphan};
    let own = ["example.com/one"];
    assert_eq!(
        propagation_finalizers(&own, Some(Foreground)),
        ["example.com/one", FOREGROUND]
    );
    assert_eq!(
        propagation_finalizers(&[FOREGROUND], Some(Orphan)),
        [ORPHAN]
    );
    assert_eq!(
        propagation_finalizers(&[FOREGROUND, "a/b"], Some(Background)),
        ["a/b"]
    );
    assert_eq!(propagation_finalizers(&[FOREGROUND], None), [FOREGROUND]);
    assert!(propagation_finalizers(&[], None).is_empty());
}

#[test]
fn managed_fields_are_carried_and_kept_well_formed() {
    let good =
        json!([{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    let mut old = stored();
    old["metadata"]["managedFields"] = good.clone();
    let after = |sent: Option<Value>| {
        let mut new = stored();
        if let Some(sent) = sent {
            new["metadata"]["managedFields"] = sent;
        }
        carry_managed_fields(&mut new, &old);
        new["metadata"].get("managedFields").cloned()
    };
    assert_eq!(after(None), Some(good.clone()));
    assert_eq!(after(Some(json!([]))), Some(good.clone()));
    assert_eq!(
        after(Some(json!([{"operation": "Guess"}]))),
        Some(good.clone())
    );
    assert_eq!(after(Some(json!([{}]))), None);
    let other = json!([{"manager": "n", "operation": "Apply"}]);
    assert_eq!(after(Some(other.clone())), Some(other));
}

#[test]
fn names_of_field_managers_are_checked() {
    assert!(validate_field_manager("kubectl", "fieldManager").is_empty());
    assert_eq!(
        lines(&validate_field_manager(&"m".repeat(129), "fieldManager")),
        ["fieldManager: Too long: may not be more than 128 bytes"]
    );
    assert_eq!(
        lines(&validate_field_manager("a\nb", "fieldManager")),
        ["fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"]
    );
}

#[test]
fn what_counts_as_a_change() {
    let old = stored();
    let mut new = stored();
    new["metadata"]["resourceVersion"] = json!("8");
    assert!(same_content(&new, &old) && !spec_changed(&new, &old));
    new["metadata"]["labels"] = json!({"a": "b"});
    assert!(!same_content(&new, &old) && !spec_changed(&new, &old));
    let mut new = stored();
    new["status"] = json!({});
    assert!(!same_content(&new, &old) && !spec_changed(&new, &old));
    new["spec"] = json!({"a": 2});
    assert!(spec_changed(&new, &old));
}

proptest! {
    #[test]
    fn no_metadata_makes_it_panic(metadata in proptest::collection::btree_map(
        prop_oneof![Just("name"), Just("labels"), Just("finalizers"), Just("ownerReferences"), Just("generation"),
            Just("managedFields"), Just("deletionTimestamp"), Just("annotations")],
        prop_oneof![Just(json!(null)), Just(json!("x")), Just(json!(["a/b", {}])), Just(json!({"a": 1})), Just(json!(-1))],
        0..6)) {
        let metadata: Map<String, Value> = metadata.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let mut object = json!({"metadata": metadata});
        let before = object.clone();
        mark_deleting(&mut object, now(), 5);
        let _ = prepare_create(&mut object, creation(None));
        let _ = validate_create(&object, true, NameLimits::default());
        let _ = prepare_update(&mut object, &before, None);
        let _ = validate_update(&object, &before);
    }

    #[test]
    fn generated_names_are_valid(random: u64) {
        prop_assert!(NameRule::Dns1123Label.check(&generate_name("gen-", random)).is_empty());
    }
}
