//! Project tasks: what is generated and checked in, and by which command.
//!
//! Not shipped. What the generated files mean is left to the crates that read them.

mod catalogue;
mod compatibility;
mod conformance;
mod protobuf;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Writes the catalogue file of one Kubernetes version from what a kube-apiserver of that version said.
    ///
    /// A recording is a folder with version.json, aggregated-api.json, aggregated-apis.json, legacy.json,
    /// openapi-v3.json, tables.json and bootstrap.json. A folder beside it with `-all` at the end of its name is
    /// the same server with all APIs on; etcd-keys.json beside it says where and as what each kind is stored.
    Catalogue {
        /// The folder of the recording.
        recording: PathBuf,
        /// Where the catalogue files are.
        #[arg(long, default_value = "crates/peerage-catalogue/data")]
        data: PathBuf,
    },
    /// Writes the numbers of fields in protobuf, from the Go modules that declare them.
    ///
    /// The modules are k8s.io/api, k8s.io/apimachinery, k8s.io/apiextensions-apiserver and k8s.io/kube-aggregator;
    /// `go mod download -json MODULE@VERSION` tells the folder of each. Newest first.
    Protobuf {
        /// The folders of the modules.
        #[arg(required = true)]
        modules: Vec<PathBuf>,
        /// The file to write.
        #[arg(long, default_value = "crates/peerage-catalogue/data/protobuf.txt")]
        out: PathBuf,
    },
    /// Writes docs/compatibility.md from the `Differs:` comments.
    Compatibility {
        /// Only says whether the page is up to date.
        #[arg(long)]
        check: bool,
    },
    /// Replays the recorded conversations with real kube-apiservers and writes docs/conformance.md.
    Conformance,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Catalogue { recording, data } => catalogue::run(&recording, &data),
        Task::Protobuf { modules, out } => protobuf::run(&modules, &out),
        Task::Conformance => conformance::run(),
        Task::Compatibility { check } => compatibility::run(check),
    }
}
