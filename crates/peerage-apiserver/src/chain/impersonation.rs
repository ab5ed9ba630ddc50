//! `Impersonate-*` headers: acting as somebody else, for those who may. Follows kube-apiserver's impersonation
//! filter; all headers are gone afterwards, so that a peer has nothing left to judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use peerage_auth::audit::AuditContext;
use peerage_core::{GroupResource, Status, User};
use peerage_http::Request;

use crate::authz::{Attributes, Authorizer};
use crate::error::ApiError;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Replaces the user of a request that asks for it.
pub(super) fn apply(
    authorizer: &Authorizer,
    headers: HeaderMap,
    request: &mut Request,
    audit: &AuditContext,
) -> Result<(), ApiError> {
    let Some(wanted) = Wanted::read(&headers)? else {
        return Ok(());
    };
    let caller = request
        .extensions()
        .get::<Arc<User>>()
        .cloned()
        .ok_or_else(Status::unauthorized)?;
    wanted.check(authorizer, &caller)?;
    let user = Arc::new(wanted.into_user());
    audit.impersonate(&user);
    request.extensions_mut().insert(user);
    let names: Vec<_> = headers
        .keys()
        .filter(|n| n.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    for name in names {
        request.headers_mut().remove(name);
    }
    Ok(())
}

/// Who the headers name.
struct Wanted {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
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
            let key = unescape(name);
            wanted.extra.insert(key, texts(&format!("{EXTRA}{name}")));
        }
        let more = !wanted.uid.is_empty() || !wanted.groups.is_empty() || !wanted.extra.is_empty();
        match (wanted.user.is_empty(), more) {
            (true, false) => Ok(None),
            (true, true) => {
                let sent = format!(
                    "requested {} without impersonating a user",
                    if !wanted.uid.is_empty() {
                        "uid"
                    } else if !wanted.groups.is_empty() {
                        "groups"
                    } else {
                        "extra"
                    }
                );
                Err(ApiError::bad_request(sent))
            }
            (false, _) => Ok(Some(wanted)),
        }
    }

    /// May the caller act as the user, as each group, with the uid, with each extra value?
    fn check(&self, authorizer: &Authorizer, caller: &User) -> Result<(), ApiError> {
        let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
            let attributes = Attributes {
                verb: "impersonate",
                resource_request: true,
                group,
                resource,
                subresource,
                namespace,
                name,
                path: "",
            };
            let decision = authorizer.decide(caller, &attributes);
            if decision.allowed {
                return Ok(());
            }
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let full = if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let why = format!(
                "User {:?} cannot impersonate resource {full:?} in API group {group:?} {scope}",
                caller.name
            );
            Err(ApiError::from(Status::forbidden(
                GroupResource::new(group, resource),
                name,
                &why,
            )))
        };
        match self
            .user
            .strip_prefix(SERVICE_ACCOUNT)
            .and_then(|rest| rest.split_once(':'))
        {
            Some((namespace, name)) => ask("", "serviceaccounts", "", namespace, name)?,
            None => ask("", "users", "", "", &self.user)?,
        }
        for group in &self.groups {
            ask("", "groups", "", "", group)?;
        }
        if !self.uid.is_empty() {
            ask("authentication.k8s.io", "uids", "", "", &self.uid)?;
        }
        for (key, values) in &self.extra {
            for value in values {
                ask("authentication.k8s.io", "userextras", key, "", value)?;
            }
        }
        Ok(())
    }

    fn into_user(self) -> User {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = self
                .user
                .strip_prefix(SERVICE_ACCOUNT)
                .and_then(|rest| rest.split_once(':'))
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
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
