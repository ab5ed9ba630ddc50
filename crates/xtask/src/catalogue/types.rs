//! OpenAPI schemas as records, without prose. The form is described in `peerage_catalogue::type_text`, which
//! reads it back. A keyword that has no text form is refused, so that no fact is lost unseen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use peerage_catalogue::records::Records;
use serde_json::{Map, Value};

use super::recording::Recording;

const GVK: &str = "x-kubernetes-group-version-kind";

/// The keywords of a type that have a word.
const TYPE_KEYWORDS: [&str; 8] = [
    "properties",
    "required",
    "type",
    "format",
    "oneOf",
    "x-kubernetes-map-type",
    "x-kubernetes-unions",
    GVK,
];

/// The keywords of a field that have a word.
const FIELD_KEYWORDS: [&str; 13] = [
    "type",
    "format",
    "allOf",
    "$ref",
    "items",
    "additionalProperties",
    "default",
    "enum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-map-type",
];

pub(super) fn write(recording: &Recording, records: &mut Records) -> Result<()> {
    let mut written: BTreeMap<String, String> = BTreeMap::new();
    for (path, document) in &recording.all.openapi {
        let schemas = document
            .pointer("/components/schemas")
            .and_then(Value::as_object);
        for (name, schema) in schemas.into_iter().flatten() {
            let schema = schema.as_object().with_context(|| name.clone())?;
            let text = record(name, schema, path).with_context(|| name.clone())?;
            if let Some(before) = written.insert(name.clone(), text.clone())
                && before != text
            {
                bail!("{name} differs between documents:\n{before}\n{text}");
            }
        }
    }
    for text in written.values() {
        records.insert(text);
    }
    Ok(())
}

fn record(name: &str, schema: &Map<String, Value>, path: &str) -> Result<String> {
    let mut out = format!("type {name}");
    let properties = schema.get("properties").and_then(Value::as_object);
    if properties.is_none() {
        let _ = write!(out, " is={}", scalar_word(schema)?);
    }
    if let Some(kind) = schema.get("x-kubernetes-map-type") {
        let _ = write!(out, " map={}", kind.as_str().context("map type")?);
    }
    if let Some(kinds) = schema.get(GVK).and_then(Value::as_array) {
        let _ = write!(out, " kinds={}", kinds_word(kinds, path));
    }
    if let Some(unions) = schema.get("x-kubernetes-unions") {
        let _ = write!(out, " unions={unions}");
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (field, property) in properties.into_iter().flatten() {
        let must = if required.contains(&field.as_str()) {
            "!"
        } else {
            ""
        };
        let property = property.as_object().context("a property")?;
        let words = property_words(property).with_context(|| field.clone())?;
        let _ = write!(out, "\n  {field}{must} {words}");
    }
    known_keywords(schema, &TYPE_KEYWORDS)?;
    Ok(out)
}

/// The kinds of a type. Since 1.36 the options types list the version of their own document only.
fn kinds_word(kinds: &[Value], path: &str) -> String {
    let word = |k: &Value| {
        let part = |field: &str| k[field].as_str().unwrap_or_default();
        format!("{}/{}/{}", part("group"), part("version"), part("kind"))
    };
    let words: Vec<String> = kinds.iter().map(word).collect();
    let kind = kinds
        .first()
        .map_or("", |k| k["kind"].as_str().unwrap_or_default());
    let own = path.strip_prefix("apis/").and_then(|p| p.split_once('/'));
    let (group, version) = own.unwrap_or(("", "v1"));
    let own = format!("{group}/{version}/{kind}");
    let core = format!("/v1/{kind}");
    if ["DeleteOptions", "WatchEvent"].contains(&kind)
        && (words == [core.clone(), own.clone()] || (own == core && words == [core]))
    {
        return "document".to_owned();
    }
    words.join(",")
}

/// A type without fields.
fn scalar_word(schema: &Map<String, Value>) -> Result<String> {
    let text = |field: &str| schema.get(field).and_then(Value::as_str);
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let types: Vec<_> = choices.iter().filter_map(|c| c["type"].as_str()).collect();
        return match types[..] {
            ["integer", "string"] => Ok("int-or-string".to_owned()),
            ["string", "number"] => Ok("quantity".to_owned()),
            _ => bail!("oneOf {types:?}"),
        };
    }
    Ok(match (text("type"), text("format")) {
        (Some(kind), Some(format)) => format!("{kind}:{format}"),
        (Some(kind), None) => kind.to_owned(),
        (None, _) => "any".to_owned(),
    })
}

fn property_words(property: &Map<String, Value>) -> Result<String> {
    let mut out = type_word(property)?;
    let text = |field: &str| property.get(field).and_then(Value::as_str);
    if let Some(list) = text("x-kubernetes-list-type") {
        let _ = write!(out, " list={list}");
        if let Some(keys) = property
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
        {
            let keys: Vec<_> = keys.iter().filter_map(Value::as_str).collect();
            let _ = write!(out, ":{}", keys.join(","));
        }
    }
    for (field, word) in [
        ("x-kubernetes-patch-strategy", "patch"),
        ("x-kubernetes-patch-merge-key", "key"),
        ("x-kubernetes-map-type", "map"),
    ] {
        if let Some(value) = text(field) {
            let _ = write!(out, " {word}={value}");
        }
    }
    let items = property
        .get("items")
        .or(property.get("additionalProperties"));
    let choices = property.get("enum").or(items.and_then(|i| i.get("enum")));
    if let Some(choices) = choices {
        let _ = write!(out, " enum={choices}");
    }
    if let Some(default) = property.get("default") {
        let _ = write!(out, " default={default}");
    }
    known_keywords(property, &FIELD_KEYWORDS)?;
    Ok(out)
}

/// What a field holds: a scalar, `[elements]`, `{values}` or the name of a type.
fn type_word(schema: &Map<String, Value>) -> Result<String> {
    let reference = schema
        .get("$ref")
        .or_else(|| schema.get("allOf")?.get(0)?.get("$ref"));
    if let Some(reference) = reference.and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return Ok(name.to_owned());
    }
    let inner = |field: &str| schema.get(field).and_then(Value::as_object);
    if let Some(items) = inner("items") {
        return Ok(format!("[{}]", type_word(items)?));
    }
    if let Some(values) = inner("additionalProperties") {
        return Ok(format!("{{{}}}", type_word(values)?));
    }
    scalar_word(schema)
}

/// Refuses what the text form has no word for, so that no fact is lost unseen.
fn known_keywords(schema: &Map<String, Value>, known: &[&str]) -> Result<()> {
    for keyword in schema.keys() {
        if !known.contains(&&**keyword) {
            bail!("the keyword {keyword} has no text form");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn text(schema: Value) -> Result<String> {
        record("a.B", schema.as_object().unwrap(), "apis/apps/v1")
    }

    #[test]
    fn a_schema_becomes_one_line_a_field() {
        let schema = json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "default": "", "enum": ["x", "y"]},
                "ports": {
                    "type": "array",
                    "items": {"allOf": [{"$ref": "#/components/schemas/a.Port"}], "default": {}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "x-kubernetes-patch-strategy": "merge",
                    "x-kubernetes-patch-merge-key": "port",
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "size": {"type": "integer", "format": "int32"},
            },
            "x-kubernetes-map-type": "atomic",
        });
        assert_eq!(
            text(schema).unwrap(),
            "type a.B map=atomic\n  labels {string}\n  name! string enum=[\"x\",\"y\"] default=\"\"\n  \
             ports [a.Port] list=map:port,protocol patch=merge key=port\n  size integer:int32"
        );
    }

    #[test]
    fn scalars_say_what_they_are_and_options_that_they_are_of_their_document() {
        for (schema, wanted) in [
            (
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
                "type a.B is=quantity",
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                "type a.B is=string:date-time",
            ),
            (json!({}), "type a.B is=any"),
        ] {
            assert_eq!(text(schema).unwrap(), wanted);
        }
        let kind = |group: &str| json!({"group": group, "version": "v1", "kind": "DeleteOptions"});
        let options = json!({"type": "object", "properties": {}, GVK: [kind(""), kind("apps")]});
        assert_eq!(text(options).unwrap(), "type a.B kinds=document");
    }

    #[test]
    fn a_keyword_without_a_word_is_refused() {
        let schema =
            json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "a+"}}});
        let error = format!("{:#}", text(schema).unwrap_err());
        assert_eq!(error, "x: the keyword pattern has no text form");
    }
}
