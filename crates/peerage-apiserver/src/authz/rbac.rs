//! The stored roles and bindings, compiled: bindings by subject, so that a decision looks only at those that
//! name the user or one of the user's groups.

use std::collections::HashMap;
use std::sync::Arc;

use peerage_core::User;
use peerage_store::Revision;
use serde::Deserialize;

use super::{Attributes, Decision, RbacKinds, Rule};
use crate::cache::{CachedObject, KindCache};

/// Prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A role's rules, with the revision they were read from.
#[derive(Debug)]
struct Role {
    revision: Revision,
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleFile {
    rules: Option<Vec<Rule>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BindingFile {
    subjects: Option<Vec<Subject>>,
    role_ref: RoleRef,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// One binding, for one of its subjects.
#[derive(Debug)]
struct Binding {
    name: Box<str>,
    /// Empty for a cluster role binding.
    namespace: Box<str>,
    role: RoleRef,
    /// How reasons name the subject: `User "alice"`.
    subject: Box<str>,
}

/// Bindings by the name of a subject.
type BySubject = HashMap<Box<str>, Vec<Arc<Binding>>>;

/// Everything RBAC knows at one moment.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    /// What of the caches it was compiled from; none before the first time, since what a store held from the start
    /// is no event.
    pub(super) generation: Option<[u64; 4]>,
    cluster_roles: HashMap<Arc<str>, Arc<Role>>,
    roles: HashMap<Arc<str>, Arc<Role>>,
    by_user: BySubject,
    by_group: BySubject,
}

impl Rbac {
    /// Compiles what the caches hold. Roles that have not changed since `previous` are taken over.
    pub(super) fn build(generation: [u64; 4], kinds: &RbacKinds, previous: &Rbac) -> Self {
        let mut rbac = Self {
            generation: Some(generation),
            cluster_roles: roles(&kinds.cluster_roles, &previous.cluster_roles),
            roles: roles(&kinds.roles, &previous.roles),
            ..Self::default()
        };
        for kind in [&kinds.cluster_role_bindings, &kinds.role_bindings] {
            for object in kind.snapshot("", 0).objects {
                rbac.bind(&object);
            }
        }
        rbac
    }

    fn bind(&mut self, object: &CachedObject) {
        let Some(file) = object.parse::<BindingFile>() else {
            return;
        };
        for subject in file.subjects.into_iter().flatten() {
            let namespace = object.namespace();
            let Some((index, key)) = self.index_of(&subject, namespace) else {
                continue;
            };
            let binding = Binding {
                name: object.own_name().into(),
                namespace: namespace.into(),
                role: file.role_ref.clone(),
                subject: described(&subject, namespace).into(),
            };
            index.entry(key.into()).or_default().push(Arc::new(binding));
        }
    }

    fn index_of(&mut self, subject: &Subject, namespace: &str) -> Option<(&mut BySubject, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.by_user, subject.name.clone())),
            "Group" => Some((&mut self.by_group, subject.name.clone())),
            "ServiceAccount" => {
                let at = if subject.namespace.is_empty() {
                    namespace
                } else {
                    &subject.namespace
                };
                (!at.is_empty()).then(|| {
                    (
                        &mut self.by_user,
                        format!("{SERVICE_ACCOUNT}{at}:{}", subject.name),
                    )
                })
            }
            _ => None,
        }
    }

    /// May `user` do this?
    pub(super) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        let mut errors = Vec::new();
        for binding in self.bindings(user, attributes.namespace) {
            match self.role(binding) {
                Ok(role) if role.rules.iter().any(|r| r.covers(attributes)) => {
                    return Decision::allow(binding.reason());
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        Decision {
            allowed: false,
            reason: String::new(),
            errors,
        }
    }

    /// Every rule that applies to `user`: cluster-wide, and in `namespace` unless it is empty.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for binding in self.bindings(user, namespace) {
            match self.role(binding) {
                Ok(role) => rules.extend(&role.rules),
                Err(error) => errors.push(error),
            }
        }
        (rules, errors)
    }

    /// Cluster role bindings first, as kube-apiserver does, then those of the namespace.
    fn bindings<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Binding>> {
        let of = move || {
            let by_user = self.by_user.get(user.name.as_str());
            let by_group = user
                .groups
                .iter()
                .filter_map(|g| self.by_group.get(g.as_str()));
            by_user.into_iter().chain(by_group).flatten()
        };
        let local = of().filter(move |b| !namespace.is_empty() && *b.namespace == *namespace);
        of().filter(|b| b.namespace.is_empty()).chain(local)
    }

    fn role(&self, binding: &Binding) -> Result<&Role, String> {
        let (found, what) = match binding.role.kind.as_str() {
            "ClusterRole" => (
                self.cluster_roles.get(binding.role.name.as_str()),
                "clusterrole",
            ),
            _ => (
                self.roles
                    .get(format!("{}/{}", binding.namespace, binding.role.name).as_str()),
                "role",
            ),
        };
        found.map(|r| &**r).ok_or_else(|| {
            format!(
                "{what}.rbac.authorization.k8s.io {:?} not found",
                binding.role.name
            )
        })
    }
}

impl Binding {
    fn reason(&self) -> String {
        let (what, name) = match &*self.namespace {
            "" => ("ClusterRoleBinding", self.name.to_string()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        format!(
            "RBAC: allowed by {what} {name:?} of {} {:?} to {}",
            self.role.kind, self.role.name, self.subject
        )
    }
}

fn described(subject: &Subject, namespace: &str) -> String {
    match subject.kind.as_str() {
        "ServiceAccount" => {
            let at = if subject.namespace.is_empty() {
                namespace
            } else {
                &subject.namespace
            };
            format!("ServiceAccount \"{}/{at}\"", subject.name)
        }
        kind => format!("{kind} {:?}", subject.name),
    }
}

fn roles(
    kind: &KindCache,
    previous: &HashMap<Arc<str>, Arc<Role>>,
) -> HashMap<Arc<str>, Arc<Role>> {
    let read = |object: &CachedObject| match previous.get(&object.name) {
        Some(role) if role.revision == object.revision => role.clone(),
        _ => Arc::new(Role {
            revision: object.revision,
            rules: object
                .parse::<RoleFile>()
                .and_then(|f| f.rules)
                .unwrap_or_default(),
        }),
    };
    kind.snapshot("", 0)
        .objects
        .iter()
        .map(|o| (o.name.clone(), read(o)))
        .collect()
}
