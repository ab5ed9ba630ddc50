//! `peerage pki`: the certificates of a control plane, made, renewed and shown; and the kubeconfig that uses them.
//!
//! It replaces the openssl steps by which a Mixed Version Proxy is set up, with the usages and names that make it work:
//! every serving certificate has `kubernetes.default.svc`, the name that peers ask for; the front-proxy pair comes from
//! an authority of its own. `directory.rs` knows the files, `issue.rs` the certificates, `inspect.rs` reads them.

pub mod command;
pub mod directory;
mod files;
mod groups;
pub mod inspect;
pub mod issue;
pub mod kubeconfig;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use command::{PkiCommand, run};
pub use directory::{Entry, PkiDirectory, Plan};
pub use inspect::Facts;
pub use issue::{AltName, Purpose, Subject};

/// What can go wrong with certificates and their files.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file or directory could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is there that would have to be replaced.
    #[error(
        "{} is there already; --force replaces it (what the old one signed stops working), `peerage pki renew` keeps \
         authorities and renews the rest",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A text is neither a DNS name nor an address.
    #[error("{text:?} is neither a DNS name nor an IP address")]
    AltName {
        /// The text.
        text: String,
    },
    /// A pair may not have that name.
    #[error(
        "a pair cannot be named {name:?}: authorities and `sa` have their own, and a name has no `/` in it"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The directory lacks an authority.
    #[error("{}: no {name}.crt with {name}.key; make them with `peerage pki init --dir {}`", directory.display(), directory.display())]
    NoAuthority {
        /// The authority's file name.
        name: String,
        /// The directory.
        directory: PathBuf,
    },
    /// A certificate is not signed by an authority of its directory.
    #[error("{}: signed by {issuer:?}, which is none of this directory's authorities; renew it where it was made", path.display())]
    UnknownSigner {
        /// The certificate.
        path: PathBuf,
        /// Its issuer's name.
        issuer: String,
    },
    /// A file does not hold a certificate.
    #[error("{}: not a PEM certificate", path.display())]
    NotACertificate {
        /// The file.
        path: PathBuf,
    },
    /// Bytes that are not the certificate they should be.
    #[error("not a valid certificate or key")]
    Encoding,
    /// Making a certificate failed.
    #[error("cannot make the certificate")]
    Issue(#[source] rcgen::Error),
    /// Writing YAML failed.
    #[error("cannot write YAML: {text}")]
    Yaml {
        /// Why.
        text: String,
    },
    /// There is no kubeconfig to read.
    #[error(
        "cannot read the kubeconfig {}: name another with --kubeconfig or the variable KUBECONFIG (else it is \
         ./kubeconfig, or ~/.kube/config); check and diff take servers without one too, as https://HOST:PORT with \
         --certificate-authority",
        path.display()
    )]
    NoKubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A kubeconfig does not say what is needed.
    #[error("{}: {problem}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is missing.
        problem: String,
    },
}
