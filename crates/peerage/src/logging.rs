//! Logging: where lines go, in which form, and how many.
//!
//! Lines go to standard error, as kube-apiserver's do. `-v` takes Kubernetes' levels; a filter in tracing's own syntax
//! overrides it for those who need one module in detail.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::exit::Failure;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The flags of logging, which every long-running command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogFlags {
    /// How much to log, 0 to 10 as in Kubernetes: 0 warnings, 1-3 also what happens, 4-5 details, 6 and more everything
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub v: u8,
    /// Form of the lines
    #[arg(long, alias = "logging-format", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Filter in tracing's syntax in place of -v, such as info,peerage_proxy=trace
    #[arg(long, value_name = "FILTER", env = "PEERAGE_LOG")]
    pub log_filter: Option<String>,
}

impl Default for LogFlags {
    fn default() -> Self {
        Self {
            v: 2,
            log_format: LogFormat::Text,
            log_filter: None,
        }
    }
}

/// The filter of a Kubernetes log level. Other crates' details start one step later than ours, and below them the HTTP
/// library's warnings too: clients cause them, one line for each frame.
pub fn filter_of_level(level: u8) -> &'static str {
    match level {
        0 => "warn,h2=error,hyper=error",
        1..=3 => "info,h2=error,hyper=error",
        4..=5 => {
            "info,peerage=debug,peerage_core=debug,peerage_store=debug,peerage_etcd=debug,peerage_http=debug,\
                  peerage_auth=debug,peerage_proxy=debug,peerage_apiserver=debug,peerage_gateway=debug,h2=error,\
                  hyper=error"
        }
        6..=8 => {
            "debug,peerage=trace,peerage_core=trace,peerage_store=trace,peerage_etcd=trace,peerage_http=trace,\
                  peerage_auth=trace,peerage_proxy=trace,peerage_apiserver=trace,peerage_gateway=trace,\
                  h2=info,hyper=info,rustls=info"
        }
        _ => "trace",
    }
}

/// Times in UTC with microseconds (RFC 3339).
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{:.6}", jiff::Timestamp::now())
    }
}

/// Starts logging for the whole process.
pub fn start(flags: &LogFlags) -> Result<(), Failure> {
    let filter = match &flags.log_filter {
        Some(filter) => EnvFilter::try_new(filter).map_err(|e| {
            Failure::usage(format!("--log-filter {filter:?} is not a filter: {e}; write it like info,peerage_proxy=debug"))
        })?,
        None => EnvFilter::new(filter_of_level(flags.v)),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(Utc)
        .with_writer(std::io::stderr);
    let started = match flags.log_format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::failed(format!("cannot start logging: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_make_the_http_library_say_is_left_out_below_its_details() {
        for level in 0..=10 {
            let filter = filter_of_level(level);
            let quiet = ["h2=error", "hyper=error"]
                .iter()
                .all(|it| filter.split(',').any(|directive| directive == *it));
            assert_eq!(quiet, level < 6, "level {level}: {filter}");
        }
    }

    #[test]
    fn every_level_is_a_filter_and_levels_do_not_shrink() {
        let mut before = 0;
        for level in 0..=10 {
            let filter = EnvFilter::try_new(filter_of_level(level)).expect("a filter");
            let most = filter.max_level_hint().map(|hint| hint.into_level());
            let rank = match most.flatten() {
                Some(tracing::Level::WARN) => 1,
                Some(tracing::Level::INFO) => 2,
                Some(tracing::Level::DEBUG) => 3,
                Some(tracing::Level::TRACE) => 4,
                _ => 0,
            };
            assert!(rank >= before && rank > 0, "level {level}");
            before = rank;
        }
    }
}
