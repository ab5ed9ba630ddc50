//! Paths to fields: `spec.ports[].protocol`, where `[]` is each element of a list or each value of a map.
//!
//! A path says where; what is done there is left to who uses it. Field names that hold dots are quoted:
//! `metadata.labels."app.kubernetes.io/name"`.
//!
//! Invariant: reading never creates anything, and writing creates no object on the way, only the last field.

use serde_json::{Map, Value};

/// A path to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into a field.
    Field(String),
    /// Into each element of a list, or each value of a map.
    Each,
}

impl FieldPath {
    /// Reads a path; none if it is not one. A leading dot may be there.
    pub fn read(text: &str) -> Option<FieldPath> {
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix('.').unwrap_or(text);
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('"') {
                let (name, after) = quoted.split_once('"')?;
                steps.push(Step::Field(name.to_owned()));
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if end == 0 {
                    return None;
                }
                steps.push(Step::Field(rest[..end].to_owned()));
                rest = &rest[end..];
            }
            while let Some(after) = rest.strip_prefix("[]") {
                steps.push(Step::Each);
                rest = after;
            }
            if !rest.is_empty() {
                rest = rest.strip_prefix('.').filter(|r| !r.is_empty())?;
            }
        }
        (!steps.is_empty()).then(|| FieldPath {
            text: text.strip_prefix('.').unwrap_or(text).to_owned(),
            steps,
        })
    }

    /// The path as it was written, without a leading dot.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The value, if the path has no `[]` and everything on the way is there.
    pub fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.steps.iter().try_fold(value, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Each => None,
        })
    }

    /// The value inside of an object; as [`FieldPath::get`].
    pub fn get_in<'v>(&self, fields: &'v Map<String, Value>) -> Option<&'v Value> {
        let (Step::Field(first), rest) = self.steps.split_first()? else {
            return None;
        };
        rest.iter()
            .try_fold(fields.get(first)?, |value, step| match step {
                Step::Field(name) => value.get(name),
                Step::Each => None,
            })
    }

    /// Removes the field, if it is there.
    pub fn remove(&self, value: &mut Value) -> Option<Value> {
        let (last, parents) = self.last()?;
        let mut at = value;
        for name in parents {
            at = at.get_mut(name)?;
        }
        at.as_object_mut()?.remove(last)
    }

    /// Sets the field; objects on the way that are not there are made.
    pub fn put(&self, value: &mut Value, new: Value) {
        let Some((last, parents)) = self.last() else {
            return;
        };
        let mut at = value;
        for name in parents {
            let Some(fields) = at.as_object_mut() else {
                return;
            };
            at = fields
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
        }
        if let Some(fields) = at.as_object_mut() {
            fields.insert(last.to_owned(), new);
        }
    }

    /// Does something with each object that holds the last field of the path.
    pub fn visit(
        &self,
        fields: &mut Map<String, Value>,
        act: &mut dyn FnMut(&mut Map<String, Value>, &str),
    ) {
        visit(fields, &self.steps, act);
    }

    fn last(&self) -> Option<(&str, Vec<&str>)> {
        let mut names = Vec::new();
        for step in &self.steps {
            match step {
                Step::Field(name) => names.push(&**name),
                Step::Each => return None,
            }
        }
        let last = names.pop()?;
        Some((last, names))
    }
}

fn visit(
    fields: &mut Map<String, Value>,
    steps: &[Step],
    act: &mut dyn FnMut(&mut Map<String, Value>, &str),
) {
    let Some((Step::Field(name), rest)) = steps.split_first() else {
        return;
    };
    if rest.is_empty() {
        act(fields, name);
    } else if let Some(value) = fields.get_mut(name) {
        visit_value(value, rest, act);
    }
}

fn visit_value(
    value: &mut Value,
    steps: &[Step],
    act: &mut dyn FnMut(&mut Map<String, Value>, &str),
) {
    match (steps.split_first(), value) {
        (Some((Step::Each, rest)), Value::Array(list)) => {
            list.iter_mut().for_each(|v| visit_value(v, rest, act));
        }
        (Some((Step::Each, rest)), Value::Object(map)) => {
            map.values_mut().for_each(|v| visit_value(v, rest, act));
        }
        (Some((Step::Field(_), _)), Value::Object(fields)) => visit(fields, steps, act),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_reads_its_steps() {
        for (text, steps) in [
            ("a", 1),
            (".a.b", 2),
            ("a[].b", 3),
            ("a[][]", 3),
            ("a.\"b.c/d\".e", 3),
        ] {
            assert_eq!(
                FieldPath::read(text).unwrap().steps().len(),
                steps,
                "{text}"
            );
        }
        for text in ["", ".", "a.", "a..b", "[]", "a[0]"] {
            assert_eq!(FieldPath::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_gets_puts_removes_and_visits() {
        let mut value = json!({"a": {"b": 1}, "l": [{"x": 1}, {}, 3]});
        let path = FieldPath::read("a.b").unwrap();
        assert_eq!(path.get(&value), Some(&json!(1)));
        assert_eq!(path.remove(&mut value), Some(json!(1)));
        FieldPath::read("n.m").unwrap().put(&mut value, json!(2));
        let each = FieldPath::read("l[].x").unwrap();
        let fields = value.as_object_mut().unwrap();
        each.visit(fields, &mut |object, name| {
            object.entry(name).or_insert(json!(9));
        });
        assert_eq!(
            value,
            json!({"a": {}, "l": [{"x": 1}, {"x": 9}, 3], "n": {"m": 2}})
        );
    }
}
