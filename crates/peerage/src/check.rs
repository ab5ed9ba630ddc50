//! `peerage check`: the checklist of an upgrade with servers of several versions, before, during and after it.
//!
//! `gather.rs` asks the servers, `world.rs` is what they answered, `judge.rs` (and a file per topic) says what that
//! means, `report.rs` shows it, `watch.rs` repeats it, `print.rs` writes what is missing. Nothing is ever written to a
//! server. Exit codes: 0 pass, 1 warn, 2 fail.

mod apis;
mod certificates;
mod clocks;
mod command_line;
mod counters;
mod gateways;
mod gather;
mod handshake;
mod judge;
mod ports;
mod print;
mod records;
mod report;
mod rights;
mod series;
mod servers;
mod skew;
#[cfg(test)]
mod tests;
mod watch;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::client::{ApiClient, chain};
use crate::credentials;
use crate::exit::Failure;
use crate::output::{Output, plain, print_json};
use crate::pki::kubeconfig;
use crate::signals::Signals;
use crate::targets::{self, ServerFlags, Target, Unusable, parse_wait};
use gather::Plan;
pub use print::What;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
SERVER is context:NAME (or NAME) of the kubeconfig, or https://HOST:PORT;
without any, all contexts of the kubeconfig are checked. Contexts of one
server count once, as the first of them. Name every server by itself and
not a load balancer. A gateway's address is one like any other; --gateway
asks it how it is.

Examples:
  peerage check --only-problems
  peerage check https://10.0.0.1:6443 https://10.0.0.2:6443 --watch
  peerage check --print kubeadm \\
    --manifest /etc/kubernetes/manifests/kube-apiserver.yaml

Exit codes:
  0    everything passes
  1    something is to be looked at
  2    something fails, or the command line is wrong
  3    a file that it needs is not there, or with --print no server answers
       (without servers and kubeconfig there are placeholders instead)";

/// The flags of `peerage check`.
#[derive(Debug, Clone, Args)]
pub struct CheckFlags {
    /// The servers to check [default: all contexts of the kubeconfig]
    #[arg(value_name = "SERVER")]
    pub server: Vec<String>,
    /// A gateway's own address, http://HOST:PORT of its --admin-bind-address, to check as well (repeat)
    #[arg(long, value_name = "URL")]
    pub gateway: Vec<String>,
    /// Static pod of a kube-apiserver, to check the flags of (repeat)
    #[arg(long, value_name = "FILE")]
    pub manifest: Vec<PathBuf>,
    /// Front-proxy certificate, to check whether every server believes it
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Longest wait for one answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_wait)]
    pub timeout: Duration,
    /// Leave out what passes
    #[arg(long, conflicts_with = "print")]
    pub only_problems: bool,
    /// Repeat it until Ctrl-C: a table that changes in place, or a line per change where there is no terminal
    #[arg(long, short)]
    pub watch: bool,
    /// Pause between two rounds of --watch
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_wait)]
    pub interval: Duration,
    /// Write what is missing instead
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "watch")]
    pub print: Option<What>,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Table, conflicts_with = "print")]
    pub output: Output,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
    /// How servers are reached.
    #[command(flatten)]
    pub servers: ServerFlags,
}

/// Runs `peerage check`, with its exit code.
pub fn run(flags: &CheckFlags) -> Result<u8, Failure> {
    let plan = plan(flags)?;
    let runtime = crate::runtime()?;
    if let Some(what) = flags.print {
        let text = runtime.block_on(print::print(what, &plan))?;
        say!("{}", plain(&text));
        return Ok(0);
    }
    if plan.targets.is_empty() {
        let file = flags.servers.kubeconfig.display();
        return Err(Failure::usage(format!(
            "no server to check: {file} has no contexts; name servers, such as https://10.0.0.1:6443, or give --kubeconfig"
        )));
    }
    runtime.block_on(async {
        if flags.watch {
            let signals = Signals::listen_quietly()?;
            if flags.exit_with_stdin {
                signals.stop_with_stdin();
            }
            let last = watch::watch(&plan, flags, &signals).await?;
            return Ok(last.map_or(0, |report| report.exit_code()));
        }
        let world = gather::gather(&plan).await;
        let report = judge::judge(&world);
        match flags.output {
            Output::Json if flags.only_problems => print_json(&report.problems())?,
            Output::Json => print_json(&report)?,
            Output::Table => say!("{}", report.in_words(size().0, flags.only_problems)),
        }
        Ok(report.exit_code())
    })
}

fn plan(flags: &CheckFlags) -> Result<Plan, Failure> {
    let front_proxy = match (&flags.proxy_client_cert_file, &flags.proxy_client_key_file) {
        (Some(certificate), Some(key)) => Some(credentials::read_pair(
            ("--proxy-client-cert-file", certificate),
            ("--proxy-client-key-file", key),
        )?),
        _ => None,
    };
    let mut manifests = Vec::new();
    for file in &flags.manifest {
        manifests.extend(command_line::of_file(file).map_err(Failure::unavailable)?);
    }
    for url in &flags.gateway {
        ApiClient::plain(url, flags.timeout).map_err(|e| Failure::usage(chain(&e)))?;
    }
    let (targets, unusable) = targets(flags)?;
    Ok(Plan {
        targets,
        unusable,
        wait: flags.timeout,
        front_proxy,
        gateways: flags.gateway.clone(),
        manifests,
    })
}

fn targets(flags: &CheckFlags) -> Result<(Vec<Target>, Vec<Unusable>), Failure> {
    if flags.server.is_empty() {
        // What is printed can do without servers, but a kubeconfig that was named is meant to be read.
        let file = &flags.servers.kubeconfig;
        let is_named = *file != kubeconfig::default_file();
        if flags.print.is_some() && !file.exists() && !is_named {
            return Ok((Vec::new(), Vec::new()));
        }
        return targets::of_all_contexts(&flags.servers);
    }
    let words = flags.server.iter();
    let named = words.map(|word| targets::named(&flags.servers, word));
    let named: Vec<Target> = named.collect::<Result<_, _>>()?;
    Ok((targets::each_once(named), Vec::new()))
}

/// How wide and high the terminal is; a page where there is none.
fn size() -> (usize, usize) {
    match terminal_size::terminal_size() {
        Some((width, height)) => (usize::from(width.0), usize::from(height.0)),
        None => (120, usize::MAX),
    }
}
