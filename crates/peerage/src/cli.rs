//! The words of the command line, down to each command's own.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::apiserver::unneeded::Unneeded;
use crate::apiserver::words::Unknown;
use crate::apiserver::{self, ApiserverFlags, words};
use crate::check::{self, CheckFlags};
use crate::diff::{self, DiffFlags};
use crate::exit::{self, Failure};
use crate::explain::{self, ExplainFlags};
use crate::gateway::{self, GatewayFlags};
use crate::pki::{self, PkiCommand};
use crate::print_config::{FromFile, Settings};
use crate::settings_error::SettingsError;
use crate::store::{self, StoreFlags};
use crate::up::{self, UpFlags};

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
    /// Run an API server of one Kubernetes version, with the Mixed Version Proxy in its handler chain
    #[command(after_help = apiserver::AFTER_HELP, override_usage = "peerage apiserver [OPTIONS]")]
    Apiserver(Box<ApiserverFlags>),
    /// Run the Mixed Version Proxy in front of API servers that exist, beside one of them or balancing over all
    #[command(after_help = gateway::AFTER_HELP, override_usage = "peerage gateway [OPTIONS]")]
    Gateway(Box<GatewayFlags>),
    /// Offer one store to several API servers, over etcd's v3 protocol
    #[command(after_help = store::AFTER_HELP)]
    Store(StoreFlags),
    /// Start servers of several versions on this machine and show that they work as one
    #[command(after_help = up::AFTER_HELP)]
    Up(UpFlags),
    /// Say who would answer a request, and why
    #[command(after_help = explain::AFTER_HELP, override_usage = "peerage explain [OPTIONS] [METHOD] PATH")]
    Explain(ExplainFlags),
    /// Walk the checklist of an upgrade with servers of several versions
    #[command(after_help = check::AFTER_HELP)]
    Check(Box<CheckFlags>),
    /// Show which APIs only one of two servers, versions or saved documents has
    #[command(after_help = diff::AFTER_HELP)]
    Diff(DiffFlags),
    /// Make, renew and show the certificates of a control plane
    #[command(subcommand)]
    Pki(PkiCommand),
}

impl Command {
    /// Whether it goes on until it is told to stop, and hears signals.
    pub fn listens(&self) -> bool {
        match self {
            Command::Apiserver(_) | Command::Gateway(_) | Command::Store(_) | Command::Up(_) => {
                true
            }
            Command::Check(flags) => flags.watch,
            Command::Explain(_) | Command::Diff(_) | Command::Pki(_) => false,
        }
    }
}

/// Why a command line was not understood.
#[derive(Debug)]
pub enum ParseError {
    /// clap's own answer, which may also be help that was asked for.
    Clap(clap::Error),
    /// A mistake found before clap.
    Failure(Failure),
}

/// What was typed, read.
#[derive(Debug)]
pub struct Typed {
    /// The command.
    pub command: Command,
    /// Flags that were accepted and do nothing.
    pub unneeded: Vec<&'static Unneeded>,
    /// What is in force for a server, and where it came from.
    pub settings: Option<Settings>,
    /// What of it is from a file.
    pub file: FromFile,
}

/// Reads the command line.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Typed, ParseError> {
    let command = Cli::command().after_help(exit::help());
    let mut args: Vec<OsString> = args.into_iter().collect();
    let mut unneeded = Vec::new();
    let mut from_file = FromFile::default();
    let as_go_writes = [
        ("apiserver", Unknown::AsKubeApiserver),
        ("gateway", Unknown::None),
    ];
    let server = as_go_writes
        .into_iter()
        .find(|(name, _)| args.get(1).is_some_and(|word| word == name));
    if let Some((name, unknown)) = server {
        let takes_value = |flag: &str| takes_value(&command, name, flag);
        let words = words::read(args.split_off(2), unknown, takes_value)
            .map_err(|error| ParseError::Failure(with_guess(error, &command, name)))?;
        if name == "gateway" {
            gateway::refuse_two_upstreams(&words.args)
                .map_err(|error| ParseError::Failure(error.into()))?;
        }
        args.extend(words.args);
        unneeded = words.unneeded;
        from_file = words.file;
    }
    let matches = command.clone().try_get_matches_from(args);
    let matches = matches.map_err(|error| in_file(error, &from_file))?;
    let settings = server.and_then(|(name, _)| {
        let matches = matches.subcommand_matches(name)?;
        let command = command.find_subcommand(name)?;
        Some(Settings::read(command, matches, &from_file))
    });
    let cli = Cli::from_arg_matches(&matches).map_err(ParseError::Clap)?;
    Ok(Typed {
        command: cli.command,
        unneeded,
        settings,
        file: from_file,
    })
}

/// A key of a file that no flag has for a name, with the flag that was meant most likely: clap knows it, as it does on the
/// command line.
fn with_guess(error: SettingsError, command: &clap::Command, subcommand: &str) -> Failure {
    let SettingsError::UnknownKey { key, .. } = &error else {
        return error.into();
    };
    let typed = [
        "peerage".to_owned(),
        subcommand.to_owned(),
        format!("--{key}="),
    ];
    let refused = command.clone().try_get_matches_from(typed).err();
    let guess = refused.and_then(|it| match it.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) => Some(flag.trim_start_matches('-').to_owned()),
        _ => None,
    });
    let more = guess.map(|flag| format!("; did you mean {flag}?"));
    Failure::from(error).with(&more.unwrap_or_default())
}

/// A mistake with where it is, if it is in a file.
fn in_file(error: clap::Error, file: &FromFile) -> ParseError {
    let text = error.to_string();
    // What follows is how to use flags, with the names of others.
    let says = text.split("\n\n").next().unwrap_or_default();
    match file.places(says) {
        places if places.is_empty() => ParseError::Clap(error),
        places => {
            let says = says.trim_start_matches("error: ").replace('\n', " ");
            ParseError::Failure(Failure::usage(says + &places))
        }
    }
}

/// Whether the word after this flag is its value; `None` for a flag that the command does not have.
fn takes_value(command: &clap::Command, subcommand: &str, name: &str) -> Option<bool> {
    if name == "help" {
        return Some(false);
    }
    let named = |arg: &&Arg| {
        arg.get_long() == Some(name)
            || arg
                .get_all_aliases()
                .is_some_and(|aliases| aliases.contains(&name))
    };
    let arg = command
        .find_subcommand(subcommand)?
        .get_arguments()
        .find(named)?;
    Some(arg.get_action().takes_values() && !arg.is_require_equals_set())
}

/// Runs one command to its end, with its exit code.
pub fn run(typed: Typed) -> Result<u8, Failure> {
    let done = match typed.command {
        Command::Apiserver(flags) => apiserver::run(*flags, &typed.unneeded),
        Command::Gateway(flags) => gateway::run(*flags, typed.settings),
        Command::Store(flags) => store::run(&flags),
        Command::Up(flags) => up::run(&flags),
        Command::Explain(flags) => explain::run(&flags),
        Command::Check(flags) => return check::run(&flags),
        Command::Diff(flags) => return diff::run(&flags),
        Command::Pki(command) => pki::run(&command),
    };
    done.map(|()| 0).map_err(|failure| {
        let places = typed.file.places(&failure.to_string());
        failure.with(&places)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_long(command: &clap::Command, at: &str, found: &mut Vec<String>) {
        let texts = [command.get_after_help(), command.get_after_long_help()];
        for text in texts.into_iter().flatten() {
            let text = text.to_string();
            let long = text.lines().filter(|line| line.chars().count() > 76);
            found.extend(long.map(|line| format!("{at}: {line}")));
        }
        for command in command.get_subcommands() {
            too_long(command, &format!("{at} {}", command.get_name()), found);
        }
    }

    #[test]
    fn what_follows_the_flags_in_help_fits_a_narrow_terminal_so_that_it_can_be_pasted() {
        let mut found = Vec::new();
        let command = Cli::command().after_help(exit::help());
        too_long(&command, "peerage", &mut found);
        assert_eq!(found, [""; 0]);
    }
}
