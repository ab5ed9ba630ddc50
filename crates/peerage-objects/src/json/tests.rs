use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn what_is_no_json_is_refused_in_the_words_of_go() {
    let cases = [
        ("", "unexpected end of JSON input"),
        (
            "plain words",
            "invalid character 'p' looking for beginning of value",
        ),
        ("{\"a\":{\"b\":\"trunc\"", "unexpected end of JSON input"),
        ("{} xyz", "invalid character 'x' after top-level value"),
        (
            "{a:1}",
            "invalid character 'a' looking for beginning of object key string",
        ),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        (
            "{\"a\":1 2}",
            "invalid character '2' after object key:value pair",
        ),
        (
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        ),
        (
            "[1,]",
            "invalid character ']' looking for beginning of value",
        ),
        ("[1 2]", "invalid character '2' after array element"),
        ("[01]", "invalid character '1' after array element"),
        ("-", "unexpected end of JSON input"),
        ("-x", "invalid character 'x' in numeric literal"),
        (
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        ),
        (
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        ),
        (
            "trux",
            "invalid character 'x' in literal true (expecting 'e')",
        ),
        ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        (
            "\"\\u00g0\"",
            "invalid character 'g' in \\u hexadecimal character escape",
        ),
        (
            "'a'",
            "invalid character '\\'' looking for beginning of value",
        ),
    ];
    for (text, error) in cases {
        assert_eq!(
            parse(text.as_bytes()).unwrap_err().to_string(),
            error,
            "{text}"
        );
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(
        parse(nested(MAX_DEPTH + 1).as_bytes()),
        Err(SyntaxError::Depth)
    );
    assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
}

#[test]
fn odd_text_is_repaired_as_go_does() {
    let text = |bytes: &[u8]| parse(bytes).unwrap().to_value();
    assert_eq!(text(b"\"a\xffb\""), json!("a\u{fffd}b"));
    assert_eq!(text(br#""\ud800x""#), json!("\u{fffd}x"));
    assert_eq!(text(br#""\ud83d\ude00\u00e9\/""#), json!("😀é/"));
}

#[test]
fn fields_given_twice_are_found_with_their_paths() {
    let node = parse(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1,"d":2}],"a":{}}"#).unwrap();
    assert_eq!(node.duplicate_fields(100), ["a.b", "c[0].d", "a"]);
    assert_eq!(node.duplicate_fields(1), ["a.b"]);
    assert_eq!(node.get("a"), Some(&Node::Object(Vec::new())));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c\"\\\\é]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_writes_is_read_back(value in any_json()) {
        let text = value.to_string();
        let node = parse(text.as_bytes()).unwrap();
        prop_assert_eq!(node.to_value(), value.clone());
        prop_assert_eq!(Node::from_value(&value).to_value(), value);
    }

    #[test]
    fn any_bytes_are_read_or_refused_as_serde_does(bytes in proptest::collection::vec(
        prop_oneof![Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b'"'), Just(b':'),
            Just(b','), Just(b'1'), Just(b'-'), Just(b'.'), Just(b'\\'), Just(b'n')], 0..12)) {
        let ours = parse(&bytes).is_ok();
        prop_assert_eq!(ours, serde_json::from_slice::<Value>(&bytes).is_ok());
    }
}
