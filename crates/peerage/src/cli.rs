//! The words of the command line, down to each command's own.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit;
use crate::pki::{self, PkiCommand};

/// The Mixed Version Proxy for Kubernetes.
#[derive(Debug, Parser)]
#[command(
    name = "peerage",
    version,
    about = "The Mixed Version Proxy for Kubernetes: API servers of different versions that look like one",
    args_override_self = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 120
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make, renew and show the certificates of a control plane
    #[command(subcommand)]
    Pki(PkiCommand),
}

/// Reads the command line. Errors are clap's own, with its usage hints.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = Cli::command()
        .after_help(exit::help())
        .try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

/// Runs one command to its end.
pub fn run(command: Command) -> Result<(), exit::Failure> {
    match command {
        Command::Pki(command) => pki::run(&command),
    }
}
