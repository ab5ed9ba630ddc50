//! The constructors: one per row of Kubernetes' table of API errors.

use super::{GroupKind, GroupResource, Status, StatusBody, StatusCause, StatusDetails, field};
use std::fmt;

use crate::quote::quote;
use crate::request_info::RequestInfo;

/// What an optimistic update that lost says.
const OPTIMISTIC_LOCK_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Status {
    pub(super) fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Status::from(StatusBody {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            code,
            ..StatusBody::default()
        })
    }

    fn about(mut self, resource: GroupResource<'_>, name: &str) -> Self {
        self.details = Some(StatusDetails {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..StatusDetails::default()
        });
        self
    }

    pub(super) fn with_empty_details(mut self) -> Self {
        self.details = Some(StatusDetails::default());
        self
    }

    /// Success with details of what was done to which object, as a deletion answers.
    #[must_use]
    pub fn success(resource: GroupResource<'_>, name: &str, uid: &str) -> Self {
        let mut status = Self::failure(0, "", "").about(resource, name);
        "Success".clone_into(&mut status.status);
        status.details.get_or_insert_default().uid = uid.to_owned();
        status
    }

    /// Success of a create that has no object to show (a binding, an eviction).
    #[must_use]
    pub fn created() -> Self {
        let mut status = Self::failure(201, "", "");
        "Success".clone_into(&mut status.status);
        status
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 400: the `timeout` parameter is no duration; the problem is [`crate::duration`]'s.
    pub fn bad_timeout(problem: &(impl fmt::Display + ?Sized)) -> Self {
        Self::bad_request(format!(
            "invalid timeout specified in the request URL - {problem}"
        ))
    }

    /// 401: whoever it is, the credentials do not say so.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403: a resource request is forbidden for a reason. With an empty name the whole resource is meant.
    #[must_use]
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::failure(403, "Forbidden", message).about(resource, name)
    }

    /// 403: the authorizer did not let the user do this. Its reason, when it gives one, ends the message.
    #[must_use]
    pub fn forbidden_request(user: &str, info: &RequestInfo<'_>, reason: &str) -> Self {
        Self::forbidden_verb(user, info.verb(), info, reason)
    }

    /// [`Status::forbidden_request`] for another verb than the request's own.
    #[must_use]
    pub fn forbidden_verb(user: &str, verb: &str, info: &RequestInfo<'_>, reason: &str) -> Self {
        let mut why = if info.is_resource_request() {
            forbidden_resource(user, verb, info)
        } else {
            format!(
                "User {} cannot {verb} path {}",
                quote(user),
                quote(info.path())
            )
        };
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        if !info.is_resource_request() {
            return Self::failure(403, "Forbidden", format!("forbidden: {why}"))
                .with_empty_details();
        }
        Self::forbidden(
            GroupResource::new(info.api_group(), info.resource()),
            info.name(),
            &why,
        )
    }

    /// 403: something is created in a namespace that goes away.
    #[must_use]
    pub fn namespace_terminating(resource: GroupResource<'_>, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Self::forbidden(resource, name, &why).with_cause(StatusCause::new(
            "NamespaceTerminating",
            format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ))
    }

    /// 404: no object of this name.
    #[must_use]
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        Self::failure(
            404,
            "NotFound",
            format!("{resource} {} not found", quote(name)),
        )
        .about(resource, name)
    }

    /// 404: the group-version is served here, but nothing at this path of it.
    #[must_use]
    pub fn unknown_path() -> Self {
        Self::generic(404, "")
    }

    /// 405: the path is served, but not this method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::generic(405, "")
    }

    /// 405: the resource does not support the action.
    #[must_use]
    pub fn method_not_supported(resource: GroupResource<'_>, action: &str) -> Self {
        let kind = quote(&resource.to_string());
        Self::failure(
            405,
            "MethodNotAllowed",
            format!("{action} is not supported on resources of kind {kind}"),
        )
        .about(resource, "")
    }

    /// 406: nothing that the client accepts can be answered. The texts come from [`crate::media`].
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message)
    }

    /// 409: the object is not what the request takes it for.
    #[must_use]
    pub fn conflict(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            quote(name)
        );
        Self::failure(409, "Conflict", message).about(resource, name)
    }

    /// 409: the object was changed in between.
    #[must_use]
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Self {
        Self::conflict(resource, name, OPTIMISTIC_LOCK_MESSAGE)
    }

    /// 409: an object of this name is there already.
    #[must_use]
    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        Self::failure(
            409,
            "AlreadyExists",
            format!("{resource} {} already exists", quote(name)),
        )
        .about(resource, name)
    }

    /// 409: an object of this name is there and on its way out.
    #[must_use]
    pub fn being_deleted(resource: GroupResource<'_>, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status.message.insert_str(0, "object is being deleted: ");
        status
    }

    /// 409: every name that was generated is taken.
    #[must_use]
    pub fn generated_name_exists(
        resource: GroupResource<'_>,
        name: &str,
        retry_after: u32,
    ) -> Self {
        let mut status = Self::already_exists(resource, name).with_retry_after(retry_after);
        status
            .message
            .push_str(", the server was not able to generate a unique name for the object");
        status
    }

    /// 410: what is asked for is older than what the server remembers.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 413: the request is larger than the server takes.
    pub fn too_large(what: impl fmt::Display) -> Self {
        Self::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {what}"),
        )
    }

    /// 415: the body is in a format that the resource does not take.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let what =
            "the body of the request was in an unknown format - accepted media types include";
        Self::failure(
            415,
            "UnsupportedMediaType",
            format!("{what}: {}", accepted.join(", ")),
        )
    }

    /// 422: the object breaks rules. Equal faults are told once in the message, each in the causes, up to a bound.
    #[must_use]
    pub fn invalid(kind: GroupKind<'_>, name: &str, causes: Vec<StatusCause>) -> Self {
        let causes = field::bounded(causes);
        let mut message = format!("{kind} {} is invalid", quote(name));
        if !causes.is_empty() {
            message = format!("{message}: {}", field::aggregate(&causes));
        }
        let mut status = Self::failure(422, "Invalid", message)
            .about(GroupResource::new(kind.group, kind.kind), name);
        status.details.get_or_insert_default().causes = causes;
        status
    }

    /// 429: the API itself asks for patience.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::failure(429, "TooManyRequests", message).with_retry_after(retry_after)
    }

    /// 500: something inside failed.
    pub fn internal(what: impl Into<String>) -> Self {
        let what = what.into();
        Self::failure(
            500,
            "InternalError",
            format!("Internal error occurred: {what}"),
        )
        .with_cause(StatusCause {
            message: what,
            ..StatusCause::default()
        })
    }

    /// 500 without a reason: what Kubernetes answers for errors that are no API errors.
    pub fn untyped(message: impl Into<String>) -> Self {
        Self::failure(500, "", message)
    }

    /// 500: the operation may well succeed when tried again.
    #[must_use]
    pub fn server_timeout(resource: GroupResource<'_>, operation: &str, retry_after: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::failure(500, "ServerTimeout", message)
            .about(resource, operation)
            .with_retry_after(retry_after)
    }

    /// 503: not now.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
    }

    /// 504: the API gave up waiting.
    #[must_use]
    pub fn timeout(what: &str, retry_after: u32) -> Self {
        Self::failure(504, "Timeout", format!("Timeout: {what}"))
            .with_empty_details()
            .with_retry_after(retry_after)
    }

    /// 504: a resource version from the future was asked for.
    #[must_use]
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let what = format!("Too large resource version: {asked}, current: {current}");
        Self::timeout(&what, 1).with_cause(StatusCause::new(
            "ResourceVersionTooLarge",
            "Too large resource version",
            "",
        ))
    }

    /// 504: the request's time ran out. Kubernetes leaves out `kind` and `apiVersion` here and always writes JSON.
    #[must_use]
    pub fn deadline_exceeded() -> Self {
        let mut status = Self::timeout("request did not complete within the allotted timeout", 0);
        status.kind.clear();
        status.api_version.clear();
        status
    }
}

fn forbidden_resource(user: &str, verb: &str, info: &RequestInfo<'_>) -> String {
    let scope = if info.namespace().is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quote(info.namespace()))
    };
    format!(
        "User {} cannot {} resource {} in API group {} {scope}",
        quote(user),
        verb,
        quote(&info.resource_path()),
        quote(info.api_group()),
    )
}
