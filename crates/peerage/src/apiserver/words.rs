//! From the words typed after `peerage apiserver` or `peerage gateway` to words that clap reads.
//!
//! kube-apiserver's command line is Go's (pflag): names may have `_` for `-`, a boolean takes its value only after `=`,
//! the last of a repeated flag counts. On top come a YAML file with the same names, and the flags that kube-apiserver
//! has and Peerage does not need: those are taken out here, each noted once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;

use super::unneeded::{self, Unneeded};
use crate::print_config::{FromFile, InFile};
use crate::settings_error::SettingsError;
use crate::yaml::{self, Place};

/// What the words came to.
#[derive(Debug, Default)]
pub struct Words {
    /// Words for clap.
    pub args: Vec<OsString>,
    /// Flags that are accepted and do nothing, in order, each once.
    pub unneeded: Vec<&'static Unneeded>,
    /// Which of them are from a file.
    pub file: FromFile,
}

/// Spellings that articles use, and what they stand for. Neither ever was a flag of kube-apiserver.
const ALIASES: [(&str, &str); 2] = [
    ("peer-cert-file", "proxy-client-cert-file"),
    ("peer-key-file", "proxy-client-key-file"),
];

/// Names the file that holds more flags.
const CONFIG: &str = "config";

/// Which of kube-apiserver's flags are accepted although they do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Those of the table.
    AsKubeApiserver,
    /// None: a flag that is not there is a mistake.
    None,
}

/// Reads the words typed; `takes_value` says of each flag known to clap whether the next word is its value.
pub fn read(
    typed: Vec<OsString>,
    unknown: Unknown,
    takes_value: impl Fn(&str) -> Option<bool>,
) -> Result<Words, SettingsError> {
    let flags = Flags {
        lenient: unknown == Unknown::AsKubeApiserver,
        takes_value,
    };
    let typed: Vec<_> = typed.into_iter().map(canonical).collect();
    let mut words = Words::default();
    words.take_file(&flags, &typed)?;
    words.take_typed(&flags, typed)?;
    Ok(words)
}

/// What is known of flags.
struct Flags<F> {
    /// Whether those of kube-apiserver that are not needed are accepted.
    lenient: bool,
    /// Of each flag known to clap, whether the next word is its value.
    takes_value: F,
}

impl<F: Fn(&str) -> Option<bool>> Flags<F> {
    fn unneeded(&self, name: &str) -> Option<&'static Unneeded> {
        unneeded::find(name).filter(|_| self.lenient)
    }

    fn is_known(&self, name: &str) -> bool {
        self.unneeded(name).is_some() || (self.takes_value)(name).is_some()
    }

    fn wants_next(&self, name: &str) -> bool {
        match self.unneeded(name) {
            Some(flag) => flag.takes_value,
            None => (self.takes_value)(name).unwrap_or(false),
        }
    }

    /// Refuses a flag that cannot be left out silently.
    fn accept(&self, name: &str) -> Result<(), SettingsError> {
        match unneeded::refusal(name).filter(|_| self.lenient) {
            None => Ok(()),
            Some(instead) => Err(SettingsError::Refused {
                name: name.to_owned(),
                instead,
            }),
        }
    }
}

impl Words {
    /// Takes what the file that was named has and the command line has not.
    fn take_file(
        &mut self,
        flags: &Flags<impl Fn(&str) -> Option<bool>>,
        typed: &[OsString],
    ) -> Result<(), SettingsError> {
        let Some(path) = config_file(typed) else {
            return Ok(());
        };
        let on_command_line: BTreeSet<&str> = typed.iter().filter_map(flag_name).collect();
        for Key {
            name,
            place,
            values,
            items,
        } in read_config_file(&path)?
        {
            let wrong = |problem: String| SettingsError::ConfigKey {
                path: path.clone(),
                place,
                key: name.clone(),
                problem,
            };
            flags.accept(&name).map_err(|e| wrong(e.to_string()))?;
            if !flags.is_known(&name) {
                let path = path.clone();
                return Err(SettingsError::UnknownKey {
                    path,
                    place,
                    key: name,
                });
            }
            if on_command_line.contains(name.as_str()) {
                continue;
            }
            let items = std::iter::zip(values.clone(), items).collect();
            for value in values {
                let word = format!("--{name}={value}").into();
                self.push_flag(flags.unneeded(&name), vec![word]);
            }
            self.file.flags.insert(name, InFile { key: place, items });
        }
        self.file.path = Some(path);
        Ok(())
    }

    fn take_typed(
        &mut self,
        flags: &Flags<impl Fn(&str) -> Option<bool>>,
        typed: Vec<OsString>,
    ) -> Result<(), SettingsError> {
        let mut typed = typed.into_iter();
        while let Some(word) = typed.next() {
            let Some(name) = flag_name(&word).map(str::to_owned) else {
                self.args.push(word);
                continue;
            };
            flags.accept(&name)?;
            let mut group = vec![word];
            if flags.wants_next(&name) && !has_value(&group[0]) {
                group.extend(typed.next());
            }
            self.push_flag(flags.unneeded(&name), group);
        }
        Ok(())
    }

    fn push_flag(&mut self, unneeded: Option<&'static Unneeded>, words: Vec<OsString>) {
        match unneeded {
            None => self.args.extend(words),
            Some(flag) if self.unneeded.iter().all(|noted| noted.name != flag.name) => {
                self.unneeded.push(flag)
            }
            Some(_) => {}
        }
    }
}

/// The word with `-` for `_` in its flag name, and an alias replaced.
fn canonical(word: OsString) -> OsString {
    let Some(text) = word.to_str().and_then(|text| text.strip_prefix("--")) else {
        return word;
    };
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let name = name.replace('_', "-");
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name.as_str(), |(_, stands_for)| stands_for);
    match value {
        Some(value) => format!("--{name}={value}").into(),
        None => format!("--{name}").into(),
    }
}

fn flag_name(word: &OsString) -> Option<&str> {
    let text = word.to_str()?.strip_prefix("--")?;
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    (!name.is_empty()).then_some(name)
}

fn has_value(word: &OsString) -> bool {
    word.to_str().is_none_or(|word| word.contains('='))
}

fn config_file(typed: &[OsString]) -> Option<PathBuf> {
    let at = typed
        .iter()
        .rposition(|word| flag_name(word) == Some(CONFIG))?;
    match typed[at].to_str()?.split_once('=') {
        Some((_, path)) => Some(path.into()),
        None => typed.get(at + 1).map(PathBuf::from),
    }
}

/// A key of the file.
struct Key {
    /// The flag's name.
    name: String,
    place: Place,
    values: Vec<String>,
    /// Where the values are, if they are a list's.
    items: Vec<Place>,
}

/// Flags of a YAML file, in order of name. A list is the flag repeated, a map is `key=value` repeated.
fn read_config_file(path: &PathBuf) -> Result<Vec<Key>, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::ReadFile {
        flag: "--config",
        path: path.clone(),
        source,
    })?;
    // A file that is empty, or all comments, gives nothing.
    let document: Option<yaml::Entries> =
        yaml::read_open(&text).map_err(|problem| SettingsError::ConfigFile {
            path: path.clone(),
            problem,
        })?;
    let mut keys = Vec::new();
    for yaml::Entry {
        key,
        place,
        value,
        items,
    } in document.unwrap_or_default().0
    {
        let word = canonical(format!("--{}", key.trim_start_matches("--")).into());
        let name = flag_name(&word).unwrap_or(&key).to_owned();
        if name == CONFIG {
            return Err(SettingsError::ConfigKey {
                path: path.clone(),
                place,
                key,
                problem: "a file cannot name another one".to_owned(),
            });
        }
        let values = values_of(&value).ok_or_else(|| SettingsError::ConfigKey {
            path: path.clone(),
            place: bad_item(&value, &items).unwrap_or(place),
            key: key.clone(),
            problem: "write a text, a number, true or false, a list or a map of these".to_owned(),
        })?;
        keys.push(Key {
            name,
            place,
            values,
            items,
        });
    }
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(keys)
}

fn values_of(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(items) => items.iter().map(scalar).collect(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| Some(format!("{key}={}", scalar(value)?)))
            .collect(),
        other => Some(vec![scalar(other)?]),
    }
}

/// Where in a list the first item is that is no value of a flag.
fn bad_item(value: &Value, items: &[Place]) -> Option<Place> {
    let at = value
        .as_array()?
        .iter()
        .position(|item| scalar(item).is_none())?;
    items.get(at).copied()
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn takes_value(name: &str) -> Option<bool> {
        match name {
            "secure-port"
            | "feature-gates"
            | "config"
            | "proxy-client-cert-file"
            | "etcd-servers" => Some(true),
            "anonymous-auth" => Some(false),
            _ => None,
        }
    }

    fn words(typed: &[&str]) -> (Vec<String>, Vec<&'static str>) {
        let typed = typed.iter().map(OsString::from).collect();
        let words = read(typed, Unknown::AsKubeApiserver, takes_value).unwrap();
        (
            words
                .args
                .iter()
                .map(|w| w.to_str().unwrap().to_owned())
                .collect(),
            words.unneeded.iter().map(|flag| flag.name).collect(),
        )
    }

    #[test]
    fn unneeded_flags_go_with_their_values_and_are_noted_once() {
        let (args, unneeded) = words(&[
            "--allow-privileged=true",
            "--secure-port",
            "6443",
            "--enable-admission-plugins",
            "NodeRestriction",
            "--allow-privileged",
            "--anonymous-auth=false",
            "--enable-admission-plugins=X",
        ]);
        assert_eq!(args, ["--secure-port", "6443", "--anonymous-auth=false"]);
        assert_eq!(unneeded, ["allow-privileged", "enable-admission-plugins"]);
    }

    #[test]
    fn a_value_that_looks_like_an_unneeded_flag_stays_a_value() {
        let (args, unneeded) = words(&["--etcd-servers", "--allow-privileged"]);
        assert_eq!(args, ["--etcd-servers", "--allow-privileged"]);
        assert!(unneeded.is_empty());
    }

    #[test]
    fn underscores_and_articles_names_are_understood() {
        let (args, _) = words(&[
            "--secure_port=1",
            "--peer-cert-file",
            "x_y",
            "--peer_cert_file=z",
        ]);
        assert_eq!(
            args,
            [
                "--secure-port=1",
                "--proxy-client-cert-file",
                "x_y",
                "--proxy-client-cert-file=z"
            ]
        );
    }

    #[test]
    fn a_file_holds_the_same_names_and_the_command_line_wins() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("c.yaml");
        std::fs::write(
            &path,
            "secure-port: 1\nanonymous_auth: false\nfeature-gates: {A: true, B: false}\netcd-servers: [a, b]\n\
             allow-privileged: true\n",
        )
        .unwrap();
        let (args, unneeded) = words(&["--secure-port=2", "--config", path.to_str().unwrap()]);
        assert_eq!(
            args[..6],
            [
                "--anonymous-auth=false",
                "--etcd-servers=a",
                "--etcd-servers=b",
                "--feature-gates=A=true",
                "--feature-gates=B=false",
                "--secure-port=2",
            ]
        );
        assert_eq!(unneeded, ["allow-privileged"]);
    }

    #[test]
    fn a_file_with_an_unknown_name_or_shape_is_refused_with_the_place() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("c.yaml");
        for (text, expected) in [
            (
                "secure-port: 1\nsecure-prot: 1",
                ", line 2, column 1, key secure-prot: no flag has that name",
            ),
            ("[1]", ": expected a map (name: value) at line 1"),
            (
                "secure-port: 1\nsecure-port: 2",
                ": the key \"secure-port\" is given for the second time; leave one of them out at line 2, column 1",
            ),
            ("- a: 1", "line 1, column 1"),
            ("a: 1\n b: [", "line 2, column"),
            (
                "\nsecure-port: {a: [1]}",
                ", line 2, column 1, key secure-port: write a text",
            ),
            (
                "etcd-servers:\n- a\n- [b]",
                ", line 3, column 3, key etcd-servers: write a text",
            ),
            (
                "config: x",
                ", line 1, column 1, key config: a file cannot name another",
            ),
            (
                "secure-port: 1\nauthorization-config: x",
                ", line 2, column 1, key authorization-config: --authorization-config is not there",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let typed = vec![format!("--config={}", path.display()).into()];
            let message = read(typed, Unknown::AsKubeApiserver, takes_value)
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(
                message.starts_with(&path.display().to_string()),
                "{message}"
            );
        }
    }
}
