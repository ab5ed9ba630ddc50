//! Certificates for a test: two authorities, a serving pair, users, and the pair that speaks for others.
//!
//! Files have the names that recordings use for users (`admin.crt`, `alice.crt`). Everything is made anew in a
//! directory of the test's own; nothing is valid beyond it.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The name that peers' and servers' certificates have.
pub const SERVER_NAME: &str = "kubernetes.default.svc";

/// A directory of certificates.
#[derive(Debug, Clone)]
pub struct Pki {
    directory: PathBuf,
}

impl Pki {
    /// Makes everything in `directory`, which has to exist.
    pub fn create(directory: impl Into<PathBuf>) -> Self {
        let pki = Self {
            directory: directory.into(),
        };
        let ca = pki.authority("ca");
        let front = pki.authority("front-proxy-ca");
        let names = [SERVER_NAME, "localhost", "127.0.0.1"];
        pki.leaf("server", &ca, "kube-apiserver", &[], &names);
        pki.leaf("admin", &ca, "admin", &["system:masters"], &[]);
        pki.leaf("alice", &ca, "alice", &["devs"], &[]);
        pki.token_key("sa");
        pki.leaf("front-proxy-client", &front, "front-proxy-client", &[], &[]);
        pki
    }

    /// A file of the directory: `ca.crt`, `admin.key`, ...
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.write(name, &certificate.pem(), &key);
        Issuer::new(params, key)
    }

    fn leaf(
        &self,
        file: &str,
        issuer: &Issuer<'static, KeyPair>,
        common_name: &str,
        organizations: &[&str],
        server_names: &[&str],
    ) {
        let names: Vec<String> = server_names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let subject = &mut params.distinguished_name;
        for organization in organizations {
            subject.push(DnType::OrganizationName, *organization);
        }
        subject.push(DnType::CommonName, common_name);
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![match server_names {
            [] => ExtendedKeyUsagePurpose::ClientAuth,
            _ => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        self.write(file, &certificate.pem(), &key);
    }

    /// The pair that signs service account tokens: RSA, as Kubernetes' own tools make it.
    fn token_key(&self, name: &str) {
        let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
        std::fs::write(self.file(&format!("{name}.pub")), key.public_key_pem()).unwrap();
    }

    fn write(&self, name: &str, certificate: &str, key: &KeyPair) {
        std::fs::write(self.file(&format!("{name}.crt")), certificate).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
