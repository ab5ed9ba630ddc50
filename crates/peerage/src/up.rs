//! `peerage up`: a control plane of several Kubernetes versions on one machine, and a demonstration that it works.
//!
//! One process keeps the store (SQLite behind etcd's protocol), one process each is an API server; all are this same
//! executable. `layout.rs` decides names, ports and flags, `process.rs` starts and ends processes, `cluster.rs` keeps
//! them together, `demo.rs` shows what they do. Invariant: however this process ends, the others
//! end too: each stops when its standard input does.

mod cluster;
mod demo;
mod difference;
mod layout;
mod process;
mod sample;

use std::path::PathBuf;

use clap::Args;

use crate::exit::Failure;
use crate::logging::LogFlags;
use crate::signals::Signals;
use cluster::Cluster;
use layout::Layout;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
Examples:\n  \
  peerage up                            # the oldest and the newest version\n  \
  # a rolling upgrade, stopped in the middle\n  \
  peerage up --versions 1.34,1.36,1.37\n\n\
Ctrl-C stops everything; what was stored stays in the data directory for\n\
the next time.";

/// The flags of `peerage up`.
#[derive(Debug, Clone, Args)]
pub struct UpFlags {
    /// Kubernetes versions, one server each [default: the oldest and the newest there are]
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',')]
    pub versions: Vec<String>,
    /// Directory of certificates, store, logs and kubeconfig; used again when it is there [default: peerage/up in
    /// $XDG_STATE_HOME, ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Port of the first server, the others and the store follow [default: free ones from 6443 on]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Stop when the demonstration is over, with exit code 0 if everything was as it should be
    #[arg(long)]
    pub exit_after_demo: bool,
    /// Start the servers and show nothing
    #[arg(long, conflicts_with = "exit_after_demo")]
    pub no_demo: bool,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
    /// Flags of logging, of all processes.
    #[command(flatten)]
    pub log: LogFlags,
}

/// Runs `peerage up`.
pub fn run(flags: &UpFlags) -> Result<(), Failure> {
    let runtime = crate::runtime()?;
    runtime.block_on(async {
        let signals = Signals::listen_quietly()?;
        if flags.exit_with_stdin {
            signals.stop_with_stdin();
        }
        let layout = Layout::prepare(flags)?;
        say!("{}", layout.headline());
        say!("");
        let mut cluster = Cluster::new(layout);
        // Whatever happens in between, the processes are stopped in their order.
        let outcome = tokio::select! {
            outcome = live(&mut cluster, flags) => outcome,
            () = signals.shutdown.cancelled() => Ok(()),
            // The terminal was closed.
            () = signals.refresh.notified() => Ok(()),
        };
        cluster.stop().await;
        outcome
    })
}

async fn live(cluster: &mut Cluster, flags: &UpFlags) -> Result<(), Failure> {
    cluster.start().await?;
    say!("");
    if !flags.no_demo {
        demo::run(cluster).await?;
        say!("");
    }
    if flags.exit_after_demo {
        return Ok(());
    }
    say!("{}", cluster.layout().how_to_use());
    cluster.keep_running().await
}
