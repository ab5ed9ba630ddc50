//! The `peerage` binary: words typed → settings → run → exit code.
//!
//! - [`cli`]: the command line. [`exit`]: how a command ends.
//! - [`pki`]: certificates and kubeconfigs.
//! - [`duration`], [`output`]: reading and printing.
//!
//! Servers, the store and the proxy are in crates of their own; this one chooses and starts them.

pub mod cli;
pub mod duration;
pub mod exit;
pub mod output;
pub mod pki;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command line and says how it ended.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Printing help is no error; clap knows which stream it goes to.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match cli::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.kind().exit_code())
        }
    }
}
