//! Reads `data/rules.txt`.
//!
//! ```text
//! kind v1/Pod generation=managed delete=object grace=pod
//!   select spec.nodeName spec.hostNetwork?false status.successful=status.succeeded?0
//!   select-error label
//!   on-create status = {"phase":"Pending"}
//!   on-create call NAME
//!   on-update call NAME
//!   status-keeps metadata.labels
//!   finalizer kubernetes.io/pvc-protection
//!   cell Name = metadata.name
//! type io.k8s.api.core.v1.Container
//!   default terminationMessagePath = "/dev/termination-log"
//!   default-if-zero x = 1 when y set
//!   null rules
//!   omit-zero minReadySeconds
//!   call NAME
//!   check name required
//!   check self at-most-one-of a b : may not be set together
//! ```
//!
//! A `*` in the name of a kind or type stands for any version. `since 1.35` at the end of a header limits the
//! record to those versions. A rule's fields may be missing in some versions; it does nothing there.

use serde_json::Value;

use super::check::{Check, CheckKind};
use super::condition::Condition;
use super::path::FieldPath;
use super::{DeleteReturns, FieldSelectorRule, Generation, Grace, Rules, SelectorError};
use crate::records::{RecordError, Records};
use peerage_objects::names::NameRule;

/// What is wrong with the table of rules.
#[derive(Debug, thiserror::Error)]
pub enum RuleTextError {
    /// It is not one of records.
    #[error("rules: {0}")]
    Records(#[from] RecordError),
    /// A line cannot be read.
    #[error("rules: {record}: `{line}` is no rule")]
    Line {
        /// The record.
        record: String,
        /// The line or word.
        line: String,
    },
}

/// The rules of a type, wherever it occurs.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeRules {
    pub(crate) defaults: Vec<DefaultRule>,
    pub(crate) nulls: Vec<FieldPath>,
    /// Fields that Go leaves out when they are 0, although OpenAPI shows 0 as their default.
    pub(crate) omitted: Vec<String>,
    pub(crate) checks: Vec<CheckRule>,
}

/// A default, or the name of a function that sets some.
#[derive(Clone, Debug)]
pub(crate) enum DefaultRule {
    Value {
        path: FieldPath,
        value: Value,
        when: Condition,
        /// Whether 0 and false count as not set.
        zero: bool,
    },
    Call(String),
}

/// A check, or the name of a function that makes some.
#[derive(Clone, Debug)]
pub(crate) enum CheckRule {
    Check(Check),
    Call(String),
}

/// A record of the table: the pattern that it applies to, since when, and what it says.
#[derive(Clone, Debug)]
pub(crate) struct Record<T> {
    pub(crate) pattern: String,
    pub(crate) since: Option<(u32, u32)>,
    pub(crate) rules: T,
}

/// All records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub(crate) kinds: Vec<Record<Rules>>,
    pub(crate) types: Vec<Record<TypeRules>>,
}

impl TypeRules {
    /// Adds the rules of another record about the same type.
    pub(crate) fn add(&mut self, more: &TypeRules) {
        self.defaults.extend_from_slice(&more.defaults);
        self.nulls.extend_from_slice(&more.nulls);
        self.omitted.extend_from_slice(&more.omitted);
        self.checks.extend_from_slice(&more.checks);
    }
}

impl<T> Record<T> {
    /// Whether the record is about that name in that version.
    pub(crate) fn is_about(&self, name: &str, version: (u32, u32)) -> bool {
        self.since.is_none_or(|since| version >= since)
            && match self.pattern.split_once('*') {
                None => self.pattern == name,
                Some((before, after)) => name
                    .strip_prefix(before)
                    .and_then(|rest| rest.strip_suffix(after))
                    .is_some_and(|version| !version.contains(['/', '.'])),
            }
    }
}

/// Reads the table.
pub(crate) fn read(text: &str) -> Result<Text, RuleTextError> {
    let mut records = Records::new();
    records.apply(text)?;
    let mut all = Text::default();
    for (name, text) in records.of_kind("kind") {
        all.kinds.push(record(name, text, kind_header, kind_line)?);
    }
    for (name, text) in records.of_kind("type") {
        all.types.push(record(name, text, |_, _| None, type_line)?);
    }
    Ok(all)
}

fn record<T: Default>(
    name: &str,
    text: &str,
    header: fn(&mut T, &str) -> Option<()>,
    line: fn(&mut T, &str) -> Option<()>,
) -> Result<Record<T>, RuleTextError> {
    let bad = |line: &str| RuleTextError::Line {
        record: name.to_owned(),
        line: line.to_owned(),
    };
    let mut rules = T::default();
    let mut since = None;
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ').skip(2);
    while let Some(word) = words.next() {
        if word == "since" {
            since = Some(words.next().and_then(number).ok_or_else(|| bad(word))?);
        } else {
            header(&mut rules, word).ok_or_else(|| bad(word))?;
        }
    }
    for text in lines.map(str::trim).filter(|l| !l.starts_with('#')) {
        line(&mut rules, text).ok_or_else(|| bad(text))?;
    }
    // The same name may be there twice with different versions: `NAME#2`.
    let pattern = name.split('#').next().unwrap_or(name).to_owned();
    Ok(Record {
        pattern,
        since,
        rules,
    })
}

/// Reads a version such as `1.35`.
pub(crate) fn number(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn kind_header(rules: &mut Rules, word: &str) -> Option<()> {
    match word {
        "names=subdomain" => rules.names = NameRule::Dns1123Subdomain,
        "names=label" => rules.names = NameRule::Dns1123Label,
        "names=label-1035" => rules.names = NameRule::Dns1035Label,
        "names=path" => rules.names = NameRule::PathSegment,
        "names=any" => rules.names = NameRule::Anything,
        "generation=managed" => rules.generation = Generation::Managed,
        "generation=managed+annotations" => rules.generation = Generation::ManagedWithAnnotations,
        "generation=managed+labels" => rules.generation = Generation::ManagedWithLabels,
        "generation=1" => rules.generation = Generation::Starts1,
        "delete=object" => rules.delete_returns = DeleteReturns::Object,
        "create-on-update" => rules.create_on_update = true,
        "conditional-update" => rules.conditional_update = true,
        "keeps-status" => rules.keeps_status_on_create = true,
        "grace=pod" => rules.grace = Grace::Pod,
        word => rules.longest_name = Some(word.strip_prefix("longest=")?.parse().ok()?),
    }
    Some(())
}

fn kind_line(rules: &mut Rules, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "deprecated" => rules.deprecated = Some(rest.into()),
        "select" => {
            for word in rest.split(' ') {
                rules.field_selectors.push(selector(word)?);
            }
        }
        "select-error" => {
            rules.selector_error = match rest {
                "label" => SelectorError::NotSupported,
                "kind" => SelectorError::NotSupportedForKind,
                _ => return None,
            }
        }
        "on-create" => match rest.strip_prefix("call ") {
            Some(name) => rules.create_functions.push(name.into()),
            None => {
                let (path, value) = rest.split_once(" = ")?;
                let value = serde_json::from_str(value).ok()?;
                rules.set_on_create.push((FieldPath::read(path)?, value));
            }
        },
        "on-update" => rules
            .update_functions
            .push(rest.strip_prefix("call ")?.into()),
        "status-keeps" => {
            for word in rest.split(' ') {
                rules.status_write_keeps.push(FieldPath::read(word)?);
            }
        }
        "finalizer" => rules.finalizers.push(rest.into()),
        "cell" => {
            let (column, path) = rest.split_once(" = ")?;
            rules.cells.push((column.into(), FieldPath::read(path)?));
        }
        _ => return None,
    }
    Some(())
}

/// `LABEL`, `LABEL=PATH`, either with `?ABSENT`.
fn selector(word: &str) -> Option<FieldSelectorRule> {
    let (rest, absent) = word.split_once('?').unwrap_or((word, ""));
    let (label, path) = rest.split_once('=').unwrap_or((rest, rest));
    Some(FieldSelectorRule {
        label: label.into(),
        path: FieldPath::read(path)?,
        absent: absent.into(),
    })
}

fn type_line(rules: &mut TypeRules, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "default" | "default-if-zero" => {
            let (rest, when) = when(rest)?;
            let (path, value) = rest.split_once(" = ")?;
            rules.defaults.push(DefaultRule::Value {
                path: FieldPath::read(path)?,
                value: serde_json::from_str(value).ok()?,
                when,
                zero: word == "default-if-zero",
            });
        }
        "call" => rules.defaults.push(DefaultRule::Call(rest.to_owned())),
        "null" => {
            for word in rest.split(' ') {
                rules.nulls.push(FieldPath::read(word)?);
            }
        }
        "omit-zero" => rules.omitted.push(rest.to_owned()),
        "check" => match rest.strip_prefix("call ") {
            Some(name) => rules.checks.push(CheckRule::Call(name.to_owned())),
            None => {
                let (rest, when) = when(rest)?;
                let (path, check) = rest.split_once(' ')?;
                let path = match path {
                    "self" => None,
                    path => Some(FieldPath::read(path)?),
                };
                let kind = CheckKind::read(check)?;
                rules
                    .checks
                    .push(CheckRule::Check(Check { path, kind, when }));
            }
        },
        _ => return None,
    }
    Some(())
}

fn when(text: &str) -> Option<(&str, Condition)> {
    match text.rsplit_once(" when ") {
        None => Some((text, Condition::default())),
        Some((rest, condition)) => Some((rest, Condition::read(condition)?)),
    }
}
