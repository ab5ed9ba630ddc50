//! `--runtime-config`: which of a version's APIs are on.
//!
//! The words are kube-apiserver's: `api/all`, `api/ga`, `api/beta`, `api/alpha`, `GROUP/VERSION` and
//! `GROUP/VERSION/RESOURCE`, each with `=true` (or nothing) or `=false`. The narrower word wins, whatever the order.
//! Whether a group exists is for [`crate::Catalogue::load`] to say.

use std::collections::BTreeMap;

/// Why a `--runtime-config` cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// The value of a word is neither true nor false.
    #[error("runtime-config: the value of `{key}` is `{value}`; it can be true or false")]
    NotBoolean {
        /// The word.
        key: String,
        /// Its value.
        value: String,
    },
    /// The word names nothing.
    #[error(
        "runtime-config: `{0}` is not one of api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or GROUP/VERSION/RESOURCE"
    )]
    UnknownWord(String),
}

/// Which APIs are on; [`RuntimeConfig::default`] is the version's default set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    all: Option<bool>,
    levels: BTreeMap<Level, bool>,
    versions: BTreeMap<(String, String), bool>,
    resources: BTreeMap<(String, String, String), bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ga,
    Beta,
    Alpha,
}

impl Level {
    fn of(version: &str) -> Level {
        if version.contains("alpha") {
            Level::Alpha
        } else if version.contains("beta") {
            Level::Beta
        } else {
            Level::Ga
        }
    }
}

impl RuntimeConfig {
    /// Reads the value of `--runtime-config`.
    pub fn parse(text: &str) -> Result<RuntimeConfig, RuntimeConfigError> {
        let mut config = RuntimeConfig::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let on = boolean(value).ok_or_else(|| RuntimeConfigError::NotBoolean {
                key: key.to_owned(),
                value: value.to_owned(),
            })?;
            config.set(key, on)?;
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, on: bool) -> Result<(), RuntimeConfigError> {
        let parts: Vec<&str> = key.split('/').collect();
        match parts[..] {
            ["api", "all"] => self.all = Some(on),
            ["api", "ga"] => drop(self.levels.insert(Level::Ga, on)),
            ["api", "beta"] => drop(self.levels.insert(Level::Beta, on)),
            ["api", "alpha"] => drop(self.levels.insert(Level::Alpha, on)),
            ["v1"] => drop(self.versions.insert((String::new(), "v1".into()), on)),
            ["v1", resource] => {
                let key = (String::new(), "v1".into(), resource.into());
                self.resources.insert(key, on);
            }
            [group, version] if !version.is_empty() => {
                self.versions.insert((group.into(), version.into()), on);
            }
            [group, version, resource] if !resource.is_empty() => {
                let key = (group.into(), version.into(), resource.into());
                self.resources.insert(key, on);
            }
            _ => return Err(RuntimeConfigError::UnknownWord(key.to_owned())),
        }
        Ok(())
    }

    /// Whether a resource is on that is on or off by default.
    pub fn enables(&self, group: &str, version: &str, resource: &str, default: bool) -> bool {
        let key = (group.to_owned(), version.to_owned(), resource.to_owned());
        if let Some(on) = self.resources.get(&key) {
            return *on;
        }
        let (group, version, _) = key;
        let level = Level::of(&version);
        self.versions
            .get(&(group, version))
            .or(self.levels.get(&level))
            .or(self.all.as_ref())
            .copied()
            .unwrap_or(default)
    }

    /// The groups that are named.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let versions = self.versions.keys().map(|(group, _)| &**group);
        versions.chain(self.resources.keys().map(|(group, ..)| &**group))
    }
}

/// What Go's `strconv.ParseBool` takes, and nothing at all for true.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_narrower_word_wins_whatever_the_order() {
        for (text, on) in [
            ("", [true, false, false]),
            ("api/all=true", [true, true, true]),
            ("api/all", [true, true, true]),
            ("api/beta=true,api/all=false", [false, true, true]),
            ("g/v1beta1=false,api/beta", [true, false, false]),
            ("g/v1beta1/b=1,g/v1beta1=0", [true, false, true]),
            ("api/ga=false", [false, false, false]),
        ] {
            let config = RuntimeConfig::parse(text).unwrap();
            let got = [
                config.enables("g", "v1", "a", true),
                config.enables("g", "v1beta1", "a", false),
                config.enables("g", "v1beta1", "b", false),
            ];
            assert_eq!(got, on, "{text}");
        }
    }

    #[test]
    fn the_core_group_is_named_by_its_version() {
        let config = RuntimeConfig::parse("v1=false,v1/pods=true").unwrap();
        assert!(!config.enables("", "v1", "nodes", true));
        assert!(config.enables("", "v1", "pods", true));
    }

    #[test]
    fn faults_say_what_can_be_written() {
        let error = RuntimeConfig::parse("api/all=perhaps").unwrap_err();
        assert_eq!(
            error.to_string(),
            "runtime-config: the value of `api/all` is `perhaps`; it can be true or false"
        );
        assert!(RuntimeConfig::parse("apps").is_err());
        assert!(RuntimeConfig::parse("apps/").is_err());
    }
}
