//! Paths and operations of a group-version's resources.

use peerage_catalogue::{Catalogue, Resource, Subresource};
use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Writer};

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
struct Operation<'a> {
    action: &'a str,
    /// Schema of the answer.
    answer: Option<Value>,
    /// Schema of the body.
    body: Option<Value>,
    parameters: &'a [(&'a str, &'a str)],
    kind: (&'a str, &'a str, &'a str),
}

/// Adds the paths of a group-version.
pub(super) fn add(
    catalogue: &Catalogue,
    writer: &mut Writer<'_>,
    dialect: Dialect,
    group: &str,
    version: &str,
    paths: &mut Map<String, Value>,
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
        action: "",
        answer: list,
        body: None,
        parameters: &[],
        kind: ("", "", ""),
    };
    paths.insert(
        format!("{base}/"),
        json!({ "get": operation(dialect, &tag, &discovery) }),
    );
    for resource in catalogue.resources_of(group, version) {
        Paths {
            writer,
            dialect,
            tag: &tag,
            base: &base,
            resource,
            paths,
        }
        .add();
    }
}

struct Paths<'a, 'w> {
    writer: &'a mut Writer<'w>,
    dialect: Dialect,
    tag: &'a str,
    base: &'a str,
    resource: &'a Resource,
    paths: &'a mut Map<String, Value>,
}

impl Paths<'_, '_> {
    fn add(&mut self) {
        let plural = &self.resource.plural;
        let scope = if self.resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let collection = format!("{}{scope}/{plural}", self.base);
        let list = self
            .resource
            .list_type_id
            .map(|id| self.writer.reference(id));
        let own = self.resource.type_id.map(|id| self.writer.reference(id));
        if self.resource.namespaced && self.resource.has_verb("list") {
            let path = format!("{}/{plural}", self.base);
            self.put(&path, "get", "list", list.clone(), None, &LIST_PARAMETERS);
        }
        if self.resource.has_verb("list") {
            self.put(&collection, "get", "list", list, None, &LIST_PARAMETERS);
        }
        if self.resource.has_verb("create") {
            self.put(
                &collection,
                "post",
                "post",
                own.clone(),
                own.clone(),
                &WRITE_PARAMETERS,
            );
        }
        let options = self.writer.named(&format!("{META}.DeleteOptions"));
        let status = self.writer.named(&format!("{META}.Status"));
        if self.resource.has_verb("deletecollection") {
            self.put(
                &collection,
                "delete",
                "deletecollection",
                status.clone(),
                options.clone(),
                &LIST_PARAMETERS,
            );
        }
        let item = format!("{collection}/{{name}}");
        let verbs: Vec<_> = self.resource.verbs.iter().map(|v| v.to_string()).collect();
        self.item(&item, &verbs, own, None);
        if self.resource.has_verb("delete") {
            self.put(
                &item,
                "delete",
                "delete",
                status,
                options,
                &WRITE_PARAMETERS[..1],
            );
        }
        for sub in &self.resource.subresources {
            let own = sub.type_id.map(|id| self.writer.reference(id));
            let verbs: Vec<_> = sub.verbs.iter().map(|v| v.to_string()).collect();
            let path = format!("{item}/{}", sub.name);
            self.item(&path, &verbs, own.clone(), Some(sub));
            if sub.has_verb("create") {
                self.put_as(
                    &path,
                    "post",
                    "post",
                    own.clone(),
                    own,
                    &WRITE_PARAMETERS,
                    Some(sub),
                );
            }
        }
    }

    fn item(
        &mut self,
        path: &str,
        verbs: &[String],
        own: Option<Value>,
        sub: Option<&Subresource>,
    ) {
        let has = |verb: &str| verbs.iter().any(|v| v == verb);
        if has("get") {
            self.put_as(path, "get", "get", own.clone(), None, &[], sub);
        }
        if has("update") {
            self.put_as(
                path,
                "put",
                "put",
                own.clone(),
                own.clone(),
                &WRITE_PARAMETERS,
                sub,
            );
        }
        if has("patch") {
            let patch = self.writer.named(&format!("{META}.Patch"));
            self.put_as(path, "patch", "patch", own, patch, &WRITE_PARAMETERS, sub);
        }
    }

    fn put(
        &mut self,
        path: &str,
        method: &str,
        action: &str,
        answer: Option<Value>,
        body: Option<Value>,
        parameters: &[(&str, &str)],
    ) {
        self.put_as(path, method, action, answer, body, parameters, None);
    }

    #[allow(clippy::too_many_arguments)]
    fn put_as(
        &mut self,
        path: &str,
        method: &str,
        action: &str,
        answer: Option<Value>,
        body: Option<Value>,
        parameters: &[(&str, &str)],
        sub: Option<&Subresource>,
    ) {
        let kind = match sub {
            Some(sub) => (&*sub.kind.group, &*sub.kind.version, &*sub.kind.kind),
            None => (
                &*self.resource.group,
                &*self.resource.version,
                &*self.resource.kind,
            ),
        };
        let written = operation(
            self.dialect,
            self.tag,
            &Operation {
                action,
                answer,
                body,
                parameters,
                kind,
            },
        );
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
    let mut operation = json!({ "tags": [tag] });
    let mut parameters: Vec<_> = of
        .parameters
        .iter()
        .map(|(n, k)| parameter(dialect, n, k))
        .collect();
    if of.action == "patch" {
        parameters.push(parameter(dialect, "force", "boolean"));
    }
    let types: &[&str] = if of.action == "patch" {
        &PATCH_TYPES
    } else {
        &["*/*"]
    };
    if let Some(body) = &of.body {
        match dialect {
            Dialect::V2 => {
                parameters.insert(
                    0,
                    json!({ "name": "body", "in": "body", "required": true, "schema": body }),
                );
                operation["consumes"] = json!(types);
            }
            Dialect::V3 => {
                operation["requestBody"] =
                    json!({ "content": content(types, body), "required": true })
            }
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if dialect == Dialect::V2 {
        operation["produces"] = json!(JSON_TYPES);
        operation["schemes"] = json!(["https"]);
    }
    let good = match (&of.answer, dialect) {
        (None, _) => json!({ "description": "OK" }),
        (Some(schema), Dialect::V2) => json!({ "description": "OK", "schema": schema }),
        (Some(schema), Dialect::V3) => {
            json!({ "description": "OK", "content": content(&JSON_TYPES, schema) })
        }
    };
    operation["responses"] = json!({ "200": good, "401": { "description": "Unauthorized" } });
    if !of.action.is_empty() {
        let (group, version, kind) = of.kind;
        operation["x-kubernetes-action"] = json!(of.action);
        operation["x-kubernetes-group-version-kind"] =
            json!({ "group": group, "version": version, "kind": kind });
    }
    operation
}

pub(super) fn content(types: &[&str], schema: &Value) -> Value {
    types
        .iter()
        .map(|t| ((*t).to_owned(), json!({ "schema": schema })))
        .collect::<Map<_, _>>()
        .into()
}
