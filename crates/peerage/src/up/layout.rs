//! Names, ports, files and flags of the processes of `peerage up`.

use std::fs::{self, File, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::UpFlags;
use super::process::Spec;
use crate::apiserver::settings::default_data_dir;
use crate::exit::Failure;
use crate::pki::directory::{self, PkiDirectory, Plan};
use crate::pki::kubeconfig::{Kubeconfig, Server};

/// Where free ports are looked for: kube-apiserver's and etcd's own, and upwards.
const FIRST_SERVER_PORT: u16 = 6443;
const FIRST_STORE_PORT: u16 = 2379;
/// Pairs that end within so many days are renewed at the start.
const RENEW_WITHIN_DAYS: i64 = 30;
/// What is audited: everything, without bodies.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
                            - level: Metadata\n";

/// One API server.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// Its name, which is also its context's and its host name to the others: `v1.36`.
    pub(super) name: String,
    /// The Kubernetes version it serves.
    pub(super) version: String,
    /// Its port on loopback.
    pub(super) port: u16,
}

/// Everything that is decided before the first process starts.
#[derive(Debug)]
pub(super) struct Layout {
    data_dir: PathBuf,
    pki: PkiDirectory,
    store_port: u16,
    members: Vec<Member>,
    verbosity: u8,
    /// Held as long as this process lives, so that a second one does not use the same directory.
    _lock: File,
}

impl Layout {
    /// Makes directory, certificates and kubeconfig, and chooses ports.
    pub(super) fn prepare(flags: &UpFlags) -> Result<Self, Failure> {
        let versions = versions(&flags.versions)?;
        let data_dir = flags
            .data_dir
            .clone()
            .unwrap_or_else(|| default_data_dir().join("up"));
        let make = |directory: &Path| {
            fs::create_dir_all(directory).map_err(|e| {
                Failure::unavailable(format!("cannot make {}: {e}", directory.display()))
            })
        };
        make(&data_dir)?;
        let data_dir = fs::canonicalize(&data_dir).unwrap_or(data_dir);
        make(&data_dir.join("logs"))?;
        let lock = lock(&data_dir)?;
        let pki = PkiDirectory::new(data_dir.join("pki"));
        pki.complete(&Plan::default())?;
        pki.renew(
            PkiDirectory::near_their_end(RENEW_WITHIN_DAYS, Timestamp::now()),
            false,
        )?;
        let (members, store_port) = match flags.port {
            Some(first) => given_ports(&versions, first)?,
            None => free_ports(&versions)?,
        };
        let layout = Self {
            data_dir,
            pki,
            store_port,
            members,
            verbosity: flags.log.v,
            _lock: lock,
        };
        layout.write_kubeconfig()?;
        let policy = layout.audit_policy();
        fs::write(&policy, AUDIT_POLICY)
            .map_err(|e| Failure::unavailable(format!("cannot write {}: {e}", policy.display())))?;
        Ok(layout)
    }

    /// The servers, oldest version first.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn pki(&self) -> &PkiDirectory {
        &self.pki
    }

    pub(super) fn store_port(&self) -> u16 {
        self.store_port
    }

    pub(super) fn headline(&self) -> String {
        let versions: Vec<_> = self
            .members
            .iter()
            .map(|member| member.version.as_str())
            .collect();
        format!(
            "Kubernetes {} on one store, in {}",
            and(&versions),
            self.data_dir.display()
        )
    }

    /// What to type to use the servers.
    pub(super) fn how_to_use(&self) -> String {
        let contexts: Vec<_> = self
            .members
            .iter()
            .map(|member| member.name.as_str())
            .collect();
        format!(
            "export KUBECONFIG={}\nkubectl --context {} api-resources    # contexts: {}\n\nlogs and audit are in {}; \
             Ctrl-C stops everything",
            self.kubeconfig().display(),
            contexts.first().copied().unwrap_or_default(),
            contexts.join(", "),
            self.data_dir.join("logs").display()
        )
    }

    /// How to start the store.
    pub(super) fn store_process(&self) -> Spec {
        let args = vec![
            "store".to_owned(),
            format!(
                "--storage=sqlite:{}",
                self.data_dir.join("store.db").display()
            ),
            format!("--listen-client-urls=https://127.0.0.1:{}", self.store_port),
            format!("--cert-file={}", self.certificate(directory::STORE_SERVING)),
            format!("--key-file={}", self.key(directory::STORE_SERVING)),
            format!(
                "--trusted-ca-file={}",
                self.certificate(directory::STORE_CA)
            ),
        ];
        self.process("store", args)
    }

    /// How to start a server.
    pub(super) fn server_process(&self, member: &Member) -> Spec {
        let audit = self
            .data_dir
            .join("logs")
            .join(format!("{}.audit", member.name));
        let args = vec![
            "apiserver".to_owned(),
            format!("--emulated-version={}", member.version),
            format!("--hostname-override={}", member.name),
            format!("--data-dir={}", self.data_dir.join(&member.name).display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", member.port),
            format!("--etcd-servers=https://127.0.0.1:{}", self.store_port),
            format!("--etcd-cafile={}", self.certificate(directory::STORE_CA)),
            format!(
                "--etcd-certfile={}",
                self.certificate(directory::STORE_CLIENT)
            ),
            format!("--etcd-keyfile={}", self.key(directory::STORE_CLIENT)),
            format!("--tls-cert-file={}", self.certificate(directory::SERVING)),
            format!("--tls-private-key-file={}", self.key(directory::SERVING)),
            format!(
                "--client-ca-file={}",
                self.certificate(directory::CLUSTER_CA)
            ),
            format!(
                "--requestheader-client-ca-file={}",
                self.certificate(directory::FRONT_PROXY_CA)
            ),
            format!(
                "--requestheader-allowed-names={}",
                directory::FRONT_PROXY_CLIENT
            ),
            format!(
                "--proxy-client-cert-file={}",
                self.certificate(directory::FRONT_PROXY_CLIENT)
            ),
            format!(
                "--proxy-client-key-file={}",
                self.key(directory::FRONT_PROXY_CLIENT)
            ),
            format!("--peer-ca-file={}", self.certificate(directory::CLUSTER_CA)),
            format!("--audit-policy-file={}", self.audit_policy().display()),
            format!("--audit-log-path={}", audit.display()),
        ];
        self.process(&member.name, args)
    }

    fn process(&self, name: &str, mut args: Vec<String>) -> Spec {
        args.push("--exit-with-stdin".to_owned());
        args.push(format!("-v={}", self.verbosity));
        Spec {
            name: name.to_owned(),
            args,
            log: self.data_dir.join("logs").join(format!("{name}.log")),
        }
    }

    fn certificate(&self, name: &str) -> String {
        self.pki.certificate(name).display().to_string()
    }

    fn key(&self, name: &str) -> String {
        self.pki.key(name).display().to_string()
    }

    fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("kubeconfig")
    }

    fn audit_policy(&self) -> PathBuf {
        self.data_dir.join("audit-policy.yaml")
    }

    fn write_kubeconfig(&self) -> Result<(), Failure> {
        let server = |member: &Member| Server {
            name: member.name.clone(),
            url: format!("https://127.0.0.1:{}", member.port),
        };
        let servers = self.members.iter().map(server).collect();
        let kubeconfig = Kubeconfig::of_directory(&self.pki, servers, directory::ADMIN)?;
        Ok(kubeconfig.write(&self.kubeconfig(), true)?)
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn and(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The versions to run, oldest first.
fn versions(asked: &[String]) -> Result<Vec<String>, Failure> {
    let known = peerage_catalogue::versions();
    let mut chosen: Vec<String> = Vec::new();
    for text in asked {
        let version = text.trim().trim_start_matches('v');
        if !known.contains(&version) {
            return Err(Failure::usage(format!(
                "--versions: there is no Kubernetes {text:?} here; there are {}",
                and(known)
            )));
        }
        chosen.push(version.to_owned());
    }
    if asked.is_empty() {
        let ends = [known.first(), known.last()];
        chosen.extend(
            ends.into_iter()
                .flatten()
                .map(|version| (*version).to_owned()),
        );
        chosen.dedup();
    }
    chosen.sort_by_key(|version| known.iter().position(|known| known == version));
    Ok(chosen)
}

fn lock(data_dir: &Path) -> Result<File, Failure> {
    let path = data_dir.join("lock");
    let file = File::create(&path)
        .map_err(|e| Failure::unavailable(format!("cannot write {}: {e}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::unavailable(format!(
            "another `peerage up` runs in {}; stop it, or give another --data-dir",
            data_dir.display()
        ))),
        Err(TryLockError::Error(e)) => Err(Failure::unavailable(format!(
            "cannot lock {}: {e}",
            path.display()
        ))),
    }
}

fn given_ports(versions: &[String], first: u16) -> Result<(Vec<Member>, u16), Failure> {
    let mut ports = first..=u16::MAX;
    let mut next = || {
        let port = ports.next().ok_or_else(|| {
            Failure::usage(format!("--port={first} leaves too few ports after it"))
        })?;
        match is_free(port) {
            true => Ok(port),
            false => Err(Failure::unavailable(format!(
                "port {port} is taken; give another --port, or none for free ones"
            ))),
        }
    };
    let members = members(versions, &mut next)?;
    Ok((members, next()?))
}

fn free_ports(versions: &[String]) -> Result<(Vec<Member>, u16), Failure> {
    let no_port = || Failure::unavailable("there is no free port on 127.0.0.1");
    let mut server_ports = (FIRST_SERVER_PORT..=u16::MAX).filter(|port| is_free(*port));
    let members = members(versions, || server_ports.next().ok_or_else(no_port))?;
    let taken = |port: &u16| members.iter().any(|member| member.port == *port);
    let store = (FIRST_STORE_PORT..=u16::MAX).find(|port| !taken(port) && is_free(*port));
    Ok((members, store.ok_or_else(no_port)?))
}

fn members(
    versions: &[String],
    mut port: impl FnMut() -> Result<u16, Failure>,
) -> Result<Vec<Member>, Failure> {
    let mut members: Vec<Member> = Vec::new();
    for version in versions {
        let name = match members
            .iter()
            .filter(|member| member.version == *version)
            .count()
        {
            0 => format!("v{version}"),
            others => format!("v{version}-{}", others + 1),
        };
        members.push(Member {
            name,
            version: version.clone(),
            port: port()?,
        });
    }
    Ok(members)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn by_default_the_oldest_and_the_newest_version_run() {
        let known = peerage_catalogue::versions();
        assert_eq!(
            versions(&[]).unwrap(),
            words(&[known[0], known[known.len() - 1]])
        );
    }

    #[test]
    fn versions_run_oldest_first_and_unknown_ones_are_refused_with_the_known() {
        assert_eq!(
            versions(&words(&["1.37", "v1.34"])).unwrap(),
            words(&["1.34", "1.37"])
        );
        let message = versions(&words(&["1.2"])).unwrap_err().to_string();
        assert!(
            message.contains("1.2") && message.contains("and 1.37"),
            "{message}"
        );
    }

    #[test]
    fn servers_of_the_same_version_have_names_of_their_own() {
        let mut port = 0;
        let members = members(&words(&["1.36", "1.37", "1.37"]), || {
            port += 1;
            Ok(port)
        });
        let names: Vec<_> = members
            .unwrap()
            .into_iter()
            .map(|member| member.name)
            .collect();
        assert_eq!(names, ["v1.36", "v1.37", "v1.37-2"]);
    }

    #[test]
    fn lists_are_written_as_one_speaks() {
        assert_eq!(and(&["a"]), "a");
        assert_eq!(and(&["a", "b"]), "a and b");
        assert_eq!(and(&["a", "b", "c"]), "a, b and c");
    }

    #[test]
    fn a_directory_serves_one_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let first = lock(temp.path()).unwrap();
        let refusal = lock(temp.path()).unwrap_err().to_string();
        assert!(refusal.contains("--data-dir"), "{refusal}");
        drop(first);
        assert!(lock(temp.path()).is_ok());
    }
}
