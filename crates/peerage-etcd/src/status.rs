//! Between the store's errors and etcd's: gRPC codes and the texts that clients compare.

use peerage_store::{LeaseId, StoreError};
use tonic::{Code, Status};

pub(crate) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE_REVISION: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const EMPTY_KEY: &str = "etcdserver: key is not provided";
const KEY_NOT_FOUND: &str = "etcdserver: key not found";
const TOO_MANY_OPS: &str = "etcdserver: too many operations in txn request";
const DUPLICATE_KEY: &str = "etcdserver: duplicate key given in txn request";
const TOO_LARGE: &str = "etcdserver: request is too large";
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
pub(crate) const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
const LEASE_EXISTS: &str = "etcdserver: lease already exists";
const LEASE_TTL: &str = "etcdserver: too large lease TTL";
const AUTH_FAILED: &str = "etcdserver: authentication failed, invalid user ID or password";
const AUTH_NO_USER: &str = "etcdserver: user name is empty";
const AUTH_OLD: &str = "etcdserver: revision of auth store is old";
const AUTH_OFF: &str = "etcdserver: authentication is not enabled";
/// What etcd says to who has a name, and no right to the key.
pub(crate) const PERMISSION_DENIED: &str = "permission denied";
const TOKEN_INVALID: &str = "etcdserver: invalid auth token";
/// What the gRPC library says of an answer that is larger than what is taken.
const ANSWER_TOO_LARGE: &str = "Error, decoded message length too large";
const CORRUPT: &str = "etcdserver: corrupt cluster";

/// What etcd would have answered.
pub(crate) fn to_status(error: &StoreError) -> Status {
    match error {
        StoreError::Compacted { .. } => Status::out_of_range(COMPACTED),
        StoreError::FutureRevision { .. } => Status::out_of_range(FUTURE_REVISION),
        StoreError::TooLarge { .. } => Status::invalid_argument(TOO_LARGE),
        StoreError::TooManyOps { .. } => Status::invalid_argument(TOO_MANY_OPS),
        StoreError::DuplicateKey => Status::invalid_argument(DUPLICATE_KEY),
        StoreError::EmptyKey => Status::invalid_argument(EMPTY_KEY),
        StoreError::KeyNotFound => Status::invalid_argument(KEY_NOT_FOUND),
        StoreError::NoSpace => Status::resource_exhausted(NO_SPACE),
        StoreError::LeaseNotFound { .. } => Status::not_found(LEASE_NOT_FOUND),
        StoreError::LeaseExists { .. } => Status::failed_precondition(LEASE_EXISTS),
        StoreError::LeaseTtl { .. } => Status::out_of_range(LEASE_TTL),
        StoreError::Exhausted { .. } => Status::resource_exhausted(TOO_MANY_REQUESTS),
        StoreError::Denied { reason } => Status::permission_denied(reason.clone()),
        StoreError::Corrupt { .. } => Status::data_loss(CORRUPT),
        StoreError::Invalid { .. } => Status::invalid_argument(format!("etcdserver: {error}")),
        _ => Status::unavailable(format!("etcdserver: {error}")),
    }
}

/// What a server's answer means. What it does not say (the compacted revision, the current one, the
/// sizes) is zero; the client fills in what it can find out. `lease` is the one that was asked for.
pub(crate) fn from_status(status: &Status, lease: LeaseId) -> StoreError {
    match status.message() {
        COMPACTED => StoreError::Compacted {
            compact_revision: 0,
        },
        FUTURE_REVISION => StoreError::FutureRevision { current: 0 },
        NO_SPACE => StoreError::NoSpace,
        EMPTY_KEY => StoreError::EmptyKey,
        KEY_NOT_FOUND => StoreError::KeyNotFound,
        DUPLICATE_KEY => StoreError::DuplicateKey,
        TOO_MANY_OPS => StoreError::TooManyOps { ops: 0, limit: 0 },
        TOO_LARGE => StoreError::TooLarge { size: 0, limit: 0 },
        LEASE_NOT_FOUND => StoreError::LeaseNotFound { id: lease },
        LEASE_EXISTS => StoreError::LeaseExists { id: lease },
        LEASE_TTL => StoreError::LeaseTtl { limit_seconds: 0 },
        AUTH_FAILED | AUTH_NO_USER | AUTH_OLD => StoreError::Denied {
            reason: status.message().to_owned(),
        },
        message => by_code(status.code(), message),
    }
}

/// Whether what the cluster gave for name and password has ended, or was none and is wanted now; asking again gives
/// another one.
pub(crate) fn token_has_ended(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || matches!(status.message(), AUTH_OLD | AUTH_NO_USER)
}

/// The same, of the reason that a watch is given, which is the error as Go prints it.
pub(crate) fn says_token_has_ended(reason: &str) -> bool {
    [AUTH_OLD, AUTH_NO_USER, TOKEN_INVALID]
        .iter()
        .any(|text| reason.contains(text))
}

/// Whether name and password do not belong together.
pub(crate) fn password_is_refused(status: &Status) -> bool {
    status.message() == AUTH_FAILED
}

/// Whether the cluster has no names and passwords.
pub(crate) fn authentication_is_off(status: &Status) -> bool {
    status.message() == AUTH_OFF
}

fn by_code(code: Code, message: &str) -> StoreError {
    let reason = message.to_owned();
    match code {
        Code::InvalidArgument | Code::Unimplemented | Code::FailedPrecondition => {
            StoreError::Invalid { reason }
        }
        Code::PermissionDenied | Code::Unauthenticated => StoreError::Denied { reason },
        Code::OutOfRange if message.starts_with(ANSWER_TOO_LARGE) => StoreError::AnswerTooLarge,
        Code::DataLoss => StoreError::Corrupt { reason },
        // The server did not begin.
        Code::ResourceExhausted if message == TOO_MANY_REQUESTS => StoreError::Exhausted {
            what: "requests",
            limit: 0,
        },
        _ => StoreError::Unavailable {
            reason: format!("{reason} ({code:?})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_after_a_trip_through_etcds() {
        for error in [
            StoreError::Compacted {
                compact_revision: 0,
            },
            StoreError::FutureRevision { current: 0 },
            StoreError::NoSpace,
            StoreError::EmptyKey,
            StoreError::KeyNotFound,
            StoreError::DuplicateKey,
            StoreError::TooManyOps { ops: 0, limit: 0 },
            StoreError::TooLarge { size: 0, limit: 0 },
            StoreError::LeaseNotFound { id: 7 },
            StoreError::LeaseExists { id: 7 },
            StoreError::LeaseTtl { limit_seconds: 0 },
        ] {
            assert_eq!(from_status(&to_status(&error), 7), error);
        }
    }
}
