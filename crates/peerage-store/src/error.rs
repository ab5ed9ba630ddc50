//! What can go wrong with a store.
//!
//! [`StoreError`] is what every method of [`crate::Store`] returns. Conflicts are not errors at this
//! level: a transaction whose compares fail has succeeded in saying so. [`crate::WriteError`] is
//! where a conflict becomes one.

use std::path::PathBuf;

use crate::types::{LeaseId, Revision};

/// Why a store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The revision asked for is no longer there. Read again at the current one.
    #[error("the revision asked for was compacted; the oldest one kept is {compact_revision}")]
    Compacted {
        /// The oldest revision that can still be read and watched from; 0 if it is not known.
        compact_revision: Revision,
    },
    /// The revision asked for is not there yet.
    #[error("the revision asked for is not there yet; the store is at {current}")]
    FutureRevision {
        /// The store's revision; 0 if it is not known.
        current: Revision,
    },
    /// A value or a whole transaction is larger than the store takes.
    #[error("the request is too large: {size} bytes, at most {limit} are taken")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// What was asked for is more than is read at once. Ask for less.
    #[error("the answer is larger than what is read of one")]
    AnswerTooLarge,
    /// A transaction has more operations than the store takes.
    #[error("a transaction of {ops} operations or compares; at most {limit} are taken")]
    TooManyOps {
        /// How many it has.
        ops: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// A transaction would write the same key twice.
    #[error("one transaction writes the same key twice")]
    DuplicateKey,
    /// The key is empty.
    #[error("the key is empty")]
    EmptyKey,
    /// A put that keeps the value or the lease of a key that does not exist.
    #[error("the key whose value or lease is to be kept does not exist")]
    KeyNotFound,
    /// There is no room left. Deleting and compacting still work.
    #[error("the store has no space left")]
    NoSpace,
    /// There is no such lease, or it has run out.
    #[error("lease {id:016x} does not exist")]
    LeaseNotFound {
        /// The lease asked for.
        id: LeaseId,
    },
    /// A lease of this number exists already.
    #[error("lease {id:016x} exists already")]
    LeaseExists {
        /// The lease asked for.
        id: LeaseId,
    },
    /// A lease's time to live is zero or absurd.
    #[error("a lease's time to live must be between one millisecond and {limit_seconds} seconds")]
    LeaseTtl {
        /// The longest one taken.
        limit_seconds: u64,
    },
    /// The watcher did not read its events fast enough and was cut off. Nothing is lost: watch again
    /// from `resume_revision`.
    #[error("the watcher was too slow; watch again from revision {resume_revision}")]
    CutOff {
        /// The first revision that was not delivered.
        resume_revision: Revision,
    },
    /// The store has as many of something as it takes.
    #[error("the store has {limit} {what}, which is all it takes")]
    Exhausted {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// The store does not let this client do it.
    #[error("the store refused: {reason}")]
    Denied {
        /// What it said.
        reason: String,
    },
    /// The request is not one that this store can understand.
    #[error("the request is not valid: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The store cannot be reached, or it failed on the way. A write may or may not have been done.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// What the store holds is damaged.
    #[error("the store is damaged: {reason}")]
    Corrupt {
        /// What was found.
        reason: String,
    },
}

impl StoreError {
    /// Whether a write that failed this way may have been done all the same. Everything else
    /// certainly changed nothing.
    pub fn may_have_written(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }

    /// Whether the same request may succeed later without any change to it.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            StoreError::Unavailable { .. }
                | StoreError::NoSpace
                | StoreError::Exhausted { .. }
                | StoreError::FutureRevision { .. }
        )
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        StoreError::Unavailable {
            reason: reason.into(),
        }
    }
}

/// Why a store's file could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "{} is in use by process {}; one process at a time can hold a store's file: stop that one, \
         or let it serve the file to the others with `peerage store` and give them its address",
        path.display(),
        pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string())
    )]
    InUse {
        /// The store's file.
        path: PathBuf,
        /// Who holds it, as far as that is known.
        pid: Option<u32>,
    },
    /// The file, or the folder it is in, cannot be read or made.
    #[error("cannot open {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is a database, but not one of ours.
    #[error("{} is a database of another program; choose another file", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer Peerage.
    #[error(
        "{} has format {found}, and this Peerage knows formats up to {known}; use a newer Peerage, \
         or another file",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The database engine could not open it.
    #[error("cannot open the database {}: {reason}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
}
