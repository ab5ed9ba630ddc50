use super::*;
use serde_json::json;

fn column(name: &str, cell: Cell) -> Column {
    let definition = ColumnDefinition {
        name: name.to_owned(),
        kind: "string".to_owned(),
        format: if name == "Name" {
            "name".to_owned()
        } else {
            String::new()
        },
        priority: 0,
    };
    Column { definition, cell }
}

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).unwrap()
}

fn now() -> Timestamp {
    "2026-11-29T20:00:08Z".parse().unwrap()
}

#[test]
fn a_table_reads_as_kubectl_expects() {
    let columns = [
        column("Name", Cell::Name),
        column("Data", Cell::Count(path(".data"))),
        column("Age", Cell::creation_age()),
    ];
    let object = json!({"kind": "ConfigMap", "data": {"i": "0"},
        "metadata": {"name": "c0", "creationTimestamp": "2026-11-29T20:00:00Z"}});
    let meta = ListMeta {
        resource_version: "7".to_owned(),
        ..ListMeta::default()
    };
    let table = Table::new(&columns, meta, [&object], IncludeObject::Metadata, now());
    assert_eq!(
        serde_json::to_string(&table).unwrap(),
        concat!(
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"columnDefinitions":["#,
            r#"{"name":"Name","type":"string","format":"name","priority":0},"#,
            r#"{"name":"Data","type":"string","format":"","priority":0},"#,
            r#"{"name":"Age","type":"string","format":"","priority":0}],"#,
            r#""rows":[{"cells":["c0",1,"8s"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#,
            r#""metadata":{"creationTimestamp":"2026-11-29T20:00:00Z","name":"c0"}}}]}"#
        )
    );
    let row = |include| serde_json::to_value(Row::new(&columns, &object, include, now())).unwrap();
    assert_eq!(row(IncludeObject::None)["object"], json!(null));
    assert_eq!(row(IncludeObject::Object)["object"], object);
    assert!(table.without_columns().columns.is_empty());
}

#[test]
fn cells_of_what_is_absent_say_so() {
    let none = Cell::Field(path(".spec.nodeName"), json!("<none>"));
    assert_eq!(none.of(&json!({}), now()), json!("<none>"));
    assert_eq!(
        none.of(&json!({"spec": {"nodeName": "n1"}}), now()),
        json!("n1")
    );
    assert_eq!(
        Cell::creation_age().of(&json!({}), now()),
        json!("<unknown>")
    );
    assert_eq!(Cell::Count(path(".data")).of(&json!({}), now()), json!(0));
    let odd = json!({"metadata": {"creationTimestamp": "then"}});
    assert_eq!(Cell::creation_age().of(&odd, now()), json!("<invalid>"));
    let kind = Cell::Computed(|object, _| object["kind"].clone());
    assert_eq!(kind.of(&json!({"kind": "X"}), now()), json!("X"));
}

#[test]
fn partial_metadata_of_nothing_is_null() {
    let list = PartialObjectMetadataList::new(ListMeta::default(), []);
    assert_eq!(
        serde_json::to_string(&list).unwrap(),
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":null}"#
    );
}

#[test]
fn the_parameter_is_checked() {
    assert_eq!(IncludeObject::parse("Object"), Ok(IncludeObject::Object));
    assert_eq!(
        IncludeObject::parse("Half").unwrap_err(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Half\": must be 'Metadata', 'Object', 'None', or empty"
    );
}
