//! One RBAC policy rule and whether it covers a request.

use peerage_core::quote::quote;
use serde::{Deserialize, Serialize};

use super::Attributes;

/// `rbac.authorization.k8s.io/v1` PolicyRule.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "list")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) non_resource_urls: Vec<String>,
}

/// A list that may be `null`.
fn list<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    Option::<Vec<String>>::deserialize(d).map(Option::unwrap_or_default)
}

fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|v| v == "*" || v == value)
}

impl Rule {
    /// The rules of those who may do anything: one for resources, one for paths.
    pub(crate) fn everything() -> [Rule; 2] {
        let all = || vec!["*".to_owned()];
        [
            Rule {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..Rule::default()
            },
            Rule {
                verbs: all(),
                non_resource_urls: all(),
                ..Rule::default()
            },
        ]
    }

    /// Whether the rule covers the request.
    pub(crate) fn covers(&self, a: &Attributes<'_>) -> bool {
        if !has(&self.verbs, a.verb) {
            return false;
        }
        if !a.resource_request {
            return self
                .non_resource_urls
                .iter()
                .any(|url| covers_path(url, a.path));
        }
        has(&self.api_groups, a.group)
            && self
                .resources
                .iter()
                .any(|r| covers_resource(r, a.resource, a.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == a.name))
    }

    /// The rule as permissions of one verb for one thing each.
    pub(super) fn single_permissions(&self) -> Vec<Rule> {
        let mut all = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let permission = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        all.push(permission);
                    } else {
                        all.extend(self.resource_names.iter().map(|name| Rule {
                            resource_names: one(name),
                            ..permission.clone()
                        }));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            all.extend(self.verbs.iter().map(|verb| Rule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Rule::default()
            }));
        }
        all
    }

    /// Whether who has this rule has that permission. Wildcards in the permission are covered by wildcards only.
    pub(super) fn includes(&self, permission: &Rule) -> bool {
        let names = self.resource_names.is_empty()
            || !permission.resource_names.is_empty()
                && permission
                    .resource_names
                    .iter()
                    .all(|n| self.resource_names.contains(n));
        names
            && permission.verbs.iter().all(|v| has(&self.verbs, v))
            && permission
                .api_groups
                .iter()
                .all(|g| has(&self.api_groups, g))
            && permission
                .resources
                .iter()
                .all(|r| includes_resource(&self.resources, r))
            && permission.non_resource_urls.iter().all(|asked| {
                self.non_resource_urls
                    .iter()
                    .any(|url| covers_path(url, asked))
            })
    }

    /// The rule on one line, as refusals show it.
    pub(super) fn in_short(&self) -> String {
        let lists = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| {
                let quoted: Vec<String> = list.iter().map(|text| quote(text)).collect();
                format!("{name}:[{}]", quoted.join(" "))
            })
            .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Whether a list of resources has this one, `*`, or all subresources of its name.
fn includes_resource(list: &[String], resource: &str) -> bool {
    has(list, resource)
        || resource.split_once('/').is_some_and(|(_, sub)| {
            list.iter()
                .any(|own| own.strip_prefix("*/").is_some_and(|s| s == sub))
        })
}

/// `*`, `pods`, `pods/log`, `*/scale`.
fn covers_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((r, s)) => s == subresource && !subresource.is_empty() && (r == "*" || r == resource),
    }
}

/// `*`, `/healthz`, `/healthz/*`.
fn covers_path(rule: &str, path: &str) -> bool {
    rule == path
        || rule
            .strip_suffix('*')
            .is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Rule {
            verbs: own(verbs),
            api_groups: own(groups),
            resources: own(resources),
            resource_names: own(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn on<'a>(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes {
            verb,
            resource_request: true,
            group,
            resource,
            subresource,
            name,
            ..Attributes::default()
        }
    }

    #[test]
    fn rules_cover_what_they_name() {
        let rows: &[(Rule, Attributes<'_>, bool)] = &[
            (
                rule(&["get"], &[""], &["pods"], &[]),
                on("get", "", "pods", "", "p"),
                true,
            ),
            (
                rule(&["get"], &[""], &["pods"], &[]),
                on("list", "", "pods", "", ""),
                false,
            ),
            (
                rule(&["*"], &[""], &["pods"], &[]),
                on("list", "", "pods", "", ""),
                true,
            ),
            (
                rule(&["get"], &[""], &["pods"], &[]),
                on("get", "", "pods", "log", "p"),
                false,
            ),
            (
                rule(&["get"], &[""], &["pods/log"], &[]),
                on("get", "", "pods", "log", "p"),
                true,
            ),
            (
                rule(&["get"], &[""], &["*/log"], &[]),
                on("get", "", "pods", "log", "p"),
                true,
            ),
            (
                rule(&["get"], &[""], &["*/log"], &[]),
                on("get", "", "pods", "", "p"),
                false,
            ),
            (
                rule(&["get"], &["*"], &["*"], &[]),
                on("get", "apps", "deployments", "scale", "d"),
                true,
            ),
            (
                rule(&["get"], &["apps"], &["*"], &[]),
                on("get", "", "pods", "", "p"),
                false,
            ),
            (
                rule(&["get"], &[""], &["pods"], &["a"]),
                on("get", "", "pods", "", "a"),
                true,
            ),
            (
                rule(&["get"], &[""], &["pods"], &["a"]),
                on("get", "", "pods", "", "b"),
                false,
            ),
            (
                rule(&["list"], &[""], &["pods"], &["a"]),
                on("list", "", "pods", "", ""),
                false,
            ),
        ];
        for (rule, attributes, expected) in rows {
            assert_eq!(
                rule.covers(attributes),
                *expected,
                "{rule:?} {attributes:?}"
            );
        }
    }

    #[test]
    fn paths_match_exactly_or_by_prefix() {
        for (rule, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz/*", "/healthz", false),
            ("*", "/anything", true),
        ] {
            assert_eq!(covers_path(rule, path), expected, "{rule} {path}");
        }
    }
}
