//! Schemas: which JSON a kind takes, as a table of types.
//!
//! The table holds facts found in an OpenAPI document (Kubernetes' own, or a custom resource's): structure,
//! required fields, defaults, list and map semantics, patch hints. Types refer to each other by [`TypeId`], so a
//! type may contain itself. List, map and patch extensions that OpenAPI puts on a field are on [`Property`], so
//! that named types stay shared between the fields that use them.
//!
//! Building the table is left to the catalogue and to whoever reads custom resource definitions.
//!
//! Invariant: every [`TypeId`] inside a table refers to a type of that same table; an id that does not is read as
//! [`SchemaKind::Any`], never a panic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

mod decode;
mod default;
mod validate;

pub use decode::{DecodeError, Decoded, decode, decode_over, strict_error};
pub use default::{apply_defaults, show_nil_lists};
pub use validate::{Checks, validate};

/// Where a type is in its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A table of types.
#[derive(Clone, Debug, Default)]
pub struct Types {
    types: Vec<Schema>,
    names: HashMap<Arc<str>, TypeId>,
}

/// One type: what JSON it takes, and its name if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// What JSON it takes.
    pub kind: SchemaKind,
    /// Its name in OpenAPI, such as `io.k8s.api.apps.v1.Deployment`; none for anonymous types.
    pub name: Option<Arc<str>>,
}

/// What JSON a type takes.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaKind {
    /// Anything, kept as it is: `RawExtension`, `JSON`, unstructured content.
    Any,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer(IntFormat),
    /// Any number.
    Number,
    /// Text.
    String(StringFormat),
    /// A whole number or text, such as a port by number or by name.
    IntOrString,
    /// A quantity such as `100m` or `2Gi`: text or a number, shown in canonical form.
    Quantity,
    /// A list.
    Array {
        /// The type of its elements.
        items: TypeId,
        /// How two versions of the list merge, unless the field says otherwise ([`Property::list`]).
        list: ListType,
    },
    /// A map from any key to values of one type.
    Map {
        /// The type of the values.
        values: TypeId,
    },
    /// An object with known fields.
    Struct(StructSchema),
}

/// The fields of an object type.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StructSchema {
    /// The fields by name.
    pub properties: BTreeMap<Arc<str>, Property>,
    /// The fields that must be there.
    pub required: Box<[Arc<str>]>,
    /// Whether the object is replaced whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
}

/// One field of an object type.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// The type of the value.
    pub ty: TypeId,
    /// What an absent field is set to. Kubernetes' OpenAPI also shows the zero value of a Go field here when
    /// Go always writes that field (`{}` for an embedded struct, `""` for text without `omitempty`).
    pub default: Option<Value>,
    /// How two versions of a list in this field merge; wins over the array type's own.
    pub list: Option<ListType>,
    /// What a strategic merge patch does with the field.
    pub patch_strategy: PatchStrategy,
    /// The key by which a strategic merge patch matches the elements of a list.
    pub patch_merge_key: Option<Arc<str>>,
    /// Whether a map or object in this field is replaced whole.
    pub atomic: bool,
    /// Whether `null` is a value of its own here (custom resources only).
    pub nullable: bool,
    /// The only texts allowed, if there are such.
    pub allowed: Option<Box<[Arc<str>]>>,
}

/// The range of a whole number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IntFormat {
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
}

/// What a text has to look like to be read at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum StringFormat {
    /// Any text.
    Any,
    /// `metav1.Time`: RFC 3339, seconds.
    DateTime,
    /// `metav1.MicroTime`: RFC 3339 with exactly six fractional digits.
    MicroTime,
    /// `metav1.Duration`: Go's duration syntax.
    Duration,
    /// Bytes in base64.
    Byte,
}

/// How two versions of a list merge.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default)]
pub enum ListType {
    /// The new list replaces the old one.
    #[default]
    Atomic,
    /// The elements are scalars, each at most once.
    Set,
    /// The elements are objects identified by these fields.
    Map(Box<[Arc<str>]>),
}

/// What a strategic merge patch does with a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum PatchStrategy {
    /// Nothing said: objects merge, lists are replaced.
    #[default]
    None,
    /// Lists merge, by merge key or as a set.
    Merge,
    /// The value is replaced.
    Replace,
    /// Objects merge and `$retainKeys` says which keys stay.
    RetainKeys,
    /// Lists merge, and each element obeys `$retainKeys`.
    MergeRetainKeys,
}

static ANY: Schema = Schema {
    kind: SchemaKind::Any,
    name: None,
};

impl Types {
    /// An empty table.
    pub fn new() -> Types {
        Types::default()
    }

    /// Adds a type. A named type can be found by [`Types::find`] from now on.
    pub fn push(&mut self, schema: Schema) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).unwrap_or(u32::MAX));
        self.types.push(ANY.clone());
        self.set(id, schema);
        id
    }

    /// Replaces a type that [`Types::push`] made room for; does nothing for an id outside of the table.
    pub fn set(&mut self, id: TypeId, schema: Schema) {
        let Some(slot) = self.types.get_mut(id.0 as usize) else {
            return;
        };
        if let Some(name) = &schema.name {
            self.names.insert(name.clone(), id);
        }
        *slot = schema;
    }

    /// A type by id; [`SchemaKind::Any`] for an id outside of the table.
    pub fn get(&self, id: TypeId) -> &Schema {
        self.types.get(id.0 as usize).unwrap_or(&ANY)
    }

    /// A type by its name in OpenAPI.
    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    /// All types with their ids, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (TypeId, &Schema)> {
        (0u32..).map(TypeId).zip(self.types.iter())
    }

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is no type.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

impl Schema {
    /// A type without a name.
    pub fn anonymous(kind: SchemaKind) -> Schema {
        Schema { kind, name: None }
    }

    /// A type with a name.
    pub fn named(name: impl Into<Arc<str>>, kind: SchemaKind) -> Schema {
        let name = Some(name.into());
        Schema { kind, name }
    }

    /// The fields, if this is an object type with known fields.
    pub fn as_struct(&self) -> Option<&StructSchema> {
        match &self.kind {
            SchemaKind::Struct(fields) => Some(fields),
            _ => None,
        }
    }
}

impl Property {
    /// A plain field of that type: no default, no hints.
    pub fn new(ty: TypeId) -> Property {
        Property {
            ty,
            default: None,
            list: None,
            patch_strategy: PatchStrategy::None,
            patch_merge_key: None,
            atomic: false,
            nullable: false,
            allowed: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod examples;
#[cfg(test)]
mod tests;
