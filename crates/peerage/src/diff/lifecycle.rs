//! When Kubernetes' own APIs were or will be deprecated and removed.
//!
//! The table is made of facts that Kubernetes 1.37.2 keeps beside its types (`APILifecycleIntroduced`, `-Deprecated`,
//! `-Removed` and `-Replacement` in `k8s.io/api`, `k8s.io/apiextensions-apiserver` and `k8s.io/kube-aggregator`, by which
//! kube-apiserver decides what to serve and which warnings to send). What it says of kinds without such facts, it
//! says with a `Warning` header; those the catalogue knows.
//!
//! Releases are compared as numbers; a text that is none compares as unknown.

use serde::Serialize;

const TABLE: &str = include_str!("lifecycle.txt");

/// A release, such as 1.37.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl Release {
    /// Reads `1.37`, `v1.37.2` or `1.37+`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_start_matches('v').split('.');
        let number = |part: Option<&str>| {
            let part = part?;
            let end = part
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(part.len());
            part[..end].parse().ok()
        };
        Some(Self(number(parts.next())?, number(parts.next())?))
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Serialize for Release {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What is known of one kind of a group-version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// The release in which it is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Release>,
    /// The release that no longer serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<Release>,
    /// What to use instead: version and kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// What the server itself tells whoever uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl Lifecycle {
    /// The same with what the server warns of; warnings name the release (`… is deprecated in v1.33+`).
    #[must_use]
    pub fn with_warning(mut self, warning: String) -> Self {
        if self.deprecated.is_none() {
            let named = warning.split_once(" deprecated in v");
            self.deprecated = named.and_then(|(_, rest)| Release::parse(rest));
        }
        self.warning = Some(warning);
        self
    }

    /// Whether it is deprecated in a release; an unknown one counts as the newest.
    pub fn is_deprecated_in(&self, release: Option<Release>) -> bool {
        match (self.deprecated, release) {
            (Some(since), Some(release)) => since <= release,
            (Some(_), None) => true,
            (None, _) => self.warning.is_some(),
        }
    }

    /// In words: `deprecated since 1.33, gone in 1.36; use resource.k8s.io/v1 DeviceClass`.
    pub fn in_words(&self) -> String {
        if let Some(warning) = &self.warning {
            return warning.clone();
        }
        let mut words = Vec::new();
        if let Some(release) = self.deprecated {
            words.push(format!("deprecated since {release}"));
        }
        if let Some(release) = self.removed {
            words.push(format!("gone in {release}"));
        }
        let mut text = words.join(", ");
        if let Some(replacement) = &self.replacement {
            text.push_str(&format!("; use {replacement}"));
        }
        text
    }
}

/// What is known of a kind.
pub fn lifecycle(api_version: &str, kind: &str) -> Option<Lifecycle> {
    let line = rows().find(|row| row.0 == api_version && row.1 == kind);
    line.map(|row| row.2)
}

/// The rows of the table: group-version, kind, facts.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, Lifecycle)> {
    let lines = TABLE
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.filter_map(|line| {
        let mut words = line.splitn(5, ' ');
        let (api_version, kind) = (words.next()?, words.next()?);
        let mut release = || Release::parse(words.next()?);
        let (deprecated, removed) = (release(), release());
        let facts = Lifecycle {
            deprecated,
            removed,
            replacement: words.next().map(str::to_owned),
            warning: None,
        };
        Some((api_version, kind, facts))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_row() {
        let lines = TABLE
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(rows().count(), lines.count());
        for (api_version, kind, facts) in rows() {
            let (deprecated, removed) = (facts.deprecated.unwrap(), facts.removed.unwrap());
            assert!(deprecated < removed, "{api_version} {kind}");
        }
    }

    #[test]
    fn releases_are_read_from_what_servers_and_people_write() {
        for (text, expected) in [
            ("1.37", Some(Release(1, 37))),
            ("v1.9.12", Some(Release(1, 9))),
            ("1.27+", Some(Release(1, 27))),
            ("v1.34.4-eks-1", Some(Release(1, 34))),
            ("1", None),
            ("", None),
            ("v1.x", None),
        ] {
            assert_eq!(Release::parse(text), expected, "{text}");
        }
        assert!(Release(1, 9) < Release(1, 33));
    }

    #[test]
    fn an_api_is_deprecated_from_its_release_on() {
        let facts = lifecycle("resource.k8s.io/v1beta1", "DeviceClass").unwrap();
        assert!(!facts.is_deprecated_in(Some(Release(1, 34))));
        assert!(facts.is_deprecated_in(Some(Release(1, 35))));
        assert!(facts.is_deprecated_in(None));
        assert_eq!(facts.in_words(), "deprecated since 1.35, gone in 1.38");
        assert_eq!(lifecycle("resource.k8s.io/v1", "DeviceClass"), None);

        let warned =
            Lifecycle::default().with_warning("v1 X is deprecated in v1.33+; use Y".into());
        assert!(!warned.is_deprecated_in(Some(Release(1, 32))));
        assert!(warned.is_deprecated_in(Some(Release(1, 33))));
        assert!(
            Lifecycle::default()
                .with_warning("no".into())
                .is_deprecated_in(Some(Release(1, 1)))
        );
    }
}
