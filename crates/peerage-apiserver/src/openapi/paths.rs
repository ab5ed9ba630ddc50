//! Paths and operations of a group-version's resources.

use std::sync::Arc;

use peerage_catalogue::{Catalogue, Resource, Subresource};
use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Writer};
use super::{Fragments, fragment};

pub(super) const JSON_TYPES: [&str; 3] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const LIST_PARAMETERS: [(&str, &str); 11] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
    ("pretty", "string"),
];
const WRITE_PARAMETERS: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];

/// One operation.
#[derive(Default)]
struct Operation<'a> {
    /// `x-kubernetes-action`; empty where there is none.
    action: &'a str,
    /// Schema of the answer.
    answer: Option<Value>,
    /// Schema of the body.
    body: Option<Value>,
    parameters: &'a [(&'a str, &'a str)],
    /// Group, version and kind that it is about.
    kind: (&'a str, &'a str, &'a str),
}

/// Adds the paths of a group-version.
pub(super) fn add(
    catalogue: &Catalogue,
    writer: &mut Writer<'_>,
    dialect: Dialect,
    group: &str,
    version: &str,
    paths: &mut Fragments,
) {
    let base = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let tag = format!(
        "{}_{version}",
        if group.is_empty() {
            "core"
        } else {
            group.split('.').next().unwrap_or(group)
        }
    );
    let list = writer.named(&format!("{META}.APIResourceList"));
    let discovery = Operation {
        answer: list,
        ..Operation::default()
    };
    paths.insert(
        format!("{base}/"),
        fragment(&json!({ "get": operation(dialect, &tag, &discovery) })),
    );
    for resource in catalogue.resources_of(group, version) {
        let kind = (&*resource.group, &*resource.version, &*resource.kind);
        let mut of_resource = Paths {
            writer,
            dialect,
            tag: &tag,
            base: &base,
            resource,
            kind,
            paths: Map::new(),
        };
        of_resource.add();
        for (path, item) in of_resource.paths {
            paths.insert(path, fragment(&item));
        }
    }
}

/// The paths of one resource.
struct Paths<'a, 'w> {
    writer: &'a mut Writer<'w>,
    dialect: Dialect,
    tag: &'a str,
    base: &'a str,
    resource: &'a Resource,
    /// What the operations that are being written are about: the resource, or one of its subresources.
    kind: (&'a str, &'a str, &'a str),
    paths: Map<String, Value>,
}

impl<'a> Paths<'a, '_> {
    fn add(&mut self) {
        let resource = self.resource;
        let scope = match resource.namespaced {
            true => "/namespaces/{namespace}",
            false => "",
        };
        let collection = format!("{scope}/{}", resource.plural);
        if resource.namespaced {
            self.list(&format!("/{}", resource.plural));
        }
        self.list(&collection);
        self.collection(&format!("{}{collection}", self.base));
        let object = format!("{}{collection}/{{name}}", self.base);
        let own = resource.type_id.map(|id| self.writer.reference(id));
        self.object(&object, &resource.verbs, own);
        if resource.has_verb("delete") {
            self.delete(&object, "delete", &WRITE_PARAMETERS[..1]);
        }
        if resource.has_verb("watch") && resource.has_verb("get") {
            self.watch(&format!("{collection}/{{name}}"), "watch");
        }
        for subresource in &resource.subresources {
            self.subresource(&object, subresource);
        }
    }

    /// Reading many objects, and the path by which that is a watch.
    fn list(&mut self, below: &str) {
        if self.resource.has_verb("list") {
            let list = self.resource.list_type_id;
            let list = list.map(|id| self.writer.reference(id));
            let path = format!("{}{below}", self.base);
            self.put(&path, "get", "list", (list, None), &LIST_PARAMETERS);
        }
        if self.resource.has_verb("watch") {
            self.watch(below, "watchlist");
        }
    }

    fn watch(&mut self, below: &str, action: &'a str) {
        let event = self.writer.named(&format!("{META}.WatchEvent"));
        let path = format!("{}/watch{below}", self.base);
        self.put(&path, "get", action, (event, None), &LIST_PARAMETERS);
    }

    /// Changing a collection.
    fn collection(&mut self, path: &str) {
        if self.resource.has_verb("create") {
            let own = self.resource.type_id;
            let own = own.map(|id| self.writer.reference(id));
            self.put(path, "post", "post", (own.clone(), own), &WRITE_PARAMETERS);
        }
        if self.resource.has_verb("deletecollection") {
            self.delete(path, "deletecollection", &LIST_PARAMETERS);
        }
    }

    fn delete(&mut self, path: &str, action: &'a str, parameters: &'a [(&'a str, &'a str)]) {
        let status = self.writer.named(&format!("{META}.Status"));
        let options = self.writer.named(&format!("{META}.DeleteOptions"));
        self.put(path, "delete", action, (status, options), parameters);
    }

    /// Reading and changing one object, or a part of it.
    fn object(&mut self, path: &str, verbs: &[Arc<str>], own: Option<Value>) {
        let has = |verb: &str| verbs.iter().any(|v| **v == *verb);
        if has("get") {
            self.put(path, "get", "get", (own.clone(), None), &[]);
        }
        if has("update") {
            let own = (own.clone(), own.clone());
            self.put(path, "put", "put", own, &WRITE_PARAMETERS);
        }
        if has("patch") {
            let patch = self.writer.named(&format!("{META}.Patch"));
            self.put(path, "patch", "patch", (own, patch), &WRITE_PARAMETERS);
        }
    }

    fn subresource(&mut self, object: &str, subresource: &'a Subresource) {
        let kind = &subresource.kind;
        let about = (&*kind.group, &*kind.version, &*kind.kind);
        let of_object = std::mem::replace(&mut self.kind, about);
        let path = format!("{object}/{}", subresource.name);
        let own = subresource.type_id.map(|id| self.writer.reference(id));
        self.object(&path, &subresource.verbs, own.clone());
        if subresource.has_verb("create") {
            self.put(&path, "post", "post", (own.clone(), own), &WRITE_PARAMETERS);
        }
        self.kind = of_object;
    }

    fn put(
        &mut self,
        path: &str,
        method: &str,
        action: &'a str,
        (answer, body): (Option<Value>, Option<Value>),
        parameters: &'a [(&'a str, &'a str)],
    ) {
        let of = Operation {
            action,
            answer,
            body,
            parameters,
            kind: self.kind,
        };
        let written = operation(self.dialect, self.tag, &of);
        let item = self
            .paths
            .entry(path.to_owned())
            .or_insert_with(|| path_item(self.dialect, path));
        item[method] = written;
    }
}

/// The path with its own parameters.
fn path_item(dialect: Dialect, path: &str) -> Value {
    let mut parameters = Vec::new();
    for name in ["name", "namespace"] {
        if path.contains(&format!("{{{name}}}")) {
            let mut parameter = parameter(dialect, name, "string");
            parameter["in"] = json!("path");
            parameter["required"] = json!(true);
            parameters.push(parameter);
        }
    }
    json!({ "parameters": parameters })
}

fn parameter(dialect: Dialect, name: &str, kind: &str) -> Value {
    match dialect {
        Dialect::V2 => json!({ "name": name, "in": "query", "type": kind, "uniqueItems": true }),
        Dialect::V3 => {
            json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
        }
    }
}

fn operation(dialect: Dialect, tag: &str, of: &Operation<'_>) -> Value {
    let mut operation = json!({ "tags": [tag], "responses": responses(dialect, of) });
    let mut parameters = Vec::new();
    if let Some(body) = &of.body {
        let types: &[&str] = match of.action {
            "patch" => &PATCH_TYPES,
            _ => &["*/*"],
        };
        match dialect {
            Dialect::V2 => {
                let body =
                    json!({ "name": "body", "in": "body", "required": true, "schema": body });
                parameters.push(body);
                operation["consumes"] = json!(types);
            }
            Dialect::V3 => {
                let body = json!({ "content": content(types, body), "required": true });
                operation["requestBody"] = body;
            }
        }
    }
    let force = (of.action == "patch").then_some(&("force", "boolean"));
    let named = of.parameters.iter().chain(force);
    parameters.extend(named.map(|(name, kind)| parameter(dialect, name, kind)));
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if dialect == Dialect::V2 {
        operation["produces"] = json!(JSON_TYPES);
        operation["schemes"] = json!(["https"]);
    }
    if !of.action.is_empty() {
        let (group, version, kind) = of.kind;
        operation["x-kubernetes-action"] = json!(of.action);
        operation["x-kubernetes-group-version-kind"] =
            json!({ "group": group, "version": version, "kind": kind });
    }
    operation
}

fn responses(dialect: Dialect, of: &Operation<'_>) -> Value {
    let mut good = json!({ "description": "OK" });
    match (&of.answer, dialect) {
        (None, _) => {}
        (Some(schema), Dialect::V2) => good["schema"] = schema.clone(),
        (Some(schema), Dialect::V3) => good["content"] = content(&JSON_TYPES, schema),
    }
    json!({ "200": good, "401": { "description": "Unauthorized" } })
}

pub(super) fn content(types: &[&str], schema: &Value) -> Value {
    types
        .iter()
        .map(|t| ((*t).to_owned(), json!({ "schema": schema })))
        .collect::<Map<_, _>>()
        .into()
}
