//! The local handler chain: what this server answers itself, after the proxy has left a request to it.

mod index;
mod nonresource;
mod pages;
mod token_keys;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Method;
use http::request::Parts;
use peerage_auth::AuditContext;
use peerage_core::media::{self, Endpoint, ResourceAccept};
use peerage_core::{PlainError, RequestInfo, Status, User};
use peerage_http::{Body, Request, Response};
use tower::Service;

use crate::api::Api;
use crate::call::Call;
use crate::error::ApiError;
use crate::resources::{Found, Served};
use crate::respond::Respond;
use crate::verbs;
use crate::warnings::Warnings;
pub(crate) use pages::Process;
pub(crate) use token_keys::Issuer;

/// Answers requests from this server's own state.
#[derive(Clone)]
pub(crate) struct Local {
    api: Arc<Api>,
}

impl Local {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api }
    }

    async fn answer(self, request: Request) -> Response {
        let (mut parts, body) = request.into_parts();
        let Some(info) = parts.extensions.remove::<Arc<RequestInfo<'static>>>() else {
            return crate::respond::failure(&Status::internal("the request was not parsed"));
        };
        let below = |prefix: &str| info.path().starts_with(prefix);
        if !info.is_resource_request() || !(below("/api/") || below("/apis/")) {
            return nonresource::answer(&self.api, &info, &parts, body).await;
        }
        let deprecated = deprecation(&self.api, &info);
        let mut response = self.answer_resource(info, parts, body).await;
        if let Some(text) = deprecated {
            let warnings = Warnings::default();
            warnings.add(&*text);
            warnings.apply(response.headers_mut());
        }
        response
    }

    async fn answer_resource(
        self,
        info: Arc<RequestInfo<'static>>,
        parts: Parts,
        body: Body,
    ) -> Response {
        let audit = parts.extensions.get::<AuditContext>().cloned();
        let plain = Respond::plain(&parts.headers, &info.query());
        let fail = |error: ApiError| {
            if let (Some(audit), ApiError::Status(status)) = (&audit, &error) {
                audit.fail(status);
            }
            plain.error(&error)
        };
        let found = find(&self.api, &info, &parts.method)
            .and_then(|served| Ok((accept(&info, &parts.headers)?, served)));
        let (accept, served) = match found {
            Ok(found) => found,
            Err(error) => return fail(error),
        };
        let user = parts
            .extensions
            .get::<Arc<User>>()
            .cloned()
            .unwrap_or_else(|| Arc::new(User::anonymous()));
        let call = Call::new(self.api, served, info, user, parts, accept);
        match verbs::dispatch(call, body).await {
            Ok(response) => response,
            Err(error) => fail(error),
        }
    }
}

impl Service<Request> for Local {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let local = self.clone();
        Box::pin(async move { Ok(local.answer(request).await) })
    }
}

/// What whoever uses the resource is told of it.
fn deprecation(api: &Api, info: &RequestInfo<'_>) -> Option<Arc<str>> {
    match api.resources.find(info) {
        Found::Resource(served) => {
            let resource = &served.resource;
            let used = info.verb() == "watch" || resource.has_verb(info.verb());
            resource.rules.deprecated.clone().filter(|_| used)
        }
        _ => None,
    }
}

/// What the client accepts.
fn accept_of(headers: &http::HeaderMap) -> Option<&str> {
    headers
        .get(http::header::ACCEPT)
        .and_then(|v| v.to_str().ok())
}

fn accept(info: &RequestInfo<'_>, headers: &http::HeaderMap) -> Result<ResourceAccept, ApiError> {
    let accept = accept_of(headers);
    let endpoint = match info.verb() {
        "list" => Endpoint::List,
        "watch" => Endpoint::Watch,
        _ => Endpoint::Object,
    };
    Ok(media::negotiate_resource(accept, endpoint, true).map_err(Status::from)?)
}

/// The resource that the path leads to, if the path's form and the method fit it.
fn find(api: &Api, info: &RequestInfo<'_>, method: &Method) -> Result<Arc<Served>, ApiError> {
    let served = match api.resources.find(info) {
        Found::Resource(served) => served,
        Found::NoResource | Found::NoVersion => return Err(ApiError::unknown_path()),
        Found::NoGroup => return Err(PlainError::page_not_found().into()),
    };
    check_scope(info, served)?;
    check_method(info, served, method)?;
    check_name(info.name())?;
    Ok(served.clone())
}

/// No object has a name that means something in a path.
fn check_name(name: &str) -> Result<(), ApiError> {
    let why = match name {
        "." => "may not be '.'",
        ".." => "may not be '..'",
        name if name.contains('/') => "may not contain '/'",
        name if name.contains('%') => "may not contain '%'",
        _ => return Ok(()),
    };
    let name = peerage_core::quote::quote(name);
    Err(ApiError::bad_request(format!(
        "Name parameter invalid: {name}: {why}"
    )))
}

/// Namespaced objects are found in a namespace, the others nowhere else than in the cluster.
fn check_scope(info: &RequestInfo<'_>, served: &Served) -> Result<(), ApiError> {
    let resource = &served.resource;
    let in_namespace = !info.namespace().is_empty() && &*resource.plural != "namespaces";
    let parts = info.parts().count();
    let named = !info.name().is_empty() && parts > 1;
    let namespace_in_another = &*resource.plural == "namespaces"
        && !info.namespace().is_empty()
        && info.namespace() != info.name();
    let bad = (!resource.namespaced && in_namespace)
        || namespace_in_another
        // What was once below `/proxy/` in front of the resource is long gone.
        || info.verb() == "proxy"
        || (resource.namespaced && !in_namespace && named)
        || info.parts().any(str::is_empty)
        || (parts > 3 && info.subresource() != "proxy")
        || (!info.subresource().is_empty() && served.subresource(info.subresource()).is_none());
    if bad {
        Err(ApiError::unknown_path())
    } else {
        Ok(())
    }
}

fn check_method(info: &RequestInfo<'_>, served: &Served, method: &Method) -> Result<(), ApiError> {
    let resource = &served.resource;
    let verb = match (method, info.verb()) {
        (&Method::HEAD | &Method::OPTIONS, _) => "",
        (_, verb) => verb,
    };
    let not_allowed = || Err(Status::method_not_allowed().into());
    if let Some(sub) = served.subresource(info.subresource()) {
        return if sub.has_verb(verb) {
            Ok(())
        } else {
            not_allowed()
        };
    }
    let named = info.parts().count() > 1;
    let collection = matches!(verb, "list" | "watch" | "create" | "deletecollection");
    let everywhere = resource.namespaced && info.namespace().is_empty();
    if everywhere && matches!(verb, "create" | "deletecollection") && resource.has_verb(verb) {
        return not_allowed();
    }
    let has_objects = ["get", "update", "patch", "delete"]
        .into_iter()
        .any(|verb| resource.has_verb(verb));
    if named && !has_objects {
        // What is only ever created has no objects to name.
        return Err(ApiError::unknown_path());
    }
    if verb == "create" && named || !named && !collection {
        return not_allowed();
    }
    if verb == "watch" && !resource.has_verb("watch") && resource.has_verb("list") {
        return Err(
            Status::method_not_supported(crate::error::group_resource(resource), "watch").into(),
        );
    }
    if resource.has_verb(verb) {
        Ok(())
    } else {
        not_allowed()
    }
}
