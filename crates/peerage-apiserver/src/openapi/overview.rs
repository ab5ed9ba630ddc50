//! v3 documents of what is no resource: the lists of groups and versions, `/version`, the pages of token keys.

use peerage_catalogue::Catalogue;
use serde_json::{Map, Value, json};

use super::{Fragments, fragment, v3};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// Paths of the documents that are always there, beside one for each group.
pub(super) const FIXED: [&str; 3] = ["api", "apis", "version"];
/// Paths of the documents that are there where token keys are published.
pub(super) const KEYS: [&str; 2] = [".well-known/openid-configuration", "openid/v1/jwks"];

/// The document of a path that is no group-version; `None` for other paths.
pub(super) fn document(catalogue: &Catalogue, path: &str) -> Option<String> {
    let types = super::paths::JSON_TYPES.as_slice();
    let page = match path {
        "api" => page("core", "getCoreAPIVersions", types, schema("APIVersions")),
        "apis" => page("apis", "getAPIVersions", types, schema("APIGroupList")),
        "version" => page(
            "version",
            "getCodeVersion",
            &types[..1],
            json!({ "$ref": v3::reference(INFO) }),
        ),
        ".well-known/openid-configuration" => page(
            "WellKnown",
            "getServiceAccountIssuerOpenIDConfiguration",
            &types[..1],
            json!({ "type": "string" }),
        ),
        "openid/v1/jwks" => page(
            "openid",
            "getServiceAccountIssuerOpenIDKeyset",
            &["application/jwk-set+json"],
            json!({ "type": "string" }),
        ),
        _ => {
            let group = path.strip_prefix("apis/").filter(|g| !g.contains('/'))?;
            page(
                &tag(group),
                &format!("get{}APIGroup", title(&tag(group))),
                types,
                schema("APIGroup"),
            )
        }
    };
    let mut schemas = Map::new();
    collect(&page, &mut schemas);
    let schemas = schemas
        .iter()
        .map(|(name, it)| (name.clone(), fragment(it)));
    let paths = Fragments::from([(format!("/{path}/"), fragment(&page))]);
    Some(v3::whole(catalogue, &paths, &schemas.collect()))
}

fn schema(kind: &str) -> Value {
    json!({ "$ref": v3::reference(&format!("{META}.{kind}")) })
}

fn page(tag: &str, id: &str, types: &[&str], schema: Value) -> Value {
    let content = super::paths::content(types, &schema);
    json!({ "get": {
        "tags": [tag],
        "operationId": id,
        "responses": { "200": { "description": "OK", "content": content }, "401": { "description": "Unauthorized" } },
    }})
}

/// `rbacAuthorization` of `rbac.authorization.k8s.io`.
fn tag(group: &str) -> String {
    let name = group.strip_suffix(".k8s.io").unwrap_or(group);
    let mut parts = name.split('.');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + &title(part))
}

fn title(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}

/// Adds every type that `value` refers to, and what those refer to.
fn collect(value: &Value, schemas: &mut Map<String, Value>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                let name = name.rsplit('/').next().unwrap_or_default();
                if !schemas.contains_key(name) {
                    let body = body(name);
                    schemas.insert(name.to_owned(), body.clone());
                    collect(&body, schemas);
                }
            }
            fields.values().for_each(|v| collect(v, schemas));
        }
        Value::Array(items) => items.iter().for_each(|v| collect(v, schemas)),
        _ => {}
    }
}

/// The schema of one of the few types that are no part of any resource.
fn body(name: &str) -> Value {
    let kind = name.rsplit('.').next().unwrap_or_default();
    let text = || json!({ "type": "string" });
    let always = || json!({ "type": "string", "default": "" });
    let list = |items: Value| json!({ "type": "array", "items": items, "x-kubernetes-list-type": "atomic" });
    let fields: Vec<(&str, bool, Value)> = match kind {
        "APIVersions" => vec![
            ("versions", true, list(text())),
            (
                "serverAddressByClientCIDRs",
                true,
                list(schema("ServerAddressByClientCIDR")),
            ),
        ],
        "APIGroupList" => vec![("groups", true, list(schema("APIGroup")))],
        "APIGroup" => vec![
            ("name", true, always()),
            ("versions", true, list(schema("GroupVersionForDiscovery"))),
            (
                "preferredVersion",
                false,
                json!({ "default": {}, "allOf": [schema("GroupVersionForDiscovery")] }),
            ),
            (
                "serverAddressByClientCIDRs",
                false,
                list(schema("ServerAddressByClientCIDR")),
            ),
        ],
        "GroupVersionForDiscovery" => {
            vec![
                ("groupVersion", true, always()),
                ("version", true, always()),
            ]
        }
        "ServerAddressByClientCIDR" => {
            vec![
                ("clientCIDR", true, always()),
                ("serverAddress", true, always()),
            ]
        }
        _ => return version_info(),
    };
    let is_object = kind.starts_with("API");
    let mut properties = Map::new();
    if is_object {
        properties.insert("kind".to_owned(), text());
        properties.insert("apiVersion".to_owned(), text());
    }
    let required: Vec<&str> = fields.iter().filter(|f| f.1).map(|f| f.0).collect();
    let mut body = json!({ "type": "object", "required": required });
    properties.extend(
        fields
            .into_iter()
            .map(|(n, _, schema)| (n.to_owned(), schema)),
    );
    body["properties"] = properties.into();
    if is_object {
        body["x-kubernetes-group-version-kind"] =
            json!([{ "group": "", "kind": kind, "version": "v1" }]);
    }
    body
}

fn version_info() -> Value {
    const REQUIRED: [&str; 9] = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    const OPTIONAL: [&str; 4] = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let required = REQUIRED.map(|n| (n.to_owned(), json!({ "type": "string", "default": "" })));
    let optional = OPTIONAL.map(|n| (n.to_owned(), json!({ "type": "string" })));
    let properties: Map<String, Value> = required.into_iter().chain(optional).collect();
    json!({ "type": "object", "required": REQUIRED, "properties": properties })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_groups_are_named_as_kubernetes_names_them() {
        for (group, expected) in [
            ("apps", "getAppsAPIGroup"),
            ("rbac.authorization.k8s.io", "getRbacAuthorizationAPIGroup"),
            (
                "flowcontrol.apiserver.k8s.io",
                "getFlowcontrolApiserverAPIGroup",
            ),
            ("internal.apiserver.k8s.io", "getInternalApiserverAPIGroup"),
        ] {
            assert_eq!(format!("get{}APIGroup", title(&tag(group))), expected);
        }
    }

    #[test]
    fn documents_hold_every_type_that_they_refer_to() {
        let catalogue = Catalogue::load("1.37", &Default::default()).unwrap();
        for path in FIXED.iter().chain(&KEYS).chain(&["apis/apps"]) {
            let text = document(&catalogue, path).unwrap();
            let text: Value = serde_json::from_str(&text).unwrap();
            let mut wanted = Map::new();
            collect(&text, &mut wanted);
            for name in wanted.keys() {
                assert!(
                    text["components"]["schemas"][name].is_object(),
                    "{path} {name}"
                );
            }
        }
        assert!(document(&catalogue, "apis/apps/v1").is_none());
    }
}
