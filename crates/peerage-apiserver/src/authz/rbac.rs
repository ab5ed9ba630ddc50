//! The stored roles and bindings, compiled: bindings by subject, so that a decision looks only at those that
//! name the user or one of the user's groups.

#[cfg(test)]
mod tests;

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
pub(crate) struct Binding {
    name: Box<str>,
    /// Empty for a cluster role binding.
    namespace: Box<str>,
    role: RoleRef,
    /// The role itself, unless it is missing.
    found: Option<Arc<Role>>,
    /// How reasons name the subject: `User "alice"`.
    subject: Box<str>,
}

/// The bindings of one subject.
#[derive(Debug, Default)]
struct Bindings {
    everywhere: Vec<Arc<Binding>>,
    by_namespace: HashMap<Box<str>, Vec<Arc<Binding>>>,
}

/// Bindings by the name of a subject.
type BySubject = HashMap<Box<str>, Bindings>;

/// What a binding said at a revision; read once.
type Files = HashMap<Arc<str>, (Revision, Option<Arc<BindingFile>>)>;

/// Everything RBAC knows at one moment.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    /// What of the caches it was compiled from; none before the first time, since what a store held from the start
    /// is no event.
    pub(super) generation: Option<[u64; 4]>,
    cluster_roles: HashMap<Arc<str>, Arc<Role>>,
    roles: HashMap<Arc<str>, Arc<Role>>,
    files: [Files; 2],
    by_user: BySubject,
    by_group: BySubject,
}

impl Rbac {
    /// Compiles what the caches hold. What has not changed since `previous` is taken over.
    pub(super) fn build(generation: [u64; 4], kinds: &RbacKinds, previous: &Rbac) -> Self {
        let mut rbac = Self {
            generation: Some(generation),
            cluster_roles: roles(&kinds.cluster_roles, &previous.cluster_roles),
            roles: roles(&kinds.roles, &previous.roles),
            ..Self::default()
        };
        let sources = [&kinds.cluster_role_bindings, &kinds.role_bindings];
        for (at, kind) in sources.into_iter().enumerate() {
            let objects = kind.snapshot("", 0).objects;
            let mut files = Files::with_capacity(objects.len());
            for object in &objects {
                let file = match previous.files[at].get(&object.name) {
                    Some((revision, file)) if *revision == object.revision => file.clone(),
                    _ => object.parse::<BindingFile>().map(Arc::new),
                };
                if let Some(file) = &file {
                    rbac.bind(object, file);
                }
                files.insert(object.name.clone(), (object.revision, file));
            }
            rbac.files[at] = files;
        }
        rbac
    }

    fn bind(&mut self, object: &CachedObject, file: &BindingFile) {
        let namespace = object.namespace();
        let found = self.role(&file.role_ref, namespace).cloned();
        for subject in file.subjects.iter().flatten() {
            let Some((index, key)) = self.index_of(subject, namespace) else {
                continue;
            };
            let binding = Arc::new(Binding {
                name: object.own_name().into(),
                namespace: namespace.into(),
                role: file.role_ref.clone(),
                found: found.clone(),
                subject: described(subject, namespace).into(),
            });
            let bindings = index.entry(key.into()).or_default();
            match namespace {
                "" => bindings.everywhere.push(binding),
                _ => bindings
                    .by_namespace
                    .entry(namespace.into())
                    .or_default()
                    .push(binding),
            }
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

    /// May `user` do this? Allocates nothing when the answer is yes.
    pub(super) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        let mut dangling = Vec::new();
        for binding in self.bindings(user, attributes.namespace) {
            match &binding.found {
                Some(role) if role.rules.iter().any(|r| r.covers(attributes)) => {
                    return Decision::allow(Some(binding.clone()));
                }
                Some(_) => {}
                None => dangling.push(binding.clone()),
            }
        }
        Decision::refuse(dangling)
    }

    /// Every rule that applies to `user`: cluster-wide, and in `namespace` unless it is empty.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for binding in self.bindings(user, namespace) {
            match &binding.found {
                Some(role) => rules.extend(&role.rules),
                None => errors.push(binding.missing_role()),
            }
        }
        (rules, errors)
    }

    /// The rules of the role that a binding in `namespace` refers to, if there is such a role.
    pub(crate) fn role_rules(&self, kind: &str, name: &str, namespace: &str) -> Option<&[Rule]> {
        let role = RoleRef {
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        self.role(&role, namespace).map(|r| r.rules.as_slice())
    }

    /// Cluster role bindings first, as kube-apiserver does, then those of the namespace.
    fn bindings<'r, 'a>(
        &'r self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'r Arc<Binding>> + use<'r, 'a> {
        let of = move || {
            let by_user = self.by_user.get(user.name.as_str());
            let by_group = user
                .groups
                .iter()
                .filter_map(|g| self.by_group.get(g.as_str()));
            by_user.into_iter().chain(by_group)
        };
        let local = of().filter_map(move |b| b.by_namespace.get(namespace));
        of().flat_map(|b| &b.everywhere).chain(local.flatten())
    }

    fn role(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<Role>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(role.name.as_str()),
            _ => self
                .roles
                .get(format!("{namespace}/{}", role.name).as_str()),
        }
    }
}

impl Binding {
    /// Why a request is allowed.
    pub(super) fn reason(&self) -> String {
        let (what, name) = match &*self.namespace {
            "" => ("ClusterRoleBinding", self.name.to_string()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        format!(
            "RBAC: allowed by {what} {name:?} of {} {:?} to {}",
            self.role.kind, self.role.name, self.subject
        )
    }

    /// What is wrong with a binding to a role that is not there.
    pub(super) fn missing_role(&self) -> String {
        let what = match self.role.kind.as_str() {
            "ClusterRole" => "clusterrole",
            _ => "role",
        };
        format!(
            "{what}.rbac.authorization.k8s.io {:?} not found",
            self.role.name
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
