//! The label selector: its grammar, its texts for what is wrong, matching and printing.
//!
//! Follows Kubernetes' `labels.Parse`: requirements are sorted by key, the values of one are sorted and unique.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::field::FieldError;
use crate::names;

mod parser;

/// What a selector demands of labels: all of its requirements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

/// One demand on one label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Box<[Box<str>]>,
    /// The value of `>` and `<`.
    bound: i64,
}

/// How a requirement compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// The label is one of the values.
    In,
    /// The label is absent or none of the values.
    NotIn,
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// Absent or another value.
    NotEquals,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label is a whole number above the value.
    GreaterThan,
    /// The label is a whole number below the value.
    LessThan,
}

/// Why a label selector cannot be read; the text is Kubernetes'.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LabelSelectorError {
    /// A requirement cannot be read.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// What stands between requirements is wrong.
    #[error("{0}")]
    Syntax(String),
}

/// Anything that has labels.
pub trait Labels {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> LabelSelector {
        LabelSelector::default()
    }

    /// Matches no object.
    pub fn nothing() -> LabelSelector {
        LabelSelector {
            requirements: Vec::new(),
            nothing: true,
        }
    }

    /// Reads the grammar of `?labelSelector=`.
    ///
    /// ```
    /// use peerage_objects::selector::LabelSelector;
    /// let selector = LabelSelector::parse("tier in (web, db), !legacy")?;
    /// assert_eq!(selector.to_string(), "!legacy,tier in (db,web)");
    /// # Ok::<(), peerage_objects::selector::LabelSelectorError>(())
    /// ```
    pub fn parse(text: &str) -> Result<LabelSelector, LabelSelectorError> {
        parser::parse(text).map(LabelSelector::of)
    }

    /// The selector that demands all of these.
    pub fn of(mut requirements: Vec<Requirement>) -> LabelSelector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector {
            requirements,
            nothing: false,
        }
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Its requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether an object with these labels matches.
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Whether an object matches, by its `metadata.labels`.
    pub fn matches_object(&self, object: &Value) -> bool {
        if self.nothing {
            return false;
        }
        match object.get("metadata").and_then(|m| m.get("labels")) {
            Some(Value::Object(labels)) => self.matches(labels),
            _ => self.matches(&NoLabels),
        }
    }
}

struct NoLabels;

impl Labels for NoLabels {
    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

impl Requirement {
    /// A requirement, if key and values fit the operator. The errors' paths start at `key` and `values`.
    pub fn new(
        key: &str,
        operator: Operator,
        mut values: Vec<String>,
    ) -> Result<Requirement, Vec<FieldError>> {
        values.sort();
        values.dedup();
        let mut errors = Vec::new();
        check_key(key, "key", &mut errors);
        check_count(operator, &values, &mut errors);
        let mut bound = 0;
        for (at, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
                match parse_int(value) {
                    Some(number) => bound = number,
                    None => errors.push(FieldError::invalid(
                        format!("values[{at}]"),
                        value.as_str(),
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    )),
                }
            }
            let broken = names::label_value(value);
            if !broken.is_empty() {
                let path = format!("values[{at}][{key}]");
                errors.push(FieldError::invalid(
                    path,
                    value.as_str(),
                    &broken.join("; "),
                ));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Requirement {
            key: key.into(),
            operator,
            values: values.into_iter().map(String::into_boxed_str).collect(),
            bound,
        })
    }

    /// The label that it is about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it compares.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it compares with, sorted.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|value| &**value)
    }

    fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        let label = labels.label(&self.key);
        let listed = |value: &str| self.values.iter().any(|v| **v == *value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => label.and_then(parse_int).is_some_and(|n| n > self.bound),
            Operator::LessThan => label.and_then(parse_int).is_some_and(|n| n < self.bound),
        }
    }
}

fn check_key(key: &str, path: &str, errors: &mut Vec<FieldError>) {
    let broken = names::qualified_name(key);
    if !broken.is_empty() {
        errors.push(FieldError::invalid(path, key, &broken.join("; ")));
    }
}

fn check_count(operator: Operator, values: &[String], errors: &mut Vec<FieldError>) {
    let detail = match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            "for 'in', 'notin' operators, values set can't be empty"
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
            "exact-match compatibility requires one single value"
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
            "for 'Gt', 'Lt' operators, exactly one value is required"
        }
        _ => return,
    };
    errors.push(FieldError::invalid("values", values, detail));
}

/// A number as Go's `strconv.ParseInt` takes it: an optional sign and digits.
fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.join(",");
        let key = &self.key;
        match self.operator {
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
        }
    }
}

#[cfg(test)]
mod tests;
