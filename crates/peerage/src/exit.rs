//! How a command ends: the exit codes, in one table, and the error that carries one.
//!
//! Every command returns a `Result` with a `Failure`; only [`crate::main`] turns that into a process's exit code and a
//! message. `diff` and `check` have exit codes of their own, which their `--help` shows. A message says what was attempted, what came of it, and, where there is one, what to do next.

use std::fmt;

/// Why a command failed, which decides its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command ran and failed, or what it checks is not as it should be.
    Failed,
    /// The command line or a configuration file is wrong; nothing was started.
    Usage,
    /// Something that has to be there before the command can work is not: a file, a port, a server, a lock.
    Unavailable,
}

/// The exit codes as `--help` shows them: code, meaning.
pub const EXIT_CODES: [(u8, &str); 5] = [
    (
        0,
        "done; for a server: it was asked to stop and has stopped cleanly",
    ),
    (1, "it ran and failed, or a check found something wrong"),
    (
        2,
        "the command line or the configuration is wrong; nothing was started",
    ),
    (
        3,
        "something it needs is not there: a file, a port, a server, a lock",
    ),
    (
        130,
        "stopped by a second Ctrl-C before the clean stop was over",
    ),
];

/// The exit code of a second Ctrl-C: 128 + SIGINT, as shells count.
pub const EXIT_INTERRUPTED: u8 = 130;

impl Kind {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unavailable => 3,
        }
    }
}

/// A failed command: what kind of failure, and the chain of what went wrong.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    error: anyhow::Error,
}

impl Failure {
    /// A failure of that kind.
    pub fn new(kind: Kind, error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind,
            error: error.into(),
        }
    }

    /// A failure in use, with a message.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, anyhow::anyhow!("{message}"))
    }

    /// A mistake on the command line or in a configuration file, with a message.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, anyhow::anyhow!("{message}"))
    }

    /// Something missing, with a message.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(Kind::Unavailable, anyhow::anyhow!("{message}"))
    }

    /// The same failure, as one of another kind: for commands whose exit codes have a meaning of their own.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The same failure with more words behind its own.
    #[must_use]
    pub fn with(self, more: &str) -> Self {
        match more {
            "" => self,
            more => Self::new(self.kind, anyhow::anyhow!("{self}{more}")),
        }
    }

    /// The kind of this failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Failure {
    /// The error and, after colons, its causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Kind::Failed, error)
    }
}

/// The exit codes as a block for `--help`.
pub fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("  {code:<4} {meaning}\n"));
    }
    text
}
