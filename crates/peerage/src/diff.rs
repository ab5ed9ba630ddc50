//! `peerage diff A B`: which APIs only one of two servers, releases or saved documents has, and which are deprecated.
//!
//! `sources.rs` gets the two sides, `compare.rs` compares them, `lifecycle.rs` knows what Kubernetes says of the lives of
//! its APIs; here is what is typed and printed. Exit codes are those of diff: 0 the same, 1 different, 2 trouble.

pub mod compare;
pub mod lifecycle;
mod sources;

use std::time::Duration;

use clap::Args;
use peerage_catalogue::{Catalogue, RuntimeConfig};
use serde::Serialize;

use crate::exit::{Failure, Kind};
use crate::output::{Output, plain, print_json, table};
use crate::targets::{ServerFlags, parse_wait};
use compare::{Comparison, Entry, Inventory, Side, What, api_version};
use lifecycle::Release;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
A and B are each one of:\n  \
  1.35               a Kubernetes version of the catalogue\n  \
  context:NAME       the server of a kubeconfig's context (or NAME alone)\n  \
  https://HOST:PORT  a server, reached with the flags under \"Servers\"\n  \
  FILE[,FILE]        saved documents: aggregated /apis and /api, or all\n  \
                     legacy documents by path\n  \
  DIRECTORY          all of these that are in its .json files\n\n\
Examples:\n  \
  peerage diff 1.35 1.37\n  \
  peerage diff context:old context:new --output json\n\n\
Exit codes:\n  \
  0    the same\n  \
  1    different\n  \
  2    a side could not be had";

/// The flags of `peerage diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffFlags {
    /// What is compared
    #[arg(value_name = "A")]
    pub a: String,
    /// What it is compared with
    #[arg(value_name = "B")]
    pub b: String,
    /// Take versions of the catalogue with their alpha and beta APIs
    #[arg(long)]
    pub all_apis: bool,
    /// Longest wait for one server
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_wait)]
    pub timeout: Duration,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// How servers are reached.
    #[command(flatten)]
    pub servers: ServerFlags,
}

/// The whole answer as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'c> {
    a: ShownSide<'c>,
    b: ShownSide<'c>,
    #[serde(flatten)]
    comparison: &'c Comparison,
}

#[derive(Serialize)]
struct ShownSide<'c> {
    name: &'c str,
    release: Option<Release>,
}

/// Runs `peerage diff`: the exit code is 0 when the sides are the same, and 1 when they are not.
pub fn run(flags: &DiffFlags) -> Result<u8, Failure> {
    try_run(flags).map_err(|failure| failure.of_kind(Kind::Usage))
}

fn try_run(flags: &DiffFlags) -> Result<u8, Failure> {
    let (a, b) = crate::runtime()?.block_on(async {
        futures::join!(
            sources::side(flags, &flags.a),
            sources::side(flags, &flags.b)
        )
    });
    let (a, b) = (a?, b?);
    let warnings = warnings()?;
    let comparison = compare::compare(&a, &b, &warnings);
    let side = |it: &'_ Inventory| (it.label.clone(), it.release);
    if flags.output == Output::Json {
        let (of_a, of_b) = (side(&a), side(&b));
        print_json(&Shown {
            a: ShownSide {
                name: &of_a.0,
                release: of_a.1,
            },
            b: ShownSide {
                name: &of_b.0,
                release: of_b.1,
            },
            comparison: &comparison,
        })?;
    } else {
        let text = in_words(&a.label, &b.label, &comparison);
        say!("{}", plain(&text));
    }
    Ok(u8::from(!comparison.differences.is_empty()))
}

/// What the newest catalogued server warns of, by group-version and kind.
fn warnings() -> Result<impl Fn(&str, &str) -> Option<String>, Failure> {
    let newest = peerage_catalogue::versions().last().copied();
    let newest = newest.ok_or_else(|| Failure::failed("the catalogue is empty"))?;
    let config = RuntimeConfig::parse("api/all").map_err(Failure::failed)?;
    let catalogue = Catalogue::load(newest, &config).map_err(Failure::failed)?;
    Ok(move |api_version: &str, kind: &str| {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = catalogue.kind(group, version, kind)?;
        resource.rules.deprecated.as_ref().map(ToString::to_string)
    })
}

fn in_words(a: &str, b: &str, comparison: &Comparison) -> String {
    let label = |side: Side| match side {
        Side::A => a,
        Side::B => b,
    };
    let mut parts = Vec::new();
    if comparison.differences.is_empty() {
        parts.push(format!("{a} and {b} serve the same APIs."));
    } else {
        let rows = comparison.differences.iter().map(|it| {
            vec![
                label(it.only_in).to_owned(),
                it.what.word().to_owned(),
                name(it),
                remark(it),
            ]
        });
        parts.push(table(&["ONLY IN", "WHAT", "API", ""], rows.collect()));
    }
    if !comparison.deprecated.is_empty() {
        let rows = comparison.deprecated.iter().map(|it| {
            let served = match it.served_by.as_slice() {
                [side] => label(*side),
                _ => "both",
            };
            vec![
                format!("{} {}", it.api_version, it.resource),
                served.to_owned(),
                it.lifecycle.in_words(),
            ]
        });
        parts.push(table(&["DEPRECATED", "SERVED BY", ""], rows.collect()));
    }
    let not_compared = comparison.not_compared.iter();
    parts.extend(not_compared.map(|it| format!("not compared: {it}")));
    parts.join("\n\n")
}

fn name(entry: &Entry) -> String {
    if entry.what == What::Group {
        return entry.group.clone();
    }
    let mut name = api_version(&entry.group, &entry.version);
    for (mark, part) in [(' ', &entry.resource), ('/', &entry.subresource)] {
        if !part.is_empty() {
            name.push(mark);
            name.push_str(part);
        }
    }
    name
}

/// What else there is to say: verbs where they are the point, what hangs below, what became of it.
fn remark(entry: &Entry) -> String {
    let mut remarks = Vec::new();
    match entry.what {
        What::Verbs | What::Subresource => remarks.push(entry.verbs.join(", ")),
        What::Resource if !entry.subresources.is_empty() => {
            remarks.push(format!("with {}", entry.subresources.join(", ")));
        }
        _ => {}
    }
    match &entry.lifecycle {
        Some(lifecycle) => remarks.push(lifecycle.in_words()),
        None if entry.removed && entry.what == What::Resource => remarks.push("removed".to_owned()),
        None => {}
    }
    remarks.join("; ")
}
