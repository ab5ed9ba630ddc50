//! Which Kubernetes version a server serves, as its `/version` says.
//!
//! A server that emulates an older version serves that version's API, so the emulated version is the one that counts
//! (KEP-4330). Patch releases do not change the API.

use serde::Deserialize;

/// Major and minor version of the API that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ApiVersion {
    /// The major version.
    pub(crate) major: u32,
    /// The minor version.
    pub(crate) minor: u32,
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// `version.Info` of Kubernetes' apimachinery, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    #[serde(default)]
    major: String,
    #[serde(default)]
    minor: String,
    #[serde(default)]
    emulation_major: String,
    #[serde(default)]
    emulation_minor: String,
}

impl ApiVersion {
    /// Reads the document of `/version`; none if it says no version.
    pub(crate) fn read(document: &[u8]) -> Option<ApiVersion> {
        let info: Info = serde_json::from_slice(document).ok()?;
        Self::of(&info.emulation_major, &info.emulation_minor)
            .or_else(|| Self::of(&info.major, &info.minor))
    }

    /// Providers append a `+` to the minor version.
    pub(crate) fn of(major: &str, minor: &str) -> Option<ApiVersion> {
        Some(ApiVersion {
            major: major.parse().ok()?,
            minor: minor.trim_end_matches('+').parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulated_version_counts_and_odd_documents_say_nothing() {
        let of = |major, minor| Some(ApiVersion { major, minor });
        let rows: &[(&str, Option<ApiVersion>)] = &[
            (
                r#"{"major":"1","minor":"37","gitVersion":"v1.37.2"}"#,
                of(1, 37),
            ),
            (
                r#"{"major":"1","minor":"37","emulationMajor":"1","emulationMinor":"34"}"#,
                of(1, 34),
            ),
            (r#"{"major":"1","minor":"27+"}"#, of(1, 27)),
            (r#"{"major":"1"}"#, None),
            (r#"{"major":"1","minor":"x"}"#, None),
            (r#"{"major":1,"minor":37}"#, None),
            ("[]", None),
            ("", None),
        ];
        for (document, expected) in rows {
            assert_eq!(
                ApiVersion::read(document.as_bytes()),
                *expected,
                "{document}"
            );
        }
    }
}
