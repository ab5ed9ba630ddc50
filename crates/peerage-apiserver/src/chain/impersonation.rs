//! `Impersonate-*` headers: acting as somebody else, for those who may. Follows kube-apiserver's impersonation
//! filter; all headers are gone afterwards, so that a peer has nothing left to judge.
//!
//! Since 1.36 (KEP-5284) there are two ways to be allowed: with the verb `impersonate`, for anything, or with
//! `impersonate:user-info` (`impersonate:serviceaccount` for an account) together with
//! `impersonate-on:user-info:VERB` on what the request is for.
//!
//! Differs: kube-apiserver's refusal tells of the way that the caller last went successfully; ours tells of
//! `impersonate` if the caller has that verb for anything, and of the newer way otherwise. Ways of acting as nodes
//! are not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use peerage_auth::audit::AuditContext;
use peerage_core::{GroupResource, RequestInfo, Status, User};
use peerage_http::Request;
use peerage_objects::names;

use crate::authz::{Attributes, Authorizer};
use crate::error::ApiError;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";
/// The group of users and of what belongs to them.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Replaces the user of a request that asks for it.
pub(super) fn apply(
    authorizer: &Authorizer,
    constrained: bool,
    info: &RequestInfo<'_>,
    request: &mut Request,
    audit: &AuditContext,
) -> Result<(), ApiError> {
    if !request
        .headers()
        .keys()
        .any(|n| is_impersonation(n.as_str()))
    {
        return Ok(());
    }
    let wanted = Wanted::read(request.headers())?;
    strip(request.headers_mut());
    let Some(wanted) = wanted else {
        return Ok(());
    };
    let caller = request
        .extensions()
        .get::<Arc<User>>()
        .cloned()
        .ok_or_else(Status::unauthorized)?;
    let asking = Asking {
        authorizer,
        caller: &caller,
        info,
        constrained,
    };
    wanted.check(&asking)?;
    let user = Arc::new(wanted.into_user());
    audit.impersonate(&user);
    request.extensions_mut().insert(user);
    Ok(())
}

/// Whether a header belongs to impersonation, also where `_` is taken for `-`.
fn is_impersonation(name: &str) -> bool {
    let prefix = name.as_bytes().get(.."impersonate-".len());
    prefix.is_some_and(|p| p == b"impersonate-" || p == b"impersonate_")
}

fn strip(headers: &mut HeaderMap) {
    let names: Vec<_> = headers
        .keys()
        .filter(|n| is_impersonation(n.as_str()))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// Who wants to act as somebody, and for what.
struct Asking<'a> {
    authorizer: &'a Authorizer,
    caller: &'a User,
    info: &'a RequestInfo<'a>,
    constrained: bool,
}

impl Asking<'_> {
    fn may(&self, attributes: &Attributes<'_>) -> bool {
        self.authorizer.decide(self.caller, attributes).allowed
    }

    /// Whether the caller has the verb `impersonate` for anybody or anything of anybody.
    fn impersonates(&self, namespace: &str) -> bool {
        const RESOURCES: [&str; 6] = [
            "*",
            "users",
            "groups",
            "serviceaccounts",
            "uids",
            "userextras",
        ];
        let has = |list: &[String], value: &str| list.iter().any(|v| v == "*" || v == value);
        let rbac = self.authorizer.rbac();
        let (rules, _) = rbac.rules(self.caller, namespace);
        rules.iter().any(|rule| {
            has(&rule.verbs, "impersonate")
                && (has(&rule.api_groups, "") || has(&rule.api_groups, AUTHENTICATION))
                && rule.resources.iter().any(|resource| {
                    let whole = resource.split('/').next().unwrap_or_default();
                    RESOURCES.contains(&whole)
                })
        })
    }
}

/// Who the headers name.
struct Wanted {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// One thing that has to be allowed to act as somebody.
#[derive(Clone, Copy)]
struct Part<'a> {
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Part<'_> {
    /// The part as the constrained way asks for it: everything about users is in their own group there.
    fn attributes<'a>(&'a self, verb: &'a str, group: &'a str) -> Attributes<'a> {
        Attributes {
            verb,
            resource_request: true,
            group,
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            path: "",
        }
    }

    fn refusal(&self, caller: &User) -> ApiError {
        let scope = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let full = match self.subresource {
            "" => self.resource.to_owned(),
            sub => format!("{}/{sub}", self.resource),
        };
        let why = format!(
            "User {:?} cannot impersonate resource {full:?} in API group {:?} {scope}",
            caller.name, self.group
        );
        let resource = GroupResource::new(self.group, self.resource);
        Status::forbidden(resource, self.name, &why).into()
    }
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let texts = |name: &str| -> Vec<String> {
            headers
                .get_all(name)
                .iter()
                .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
                .collect()
        };
        let mut wanted = Self {
            user: texts(USER).into_iter().next().unwrap_or_default(),
            uid: texts(UID).into_iter().next().unwrap_or_default(),
            groups: texts(GROUP).into_iter().filter(|g| !g.is_empty()).collect(),
            extra: BTreeMap::new(),
        };
        for name in headers
            .keys()
            .filter_map(|n| n.as_str().strip_prefix(EXTRA))
        {
            let values = texts(&format!("{EXTRA}{name}"));
            wanted
                .extra
                .entry(unescape(name))
                .or_default()
                .extend(values);
        }
        let more = !wanted.uid.is_empty() || !wanted.groups.is_empty() || !wanted.extra.is_empty();
        match (wanted.user.is_empty(), more) {
            (true, false) => Ok(None),
            (true, true) => {
                // Differs: kube-apiserver shows the user as Go prints it.
                let what = match (wanted.uid.is_empty(), wanted.groups.is_empty()) {
                    (false, _) => "a uid",
                    (_, false) => "groups",
                    _ => "extra fields",
                };
                let why = format!("requested {what} without impersonating a user name");
                Err(ApiError::bad_request(why))
            }
            (false, _) => Ok(Some(wanted)),
        }
    }

    /// Namespace and name of the service account that the user is.
    fn service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
        let valid =
            names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
        valid.then_some((namespace, name))
    }

    /// Everything that the caller needs a right to: the user, each group, the uid, each value of each extra.
    fn parts(&self) -> Vec<Part<'_>> {
        let part = |group, resource, name| Part {
            group,
            resource,
            subresource: "",
            namespace: "",
            name,
        };
        let mut parts = vec![match self.service_account() {
            Some((namespace, name)) => Part {
                namespace,
                ..part("", "serviceaccounts", name)
            },
            None => part("", "users", self.user.as_str()),
        }];
        parts.extend(self.groups.iter().map(|g| part("", "groups", g.as_str())));
        if !self.uid.is_empty() {
            parts.push(part(AUTHENTICATION, "uids", &self.uid));
        }
        for (key, values) in &self.extra {
            parts.extend(values.iter().map(|value| Part {
                subresource: key,
                ..part(AUTHENTICATION, "userextras", value.as_str())
            }));
        }
        parts
    }

    fn check(&self, asking: &Asking<'_>) -> Result<(), ApiError> {
        let parts = self.parts();
        let refused = parts
            .iter()
            .find(|part| !asking.may(&part.attributes("impersonate", part.group)));
        let Some(refused) = refused else {
            return Ok(());
        };
        // Groups, uids and extras are the same for either way; nodes need more than this way asks.
        if !asking.constrained || self.user.starts_with(NODE) {
            return Err(refused.refusal(asking.caller));
        }
        match self.check_constrained(asking, &parts) {
            Err(_) if asking.impersonates(parts[0].namespace) => {
                Err(refused.refusal(asking.caller))
            }
            other => other,
        }
    }

    fn check_constrained(&self, asking: &Asking<'_>, parts: &[Part<'_>]) -> Result<(), ApiError> {
        let mode = match self.service_account() {
            Some(_) => "serviceaccount",
            None => "user-info",
        };
        let on = format!("impersonate-on:{mode}:{}", asking.info.verb());
        let attributes = Attributes {
            verb: &on,
            ..Attributes::of(asking.info)
        };
        if !asking.may(&attributes) {
            let status = Status::forbidden_verb(&asking.caller.name, &on, asking.info, "");
            return Err(status.into());
        }
        let verb = format!("impersonate:{mode}");
        let refused = parts
            .iter()
            .find(|part| !asking.may(&part.attributes(&verb, AUTHENTICATION)));
        refused.map_or(Ok(()), |part| Err(part.refusal(asking.caller)))
    }

    fn into_user(self) -> User {
        let mut groups = Vec::new();
        if self.groups.is_empty()
            && let Some((namespace, _)) = self.service_account()
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        let anonymous = self.user == peerage_core::user::SYSTEM_ANONYMOUS;
        groups.extend(self.groups);
        if anonymous && groups.is_empty() {
            groups.push(peerage_core::user::SYSTEM_UNAUTHENTICATED.to_owned());
        }
        let mut user = User {
            name: self.user,
            uid: self.uid,
            groups,
            extra: self.extra,
        };
        user.mark_authenticated();
        user
    }
}

/// `%XX` in the key of an extra, as a header name carries it; kept as it is when it is malformed.
fn unescape(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = (byte == b'%').then(|| tail.get(..2)).flatten();
        let code = hex
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (byte, code) {
            (b'%', None) => return name.to_owned(),
            (_, Some(code)) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            (byte, None) => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}
