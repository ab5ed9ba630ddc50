//! A directory of certificates: three authorities, and the pairs that a control plane needs, under kubeadm's names.
//!
//! Three authorities because each is trusted for something else: `ca` says who a client is, `front-proxy-ca` says who
//! may speak for others (a certificate of it names any user it likes), `etcd-ca` says who may read the whole store.
//! Leaves that are there are kept unless they are asked to be replaced; an authority is never replaced silently,
//! because everything signed by the old one stops working.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::inspect::{self, Facts};
use super::issue::{self, AltName, Authority, Issued, Purpose, Subject};
use super::{PkiError, files};

/// Signs serving certificates and clients.
pub const CLUSTER_CA: &str = "ca";
/// Signs the clients that may speak for others: API servers towards their peers.
pub const FRONT_PROXY_CA: &str = "front-proxy-ca";
/// Signs the store's two sides.
pub const STORE_CA: &str = "etcd-ca";
/// An API server's serving pair.
pub const SERVING: &str = "apiserver";
/// A client of the group `system:masters`.
pub const ADMIN: &str = "admin";
/// An API server's pair towards its peers.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
/// The store's serving pair.
pub const STORE_SERVING: &str = "etcd-server";
/// An API server's pair towards the store.
pub const STORE_CLIENT: &str = "apiserver-etcd-client";
/// The pair that signs service account tokens; it has no certificate.
pub const SERVICE_ACCOUNT: &str = "sa";

/// Authorities: file name, common name.
const AUTHORITIES: [(&str, &str); 3] = [
    (CLUSTER_CA, "kubernetes"),
    (FRONT_PROXY_CA, "front-proxy-ca"),
    (STORE_CA, "etcd-ca"),
];

/// Names that every API server's serving certificate has. `kubernetes.default.svc` is the one that peers ask for,
/// whatever a server's address is.
pub const SERVER_NAMES: [&str; 7] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    "127.0.0.1",
    "::1",
];

/// What to make.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names of the API server beside [`SERVER_NAMES`].
    pub alt_names: Vec<AltName>,
    /// Days that authorities are valid.
    pub authority_days: u32,
    /// Days that leaves are valid.
    pub leaf_days: u32,
}

impl Default for Plan {
    /// Ten years for authorities and one for what they sign, as kubeadm does.
    fn default() -> Self {
        Self {
            alt_names: Vec::new(),
            authority_days: 3650,
            leaf_days: 365,
        }
    }
}

/// A certificate of the directory.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Entry {
    /// File name without its ending.
    pub name: String,
    /// The certificate's file.
    pub path: PathBuf,
    /// What it says.
    #[serde(flatten)]
    pub facts: Facts,
}

/// A directory of certificates.
#[derive(Debug, Clone)]
pub struct PkiDirectory {
    path: PathBuf,
}

impl PkiDirectory {
    /// The directory at `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a certificate.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.crt"))
    }

    /// The file of a private key.
    pub fn key(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.key"))
    }

    /// Makes everything anew. Refuses when an authority is there, unless `replace` is set.
    pub fn create(&self, plan: &Plan, replace: bool) -> Result<Vec<String>, PkiError> {
        let existing = AUTHORITIES
            .iter()
            .map(|(name, _)| self.certificate(name))
            .find(|path| path.exists());
        match existing {
            Some(path) if !replace => Err(PkiError::Exists { path }),
            _ => self.write_all(plan, |_| true),
        }
    }

    /// Makes what is missing and keeps the rest, also a serving pair that lacks a name of the plan; returns the names
    /// made.
    pub fn complete(&self, plan: &Plan) -> Result<Vec<String>, PkiError> {
        let short = match files::read(&self.certificate(SERVING)) {
            Ok(pem) => {
                let has = Facts::from_pem(&pem)?.alt_names;
                plan.alt_names
                    .iter()
                    .any(|name| !has.contains(&name.to_string()))
            }
            Err(_) => false,
        };
        self.write_all(plan, |name| {
            !self.key(name).exists() || (short && name == SERVING)
        })
    }

    fn write_all(
        &self,
        plan: &Plan,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, PkiError> {
        files::make_directory(&self.path)?;
        let mut made = Vec::new();
        let mut new_authorities = Vec::new();
        for (name, common_name) in AUTHORITIES {
            if wanted(name) {
                let (_, issued) = Authority::create(common_name, plan.authority_days)?;
                self.write_pair(name, &issued)?;
                new_authorities.push(name);
                made.push(name.to_owned());
            }
        }
        for (name, authority, subject) in leaves(plan) {
            // A leaf does not outlive its authority's replacement.
            if wanted(name) || new_authorities.contains(&authority) {
                self.write_pair(name, &self.authority(authority)?.issue(&subject, None)?)?;
                made.push(name.to_owned());
            }
        }
        if wanted(SERVICE_ACCOUNT) {
            let (private, public) = issue::signing_key()?;
            files::write(
                &self.key(SERVICE_ACCOUNT),
                private.as_bytes(),
                files::SECRET,
            )?;
            files::write(&self.path.join("sa.pub"), public.as_bytes(), files::PUBLIC)?;
            made.push(SERVICE_ACCOUNT.to_owned());
        }
        Ok(made)
    }

    /// Makes one more leaf, signed by `authority`. Refuses when the name is taken, unless `replace` is set.
    pub fn add(
        &self,
        name: &str,
        authority: &str,
        subject: &Subject,
        replace: bool,
    ) -> Result<(), PkiError> {
        let reserved =
            AUTHORITIES.iter().any(|(authority, _)| *authority == name) || name == SERVICE_ACCOUNT;
        if reserved || name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(PkiError::Name {
                name: name.to_owned(),
            });
        }
        let path = self.certificate(name);
        if path.exists() && !replace {
            return Err(PkiError::Exists { path });
        }
        self.write_pair(name, &self.authority(authority)?.issue(subject, None)?)
    }

    /// Makes anew each leaf for which `due` says so, saying the same for as long as before. The private key stays
    /// unless `new_keys` is set: then certificate and key are two files and a reader can meet one old and one new,
    /// which servers that re-read them bear but other programs may not.
    pub fn renew(
        &self,
        due: impl Fn(&Entry) -> bool,
        new_keys: bool,
    ) -> Result<Vec<String>, PkiError> {
        let mut renewed = Vec::new();
        for entry in self.entries()? {
            if entry.facts.purpose == Purpose::Authority || !due(&entry) {
                continue;
            }
            let authority = self.signer_of(&entry)?;
            let subject = entry.facts.renewed(entry.facts.days_made_for())?;
            if new_keys {
                self.write_pair(&entry.name, &authority.issue(&subject, None)?)?;
            } else {
                let issued =
                    authority.issue(&subject, Some(&files::read(&self.key(&entry.name))?))?;
                files::write(&entry.path, issued.certificate.as_bytes(), files::PUBLIC)?;
            }
            renewed.push(entry.name);
        }
        Ok(renewed)
    }

    /// All certificates, authorities first, then by name. A file that is none is an error.
    pub fn entries(&self) -> Result<Vec<Entry>, PkiError> {
        let (entries, mut others) = self.files()?;
        match others.pop() {
            Some(error) => Err(error),
            None => Ok(entries),
        }
    }

    /// All certificates, as [`entries`](Self::entries) has them, and why other files are none.
    pub fn files(&self) -> Result<(Vec<Entry>, Vec<PkiError>), PkiError> {
        let failed = |source| PkiError::Read {
            path: self.path.clone(),
            source,
        };
        let (mut entries, mut others) = (Vec::new(), Vec::new());
        for file in fs::read_dir(&self.path).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .map(str::to_owned);
            if let (Some(name), Some("crt")) = (name, path.extension().and_then(|e| e.to_str())) {
                let facts = files::read(&path).and_then(|pem| {
                    Facts::from_pem(&pem)
                        .map_err(|_| PkiError::NotACertificate { path: path.clone() })
                });
                match facts {
                    Ok(facts) => entries.push(Entry { name, path, facts }),
                    Err(error) => others.push(error),
                }
            }
        }
        entries.sort_by_key(|entry| {
            (
                entry.facts.purpose != Purpose::Authority,
                entry.name.clone(),
            )
        });
        Ok((entries, others))
    }

    /// The leaves that end within `days` of `now`.
    pub fn near_their_end(days: i64, now: Timestamp) -> impl Fn(&Entry) -> bool {
        move |entry| entry.facts.days_left(now) < days
    }

    fn authority(&self, name: &str) -> Result<Authority, PkiError> {
        let (certificate, key) = (self.certificate(name), self.key(name));
        if !certificate.exists() || !key.exists() {
            return Err(PkiError::NoAuthority {
                name: name.to_owned(),
                directory: self.path.clone(),
            });
        }
        Authority::load(&files::read(&certificate)?, &files::read(&key)?)
    }

    fn signer_of(&self, entry: &Entry) -> Result<Authority, PkiError> {
        let pem = files::read(&entry.path)?;
        for (name, _) in AUTHORITIES {
            let Ok(authority) = files::read(&self.certificate(name)) else {
                continue;
            };
            if inspect::signed_by(&pem, &authority)? {
                return self.authority(name);
            }
        }
        Err(PkiError::UnknownSigner {
            path: entry.path.clone(),
            issuer: entry.facts.issuer.clone(),
        })
    }

    /// The key goes first: a certificate without its key is the worse half.
    fn write_pair(&self, name: &str, issued: &Issued) -> Result<(), PkiError> {
        files::write(&self.key(name), issued.key.as_bytes(), files::SECRET)?;
        files::write(
            &self.certificate(name),
            issued.certificate.as_bytes(),
            files::PUBLIC,
        )
    }
}

/// The serving subject of an API server with these extra names.
pub fn serving_subject(extra: &[AltName], days: u32) -> Subject {
    let mut alt_names: Vec<AltName> = SERVER_NAMES
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    for name in extra {
        if !alt_names.contains(name) {
            alt_names.push(name.clone());
        }
    }
    Subject {
        common_name: "kube-apiserver".to_owned(),
        organizations: Vec::new(),
        alt_names,
        purpose: Purpose::Serving,
        days,
    }
}

/// A client's subject: its user name and groups.
pub fn client_subject(user: &str, groups: &[String], days: u32) -> Subject {
    Subject {
        common_name: user.to_owned(),
        organizations: groups.to_vec(),
        alt_names: Vec::new(),
        purpose: Purpose::Client,
        days,
    }
}

/// The leaves of a plan: file name, authority, subject.
fn leaves(plan: &Plan) -> [(&'static str, &'static str, Subject); 5] {
    let days = plan.leaf_days;
    let masters = ["system:masters".to_owned()];
    let store = Subject {
        common_name: STORE_SERVING.to_owned(),
        organizations: Vec::new(),
        alt_names: ["localhost", "127.0.0.1", "::1"]
            .iter()
            .filter_map(|name| name.parse().ok())
            .chain(plan.alt_names.iter().cloned())
            .collect(),
        purpose: Purpose::Both,
        days,
    };
    [
        (SERVING, CLUSTER_CA, serving_subject(&plan.alt_names, days)),
        (
            ADMIN,
            CLUSTER_CA,
            client_subject("kubernetes-admin", &masters, days),
        ),
        (
            FRONT_PROXY_CLIENT,
            FRONT_PROXY_CA,
            client_subject(FRONT_PROXY_CLIENT, &[], days),
        ),
        (STORE_SERVING, STORE_CA, store),
        (
            STORE_CLIENT,
            STORE_CA,
            client_subject("kube-apiserver-etcd-client", &[], days),
        ),
    ]
}
