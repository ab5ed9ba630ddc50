//! What `/version` says.
//!
//! Invariant: the fields and their order are those of `k8s.io/apimachinery/pkg/version.Info`, and a version shows
//! the emulation fields if and only if that version of Kubernetes does.

use serde::{Deserialize, Serialize};

/// The document of `/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// Such as `1`.
    pub major: String,
    /// Such as `37`.
    pub minor: String,
    /// The major version whose behaviour is shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub emulation_major: String,
    /// The minor version whose behaviour is shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub emulation_minor: String,
    /// The oldest major version that what is stored can be read by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub min_compatibility_major: String,
    /// The oldest minor version that what is stored can be read by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub min_compatibility_minor: String,
    /// Such as `v1.37.2+peerage`.
    pub git_version: String,
    /// The commit that the server was built from; empty when that is not known.
    #[serde(default)]
    pub git_commit: String,
    /// `clean` or `dirty`; empty when that is not known.
    #[serde(default)]
    pub git_tree_state: String,
    /// When the server was built; the epoch when that is not told.
    #[serde(default)]
    pub build_date: String,
    /// What it was built with.
    #[serde(default)]
    pub go_version: String,
    /// By which compiler.
    #[serde(default)]
    pub compiler: String,
    /// For which operating system and processor, by Go's names.
    #[serde(default)]
    pub platform: String,
}

impl VersionInfo {
    /// Adds what is true of this server to what was recorded of the version.
    pub(crate) fn complete(mut self) -> VersionInfo {
        self.git_version.push_str("+peerage");
        self.build_date = "1970-01-01T00:00:00Z".to_owned();
        self.go_version = env!("PEERAGE_RUSTC").to_owned();
        self.compiler = "rustc".to_owned();
        self.platform = platform();
        self
    }
}

fn platform() -> String {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    format!("{system}/{processor}")
}
