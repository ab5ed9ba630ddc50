//! The legacy discovery documents: `/api`, `/apis`, `/apis/GROUP`, `/apis/GROUP/VERSION` and `/api/v1`.
//!
//! Field order and omissions are those of `k8s.io/apimachinery/pkg/apis/meta/v1`. They are made from aggregated
//! documents and read from servers that have no others ([`super::convert`]).

use serde::{Deserialize, Serialize};

use super::aggregated::{empty_is_null, null_is_default, some_words};

/// The body of `/api`: the versions of the core group. It has no `apiVersion`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiVersions {
    /// `APIVersions`.
    #[serde(default)]
    pub kind: String,
    /// The versions.
    #[serde(default, deserialize_with = "null_is_default")]
    pub versions: Vec<String>,
    /// Where clients of which networks reach this server.
    #[serde(
        default,
        rename = "serverAddressByClientCIDRs",
        deserialize_with = "null_is_default"
    )]
    pub server_address_by_client_cidrs: Vec<ServerAddressByClientCidr>,
}

/// Where clients from one network reach the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerAddressByClientCidr {
    /// The clients' network.
    #[serde(default, rename = "clientCIDR", deserialize_with = "null_is_default")]
    pub client_cidr: String,
    /// Host and port.
    #[serde(default, deserialize_with = "null_is_default")]
    pub server_address: String,
}

impl ApiVersions {
    /// The kind of this document.
    pub const KIND: &'static str = "APIVersions";

    /// The document of a server at `server_address` that gives every client the same address; of one that does not know
    /// its own, without any.
    #[must_use]
    pub fn new(versions: Vec<String>, server_address: &str) -> Self {
        Self {
            kind: Self::KIND.into(),
            versions,
            server_address_by_client_cidrs: match server_address {
                "" => Vec::new(),
                known => vec![ServerAddressByClientCidr {
                    client_cidr: "0.0.0.0/0".into(),
                    server_address: known.into(),
                }],
            },
        }
    }

    /// The core group in the shape of the others, for [`super::from_legacy`].
    #[must_use]
    pub fn to_group(&self) -> ApiGroup {
        let spelled = |version: &String| GroupVersionForDiscovery::new("", version);
        ApiGroup {
            kind: String::new(),
            api_version: String::new(),
            name: String::new(),
            versions: self.versions.iter().map(spelled).collect(),
            preferred_version: self.versions.first().map(spelled).unwrap_or_default(),
        }
    }
}

/// The body of `/apis`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroupList {
    /// `APIGroupList`.
    #[serde(default)]
    pub kind: String,
    /// `v1`; a generic server without an aggregator leaves it out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The groups. Their own kind and `apiVersion` are empty here.
    #[serde(default, deserialize_with = "null_is_default")]
    pub groups: Vec<ApiGroup>,
}

impl ApiGroupList {
    /// The kind of this document.
    pub const KIND: &'static str = "APIGroupList";

    /// The document of these groups.
    #[must_use]
    pub fn new(groups: Vec<ApiGroup>) -> Self {
        Self {
            kind: Self::KIND.into(),
            api_version: "v1".into(),
            groups,
        }
    }
}

/// The body of `/apis/GROUP`, and an element of `/apis`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroup {
    /// `APIGroup`, empty inside a list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// `v1`, empty inside a list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The group.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// Its versions, in order.
    #[serde(default, deserialize_with = "null_is_default")]
    pub versions: Vec<GroupVersionForDiscovery>,
    /// The version that clients without a wish use.
    #[serde(default, deserialize_with = "null_is_default")]
    pub preferred_version: GroupVersionForDiscovery,
}

impl ApiGroup {
    /// The kind of this document.
    pub const KIND: &'static str = "APIGroup";

    /// The same group as a document of its own.
    #[must_use]
    pub fn into_document(mut self) -> Self {
        self.kind = Self::KIND.into();
        self.api_version = "v1".into();
        self
    }
}

/// A version in its two spellings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupVersionForDiscovery {
    /// `group/version`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub group_version: String,
    /// The version alone.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
}

impl GroupVersionForDiscovery {
    /// The version of a group.
    #[must_use]
    pub fn new(group: &str, version: &str) -> Self {
        Self {
            group_version: group_version(group, version),
            version: version.into(),
        }
    }
}

/// `group/version`, or the version alone for the core group.
#[must_use]
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.into()
    } else {
        format!("{group}/{version}")
    }
}

/// The body of `/apis/GROUP/VERSION` and `/api/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceList {
    /// `APIResourceList`.
    #[serde(default)]
    pub kind: String,
    /// `v1`; left out for the core group and for `extensions`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The group and version listed.
    #[serde(default, deserialize_with = "null_is_default")]
    pub group_version: String,
    /// The resources, each followed by its subresources.
    #[serde(default, deserialize_with = "null_is_default")]
    pub resources: Vec<ApiResource>,
}

impl ApiResourceList {
    /// The kind of this document.
    pub const KIND: &'static str = "APIResourceList";
}

/// A resource or, with a name like `pods/log`, a subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// The plural name, with the subresource after a slash.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The name of one; empty for subresources.
    #[serde(default, deserialize_with = "null_is_default")]
    pub singular_name: String,
    /// Whether objects live in namespaces.
    #[serde(default, deserialize_with = "null_is_default")]
    pub namespaced: bool,
    /// The kind's group, where it is not the list's.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub group: String,
    /// The kind's version, where it is not the list's.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub version: String,
    /// The kind.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
    /// The verbs.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        serialize_with = "empty_is_null"
    )]
    pub verbs: Vec<String>,
    /// Abbreviations.
    #[serde(
        default,
        deserialize_with = "some_words",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub short_names: Vec<String>,
    /// Groups of resources that it belongs to.
    #[serde(
        default,
        deserialize_with = "some_words",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub categories: Vec<String>,
    /// A hash of the kind and version in which objects are stored.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub storage_version_hash: String,
}
