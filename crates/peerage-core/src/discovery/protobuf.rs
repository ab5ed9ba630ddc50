//! Discovery documents in Kubernetes' protobuf form, written from their JSON.
//!
//! The field numbers are those of Kubernetes' generated
//! definitions: `apidiscovery/v2` and `v2beta1`, `meta/v1`, `runtime`. Its marshallers write every field that is no
//! list, no map and no pointer, also when it is empty; so does this.
//!
//! Leaves reading protobuf to nobody: every server that has it also speaks JSON.

use serde::Deserialize;

use super::aggregated::{
    ApiGroupDiscovery, ApiResourceDiscovery, ApiSubresourceDiscovery, ApiVersionDiscovery,
    Freshness, KIND, ResponseKind,
};
use super::legacy::{
    ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupVersionForDiscovery,
    ServerAddressByClientCidr,
};
use crate::protobuf::{Envelope, Message};

/// The same document in protobuf; `None` if the JSON is no discovery document.
#[must_use]
pub fn from_json(json: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        kind: String,
        #[serde(default)]
        api_version: String,
        #[serde(default)]
        items: Vec<ApiGroupDiscovery>,
    }
    let typed: Typed = serde_json::from_slice(json).ok()?;
    let content = match &*typed.kind {
        KIND => list(&typed.items),
        ApiGroupList::KIND => groups(&serde_json::from_slice(json).ok()?),
        ApiGroup::KIND => group(&serde_json::from_slice(json).ok()?),
        ApiResourceList::KIND => resources(&serde_json::from_slice(json).ok()?),
        ApiVersions::KIND => versions(&serde_json::from_slice(json).ok()?),
        _ => return None,
    };
    let envelope = Envelope {
        api_version: &typed.api_version,
        kind: &typed.kind,
        raw: Some(content.as_bytes()),
    };
    Some(envelope.seal())
}

fn list(items: &[ApiGroupDiscovery]) -> Message {
    let mut message = Message::list_meta();
    for item in items {
        message.message(2, discovered_group(item));
    }
    message
}

fn discovered_group(group: &ApiGroupDiscovery) -> Message {
    let mut message = Message::default();
    message.message(1, Message::object_meta(group.name()));
    for version in &group.versions {
        message.message(2, discovered_version(version));
    }
    message
}

fn discovered_version(version: &ApiVersionDiscovery) -> Message {
    let mut message = Message::default();
    message.text(1, &version.version);
    for resource in &version.resources {
        message.message(2, discovered_resource(resource));
    }
    message.text(
        3,
        match version.freshness {
            Freshness::Stale => "Stale",
            Freshness::Unspecified => "",
            Freshness::Current => "Current",
        },
    );
    message
}

fn discovered_resource(resource: &ApiResourceDiscovery) -> Message {
    let mut message = Message::default();
    message.text(1, &resource.resource);
    message.kind(2, resource.response_kind.as_ref());
    message.text(3, resource.scope.as_str());
    message.text(4, &resource.singular_resource);
    message.texts(5, &resource.verbs);
    message.texts(6, &resource.short_names);
    message.texts(7, &resource.categories);
    for subresource in &resource.subresources {
        message.message(8, discovered_subresource(subresource));
    }
    message
}

fn discovered_subresource(subresource: &ApiSubresourceDiscovery) -> Message {
    let mut message = Message::default();
    message.text(1, &subresource.subresource);
    message.kind(2, subresource.response_kind.as_ref());
    for accepted in &subresource.accepted_types {
        message.kind(3, Some(accepted));
    }
    message.texts(4, &subresource.verbs);
    message
}

fn groups(list: &ApiGroupList) -> Message {
    let mut message = Message::default();
    for it in &list.groups {
        message.message(1, group(it));
    }
    message
}

fn group(group: &ApiGroup) -> Message {
    let mut message = Message::default();
    message.text(1, &group.name);
    for version in &group.versions {
        message.message(2, spelled(version));
    }
    message.message(3, spelled(&group.preferred_version));
    message
}

fn spelled(version: &GroupVersionForDiscovery) -> Message {
    let mut message = Message::default();
    message.text(1, &version.group_version);
    message.text(2, &version.version);
    message
}

fn resources(list: &ApiResourceList) -> Message {
    let mut message = Message::default();
    message.text(1, &list.group_version);
    for it in &list.resources {
        message.message(2, resource(it));
    }
    message
}

fn resource(resource: &ApiResource) -> Message {
    let mut message = Message::default();
    message.text(1, &resource.name);
    message.flag(2, resource.namespaced);
    message.text(3, &resource.kind);
    if !resource.verbs.is_empty() {
        let mut verbs = Message::default();
        verbs.texts(1, &resource.verbs);
        message.message(4, verbs);
    }
    message.texts(5, &resource.short_names);
    message.text(6, &resource.singular_name);
    message.texts(7, &resource.categories);
    message.text(8, &resource.group);
    message.text(9, &resource.version);
    message.text(10, &resource.storage_version_hash);
    message
}

fn versions(document: &ApiVersions) -> Message {
    let mut message = Message::default();
    message.texts(1, &document.versions);
    for address in &document.server_address_by_client_cidrs {
        message.message(2, server_address(address));
    }
    message
}

fn server_address(address: &ServerAddressByClientCidr) -> Message {
    let mut message = Message::default();
    message.text(1, &address.client_cidr);
    message.text(2, &address.server_address);
    message
}

impl Message {
    /// `meta/v1.ListMeta` of a list without any, as field 1 of the list.
    fn list_meta() -> Self {
        let mut meta = Self::default();
        for field in 1..=3 {
            meta.text(field, "");
        }
        let mut list = Self::default();
        list.message(1, meta);
        list
    }

    /// `meta/v1.ObjectMeta` with nothing but a name.
    fn object_meta(name: &str) -> Self {
        let mut meta = Self::default();
        meta.text(1, name);
        for field in 2..=6 {
            meta.text(field, "");
        }
        // The generation, and a time that is not set.
        meta.flag(7, false);
        meta.text(8, "");
        meta
    }

    fn kind(&mut self, field: u8, kind: Option<&ResponseKind>) {
        let Some(kind) = kind else { return };
        let mut message = Self::default();
        message.text(1, &kind.group);
        message.text(2, &kind.version);
        message.text(3, &kind.kind);
        self.message(field, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_written() {
        let json = br#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;
        let expected: &[u8] =
            b"k8s\0\x0a\x0f\x0a\0\x12\x0bAPIVersions\x12\x04\x0a\x02v1\x1a\0\x22\0";
        assert_eq!(from_json(json).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_no_discovery_document_is_not_written() {
        for json in ["", "{}", "[]", r#"{"kind":"Status"}"#, r#"{"kind":7}"#] {
            assert_eq!(from_json(json.as_bytes()), None, "{json}");
        }
    }
}
