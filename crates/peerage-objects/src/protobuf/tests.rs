use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{IntFormat, ListType, Schema, StringFormat};

const NUMBERS: &str = "\
# a comment
t.Widget 1=metadata 2=size* 3=depth 4=tags* 5=labels* 6<t.Source 7=amount* 8=port* 9=when* 10=secret* 11=name! 12=extra*
t.Source 1=path 2=flag
t.Meta 1=name
";

fn types() -> (Types, TypeId) {
    let mut types = Types::new();
    let text = types.push(Schema::anonymous(SchemaKind::String(StringFormat::Any)));
    let int = types.push(Schema::anonymous(SchemaKind::Integer(IntFormat::Int32)));
    let flag = types.push(Schema::anonymous(SchemaKind::Boolean));
    let bytes = types.push(Schema::anonymous(SchemaKind::String(StringFormat::Byte)));
    let quantity = types.push(Schema::anonymous(SchemaKind::Quantity));
    let port = types.push(Schema::anonymous(SchemaKind::IntOrString));
    let when = types.push(Schema::anonymous(SchemaKind::String(
        StringFormat::DateTime,
    )));
    let tags = types.push(Schema::anonymous(SchemaKind::Array {
        items: text,
        list: ListType::Atomic,
    }));
    let labels = types.push(Schema::anonymous(SchemaKind::Map { values: text }));
    let secret = types.push(Schema::anonymous(SchemaKind::Map { values: bytes }));
    let extra = types.push(Schema::anonymous(SchemaKind::Map { values: tags }));
    let fields = |list: &[(&str, TypeId)]| {
        let properties = list
            .iter()
            .map(|(n, t)| ((*n).into(), Property::new(*t)))
            .collect();
        SchemaKind::Struct(StructSchema {
            properties,
            ..StructSchema::default()
        })
    };
    let meta = types.push(Schema::named("t.Meta", fields(&[("name", text)])));
    let widget = types.push(Schema::named(
        "t.Widget",
        fields(&[
            ("metadata", meta),
            ("size", int),
            ("depth", int),
            ("tags", tags),
            ("labels", labels),
            ("path", text),
            ("flag", flag),
            ("amount", quantity),
            ("port", port),
            ("when", when),
            ("secret", secret),
            ("name", text),
            ("extra", extra),
        ]),
    ));
    (types, widget)
}

fn read(raw: &[u8]) -> Result<Value, ProtobufError> {
    let (types, widget) = types();
    decode(&types, &Messages::parse(NUMBERS).unwrap(), widget, raw)
}

#[test]
fn messages_become_the_json_that_go_would_write() {
    let rows: &[(&[u8], Value)] = &[
        (b"", json!({})),
        (b"\x0a\x03\x0a\x01a", json!({ "metadata": { "name": "a" } })),
        // A pointer to zero is a value; a plain zero is none.
        (b"\x10\x00", json!({ "size": 0 })),
        (b"\x18\x00", json!({})),
        (b"\x18\x07", json!({ "depth": 7 })),
        (
            b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            json!({ "size": -1 }),
        ),
        (b"\x22\x01a\x22\x01b", json!({ "tags": ["a", "b"] })),
        (
            b"\x2a\x06\x0a\x01k\x12\x01v",
            json!({ "labels": { "k": "v" } }),
        ),
        (b"\x2a\x03\x0a\x01k", json!({ "labels": { "k": "" } })),
        // The fields of an inlined message are the object's own.
        (
            b"\x32\x05\x0a\x01p\x10\x01",
            json!({ "path": "p", "flag": true }),
        ),
        (b"\x32\x04\x0a\x00\x10\x00", json!({})),
        (b"\x3a\x06\x0a\x04100m", json!({ "amount": "100m" })),
        (b"\x42\x06\x08\x00\x10\x50\x1a\x00", json!({ "port": 80 })),
        (
            b"\x42\x0a\x08\x01\x10\x00\x1a\x04http",
            json!({ "port": "http" }),
        ),
        (b"\x4a\x00", json!({ "when": null })),
        (
            b"\x4a\x02\x08\x01",
            json!({ "when": "1970-01-01T00:00:01Z" }),
        ),
        (
            b"\x52\x07\x0a\x01k\x12\x02\x00\x01",
            json!({ "secret": { "k": "AAE=" } }),
        ),
        (b"\x5a\x00", json!({ "name": "" })),
        // A map of lists holds each list in a message.
        (
            b"\x62\x08\x0a\x01k\x12\x03\x0a\x01v",
            json!({ "extra": { "k": ["v"] } }),
        ),
        // A number that nobody knows is passed over.
        (b"\xf8\x01\x01", json!({})),
    ];
    for (raw, expected) in rows {
        assert_eq!(read(raw).as_ref(), Ok(expected), "{raw:02x?}");
    }
}

#[test]
fn damaged_messages_are_refused() {
    for raw in [
        &b"\x0a"[..],
        b"\x0a\x05a",
        b"\x10\xff",
        b"\x0b",
        b"\x12\x01a",
        b"\x22\x01\xff",
    ] {
        assert!(read(raw).is_err(), "{raw:02x?}");
    }
    let mut nested = Vec::new();
    let (mut types, widget) = (types().0, types().1);
    let own = types.get(widget).clone();
    if let SchemaKind::Struct(mut fields) = own.kind {
        fields
            .properties
            .insert("metadata".into(), Property::new(widget));
        types.set(
            widget,
            Schema::named("t.Widget", SchemaKind::Struct(fields)),
        );
    }
    for _ in 0..200 {
        let mut outer = vec![0x0a];
        let mut length = nested.len();
        while length > 127 {
            outer.push((length & 127) as u8 | 128);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.extend(&nested);
        nested = outer;
    }
    let messages = Messages::parse(NUMBERS).unwrap();
    assert_eq!(
        decode(&types, &messages, widget, &nested),
        Err(ProtobufError::Depth)
    );
}

#[test]
fn an_envelope_tells_the_type_and_holds_the_message() {
    let bytes = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x10\x00\x1a\x00\x22\x00";
    let envelope = open(bytes).unwrap();
    assert_eq!(
        (envelope.api_version.as_str(), envelope.kind.as_str()),
        ("v1", "ConfigMap")
    );
    assert_eq!(envelope.raw, b"\x10\x00");
    assert_eq!(open(b"{}"), Err(ProtobufError::Magic));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&raw);
        let _ = open(&raw);
    }
}
