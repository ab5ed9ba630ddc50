//! One stored object as the cache keeps it: its bytes, and what reads ask of it without parsing them.

use std::sync::Arc;

use bytes::Bytes;
use peerage_catalogue::{Catalogue, Resource};
use peerage_objects::selector::Labels;
use peerage_objects::stored::StoredJson;
use peerage_store::{KeyValue, LeaseId, Revision};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::encoding::{self, Encoding};

/// What a stored value turned out to be.
#[derive(Debug)]
pub(crate) enum Content {
    /// JSON of a Kubernetes object.
    Json(StoredJson),
    /// Something that this server cannot read as an object: another encoding, or damage. Never overwritten.
    Unreadable {
        /// The value as stored.
        value: Bytes,
        /// Why it cannot be read.
        reason: Box<str>,
    },
}

/// A resource as it is stored, and what is known of it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) resource: Arc<Resource>,
    pub(crate) catalogue: Arc<Catalogue>,
}

impl Stored {
    /// Puts into an object what it lacks, as kube-apiserver does when it reads one: the store may have it from a server
    /// that leaves defaults out, or that did not know them yet. The object's bytes as this server would have written
    /// them; the same ones where it did.
    fn complete(&self, object: &mut Value, bytes: Bytes) -> Result<Bytes, serde_json::Error> {
        let resource = &self.resource;
        // What is stored in a version that this server does not have is left alone.
        if object["apiVersion"] != *resource.api_version() || object["kind"] != *resource.kind {
            return Ok(bytes);
        }
        self.catalogue.apply_defaults(resource, object);
        let canonical = serde_json::to_vec(object)?;
        Ok(if canonical == bytes {
            bytes
        } else {
            canonical.into()
        })
    }
}

/// One stored object.
#[derive(Debug)]
pub(crate) struct CachedObject {
    /// Name within the kind: `namespace/name`, or `name` in cluster scope.
    pub(crate) name: Arc<str>,
    /// Revision of its last change: its `resourceVersion`.
    pub(crate) revision: Revision,
    /// Revision of its creation.
    pub(crate) created: Revision,
    /// The store's lease that it lives by; 0 for none.
    pub(crate) lease: LeaseId,
    pub(crate) content: Content,
    /// What the value is encoded in.
    pub(crate) encoding: Encoding,
    /// Labels, sorted by key.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the kind's selectable fields, in the order of its rules.
    pub(crate) fields: Box<[Box<str>]>,
}

impl CachedObject {
    /// Reads a stored value. Never fails: what is unreadable is kept as such.
    pub(crate) fn load(name: Arc<str>, kv: &KeyValue, stored: Option<&Stored>) -> Self {
        let (content, encoding, labels, fields) = match read(&kv.value, stored) {
            Ok((json, encoding, labels, fields)) => (Content::Json(json), encoding, labels, fields),
            Err(reason) => {
                let content = Content::Unreadable {
                    value: kv.value.clone(),
                    reason: reason.into(),
                };
                let encoding = Encoding::of(&kv.value);
                (content, encoding, Box::default(), Box::default())
            }
        };
        Self {
            name,
            revision: kv.mod_revision,
            created: kv.create_revision,
            lease: kv.lease,
            content,
            encoding,
            labels,
            fields,
        }
    }

    /// The object as a value of type `T`; `None` when it is unreadable or of another shape.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        match &self.content {
            Content::Json(json) => serde_json::from_slice(json.bytes()).ok(),
            Content::Unreadable { .. } => None,
        }
    }

    /// Bytes that the object keeps in memory, about.
    pub(crate) fn size(&self) -> usize {
        match &self.content {
            Content::Json(json) => json.bytes().len(),
            Content::Unreadable { value, .. } => value.len(),
        }
    }

    /// Why the object cannot be read, if it cannot.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        match &self.content {
            Content::Json(_) => None,
            Content::Unreadable { reason, .. } => Some(reason),
        }
    }

    /// The object's namespace; empty in cluster scope.
    pub(crate) fn namespace(&self) -> &str {
        self.name
            .rsplit_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The object's own name.
    pub(crate) fn own_name(&self) -> &str {
        self.name
            .rsplit_once('/')
            .map_or(&self.name, |(_, name)| name)
    }
}

impl Labels for CachedObject {
    fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }
}

type Read = (
    StoredJson,
    Encoding,
    Box<[(Box<str>, Box<str>)]>,
    Box<[Box<str>]>,
);

fn read(value: &Bytes, stored: Option<&Stored>) -> Result<Read, String> {
    let (bytes, encoding) = encoding::open(value).map_err(|e| e.to_string())?;
    let invalid = |e: serde_json::Error| format!("it is not valid JSON: {e}");
    let mut object: Value = serde_json::from_slice(&bytes).map_err(invalid)?;
    let bytes = match stored {
        Some(stored) => stored.complete(&mut object, bytes).map_err(invalid)?,
        None => bytes,
    };
    let json = StoredJson::new(bytes).map_err(|e| e.to_string())?;
    let fields = stored.map_or_else(Box::default, |stored| {
        let r = &stored.resource;
        let fields = r.rules.field_selectors.iter();
        fields
            .map(|f| {
                r.rules
                    .selectable(&f.label, &object)
                    .unwrap_or_default()
                    .into()
            })
            .collect()
    });
    Ok((json, encoding, labels(&object), fields))
}

fn labels(object: &Value) -> Box<[(Box<str>, Box<str>)]> {
    let Some(Value::Object(map)) = object.pointer("/metadata/labels") else {
        return Box::default();
    };
    map.iter()
        .filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into())))
        .collect()
}
