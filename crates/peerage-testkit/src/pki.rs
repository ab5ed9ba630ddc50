//! Certificates for a test: two authorities, a serving pair, users, and the pair that speaks for others.
//!
//! Files have the names that recordings use for users (`admin.crt`, `alice.crt`). Everything is made anew in a
//! directory of the test's own; nothing is valid beyond it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peerage_http::testing::{Authority, Subject, Usage};
use rcgen::KeyPair;

/// The name that peers' and servers' certificates have.
pub const SERVER_NAME: &str = "kubernetes.default.svc";

/// A directory of certificates.
#[derive(Debug, Clone)]
pub struct Pki {
    directory: PathBuf,
    authority: Arc<Keeper>,
}

/// The authority that signs users.
struct Keeper(Authority);

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

impl Pki {
    /// Makes everything in `directory`, which has to exist.
    pub fn create(directory: impl Into<PathBuf>) -> Self {
        let pki = Self {
            directory: directory.into(),
            authority: Arc::new(Keeper(Authority::new("ca"))),
        };
        pki.servers("", &pki.authority.0);
        pki.client("admin", "admin", &["system:masters"]);
        pki.client("alice", "alice", &["devs"]);
        pki.client("etcd-client", "root", &[]);
        pki.client("kubelet-client", "kube-apiserver-kubelet-client", &[]);
        pki.token_key("sa");
        pki
    }

    /// Makes what a rotation of both authorities does: `{prefix}ca.crt` and `{prefix}front-proxy-ca.crt` with what they
    /// sign, `{prefix}server.crt` and `{prefix}front-proxy-client.crt`.
    pub fn renew(&self, prefix: &str) {
        self.servers(prefix, &Authority::new(&format!("{prefix}ca")));
    }

    /// Both authorities, and what servers and the one that speaks for others show.
    fn servers(&self, prefix: &str, ca: &Authority) {
        let front = Authority::new(&format!("{prefix}front-proxy-ca"));
        let file = |name: &str| format!("{prefix}{name}");
        self.write(&file("ca"), &ca.certificate(), &ca.key());
        self.write(&file("front-proxy-ca"), &front.certificate(), &front.key());
        self.leaf(&file("server"), ca, &server());
        let proxy = user("front-proxy-client", &[]);
        self.leaf(&file("front-proxy-client"), &front, &proxy);
    }

    /// A file of the directory: `ca.crt`, `admin.key`, ...
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes `file.crt` and `file.key` of a user in groups.
    pub fn client(&self, file: &str, name: &str, groups: &[&str]) {
        self.leaf(file, &self.authority.0, &user(name, groups));
    }

    /// Makes `file.crt` and `file.key` of one more server.
    pub fn server(&self, file: &str) {
        self.leaf(file, &self.authority.0, &server());
    }

    /// Makes `file.crt` and `file.key` of a user whom an authority that nobody knows vouches for.
    pub fn stranger(&self, file: &str, name: &str, groups: &[&str]) {
        self.leaf(file, &Authority::new("nobody"), &user(name, groups));
    }

    fn leaf(&self, file: &str, authority: &Authority, subject: &Subject<'_>) {
        let pair = authority.issue(subject);
        self.write(file, &pair.certificate, &pair.key);
    }

    /// The pair that signs service account tokens: RSA, as Kubernetes' own tools make it.
    fn token_key(&self, name: &str) {
        let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
        std::fs::write(self.file(&format!("{name}.pub")), key.public_key_pem()).unwrap();
    }

    fn write(&self, name: &str, certificate: &str, key: &str) {
        std::fs::write(self.file(&format!("{name}.crt")), certificate).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key).unwrap();
    }
}

fn server() -> Subject<'static> {
    Subject {
        name: "kube-apiserver",
        hosts: &[SERVER_NAME, "localhost", "127.0.0.1", "::1"],
        usage: Some(Usage::Server),
        ..Subject::default()
    }
}

fn user<'a>(name: &'a str, groups: &'a [&'a str]) -> Subject<'a> {
    Subject {
        name,
        groups,
        usage: Some(Usage::Client),
        ..Subject::default()
    }
}
