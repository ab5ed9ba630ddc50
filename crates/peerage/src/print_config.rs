//! `--print-config`: every setting of a command that is in force, and where it came from.
//!
//! Read off what clap knows of the command and of this command line, so a new flag is in it without being listed
//! anywhere. What a value means is not known here; what a command derives when a flag is not given, it says itself.
//!
//! Invariant: no secret is printed. Flags name files with secrets and hold none; what looks like one all the same (a
//! password in a URL, a flag called so) is left out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

use crate::exit::Failure;
use crate::yaml::Place;

/// Instead of a secret.
const HIDDEN: &str = "(hidden)";
/// Flags that are about this command line and not about what runs.
const NOT_SETTINGS: [&str; 4] = ["help", "version", "config", "print-config"];

/// Where the values that were not typed come from.
#[derive(Debug, Clone, Default)]
pub struct FromFile {
    /// The file.
    pub path: Option<PathBuf>,
    /// The flags that it gave and that the command line did not, and where in it.
    pub flags: BTreeMap<String, InFile>,
}

/// Where a flag is in a file.
#[derive(Debug, Clone)]
pub struct InFile {
    /// Its key.
    pub key: Place,
    /// The items of its list, if it has one: each with its place.
    pub items: Vec<(String, Place)>,
}

impl InFile {
    /// What a message is about: the one item that it quotes, or the key.
    fn place(&self, message: &str) -> Place {
        let quotes = |value: &str| {
            message.contains(&format!("{value:?}")) || message.contains(&format!("'{value}'"))
        };
        let mut quoted = self.items.iter().filter(|(value, _)| quotes(value));
        match (quoted.next(), quoted.next()) {
            (Some((_, place)), None) => *place,
            _ => self.key,
        }
    }
}

impl FromFile {
    /// Where the flags that a message names are in the file, to be put behind it; empty if none of them is.
    pub fn places(&self, message: &str) -> String {
        let names = |flag: &str| {
            let flag = format!("--{flag}");
            let mut found = message.match_indices(&flag);
            let goes_on = |c: char| c == '-' || c.is_ascii_alphanumeric();
            found.any(|(at, _)| !message[at + flag.len()..].starts_with(goes_on))
        };
        let named = self.flags.iter().filter(|(flag, _)| names(flag));
        let file = self
            .path
            .as_deref()
            .unwrap_or("the file".as_ref())
            .display();
        let places =
            named.map(|(flag, at)| format!(" ({flag} is in {file}, {})", at.place(message)));
        places.collect()
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// The flag.
    #[serde(skip)]
    pub flag: String,
    /// Its value; null for none.
    pub value: Value,
    /// Where that came from.
    pub from: String,
}

/// The settings of a command, in the order of its help.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings(Vec<Setting>);

impl Settings {
    /// Reads them off a command line.
    pub fn read(command: &Command, matches: &ArgMatches, file: &FromFile) -> Self {
        let is_setting = |arg: &&Arg| {
            let name = arg.get_long().unwrap_or_default();
            !name.is_empty() && !arg.is_hide_set() && !NOT_SETTINGS.contains(&name)
        };
        let args = command.get_arguments().filter(is_setting);
        Self(args.map(|arg| setting(arg, matches, file)).collect())
    }

    /// Fills in what the command itself makes of flags that were not given: flag, value, why.
    #[must_use]
    pub fn with_derived(mut self, derived: &[(&str, &str, &str)]) -> Self {
        for (flag, value, why) in derived {
            let unset = self
                .0
                .iter_mut()
                .find(|it| it.flag == *flag && it.value.is_null());
            if let Some(setting) = unset {
                setting.value = scalar(value);
                setting.from = (*why).to_owned();
            }
        }
        self
    }

    /// Writes values out that were given, as they are in force: flag, values. Where they came from stays.
    #[must_use]
    pub fn with_values(mut self, values: &[(&str, Vec<String>)]) -> Self {
        for (flag, values) in values {
            let setting = self.0.iter_mut().find(|it| it.flag == *flag);
            if let Some(setting) = setting.filter(|it| !it.value.is_null()) {
                setting.value = match (&setting.value, values.as_slice()) {
                    (Value::Array(_), values) => values.into(),
                    (_, [value]) => value.as_str().into(),
                    (_, _) => continue,
                };
            }
        }
        self
    }

    /// As YAML, for standard output.
    pub fn yaml(&self) -> Result<String, Failure> {
        serde_saphyr::to_string(self)
            .map_err(|error| Failure::failed(format!("cannot write the settings: {error}")))
    }

    /// By flag.
    pub fn by_flag(&self) -> BTreeMap<&str, &Setting> {
        self.0.iter().map(|it| (it.flag.as_str(), it)).collect()
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for setting in &self.0 {
            map.serialize_entry(&setting.flag, setting)?;
        }
        map.end()
    }
}

fn setting(arg: &Arg, matches: &ArgMatches, file: &FromFile) -> Setting {
    let id = arg.get_id().as_str();
    let flag = arg.get_long().unwrap_or(id).to_owned();
    let raw = matches.get_raw(id).into_iter().flatten();
    let values: Vec<Value> = raw.map(|text| shown(&flag, text)).collect();
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    let value = match (is_list, values.len()) {
        (_, 0) => Value::Null,
        (false, 1) => values.into_iter().next().unwrap_or_default(),
        _ => Value::Array(values),
    };
    let from = match matches.value_source(id) {
        Some(ValueSource::CommandLine) if file.flags.contains_key(&flag) => {
            let path = file.path.as_deref().unwrap_or("the file".as_ref());
            format!("{}, key {flag}", path.display())
        }
        Some(ValueSource::CommandLine) => "command line".to_owned(),
        Some(ValueSource::EnvVariable) => {
            let name = arg.get_env().unwrap_or_default();
            format!("environment, {}", name.to_string_lossy())
        }
        Some(_) => "default".to_owned(),
        None => "not set".to_owned(),
    };
    Setting { flag, value, from }
}

fn shown(flag: &str, text: &OsStr) -> Value {
    let text = text.to_string_lossy();
    let named_secret = ["password", "token", "secret"]
        .iter()
        .any(|word| flag.contains(word) && !flag.ends_with("-file"));
    if named_secret {
        return HIDDEN.into();
    }
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}").into(),
            None => text.into(),
        },
        None => scalar(&text),
    }
}

/// A switch and a number as such, everything else as text.
fn scalar(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => match text.parse::<u64>() {
            Ok(number) if number.to_string() == text => number.into(),
            _ => text.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn passwords_are_not_shown_and_file_names_are() {
        for (flag, text, expected) in [
            ("etcd-password-file", "/etc/p", "/etc/p"),
            ("etcd-password", "p", HIDDEN),
            ("bearer-token", "p", HIDDEN),
            (
                "etcd-servers",
                "https://me:p@host:1",
                "https://(hidden)@host:1",
            ),
            ("etcd-servers", "https://host:1", "https://host:1"),
            ("zone", "a", "a"),
        ] {
            assert_eq!(shown(flag, text.as_ref()), expected, "{flag} {text}");
        }
    }

    #[test]
    fn numbers_and_switches_are_shown_as_such() {
        for (text, expected) in [
            ("6443", Value::from(6443)),
            ("007", "007".into()),
            ("true", true.into()),
            ("10m", "10m".into()),
        ] {
            assert_eq!(scalar(text), expected);
        }
    }
}
