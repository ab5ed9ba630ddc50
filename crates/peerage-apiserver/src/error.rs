//! What a handler fails with: a `Status` in the client's media type, or one of the plain texts of
//! kube-apiserver's outer filters. It becomes a response in one place, [`crate::respond`].

use peerage_catalogue::Resource;
use peerage_core::{GroupKind, GroupResource, PlainError, Status, StatusCause};
use peerage_store::{Revision, StoreError};

/// A failed request.
#[derive(Debug, Clone)]
pub(crate) enum ApiError {
    /// Said as a Status.
    Status(Box<Status>),
    /// Said as plain text.
    Plain(PlainError),
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<PlainError> for ApiError {
    fn from(plain: PlainError) -> Self {
        Self::Plain(plain)
    }
}

impl ApiError {
    /// 400.
    pub(crate) fn bad_request(message: impl ToString) -> Self {
        Status::bad_request(message.to_string()).into()
    }

    /// 404 for an object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Status::not_found(group_resource(resource), name).into()
    }

    /// 404 for a path below a group-version that is served here.
    pub(crate) fn unknown_path() -> Self {
        Status::unknown_path().into()
    }

    /// 500 of an error that has no reason of its own.
    pub(crate) fn untyped(message: impl Into<String>) -> Self {
        Status::untyped(message).into()
    }

    /// 503.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Status::service_unavailable(message)
            .with_retry_after(1)
            .into()
    }

    /// 410.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Status::expired(message).into()
    }

    /// 504 for a revision that this server has not reached.
    pub(crate) fn too_large_version(asked: Revision, current: Revision) -> Self {
        let unsigned = |r: Revision| u64::try_from(r).unwrap_or(0);
        Status::too_large_resource_version(unsigned(asked), unsigned(current)).into()
    }

    /// 422 for query parameters, which are validated as an object of `meta.k8s.io`.
    pub(crate) fn invalid_options(kind: &str, errors: Vec<StatusCause>) -> Self {
        Status::invalid(GroupKind::new("meta.k8s.io", kind), "", errors).into()
    }

    /// 422 for an object.
    pub(crate) fn invalid(resource: &Resource, name: &str, errors: Vec<StatusCause>) -> Self {
        Status::invalid(
            GroupKind::new(&resource.group, &resource.kind),
            name,
            errors,
        )
        .into()
    }

    /// Whether there is such an object already.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// The HTTP status code.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Status(status) => status.code(),
            Self::Plain(plain) => plain.code,
        }
    }
}

/// What went wrong in the store, as a client is told.
///
/// A store that refuses this server (a password that was changed, a right that is not given yet) does so until somebody
/// mends it, which is nothing that the request could be blamed for.
///
/// Differs: kube-apiserver answers 500 or 504 while its store is away or refuses it; 503 with `Retry-After` is what clients retry.
pub(crate) fn of_store(error: &StoreError, resource: &Resource, operation: &str) -> ApiError {
    match error {
        StoreError::Compacted { .. } => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        StoreError::TooLarge { .. } => Status::too_large(error).into(),
        error if error.is_transient() || matches!(error, StoreError::Denied { .. }) => {
            let what = group_resource(resource);
            ApiError::unavailable(format!(
                "the {operation} of {what} could not be completed: {error}"
            ))
        }
        error => Status::internal(error.to_string()).into(),
    }
}

/// A resource as Status texts name it.
pub(crate) fn group_resource(resource: &Resource) -> GroupResource<'_> {
    GroupResource::new(&resource.group, &resource.plural)
}
