//! Peerage, real kube-apiservers and ordinary proxies side by side, doing the same.
//!
//! `cargo run --release -p peerage-bench -- run` starts everything on this machine, measures it in turn, and writes what
//! it found. `docs/performance.md` has the method, the figures and what they mean; nothing here judges by time in a
//! test. What is needed: the go command (kube-apiserver and etcd are built once), Debian's haproxy and nginx-light, some
//! gigabytes of memory, and a machine that does nothing else meanwhile.
//!
//! | module | what it is |
//! |---|---|
//! | [`proxies`], [`servers`], [`planes`] | the three comparisons |
//! | [`place`], [`ordinary`] | what they start |
//! | [`measure`], [`load`], [`fanout`], [`meter`] | one measurement: the load, and what it costs whom |
//! | [`results`] | every figure, as it is kept |
//! | [`report`], [`aims`], [`tables`], [`plot`] | what is shown of it |

mod aims;
mod fanout;
mod load;
mod measure;
mod meter;
mod ordinary;
mod place;
mod planes;
mod plot;
mod proxies;
mod report;
mod results;
mod servers;
mod tables;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};

use measure::{Plan, Size};
use results::{Part, Results};

/// Measures Peerage, real kube-apiservers and ordinary proxies side by side.
#[derive(Debug, Parser)]
#[command(name = "peerage-bench")]
struct Words {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure, and write what was found
    Run(Run),
    /// Write tables and plots of what was found before
    Report(Report),
}

#[derive(Debug, Args)]
struct Run {
    /// What to compare (repeat); what --results has of other parts is kept [default: everything]
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A few requests, objects and watches only, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only workloads whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    workload: String,
    /// Only ways or servers whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    through: String,
    /// Take both for whole names
    #[arg(long)]
    exact: bool,
    /// The peerage executable [default: built now, for release]
    #[arg(long, value_name = "FILE")]
    peerage: Option<PathBuf>,
    /// Where every figure is written
    #[arg(long, value_name = "FILE", default_value = "docs/performance.json")]
    results: PathBuf,
}

#[derive(Debug, Args)]
struct Report {
    /// Every figure, as `run` wrote it
    #[arg(long, value_name = "FILE", default_value = "docs/performance.json")]
    results: PathBuf,
    /// The document whose measured part is replaced; its plots are written beside it
    #[arg(long, value_name = "FILE", default_value = "docs/performance.md")]
    into: PathBuf,
}

fn main() -> anyhow::Result<()> {
    match Words::parse().command {
        Task::Run(run) => tokio::runtime::Runtime::new()?.block_on(run.run()),
        Task::Report(report) => report::write(&Results::read(&report.results)?, &report.into),
    }
}

impl Run {
    async fn run(self) -> anyhow::Result<()> {
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        let peerage = match self.peerage {
            Some(file) => file,
            None => built()?,
        };
        let mut results = match self.results.exists() {
            true => Results::read(&self.results)?,
            false => Results::default(),
        };
        results.machine.describe()?;
        let plan = Plan {
            peerage,
            size: if self.quick { Size::QUICK } else { Size::WHOLE },
            rounds: self.rounds,
            workload: self.workload,
            through: self.through,
            exact: self.exact,
        };
        let parts = match self.part.is_empty() {
            true => &Part::ALL[..],
            false => &self.part,
        };
        for part in parts {
            results.forget(*part);
            match part {
                Part::Proxies => proxies::run(&plan, &mut results).await?,
                Part::Servers => servers::run(&plan, &mut results).await?,
                Part::Planes => planes::run(&plan, &mut results).await?,
            }
            results.machine.load[1] = results::load_average();
            results.write(&self.results)?;
        }
        Ok(())
    }
}

/// Builds the executable that is measured, as it is released.
fn built() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&root)
        .args(["build", "--release", "--package", "peerage"])
        .status()
        .context("cargo")?;
    ensure!(status.success(), "peerage cannot be built");
    let own = std::env::current_exe()?;
    let beside = own.with_file_name("peerage");
    ensure!(
        beside.exists(),
        "{} is missing: run this program with `cargo run --release -p peerage-bench`, or give --peerage",
        beside.display()
    );
    Ok(beside)
}
