//! API versions: their order and the `group/version` notation.
//!
//! The order is Kubernetes' "kube-aware" one: `v<n>`, then `v<n>beta<m>`, then `v<n>alpha<m>`, each from the
//! highest number down, then everything else by name. Which versions exist is the catalogue's.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use serde::{Deserialize, Serialize};

/// Orders versions as a group lists them: the one that comes first, the highest, is `Less`.
///
/// Differs: Kubernetes calls versions that differ only by leading zeros (`v1`, `v01`) equal; here they are
/// ordered by name, so that every server puts them in the same order.
#[must_use]
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a_rank), Some(b_rank)) => b_rank.cmp(&a_rank).then_with(|| a.cmp(b)),
        (a_rank, b_rank) => Reverse(a_rank).cmp(&Reverse(b_rank)).then_with(|| a.cmp(b)),
    }
}

/// How stable a version says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    Alpha,
    Beta,
    Stable,
}

/// Stability, major and minor number of a version that follows Kubernetes' pattern.
fn rank(version: &str) -> Option<(Stability, u64, u64)> {
    let (major, rest) = number(version.strip_prefix('v')?)?;
    let (stability, minor) = if rest.is_empty() {
        return Some((Stability::Stable, major, 0));
    } else if let Some(minor) = rest.strip_prefix("alpha") {
        (Stability::Alpha, minor)
    } else {
        (Stability::Beta, rest.strip_prefix("beta")?)
    };
    let (minor, rest) = number(minor)?;
    rest.is_empty().then_some((stability, major, minor))
}

/// The leading decimal number and what follows it. A number too large for 63 bits is none.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let value: i64 = text[..end].parse().ok()?;
    Some((value.unsigned_abs(), &text[end..]))
}

/// An API group and one of its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
}

/// An `apiVersion` with more than one slash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct GroupVersionError(pub String);

impl GroupVersion {
    /// A group and a version.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        GroupVersion {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Reads an `apiVersion`: `apps/v1`, or `v1` for the core group. Empty and `/` give the empty pair.
    ///
    /// # Errors
    /// More than one slash.
    pub fn parse(text: &str) -> Result<Self, GroupVersionError> {
        match text.split_once('/') {
            None => Ok(GroupVersion::new("", text)),
            Some((_, version)) if version.contains('/') => Err(GroupVersionError(text.to_owned())),
            Some((group, version)) => Ok(GroupVersion::new(group, version)),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

impl Serialize for GroupVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GroupVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        GroupVersion::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_are_listed_from_the_most_stable_and_highest_down() {
        let listed = [
            "v10",
            "v2",
            "v1",
            "v0",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "",
            "V1",
            "foo1",
            "foo10",
            "v",
            "v1alpha",
            "v1beta1x",
            "v1gamma1",
            "v99999999999999999999",
        ];
        let mut sorted = listed.to_vec();
        sorted.reverse();
        sorted.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(sorted, listed);
    }

    #[test]
    fn group_versions_parse_and_print() {
        for (text, group, version) in [
            ("v1", "", "v1"),
            ("apps/v1", "apps", "v1"),
            ("", "", ""),
            ("/", "", ""),
            ("apps/", "apps", ""),
        ] {
            assert_eq!(
                GroupVersion::parse(text),
                Ok(GroupVersion::new(group, version)),
                "{text}"
            );
        }
        assert!(GroupVersion::parse("a/b/c").is_err());
        assert_eq!(GroupVersion::new("apps", "v1").to_string(), "apps/v1");
        assert_eq!(GroupVersion::new("", "v1").to_string(), "v1");
        assert_eq!(
            serde_json::from_str::<GroupVersion>(r#""apps/v1""#).unwrap(),
            GroupVersion::new("apps", "v1")
        );
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in "v?[0-9]{0,3}(alpha|beta)?[0-9]{0,3}", b in "v?[0-9]{0,3}(alpha|beta)?[0-9]{0,3}",
                              c in "v?[0-9]{0,3}(alpha|beta)?[0-9]{0,3}") {
            prop_assert_eq!(compare_versions(&a, &b), compare_versions(&b, &a).reverse());
            prop_assert_eq!(compare_versions(&a, &b) == Ordering::Equal, a == b);
            if compare_versions(&a, &b).is_le() && compare_versions(&b, &c).is_le() {
                prop_assert!(compare_versions(&a, &c).is_le());
            }
        }
    }
}
