//! Bytes of a document in the form that a client wants: indented JSON, or YAML.
//!
//! Documents are rendered once, as compact JSON. The other forms are made from those bytes, so all forms say the same.

use std::fmt;
use std::sync::Arc;

/// How documents are written. By default as versions from 1.35 on do it.
#[derive(Clone, Default)]
pub struct Rendering {
    /// Whether the version that is served still knows aggregated discovery v2beta1 (it went with 1.35).
    pub serves_v2beta1: bool,
    /// Whether discovery is answered in protobuf too.
    pub writes_protobuf: bool,
    /// Writes YAML.
    pub yaml: Yaml,
}

/// Turns a JSON value into YAML.
#[derive(Clone)]
pub struct Yaml(Arc<WriteYaml>);

type WriteYaml = dyn Fn(&serde_json::Value) -> Option<Vec<u8>> + Send + Sync;

impl Yaml {
    /// A writer that calls this function; `None` where it cannot write the value.
    pub fn new(
        write: impl Fn(&serde_json::Value) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Yaml {
        Yaml(Arc::new(write))
    }

    /// The same document as YAML.
    pub(crate) fn write(&self, json: &[u8]) -> Option<Vec<u8>> {
        (self.0)(&serde_json::from_slice(json).ok()?)
    }
}

impl Default for Yaml {
    fn default() -> Yaml {
        Yaml::new(|value| Some(serde_saphyr::to_string(value).ok()?.into_bytes()))
    }
}

impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendering")
            .field("serves_v2beta1", &self.serves_v2beta1)
            .field("writes_protobuf", &self.writes_protobuf)
            .finish_non_exhaustive()
    }
}

/// Compact JSON indented by two spaces, without a newline at the end. Strings are copied as they are written.
pub(crate) fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0;
    let mut in_string = false;
    let mut escaped = false;
    let mut previous = 0;
    for &byte in compact.trim_ascii_end() {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            previous = byte;
            continue;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            depth -= 1;
        }
        let opened = matches!(previous, b'{' | b'[');
        if (opened && !closes) || (closes && !opened) || previous == b',' {
            break_line(&mut out, depth);
        }
        match byte {
            b'{' | b'[' => depth += 1,
            b'"' => in_string = true,
            _ => {}
        }
        out.push(byte);
        if byte == b':' {
            out.push(b' ');
        }
        previous = byte;
    }
    out
}

fn break_line(out: &mut Vec<u8>, depth: i32) {
    out.push(b'\n');
    for _ in 0..depth {
        out.extend_from_slice(b"  ");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documents_are_indented_as_go_does_it() {
        let compact = br#"{"a":{},"b":[],"c":[1,{"d":"x\"{,:]\\"}],"e":null}"#;
        let expected = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x\\\"{,:]\\\\\"\n    }\n  ],\n  \"e\": null\n}";
        assert_eq!(String::from_utf8(indent(compact)).unwrap(), expected);
        assert_eq!(indent(b"{}\n"), b"{}");
    }

    #[test]
    fn yaml_is_block_style_with_sorted_keys() {
        let json = br#"{"kind":"APIGroup","apiVersion":"v1","versions":[{"version":"v1","groupVersion":"apps/v1"}]}"#;
        let yaml = Yaml::default().write(json).unwrap();
        let expected =
            "apiVersion: v1\nkind: APIGroup\nversions:\n- groupVersion: apps/v1\n  version: v1\n";
        assert_eq!(String::from_utf8(yaml).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn indenting_is_what_the_pretty_printer_does(value in json_value()) {
            let compact = serde_json::to_vec(&value).unwrap();
            prop_assert_eq!(indent(&compact), serde_json::to_vec_pretty(&value).unwrap());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = indent(&bytes);
        }
    }

    fn json_value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i64>().prop_map(serde_json::Value::from),
            ".*".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(".*", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }
}
