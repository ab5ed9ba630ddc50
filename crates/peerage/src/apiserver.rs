//! `peerage apiserver`: from kube-apiserver's command line to one running server.
//!
//! `words.rs` makes Go's way of writing flags clap's, `flags.rs` lists them, `settings.rs` checks them against each
//! other; what comes out is [`ApiserverSettings`], plain values that the server crate is started from.

mod etcd;
pub mod flags;
pub mod gates;
mod own_pki;
mod run;
pub mod settings;
pub mod storage;
#[cfg(test)]
mod tests;
pub mod unneeded;
pub mod words;

pub use flags::ApiserverFlags;
pub use settings::ApiserverSettings;

use crate::exit::Failure;
use crate::signals::Signals;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
Flags of kube-apiserver that are not listed are accepted where they make no
difference, each with a line in the log. Write --flag=value or --flag value;
--flag=false for a switch; lists with commas or by repeating the flag.

Examples:
  # one server by itself, with certificates of its own making
  peerage apiserver --data-dir data

  # one of several: the store is shared, requests for what only a peer has
  # go there
  peerage apiserver --emulated-version=1.36 \\
    --etcd-servers=https://10.0.0.5:2379 --etcd-cafile=pki/etcd-ca.crt \\
    --etcd-certfile=pki/apiserver-etcd-client.crt \\
    --etcd-keyfile=pki/apiserver-etcd-client.key \\
    --tls-cert-file=pki/apiserver.crt \\
    --tls-private-key-file=pki/apiserver.key --client-ca-file=pki/ca.crt \\
    --requestheader-client-ca-file=pki/front-proxy-ca.crt \\
    --requestheader-allowed-names=front-proxy-client \\
    --proxy-client-cert-file=pki/front-proxy-client.crt \\
    --proxy-client-key-file=pki/front-proxy-client.key \\
    --peer-ca-file=pki/ca.crt";

/// Runs `peerage apiserver` until it is asked to stop.
pub fn run(flags: ApiserverFlags, unneeded: &[&'static unneeded::Unneeded]) -> Result<(), Failure> {
    let (log, with_stdin) = (flags.log.clone(), flags.exit_with_stdin);
    let settings = ApiserverSettings::new(flags)?;
    crate::logging::start(&log)?;
    for flag in unneeded {
        tracing::info!("--{} has no effect: {}", flag.name, flag.why);
    }
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    crate::serve(crate::runtime()?, async {
        let signals = Signals::listen()?;
        if with_stdin {
            signals.stop_with_stdin();
        }
        run::run(settings, &signals).await
    })
}
