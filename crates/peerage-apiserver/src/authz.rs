//! Authorization: may this user do this? `system:masters` may do anything; everyone else what the stored RBAC
//! roles and bindings allow, or anything at all under `AlwaysAllow`.
//!
//! The rules come from the cache: a decision reads one immutable [`rbac::Rbac`] that is made anew when a role or
//! binding has changed.

pub(crate) mod escalation;
pub(crate) mod rbac;
mod rules;
pub(crate) mod validate;

use std::sync::{Arc, PoisonError, RwLock};

use peerage_core::{RequestInfo, User};
use tracing::debug;

use crate::cache::KindCache;
pub(crate) use rbac::{Binding, Rbac};
pub(crate) use rules::Rule;

/// Members may do anything, whatever the roles say.
pub(crate) const SYSTEM_MASTERS: &str = "system:masters";

/// What is to be done: one request, or what an access review asks about.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    /// A request for a resource, as opposed to a path.
    pub(crate) resource_request: bool,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The path of a request that is not for a resource.
    pub(crate) path: &'a str,
}

impl<'a> Attributes<'a> {
    /// What a request asks for.
    pub(crate) fn of(info: &'a RequestInfo<'_>) -> Self {
        Self {
            verb: info.verb(),
            resource_request: info.is_resource_request(),
            group: info.api_group(),
            resource: info.resource(),
            subresource: info.subresource(),
            namespace: info.namespace(),
            name: info.name(),
            path: info.path(),
        }
    }
}

/// The answer, and by which binding. Texts are made when somebody reads them.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    binding: Option<Arc<Binding>>,
    /// Bindings met on the way whose role is not there.
    dangling: Vec<Arc<Binding>>,
}

impl Decision {
    fn allow(binding: Option<Arc<Binding>>) -> Self {
        Self {
            allowed: true,
            binding,
            dangling: Vec::new(),
        }
    }

    fn refuse(dangling: Vec<Arc<Binding>>) -> Self {
        Self {
            allowed: false,
            binding: None,
            dangling,
        }
    }

    /// The reason that audit events, refusals and access reviews show; often empty.
    pub(crate) fn reason(&self) -> String {
        if let Some(binding) = &self.binding {
            return binding.reason();
        }
        let errors: Vec<String> = self.dangling.iter().map(|b| b.missing_role()).collect();
        match errors.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        }
    }
}

/// Which rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Roles and bindings in the store.
    Rbac,
    /// Everything is allowed to everyone: for tests only.
    AlwaysAllow,
}

/// Decides. Cheap to share.
#[derive(Debug)]
pub(crate) struct Authorizer {
    mode: Mode,
    kinds: RbacKinds,
    current: RwLock<Arc<Rbac>>,
}

/// The caches of the four RBAC kinds.
#[derive(Debug, Clone)]
pub(crate) struct RbacKinds {
    pub(crate) cluster_roles: Arc<KindCache>,
    pub(crate) roles: Arc<KindCache>,
    pub(crate) cluster_role_bindings: Arc<KindCache>,
    pub(crate) role_bindings: Arc<KindCache>,
}

impl RbacKinds {
    /// Changes whenever one of the kinds does.
    fn generation(&self) -> [u64; 4] {
        [
            &self.cluster_roles,
            &self.roles,
            &self.cluster_role_bindings,
            &self.role_bindings,
        ]
        .map(|k| k.generation())
    }
}

impl Authorizer {
    pub(crate) fn new(mode: Mode, kinds: RbacKinds) -> Self {
        Self {
            mode,
            kinds,
            current: RwLock::default(),
        }
    }

    /// May `user` do this?
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        if user.is_in(SYSTEM_MASTERS) || self.mode == Mode::AlwaysAllow {
            return Decision::allow(None);
        }
        let decision = self.rbac().decide(user, attributes);
        debug!(
            user = user.name,
            verb = attributes.verb,
            allowed = decision.allowed,
            "authorized"
        );
        decision
    }

    /// The rules that apply to `user` in `namespace` (`""`: everywhere), for rule reviews.
    pub(crate) fn rbac(&self) -> Arc<Rbac> {
        let generation = self.kinds.generation();
        {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            if current.generation == Some(generation) {
                return current.clone();
            }
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.generation != Some(generation) {
            *current = Arc::new(Rbac::build(generation, &self.kinds, &current));
        }
        current.clone()
    }

    /// Whether everything is allowed to everyone.
    pub(crate) fn always_allows(&self) -> bool {
        self.mode == Mode::AlwaysAllow
    }
}
