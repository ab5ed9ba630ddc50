//! The words of `peerage pki` and what they print.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use super::directory::{self, CLUSTER_CA, Entry, FRONT_PROXY_CA, PkiDirectory, Plan};
use super::kubeconfig::{Kubeconfig, Server};
use super::{AltName, PkiError};
use crate::client::chain;
use crate::exit::{Failure, Kind};
use crate::output::{Output, counted, print_json, table};

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Make all authorities and pairs of a control plane
    #[command(after_help = "Makes, for each NAME, NAME.crt and NAME.key:\n  \
        ca                     authority of serving and client certificates\n  \
        apiserver              serving pair (kubernetes.default.svc, localhost,\n                         \
                                 127.0.0.1, and each --san)\n  \
        admin                  client pair of kubernetes-admin in system:masters\n  \
        front-proxy-ca         authority of API servers towards their peers\n  \
        front-proxy-client     client pair for that (--proxy-client-cert-file,\n                         \
                                 --proxy-client-key-file)\n  \
        etcd-ca                authority of the store\n  \
        etcd-server            its serving pair\n  \
        apiserver-etcd-client  client pair for it\n  \
        sa.key, sa.pub         for service account tokens\n\n\
        Example:\n  peerage pki init --dir pki --san 10.0.0.11 --san api.example.org")]
    Init(InitArgs),
    /// Make one more serving pair, for another host
    #[command(after_help = "Example:\n  peerage pki serving apiserver-b --dir pki --san 10.0.0.12")]
    Serving(ServingArgs),
    /// Make one more client pair
    #[command(
        after_help = "Example:\n  peerage pki client alice --dir pki --group devs --group ops"
    )]
    Client(ClientArgs),
    /// Renew pairs that are near their end; authorities and private keys stay
    Renew(RenewArgs),
    /// Show what is there and how long it is valid
    Show(ShowArgs),
    /// Write a kubeconfig with one context per server
    #[command(
        after_help = "Example:\n  peerage pki kubeconfig --dir pki --file kubeconfig \\\n    \
        --server old=https://127.0.0.1:6443 --server new=https://127.0.0.1:6444"
    )]
    Kubeconfig(KubeconfigArgs),
}

/// The directory, which every command takes.
#[derive(Debug, Args)]
pub struct Directory {
    /// Directory of the certificates
    #[arg(long, value_name = "DIR", default_value = "pki")]
    dir: PathBuf,
}

impl Directory {
    fn open(&self) -> PkiDirectory {
        PkiDirectory::new(&self.dir)
    }
}

/// `pki init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    directory: Directory,
    /// One more DNS name or address of the API server (repeat, or separate with commas)
    #[arg(long, value_name = "NAME|IP", value_delimiter = ',')]
    san: Vec<AltName>,
    /// Days that pairs are valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    /// Days that authorities are valid
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36500))]
    ca_days: u32,
    /// Replace what is there, authorities included
    #[arg(long)]
    force: bool,
}

/// `pki serving`.
#[derive(Debug, Args)]
pub struct ServingArgs {
    /// Name of the two files
    name: String,
    #[command(flatten)]
    directory: Directory,
    /// One more DNS name or address of the API server (repeat, or separate with commas)
    #[arg(long, value_name = "NAME|IP", value_delimiter = ',')]
    san: Vec<AltName>,
    /// Days that it is valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    /// Replace a pair of that name
    #[arg(long)]
    force: bool,
}

/// `pki client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Name of the two files
    name: String,
    #[command(flatten)]
    directory: Directory,
    /// User name (the certificate's CN); default: the name of the files
    #[arg(long, value_name = "CN")]
    user: Option<String>,
    /// Group of the user (an O of the certificate; repeat for several)
    #[arg(long, value_name = "O")]
    group: Vec<String>,
    /// Sign with the front-proxy authority: such a client may speak for any user
    #[arg(long)]
    front_proxy: bool,
    /// Days that it is valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    /// Replace a pair of that name
    #[arg(long)]
    force: bool,
}

/// `pki renew`.
#[derive(Debug, Args)]
pub struct RenewArgs {
    #[command(flatten)]
    directory: Directory,
    /// Renew what ends within so many days
    #[arg(long, value_name = "N", default_value_t = 30)]
    within_days: u32,
    /// Renew every pair, however long it is still valid
    #[arg(long)]
    all: bool,
    /// Make new private keys too
    #[arg(long)]
    new_keys: bool,
}

/// `pki show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    directory: Directory,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// `pki kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    #[command(flatten)]
    directory: Directory,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "kubeconfig")]
    file: PathBuf,
    /// A server, with the name of its context; the first one is the current context
    #[arg(long, value_name = "NAME=URL", required = true, value_parser = parse_server)]
    server: Vec<Server>,
    /// Client pair of the directory to use
    #[arg(long, value_name = "NAME", default_value = directory::ADMIN)]
    client: String,
    /// Replace the file
    #[arg(long)]
    force: bool,
}

fn parse_server(text: &str) -> Result<Server, String> {
    match text.split_once('=') {
        Some((name, url)) if !name.is_empty() && url.starts_with("https://") => Ok(Server {
            name: name.to_owned(),
            url: url.to_owned(),
        }),
        _ => Err("write it like old=https://127.0.0.1:6443".to_owned()),
    }
}

impl From<PkiError> for Failure {
    fn from(error: PkiError) -> Self {
        let kind = match error {
            PkiError::Exists { .. }
            | PkiError::AltName { .. }
            | PkiError::Name { .. }
            | PkiError::Kubeconfig { .. } => Kind::Usage,
            PkiError::Read { .. }
            | PkiError::NoKubeconfig { .. }
            | PkiError::NoAuthority { .. } => Kind::Unavailable,
            _ => Kind::Failed,
        };
        Self::new(kind, error)
    }
}

/// Runs `peerage pki`.
pub fn run(command: &PkiCommand) -> Result<(), Failure> {
    match command {
        PkiCommand::Init(args) => init(args),
        PkiCommand::Serving(args) => {
            let subject = directory::serving_subject(&args.san, args.days);
            let pki = args.directory.open();
            pki.add(&args.name, CLUSTER_CA, &subject, args.force)?;
            print_made(&pki, std::slice::from_ref(&args.name));
            Ok(())
        }
        PkiCommand::Client(args) => client(args),
        PkiCommand::Renew(args) => renew(args),
        PkiCommand::Show(args) => show(args),
        PkiCommand::Kubeconfig(args) => kubeconfig(args),
    }
}

fn init(args: &InitArgs) -> Result<(), Failure> {
    let plan = Plan {
        alt_names: args.san.clone(),
        authority_days: args.ca_days,
        leaf_days: args.days,
    };
    let pki = args.directory.open();
    let made = pki.create(&plan, args.force)?;
    print_made(&pki, &made);
    let file = |name: &str, ending: &str| {
        pki.path()
            .join(format!("{name}.{ending}"))
            .display()
            .to_string()
    };
    say!("");
    say!("For each API server:");
    say!("  --tls-cert-file={}", file(directory::SERVING, "crt"));
    say!(
        "  --tls-private-key-file={}",
        file(directory::SERVING, "key")
    );
    say!("  --client-ca-file={}", file(CLUSTER_CA, "crt"));
    say!(
        "  --requestheader-client-ca-file={}",
        file(FRONT_PROXY_CA, "crt")
    );
    say!(
        "  --requestheader-allowed-names={}",
        directory::FRONT_PROXY_CLIENT
    );
    say!(
        "  --proxy-client-cert-file={}",
        file(directory::FRONT_PROXY_CLIENT, "crt")
    );
    say!(
        "  --proxy-client-key-file={}",
        file(directory::FRONT_PROXY_CLIENT, "key")
    );
    say!("  --peer-ca-file={}", file(CLUSTER_CA, "crt"));
    Ok(())
}

fn client(args: &ClientArgs) -> Result<(), Failure> {
    let user = args.user.as_deref().unwrap_or(&args.name);
    let subject = directory::client_subject(user, &args.group, args.days);
    let authority = if args.front_proxy {
        FRONT_PROXY_CA
    } else {
        CLUSTER_CA
    };
    let pki = args.directory.open();
    pki.add(&args.name, authority, &subject, args.force)?;
    print_made(&pki, std::slice::from_ref(&args.name));
    Ok(())
}

fn renew(args: &RenewArgs) -> Result<(), Failure> {
    let pki = args.directory.open();
    let now = Timestamp::now();
    let near = PkiDirectory::near_their_end(i64::from(args.within_days), now);
    let renewed = pki.renew(|entry| args.all || near(entry), args.new_keys)?;
    if renewed.is_empty() {
        say!(
            "Nothing ends within {}; --all renews regardless.",
            counted(args.within_days, "day")
        );
    } else {
        say!(
            "Renewed in {}: {}",
            pki.path().display(),
            renewed.join(", ")
        );
        say!("peerage re-reads them by itself; restart other programs that do not.");
        if let Some(note) = of_kubeconfigs(&pki, &renewed)? {
            say!("{note}");
        }
    }
    for entry in pki.entries()? {
        let left = entry.facts.days_left(now);
        if entry.facts.purpose == super::Purpose::Authority && left < i64::from(args.within_days) {
            say!(
                "{} ends in {} and is not renewed: `peerage pki init --force` makes everything anew.",
                entry.name,
                counted(left, "day")
            );
        }
    }
    Ok(())
}

/// What is to be done where client pairs were renewed: a kubeconfig has one inside, which stays as it was.
pub(super) fn of_kubeconfigs(
    pki: &PkiDirectory,
    renewed: &[String],
) -> Result<Option<String>, PkiError> {
    let entries = pki.entries()?;
    let authority = entries.iter().find(|it| it.name == CLUSTER_CA);
    let authority = authority.map(|it| it.facts.common_name.as_str());
    let is_client = |entry: &&Entry| {
        renewed.contains(&entry.name)
            && entry.facts.purpose == super::Purpose::Client
            && Some(entry.facts.issuer.as_str()) == authority
    };
    let clients = entries.iter().filter(is_client);
    let clients: Vec<&str> = clients.map(|it| it.name.as_str()).collect();
    if clients.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!(
        "Kubeconfigs have certificates inside, which are still the old ones: write those of {} anew, with `peerage pki \
         kubeconfig --dir {} --client NAME --file FILE --server NAME=URL --force`.",
        clients.join(", "),
        pki.path().display()
    )))
}

/// One row of `pki show --output json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(flatten)]
    entry: Entry,
    days_left: i64,
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let now = Timestamp::now();
    let (entries, others) = args.directory.open().files()?;
    print_entries(args, entries, now)?;
    if others.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = others.iter().map(|it| chain(it)).collect();
    Err(Failure::failed(others.join("; ")))
}

fn print_entries(args: &ShowArgs, entries: Vec<Entry>, now: Timestamp) -> Result<(), Failure> {
    if args.output == Output::Json {
        let shown: Vec<_> = entries
            .into_iter()
            .map(|entry| Shown {
                days_left: entry.facts.days_left(now),
                entry,
            })
            .collect();
        return print_json(&shown);
    }
    let rows = entries.iter().map(|entry| row(entry, now)).collect();
    say!(
        "{}",
        table(
            &[
                "NAME",
                "PURPOSE",
                "SUBJECT",
                "SIGNED BY",
                "ENDS",
                "DAYS LEFT"
            ],
            rows
        )
    );
    Ok(())
}

fn row(entry: &Entry, now: Timestamp) -> Vec<String> {
    let facts = &entry.facts;
    let mut subject = format!("CN={}", facts.common_name);
    for organization in &facts.organizations {
        subject.push_str(&format!(", O={organization}"));
    }
    if !facts.alt_names.is_empty() {
        subject.push_str(&format!("\n{}", facts.alt_names.join("\n")));
    }
    let left = facts.days_left(now);
    vec![
        entry.name.clone(),
        match facts.purpose {
            super::Purpose::Both => "serving, client".to_owned(),
            purpose => format!("{purpose:?}").to_lowercase(),
        },
        subject,
        facts.issuer.clone(),
        super::inspect::day(facts.not_after),
        if left < 0 {
            "over".to_owned()
        } else {
            left.to_string()
        },
    ]
}

fn kubeconfig(args: &KubeconfigArgs) -> Result<(), Failure> {
    let pki = args.directory.open();
    let kubeconfig = Kubeconfig::of_directory(&pki, args.server.clone(), &args.client)?;
    kubeconfig.write(&args.file, args.force)?;
    say!("export KUBECONFIG={}", args.file.display());
    for server in &args.server {
        say!("kubectl --context {} get --raw /version", server.name);
    }
    Ok(())
}

fn print_made(pki: &PkiDirectory, names: &[String]) {
    say!("Made in {}: {}", pki.path().display(), names.join(", "));
}
