//! `peerage gateway`: from the command line to one running gateway.
//!
//! `flags.rs` lists the flags, `settings.rs` checks them against each other, `run.rs` reads the files and starts it.

mod addresses;
mod certificates;
pub mod flags;
mod run;
pub mod settings;

pub use flags::GatewayFlags;
pub use settings::GatewaySettings;

use std::ffi::OsString;

use crate::exit::Failure;
use crate::print_config::Settings;
use crate::settings_error::SettingsError;
use crate::signals::Signals;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
Write --flag=value or --flag value; --flag=false for a switch; lists by
repeating the flag.

Examples:
  # beside each server (a sidecar): the server listens on 6444, clients come
  # to 6443
  peerage gateway --upstream=https://127.0.0.1:6444 \\
    --peer=https://10.0.0.2:6444 --peer=https://10.0.0.3:6444 \\
    --peer-ca-file=pki/ca.crt --client-ca-file=pki/ca.crt \\
    --proxy-client-cert-file=pki/front-proxy-client.crt \\
    --proxy-client-key-file=pki/front-proxy-client.key \\
    --tls-cert-file=pki/apiserver.crt \\
    --tls-private-key-file=pki/apiserver.key

  # in front of all servers (a balancer): the same without --upstream
  peerage gateway --zone=a --peer='https://10.0.0.1:6443;zone=a' \\
    --peer='https://10.0.0.2:6443;zone=b' \\
    --peer-ca-file=pki/ca.crt --client-ca-file=pki/ca.crt \\
    --proxy-client-cert-file=pki/front-proxy-client.crt \\
    --proxy-client-key-file=pki/front-proxy-client.key \\
    --tls-cert-file=pki/apiserver.crt \\
    --tls-private-key-file=pki/apiserver.key";

/// Runs `peerage gateway` until it is asked to stop, or shows what it would run with.
pub fn run(flags: GatewayFlags, in_force: Option<Settings>) -> Result<(), Failure> {
    if flags.print_config {
        return print_config(&flags, in_force);
    }
    let (log, with_stdin) = (flags.log.clone(), flags.exit_with_stdin);
    let settings = GatewaySettings::new(&flags)?;
    crate::logging::start(&log)?;
    for warning in settings
        .warnings
        .iter()
        .chain(&certificates::look(&settings))
    {
        tracing::warn!("{warning}");
    }
    for note in &settings.notes {
        tracing::info!("{note}");
    }
    // Beside a server the processors are mostly that server's.
    let runtime = match settings.upstream {
        Some(_) => crate::modest_runtime(),
        None => crate::runtime(),
    };
    crate::serve(runtime?, async {
        let signals = Signals::listen()?;
        if with_stdin {
            signals.stop_with_stdin();
        }
        run::run(settings, &signals).await
    })
}

/// Shows all settings, and on standard error what is to be known of them. If they do not fit together, or name files that
/// are of no use, nothing would be in force: then it says why, and nothing else.
fn print_config(flags: &GatewayFlags, in_force: Option<Settings>) -> Result<(), Failure> {
    let settings = GatewaySettings::new(flags)?;
    run::read_certificates(&settings)?;
    if let Some(file) = &settings.peers_file {
        peerage_gateway::sources::listed(file)
            .map_err(|problems| SettingsError::PeersFile { problems })?;
    }
    for warning in settings
        .warnings
        .iter()
        .chain(&certificates::look(&settings))
    {
        eprintln!("warning: {}", crate::output::plain(warning));
    }
    if let Some(in_force) = in_force {
        let in_force = in_force.with_derived(&settings.derived());
        say!(
            "{}",
            in_force.with_values(&settings.servers()).yaml()?.trim_end()
        );
    }
    Ok(())
}

/// The last of a repeated flag counts, as with kube-apiserver's. Of servers to stand beside there is no last.
pub fn refuse_two_upstreams(words: &[OsString]) -> Result<(), SettingsError> {
    let is_upstream = |word: &&OsString| {
        let word = word.to_str().unwrap_or_default();
        word == "--upstream" || word.starts_with("--upstream=")
    };
    match words.iter().filter(is_upstream).count() {
        0 | 1 => Ok(()),
        _ => Err(SettingsError::TwoUpstreams),
    }
}

#[cfg(test)]
mod tests;
