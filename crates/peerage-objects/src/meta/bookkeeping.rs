//! What a server does with metadata on create, update and delete, as Kubernetes' registry does it.

use jiff::{SignedDuration, Timestamp};
use peerage_core::Status;
use serde_json::{Map, Value};

use super::{FOREGROUND, Meta, ORPHAN, managed, meta_mut};
use crate::time;

/// What a new object gets from the server.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// The namespace of the request; none for a cluster-scoped kind.
    pub namespace: Option<&'a str>,
    /// A UID that nothing else has.
    pub uid: &'a str,
    /// The time.
    pub now: Timestamp,
    /// Randomness for `generateName`.
    pub random: u64,
}

/// Why an object does not fit the request; the texts are Kubernetes'.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetaError {
    /// Another namespace in the body than in the path.
    #[error(
        "the namespace of the provided object does not match the namespace sent on the request"
    )]
    Namespace,
    /// Another name in the body than in the path.
    #[error("the name of the object ({found}) does not match the name on the URL ({wanted})")]
    Name {
        /// The name in the body.
        found: String,
        /// The name in the path.
        wanted: String,
    },
    /// No name in the body.
    #[error("the name of the object ({0} based on URL) was undeterminable: name must be provided")]
    NoName(String),
    /// A resourceVersion on create.
    #[error("resourceVersion should not be set on objects to be created")]
    ResourceVersion,
}

impl MetaError {
    /// The answer to the client.
    ///
    /// Differs: kube-apiserver answers 500 for a create with a resourceVersion; it is the request that is wrong.
    pub fn status(&self) -> Status {
        Status::bad_request(self.to_string())
    }
}

/// How a deletion treats the dependents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted before.
    Foreground,
    /// They stay.
    Orphan,
}

/// Checks that the object is the one that the path names.
pub fn check_name(object: &Value, name: &str) -> Result<(), MetaError> {
    match Meta::of(object).name() {
        "" => Err(MetaError::NoName(name.to_owned())),
        found if found == name => Ok(()),
        found => Err(MetaError::Name {
            found: found.to_owned(),
            wanted: name.to_owned(),
        }),
    }
}

/// Gives a new object what the server decides: namespace, UID, time, and a name if one is to be generated. Kinds
/// that count generations set theirs afterwards; others keep what was sent.
pub fn prepare_create(object: &mut Value, creation: Creation<'_>) -> Result<(), MetaError> {
    if !matches!(Meta::of(object).resource_version(), "" | "0") {
        return Err(MetaError::ResourceVersion);
    }
    set_namespace(object, creation.namespace)?;
    managed::carry(object, &Value::Null);
    let meta = meta_mut(object);
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
    ] {
        meta.remove(field);
    }
    meta.insert("uid".to_owned(), creation.uid.into());
    meta.insert(
        "creationTimestamp".to_owned(),
        time::show(creation.now).into(),
    );
    tidy(meta);
    let text = |meta: &Map<String, Value>, field| {
        meta.get(field).and_then(Value::as_str).map(str::to_owned)
    };
    if let (None, Some(base)) = (text(meta, "name"), text(meta, "generateName")) {
        meta.insert(
            "name".to_owned(),
            generate_name(&base, creation.random).into(),
        );
    }
    Ok(())
}

/// Gives the new state of an object what an update cannot change: the generation (kinds that count raise it
/// afterwards, see [`spec_changed`]), the time of creation, and the deletion that has begun. UID and resourceVersion
/// are taken over if they are absent; others are compared by [`validate_update`](super::validate_update).
pub fn prepare_update(
    new: &mut Value,
    old: &Value,
    namespace: Option<&str>,
) -> Result<(), MetaError> {
    set_namespace(new, namespace)?;
    managed::carry(new, old);
    let deleting = Meta::of(old).deletion_timestamp().is_some();
    let kept = old.get("metadata").and_then(Value::as_object);
    let kept = |field: &str| kept.and_then(|meta| meta.get(field)).cloned();
    let meta = meta_mut(new);
    tidy(meta);
    meta.remove("selfLink");
    let mut take_over = |field: &str, always: bool| {
        if always {
            meta.remove(field);
        }
        if let (false, Some(value)) = (meta.contains_key(field), kept(field)) {
            meta.insert(field.to_owned(), value);
        }
    };
    take_over("generation", true);
    take_over("creationTimestamp", true);
    take_over("uid", false);
    take_over("resourceVersion", false);
    take_over("deletionTimestamp", deleting);
    take_over("deletionGracePeriodSeconds", false);
    Ok(())
}

fn set_namespace(object: &mut Value, namespace: Option<&str>) -> Result<(), MetaError> {
    let found = Meta::of(object).namespace();
    match namespace {
        Some(wanted) if !found.is_empty() && found != wanted => Err(MetaError::Namespace),
        Some(wanted) => {
            meta_mut(object).insert("namespace".to_owned(), wanted.into());
            Ok(())
        }
        None => {
            meta_mut(object).remove("namespace");
            Ok(())
        }
    }
}

/// Takes out what Go leaves out of metadata: these fields are no pointers, so empty is absent.
fn tidy(meta: &mut Map<String, Value>) {
    const TEXTS: [&str; 7] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "selfLink",
        "creationTimestamp",
    ];
    meta.retain(|name, value| {
        let empty_text = value.as_str() == Some("") && TEXTS.contains(&name.as_str());
        let zero = name == "generation" && value.as_i64() == Some(0);
        let empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        !empty_text && !zero && !empty && !value.is_null()
    });
}

/// A name of that beginning and five random letters, none of which make words.
pub fn generate_name(base: &str, mut random: u64) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    const MAX_BASE: usize = 58;
    let mut end = base.len().min(MAX_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    for _ in 0..5 {
        let at = random % 27;
        random /= 27;
        let letter = usize::try_from(at).ok().and_then(|at| LETTERS.get(at));
        name.extend(letter.map(|letter| char::from(*letter)));
    }
    name
}

/// Whether anything but metadata and status differs: what kinds with generations count.
pub fn spec_changed(new: &Value, old: &Value) -> bool {
    differs(new, old, |field| {
        !matches!(field, "metadata" | "status" | "apiVersion" | "kind")
    })
}

/// Whether an update changes nothing that counts, so that nothing need be written: resourceVersion and managed
/// fields do not count.
pub fn same_content(new: &Value, old: &Value) -> bool {
    let empty = Value::Null;
    let meta = |object: &Value| object.get("metadata").unwrap_or(&empty).clone();
    let counts = |field: &str| !matches!(field, "resourceVersion" | "managedFields");
    !differs(new, old, |field| field != "metadata") && !differs(&meta(new), &meta(old), counts)
}

fn differs(new: &Value, old: &Value, counts: impl Fn(&str) -> bool) -> bool {
    let (Value::Object(new), Value::Object(old)) = (new, old) else {
        return new != old;
    };
    let in_new = new
        .iter()
        .any(|(name, value)| counts(name) && old.get(name) != Some(value));
    in_new
        || old
            .keys()
            .any(|name| counts(name) && !new.contains_key(name))
}

/// Begins the deletion of an object that has to wait: for so many seconds, or for its finalizers (0 seconds).
/// A deletion that has begun is at most brought forward.
pub fn mark_deleting(object: &mut Value, now: Timestamp, grace_seconds: i64) {
    let grace_seconds = grace_seconds.max(0);
    let end = now
        .saturating_add(SignedDuration::from_secs(grace_seconds))
        .unwrap_or(now);
    let begun = Meta::of(object).deletion_timestamp().map(str::to_owned);
    let sooner = begun
        .as_deref()
        .and_then(|t| time::parse(t).ok())
        .is_some_and(|begun| begun <= end);
    let generation = Meta::of(object).generation();
    let meta = meta_mut(object);
    if begun.is_none() && generation > 0 {
        meta.insert("generation".to_owned(), (generation + 1).into());
    }
    if !sooner {
        meta.insert("deletionTimestamp".to_owned(), time::show(end).into());
        meta.insert(
            "deletionGracePeriodSeconds".to_owned(),
            grace_seconds.into(),
        );
    }
}

/// The finalizers with which a deletion begins: the object's own, with the one that the policy asks for and without
/// the other. Without a policy those that are there decide.
pub fn propagation_finalizers(finalizers: &[&str], policy: Option<Propagation>) -> Vec<String> {
    let wanted = match policy {
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None => [ORPHAN, FOREGROUND]
            .into_iter()
            .find(|known| finalizers.contains(known)),
    };
    let mut out: Vec<String> = finalizers
        .iter()
        .filter(|finalizer| {
            !matches!(**finalizer, ORPHAN | FOREGROUND) || Some(**finalizer) == wanted
        })
        .map(|finalizer| (*finalizer).to_owned())
        .collect();
    if let Some(wanted) = wanted
        && !out.iter().any(|finalizer| finalizer == wanted)
    {
        out.push(wanted.to_owned());
    }
    out
}
