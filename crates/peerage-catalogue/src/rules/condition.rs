//! When a rule applies: `when spec.type = "NodePort"`, `when spec.x set`, several joined by `and`.

use serde_json::{Map, Value};

use super::path::FieldPath;

/// When a rule applies. All terms must hold; no terms always do.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Condition {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    path: FieldPath,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Is(Value),
    Not(Value),
    OneOf(Vec<Value>),
    Set,
    Unset,
}

impl Condition {
    /// Reads what follows `when`; none if it is not a condition.
    pub fn read(text: &str) -> Option<Condition> {
        let terms: Option<Vec<Term>> = text.split(" and ").map(|t| term(t.trim())).collect();
        Some(Condition { terms: terms? })
    }

    /// Whether it holds inside of an object.
    pub fn holds(&self, fields: &Map<String, Value>) -> bool {
        self.terms.iter().all(|term| {
            let value = term.path.get_in(fields).filter(|v| !v.is_null());
            match &term.test {
                Test::Is(wanted) => value == Some(wanted),
                Test::Not(other) => value != Some(other),
                Test::OneOf(wanted) => value.is_some_and(|v| wanted.contains(v)),
                Test::Set => value.is_some_and(|v| v != ""),
                Test::Unset => value.is_none_or(|v| v == ""),
            }
        })
    }

    /// The paths that it looks at.
    pub fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        self.terms.iter().map(|t| &t.path)
    }
}

fn term(text: &str) -> Option<Term> {
    let (path, test) = text.split_once(' ')?;
    let json = |text: &str| serde_json::from_str(text).ok();
    let test = match test.split_once(' ') {
        None if test == "set" => Test::Set,
        None if test == "unset" => Test::Unset,
        Some(("=", value)) => Test::Is(json(value)?),
        Some(("!=", value)) => Test::Not(json(value)?),
        Some(("in", values)) => Test::OneOf(serde_json::from_str(values).ok()?),
        _ => return None,
    };
    let path = FieldPath::read(path)?;
    Some(Term { path, test })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_look_at_fields() {
        let object = json!({"a": {"b": "x"}, "n": 0, "e": ""});
        let fields = object.as_object().unwrap();
        for (text, holds) in [
            ("a.b = \"x\"", true),
            ("a.b != \"x\"", false),
            ("a.b in [\"x\",\"y\"]", true),
            ("n set", true),
            ("e set", false),
            ("e unset and a.b set", true),
            ("q.r unset", true),
        ] {
            assert_eq!(
                Condition::read(text).unwrap().holds(fields),
                holds,
                "{text}"
            );
        }
        for text in ["", "a", "a is", "a = x", "a in 1"] {
            assert_eq!(Condition::read(text), None, "{text}");
        }
    }
}
