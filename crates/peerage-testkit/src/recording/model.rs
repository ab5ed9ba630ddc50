//! The files: steps, requests, answers. `data/recordings/README.md` says what each member means.
//!
//! A request's body keeps the order of its members, because what a server complains about first depends on it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A conversation.
#[derive(Debug, Clone, Deserialize)]
pub struct Recording {
    /// The version of the server that was recorded.
    pub recorded: String,
    /// What was asked and answered, in order.
    pub steps: Vec<Step>,
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
}

/// One request and its answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Step {
    /// What is tried, unique within the recording.
    pub name: String,
    /// Who asks.
    #[serde(default = "admin", rename = "as")]
    pub user: String,
    /// What is asked.
    pub request: Request,
    /// The masked answer: `status`, `headers`, and `body` or `frames`.
    pub response: Value,
    /// Variables and the JSON pointers that they are read by.
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// What a better answer than the recorded one holds.
    pub better_response: Option<Better>,
    /// Pointers to what is not compared.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// For how long a watch's frames are read, in seconds.
    pub frames_s: Option<f64>,
    /// How long to wait before the request, in seconds.
    #[serde(default)]
    pub sleep_s: f64,
}

fn admin() -> String {
    "admin".to_owned()
}

/// What is asked.
#[derive(Debug, Clone, Deserialize)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target.
    pub path: String,
    /// Its headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its body.
    #[serde(default)]
    pub body: Option<Document>,
}

/// What a better answer holds.
#[derive(Debug, Clone, Deserialize)]
pub struct Better {
    /// Its status.
    pub status: u16,
    /// Members of its body.
    pub subset: Value,
}

impl Recording {
    /// A recording of this crate, by its name.
    pub fn load(name: &str) -> Self {
        let file = data().join(format!("recordings/{name}.json.gz"));
        let packed = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed.as_slice())
            .read_to_string(&mut text)
            .unwrap();
        let mut recording: Self = serde_json::from_str(&text).unwrap();
        recording.name = name.to_owned();
        recording.number_repeated_names();
        recording
    }

    /// The second step of a name gets ` (2)`, so that reasons can name it.
    fn number_repeated_names(&mut self) {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for step in &mut self.steps {
            let count = seen.entry(step.name.clone()).or_default();
            *count += 1;
            if *count > 1 {
                step.name = format!("{} ({count})", step.name);
            }
        }
    }
}

/// Where this crate's data is.
pub(super) fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// JSON whose members keep their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// `null`, a boolean or a number.
    Plain(Value),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Document>),
    /// An object.
    Map(Vec<(String, Document)>),
}

impl Document {
    /// Written as the recordings' requests were: a space after `,` and `:`, nothing but ASCII.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Plain(value) => out.push_str(&value.to_string()),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                let mut separator = "[";
                for item in items {
                    out.push_str(separator);
                    item.write(out);
                    separator = ", ";
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            Self::Map(members) => {
                let mut separator = "{";
                for (key, value) in members {
                    out.push_str(separator);
                    write_text(key, out);
                    out.push_str(": ");
                    value.write(out);
                    separator = ", ";
                }
                out.push_str(if members.is_empty() { "{}" } else { "}" });
            }
        }
    }

    /// Every string of it, keys too, made anew.
    pub fn map_text(&self, change: &impl Fn(&str) -> String) -> Self {
        match self {
            Self::Plain(value) => Self::Plain(value.clone()),
            Self::Text(text) => Self::Text(change(text)),
            Self::List(items) => Self::List(items.iter().map(|i| i.map_text(change)).collect()),
            Self::Map(members) => {
                let changed = members.iter().map(|(k, v)| (change(k), v.map_text(change)));
                Self::Map(changed.collect())
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    let quoted = Value::from(text).to_string();
    for c in quoted.chars() {
        match c.is_ascii() && c != '\u{7f}' {
            true => out.push(c),
            false => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Document;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Document, E> {
                Ok(Document::Plain(Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
                Ok(Document::Plain(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
                Ok(Document::Plain(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
                Ok(Document::Plain(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
                Ok(Document::Plain(
                    Number::from_f64(value).map_or(Value::Null, Value::Number),
                ))
            }

            fn visit_str<E>(self, value: &str) -> Result<Document, E> {
                Ok(Document::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Document::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Document, A::Error> {
                let mut map = Vec::new();
                while let Some(member) = members.next_entry()? {
                    map.push(member);
                }
                Ok(Document::Map(map))
            }
        }
        deserializer.deserialize_any(Ordered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_written_as_it_was_recorded() {
        for text in [
            r#"{"b": 1, "a": [true, null, -2, 1.5, {}], "c": []}"#,
            r#""quote \" and \u00e9 and \ud83d\ude00""#,
            "[]",
        ] {
            let document: Document = serde_json::from_str(text).unwrap();
            let mut written = String::new();
            document.write(&mut written);
            assert_eq!(written, text);
        }
    }

    #[test]
    fn every_recording_can_be_read() {
        let steps = super::super::NAMES.map(|name| Recording::load(name).steps.len());
        assert_eq!(steps, [98, 548, 342, 222, 207, 161, 390]);
    }

    #[test]
    fn no_two_steps_of_a_recording_have_the_same_name() {
        for name in super::super::NAMES {
            let recording = Recording::load(name);
            let mut names: Vec<_> = recording.steps.iter().map(|s| &s.name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), recording.steps.len(), "{name}");
        }
    }
}
