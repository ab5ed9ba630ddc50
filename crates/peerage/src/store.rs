//! `peerage store`: one store for several API servers, over etcd's v3 protocol.
//!
//! Flags are etcd's where etcd has them. The store itself is `peerage-store`'s, the protocol `peerage-etcd`'s; here is
//! only which file, which address, and who may come.

mod run;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::apiserver::settings::default_data_dir;
use crate::common_flags::KeyPairFiles;
use crate::common_flags::{parse_bool, parse_duration};
use crate::exit::{Failure, Kind};
use crate::logging::LogFlags;
pub use run::run;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
Examples:\n  \
  peerage store --data-dir data\n\n  \
  peerage store --storage=sqlite:/var/lib/peerage/store.db \\\n    \
    --listen-client-urls=https://10.0.0.5:2379 \\\n    \
    --cert-file=pki/etcd-server.crt --key-file=pki/etcd-server.key \\\n    \
    --trusted-ca-file=pki/etcd-ca.crt";

/// The size of SQLite's pages here.
const PAGE: u64 = 4096;

/// The flags of `peerage store`.
#[derive(Debug, Clone, Args)]
pub struct StoreFlags {
    /// Directory of the store's file [default: peerage in $XDG_STATE_HOME, ~/.local/state]
    #[arg(long, value_name = "DIR", env = "PEERAGE_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where objects are kept: sqlite:FILE or memory [default: sqlite:store.db in --data-dir]
    #[arg(long, value_name = "WHERE")]
    pub storage: Option<String>,
    /// Largest size of the file in bytes; when it is full, deleting still works [default: as the disk allows]
    #[arg(long, value_name = "BYTES")]
    pub quota_backend_bytes: Option<u64>,
    /// Address to listen on; port 0 for any free one
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:2379")]
    pub listen_client_urls: String,
    /// How often a watch that asks for it is told how far it has come, which is what kube-apiservers' reads wait for
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_interval)]
    pub watch_progress_notify_interval: Duration,
    /// Serving certificate
    #[arg(long, value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Authorities of clients: with it, only clients with a certificate of theirs may come
    #[arg(long, value_name = "FILE")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Whether clients have to show a certificate [default: true with --trusted-ca-file]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub client_cert_auth: Option<bool>,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
    /// Flags of logging.
    #[command(flatten)]
    pub log: LogFlags,
}

/// Reads a duration that something is repeated after.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match interval.is_zero() {
        true => Err("it has to be above zero".to_owned()),
        false => Ok(interval),
    }
}

/// Why the settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreSettingsError {
    /// Not a store that can be offered.
    #[error("--storage: {text:?} is none of sqlite:FILE and memory")]
    Storage {
        /// What was written.
        text: String,
    },
    /// Not an address to listen on.
    #[error(
        "--listen-client-urls: {url:?} is not like https://127.0.0.1:2379 (one address, not a name)"
    )]
    Url {
        /// What was written.
        url: String,
    },
    /// TLS without a certificate.
    #[error(
        "--listen-client-urls={url} needs --cert-file and --key-file (`peerage pki init` makes them: etcd-server)"
    )]
    NoCertificate {
        /// The URL.
        url: String,
    },
    /// Certificates without TLS.
    #[error(
        "--listen-client-urls={url} does not use the certificates given: write https, or leave them out"
    )]
    NoTls {
        /// The URL.
        url: String,
    },
    /// Open to a network without protection.
    #[error(
        "--listen-client-urls={url} would let anyone who reaches it read and write everything, Secrets included: \
         listen on 127.0.0.1, or write https with --cert-file, --key-file and --trusted-ca-file"
    )]
    Open {
        /// The URL.
        url: String,
    },
    /// A file is too small to hold anything.
    #[error("--quota-backend-bytes: {bytes} is too small; the least is 1048576")]
    Quota {
        /// What was written.
        bytes: u64,
    },
}

impl From<StoreSettingsError> for Failure {
    fn from(error: StoreSettingsError) -> Self {
        Self::new(Kind::Usage, error)
    }
}

/// Where the store keeps its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In memory.
    Memory,
    /// In a file of at most so many pages.
    Sqlite {
        /// The file.
        file: PathBuf,
        /// Pages.
        max_pages: Option<u32>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Sqlite { file, .. } => write!(f, "sqlite:{}", file.display()),
        }
    }
}

/// Who may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The serving pair.
    pub pair: KeyPairFiles,
    /// Authorities that clients' certificates must be of; anyone may come without.
    pub client_ca: Option<PathBuf>,
}

/// One store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Where it keeps its content.
    pub place: Place,
    /// Where it listens.
    pub listen: SocketAddr,
    /// How often a watch that asks for it is told how far it has come.
    pub progress: Duration,
    /// How it is protected; plain text without.
    pub tls: Option<Tls>,
}

impl StoreSettings {
    /// Checks the flags against each other.
    pub fn new(flags: &StoreFlags) -> Result<Self, StoreSettingsError> {
        let data_dir = flags.data_dir.clone().unwrap_or_else(default_data_dir);
        let (secure, listen) = address(&flags.listen_client_urls)?;
        Ok(Self {
            place: place(flags, data_dir)?,
            tls: tls(flags, secure, listen)?,
            progress: flags.watch_progress_notify_interval,
            listen,
        })
    }
}

fn address(url: &str) -> Result<(bool, SocketAddr), StoreSettingsError> {
    let wrong = || StoreSettingsError::Url {
        url: url.to_owned(),
    };
    let (secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err(wrong()),
    };
    let rest = rest
        .trim_end_matches('/')
        .replace("localhost:", "127.0.0.1:");
    Ok((secure, rest.parse().map_err(|_| wrong())?))
}

fn place(flags: &StoreFlags, data_dir: PathBuf) -> Result<Place, StoreSettingsError> {
    let max_pages = match flags.quota_backend_bytes {
        Some(bytes) if bytes < 1 << 20 => return Err(StoreSettingsError::Quota { bytes }),
        Some(bytes) => u32::try_from(bytes / PAGE).ok(),
        None => None,
    };
    let file = match flags.storage.as_deref() {
        Some("memory") => return Ok(Place::Memory),
        None | Some("sqlite") => data_dir.join("store.db"),
        Some(text) => match text.strip_prefix("sqlite:") {
            Some(file) if !file.is_empty() => file.into(),
            _ => {
                return Err(StoreSettingsError::Storage {
                    text: text.to_owned(),
                });
            }
        },
    };
    Ok(Place::Sqlite { file, max_pages })
}

fn tls(
    flags: &StoreFlags,
    secure: bool,
    listen: SocketAddr,
) -> Result<Option<Tls>, StoreSettingsError> {
    let url = flags.listen_client_urls.clone();
    let given = [&flags.cert_file, &flags.key_file, &flags.trusted_ca_file];
    if !secure {
        if given.into_iter().any(Option::is_some) {
            return Err(StoreSettingsError::NoTls { url });
        }
        return match listen.ip().is_loopback() {
            true => Ok(None),
            false => Err(StoreSettingsError::Open { url }),
        };
    }
    let (Some(certificate), Some(key)) = (&flags.cert_file, &flags.key_file) else {
        return Err(StoreSettingsError::NoCertificate { url });
    };
    let client_ca = flags
        .trusted_ca_file
        .clone()
        .filter(|_| flags.client_cert_auth != Some(false));
    if client_ca.is_none() && (flags.client_cert_auth == Some(true) || !listen.ip().is_loopback()) {
        return Err(StoreSettingsError::Open { url });
    }
    Ok(Some(Tls {
        pair: KeyPairFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        },
        client_ca,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        flags: StoreFlags,
    }

    fn settings(words: &[&str]) -> Result<StoreSettings, String> {
        let words = std::iter::once("store").chain(words.iter().copied());
        let words = Words::try_parse_from(words).map_err(|e| e.to_string())?;
        StoreSettings::new(&words.flags).map_err(|e| e.to_string())
    }

    #[test]
    fn alone_it_keeps_a_file_and_listens_on_loopback() {
        let settings = settings(&["--data-dir=/d"]).unwrap();
        let file = PathBuf::from("/d/store.db");
        assert_eq!(
            settings.place,
            Place::Sqlite {
                file,
                max_pages: None
            }
        );
        assert_eq!(settings.listen.to_string(), "127.0.0.1:2379");
        assert_eq!(settings.tls, None);
        assert_eq!(settings.progress, Duration::from_secs(5));
    }

    #[test]
    fn with_certificates_only_known_clients_may_come() {
        let words = [
            "--listen-client-urls=https://10.0.0.5:0",
            "--cert-file=c",
            "--key-file=k",
            "--trusted-ca-file=a",
            "--quota-backend-bytes=8388608",
            "--storage=sqlite:/x/y",
        ];
        let settings = settings(&words).unwrap();
        assert_eq!(settings.tls.unwrap().client_ca, Some("a".into()));
        let file = PathBuf::from("/x/y");
        assert_eq!(
            settings.place,
            Place::Sqlite {
                file,
                max_pages: Some(2048)
            }
        );
    }

    #[test]
    fn what_would_be_open_or_not_used_is_refused() {
        let certificates = ["--cert-file=c", "--key-file=k"];
        for (words, expected) in [
            (
                &["--listen-client-urls=http://0.0.0.0:2379"][..],
                "Secrets included",
            ),
            (
                &["--listen-client-urls=https://127.0.0.1:2379"],
                "needs --cert-file",
            ),
            (&["--cert-file=c", "--key-file=k"], "write https"),
            (&["--listen-client-urls=x:1"], "not like https"),
            (
                &["--listen-client-urls=https://a.example.org:1"],
                "not like https",
            ),
            (&["--storage=etcd"], "sqlite:FILE"),
            (&["--watch-progress-notify-interval=0"], "above zero"),
            (&["--quota-backend-bytes=1"], "too small"),
            (
                &[
                    "--listen-client-urls=https://10.0.0.1:1",
                    certificates[0],
                    certificates[1],
                ],
                "--trusted-ca-file",
            ),
            (
                &[
                    "--listen-client-urls=https://127.0.0.1:1",
                    certificates[0],
                    certificates[1],
                    "--client-cert-auth",
                ],
                "--trusted-ca-file",
            ),
        ] {
            let message = settings(words).unwrap_err();
            assert!(message.contains(expected), "{words:?}: {message}");
        }
        let mut loopback = vec!["--listen-client-urls=https://127.0.0.1:1"];
        loopback.extend(certificates);
        assert!(settings(&loopback).is_ok());
    }
}
