//! The aggregated discovery document: fields, their order, and what is left out when empty.
//!
//! Field order and omissions are those of `k8s.io/api/apidiscovery/v2`. Reading is lenient about what is
//! missing or null; [`super::read`] adds the checks of content.

use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The versions of the aggregated document, which differ in nothing but their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DiscoveryVersion {
    /// `apidiscovery.k8s.io/v2`, since Kubernetes 1.30.
    #[default]
    V2,
    /// `apidiscovery.k8s.io/v2beta1`, 1.26 to 1.34.
    V2Beta1,
}

impl DiscoveryVersion {
    /// The `apiVersion` of the document.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// The kind of every aggregated document.
pub(super) const KIND: &str = "APIGroupDiscoveryList";

/// All groups of a server, in its order: of `/apis` or, with the one unnamed group, of `/api`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiGroupDiscoveryList {
    /// The groups. They are shared, so that documents of different times and servers can share what is equal.
    pub items: Vec<Arc<ApiGroupDiscovery>>,
}

impl ApiGroupDiscoveryList {
    /// The response body: compact JSON with a newline.
    #[must_use]
    pub fn to_json(&self, version: DiscoveryVersion) -> Vec<u8> {
        let mut bytes = head(version);
        self.append_after_type(&mut bytes);
        bytes.push(b'\n');
        bytes
    }

    /// The entity tag: the same for every encoding and version of the document.
    #[must_use]
    pub fn etag(&self) -> Arc<str> {
        let mut bytes = vec![b'{'];
        self.append_after_type(&mut bytes);
        crate::etag::etag_of(&bytes)
    }

    /// The group of this name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Arc<ApiGroupDiscovery>> {
        self.items.iter().find(|group| group.name() == name)
    }

    /// Whether every resource that the other document lists is in this one, too.
    #[must_use]
    pub fn lists_all_of(&self, other: &Self) -> bool {
        other.items.iter().all(|group| {
            let here = self.group(group.name());
            group.versions.iter().all(|version| {
                let here = here.and_then(|it| it.version(&version.version));
                let mut resources = version.resources.iter();
                resources.all(|it| here.is_some_and(|here| here.resource(&it.resource).is_some()))
            })
        })
    }

    fn append_after_type(&self, bytes: &mut Vec<u8>) {
        let items = self.items.iter().map(|group| super::to_json(&**group));
        append_items(bytes, items);
    }
}

/// The beginning of the body up to the fields that follow its type.
pub(crate) fn head(version: DiscoveryVersion) -> Vec<u8> {
    let api_version = version.api_version();
    format!(r#"{{"kind":"{KIND}","apiVersion":"{api_version}","#).into_bytes()
}

/// The fields after the type, from the JSON of each group, up to and with the closing brace.
pub(crate) fn append_items<I, B>(bytes: &mut Vec<u8>, items: I)
where
    I: IntoIterator<Item = B>,
    B: AsRef<[u8]>,
{
    bytes.extend_from_slice(br#""metadata":{},"items":["#);
    for (position, item) in items.into_iter().enumerate() {
        if position > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(item.as_ref());
    }
    bytes.extend_from_slice(b"]}");
}

/// One group and its versions, the preferred one first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiGroupDiscovery {
    /// Its name, in the shape of object metadata.
    #[serde(default, deserialize_with = "null_is_default")]
    pub metadata: GroupMetadata,
    /// Its versions.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub versions: Vec<ApiVersionDiscovery>,
}

impl ApiGroupDiscovery {
    /// A group of this name.
    #[must_use]
    pub fn new(name: impl Into<String>, versions: Vec<ApiVersionDiscovery>) -> Self {
        let metadata = GroupMetadata {
            name: name.into(),
            creation_timestamp_null: false,
        };
        Self { metadata, versions }
    }

    /// The group's name; empty for the core group.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The version of this name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&ApiVersionDiscovery> {
        self.versions.iter().find(|version| version.version == name)
    }
}

/// The metadata of a group: nothing but its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupMetadata {
    /// The group's name; empty, and then not written, for the core group.
    pub name: String,
    /// Whether `"creationTimestamp":null` is written, as servers up to 1.33 do.
    pub creation_timestamp_null: bool,
}

impl Serialize for GroupMetadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ObjectMeta", 2)?;
        if !self.name.is_empty() {
            fields.serialize_field("name", &self.name)?;
        }
        if self.creation_timestamp_null {
            fields.serialize_field("creationTimestamp", &())?;
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for GroupMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Read {
            #[serde(default, deserialize_with = "null_is_default")]
            name: String,
            #[serde(default, deserialize_with = "is_null")]
            creation_timestamp: bool,
        }
        let read = Read::deserialize(deserializer)?;
        Ok(Self {
            name: read.name,
            creation_timestamp_null: read.creation_timestamp,
        })
    }
}

/// One version of a group and its resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiVersionDiscovery {
    /// The version, such as `v1`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
    /// The resources. They are shared between documents where they are equal.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub resources: Vec<Arc<ApiResourceDiscovery>>,
    /// Whether what is listed is what the server knows now.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Freshness::is_unspecified"
    )]
    pub freshness: Freshness,
}

impl ApiVersionDiscovery {
    /// The resource of this name.
    #[must_use]
    pub fn resource(&self, name: &str) -> Option<&Arc<ApiResourceDiscovery>> {
        self.resources
            .iter()
            .find(|resource| resource.resource == name)
    }
}

/// How much a listed version can be relied on. The order is that of merging: the greatest wins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freshness {
    /// The server behind it could not be asked; clients treat the version as failed.
    Stale,
    /// Nothing is said, which clients take for current.
    #[default]
    Unspecified,
    /// Known to be right.
    Current,
}

impl Freshness {
    /// Whether the version is marked stale.
    #[must_use]
    pub fn is_stale(self) -> bool {
        self == Self::Stale
    }

    fn is_unspecified(&self) -> bool {
        *self == Self::Unspecified
    }
}

impl Serialize for Freshness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Stale => "Stale",
            Self::Unspecified => "",
            Self::Current => "Current",
        })
    }
}

impl<'de> Deserialize<'de> for Freshness {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "Stale" => Self::Stale,
            "Current" => Self::Current,
            _ => Self::Unspecified,
        })
    }
}

/// One resource of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceDiscovery {
    /// The plural name in paths.
    #[serde(default, deserialize_with = "null_is_default")]
    pub resource: String,
    /// The kind that its verbs take and return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<ResponseKind>,
    /// Whether objects live in namespaces.
    #[serde(default, deserialize_with = "null_is_default")]
    pub scope: Scope,
    /// The name of one.
    #[serde(default, deserialize_with = "null_is_default")]
    pub singular_resource: String,
    /// The verbs, in the server's order. None is written `null`.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        serialize_with = "empty_is_null"
    )]
    pub verbs: Vec<String>,
    /// Abbreviations that command lines accept.
    #[serde(
        default,
        deserialize_with = "some_words",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub short_names: Vec<String>,
    /// Groups of resources that it belongs to, such as `all`.
    #[serde(
        default,
        deserialize_with = "some_words",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub categories: Vec<String>,
    /// What hangs below each object.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub subresources: Vec<ApiSubresourceDiscovery>,
}

/// One subresource, such as `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiSubresourceDiscovery {
    /// Its name in paths.
    #[serde(default, deserialize_with = "null_is_default")]
    pub subresource: String,
    /// The kind that its verbs take and return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<ResponseKind>,
    /// Kinds that its writing verbs accept besides.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_types: Vec<ResponseKind>,
    /// The verbs, in the server's order. None is written `null`.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        serialize_with = "empty_is_null"
    )]
    pub verbs: Vec<String>,
}

/// A kind. Empty group and version mean those of the document's place; custom resources write them out.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResponseKind {
    /// The kind's group.
    #[serde(default, deserialize_with = "null_is_default")]
    pub group: String,
    /// The kind's version.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
    /// The kind.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
}

impl ResponseKind {
    /// A kind of the same group and version as the resource.
    #[must_use]
    pub fn of(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            ..Self::default()
        }
    }
}

/// Whether a resource's objects live in namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// They do not.
    #[default]
    Cluster,
    /// They do.
    Namespaced,
    /// A word of a future version, or none: passed on as it is.
    Other(String),
}

impl Scope {
    /// The scope's word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
            Self::Other(word) => word,
        }
    }

    /// The scope of resources that are, or are not, namespaced.
    #[must_use]
    pub fn namespaced(namespaced: bool) -> Self {
        if namespaced {
            Self::Namespaced
        } else {
            Self::Cluster
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(match word.as_str() {
            "Cluster" => Self::Cluster,
            "Namespaced" => Self::Namespaced,
            _ => Self::Other(word),
        })
    }
}

/// The most words of a list that the author of a custom resource chooses.
const MAX_CHOSEN: usize = 256;

/// Reads short names or categories, of which there may be so many that the rest is left out: kube-apiserver takes a custom
/// resource with thousands, and that is no reason not to know what else its server has.
///
/// Differs: kube-apiserver has no bound.
pub(super) fn some_words<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let mut words: Vec<String> = null_is_default(deserializer)?;
    if words.len() > MAX_CHOSEN {
        words.truncate(MAX_CHOSEN);
        words.shrink_to_fit();
    }
    Ok(words)
}

/// Reads `null` as the default, as Go does for every field.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether a field that is there holds `null`; whatever else it holds is passed over.
fn is_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_none())
}

/// Writes an empty list as Go writes one that was never filled.
pub(super) fn empty_is_null<S: Serializer>(
    list: &[String],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if list.is_empty() {
        serializer.serialize_unit()
    } else {
        list.serialize(serializer)
    }
}
