//! The `peerage` binary: words typed → settings → run → exit code.
//!
//! - [`cli`]: the command line. [`exit`]: how a command ends.
//! - [`apiserver`]: the settings of an API server. [`store`]: a store for several. [`pki`]: certificates and kubeconfigs. [`up`]: several servers.
//!   [`explain`]: who answers a request. [`diff`]: which APIs only one server has. [`check`]: whether all is
//!   well for servers of several versions.
//! - [`targets`]: which servers a command asks. [`discovery`]: what they serve. [`client`], [`logging`], [`signals`], [`output`], [`print_config`], [`yaml`]: what several commands need.
//!
//! Servers, the store and the proxy are in crates of their own; this one chooses and starts them.

// First, because its macro is used by the others.
#[macro_use]
pub mod output;

pub mod apiserver;
pub mod check;
pub mod cli;
pub mod client;
pub mod common_flags;
pub mod credentials;
pub mod diff;
pub mod discovery;
pub mod etcd;
pub mod exit;
pub mod explain;
pub mod gateway;
pub mod logging;
pub mod pki;
pub mod print_config;
pub mod settings_error;
pub mod signals;
pub mod store;
pub mod targets;
pub mod up;

pub use peerage_gateway::yaml;

use std::ffi::OsString;
use std::process::ExitCode;

/// The runtime that a command's tasks run on.
fn runtime() -> Result<tokio::runtime::Runtime, exit::Failure> {
    started(&mut tokio::runtime::Builder::new_multi_thread())
}

/// The runtime of what stands beside a server that needs the processors more: half of them. A request that wakes no
/// second thread costs a sixth less, and one thread forwards more than several kube-apiservers answer.
fn modest_runtime() -> Result<tokio::runtime::Runtime, exit::Failure> {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let workers = (processors / 2).max(1);
    started(tokio::runtime::Builder::new_multi_thread().worker_threads(workers))
}

/// How long a process that is done waits for reads of files that hang.
const LEAVE: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs a server to its end. A read that hangs (a pipe, a file system that is away) does not keep the process.
fn serve<T>(runtime: tokio::runtime::Runtime, server: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(server);
    runtime.shutdown_timeout(LEAVE);
    ended
}

fn started(
    builder: &mut tokio::runtime::Builder,
) -> Result<tokio::runtime::Runtime, exit::Failure> {
    builder
        .enable_all()
        .build()
        .map_err(|e| exit::Failure::failed(format!("cannot start the runtime: {e}")))
}

/// Runs the command line and says how it ended.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    signals::defer_refresh();
    let outcome = match cli::parse(args) {
        Ok(typed) => {
            if !typed.command.listens() {
                signals::refuse_refresh();
            }
            cli::run(typed)
        }
        Err(cli::ParseError::Failure(failure)) => Err(failure),
        Err(cli::ParseError::Clap(error)) => {
            // Printing help is no error; clap knows which stream it goes to.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("error: {}", output::plain(&failure.to_string()));
            ExitCode::from(failure.kind().exit_code())
        }
    }
}
