//! The keys that sign service account tokens, as OpenID Connect discovery publishes them (RFC 7517), so that others
//! can verify the tokens.
//!
//! Only public halves leave this module. Key IDs are kube-apiserver's: the SHA-256 of the public key's DER.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    /// The file.
    #[error(
        "{0:?} (--service-account-key-file, --service-account-signing-key-file) cannot be read"
    )]
    Read(PathBuf, #[source] std::io::Error),
    /// What is in it.
    #[error(
        "{0:?} (--service-account-key-file, --service-account-signing-key-file) holds no RSA or elliptic-curve key in PEM"
    )]
    NoKey(PathBuf),
}

/// Published keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenKeys {
    keys: Vec<Key>,
}

/// One key of a key set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Key {
    #[serde(rename = "use")]
    usage: &'static str,
    kty: &'static str,
    kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'static str>,
    alg: &'static str,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Numbers {
    Rsa { n: String, e: String },
    Curve { x: String, y: String },
}

impl TokenKeys {
    /// Reads files with public or private keys; several in one file are all taken.
    ///
    /// # Errors
    /// [`TokenKeyError`]: a file that cannot be read or has no key of a known kind.
    pub fn load(files: &[PathBuf]) -> Result<Self, TokenKeyError> {
        let mut keys: Vec<Key> = Vec::new();
        for file in files {
            for key in read(file)? {
                if !keys.iter().any(|known| known.kid == key.kid) {
                    keys.push(key);
                }
            }
        }
        Ok(Self { keys })
    }

    /// The signature algorithms of the keys, each once.
    #[must_use]
    pub fn algorithms(&self) -> Vec<&'static str> {
        let all: BTreeSet<_> = self.keys.iter().map(|key| key.alg).collect();
        all.into_iter().collect()
    }

    /// The key set as JSON.
    #[must_use]
    pub fn key_set(&self) -> String {
        #[derive(Serialize)]
        struct KeySet<'a> {
            keys: &'a [Key],
        }
        serde_json::to_string(&KeySet { keys: &self.keys }).unwrap_or_default()
    }
}

fn read(file: &Path) -> Result<Vec<Key>, TokenKeyError> {
    let pem = std::fs::read(file).map_err(|e| TokenKeyError::Read(file.to_owned(), e))?;
    let public = SubjectPublicKeyInfoDer::pem_slice_iter(&pem).flatten();
    let mut keys: Vec<Key> = public.filter_map(|der| published(&der)).collect();
    let private = PrivateKeyDer::from_pem_slice(&pem).ok();
    let own = private.and_then(|key| {
        any_supported_type(&key)
            .ok()?
            .public_key()
            .map(|k| k.into_owned())
    });
    keys.extend(own.and_then(|der| published(&der)));
    if keys.is_empty() {
        return Err(TokenKeyError::NoKey(file.to_owned()));
    }
    Ok(keys)
}

fn published(der: &[u8]) -> Option<Key> {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
    let kid = encode(&Sha256::digest(der));
    match info.parsed().ok()? {
        PublicKey::RSA(key) => Some(Key {
            usage: "sig",
            kty: "RSA",
            kid,
            crv: None,
            alg: "RS256",
            numbers: Numbers::Rsa {
                n: encode(without_zeros(key.modulus)),
                e: encode(without_zeros(key.exponent)),
            },
        }),
        PublicKey::EC(point) => {
            let (curve, alg) = match point.data().len() {
                65 => ("P-256", "ES256"),
                97 => ("P-384", "ES384"),
                133 => ("P-521", "ES512"),
                _ => return None,
            };
            // The first byte says that both coordinates follow.
            let coordinates = point.data().get(1..)?;
            let (x, y) = coordinates.split_at(coordinates.len() / 2);
            Some(Key {
                usage: "sig",
                kty: "EC",
                kid,
                crv: Some(curve),
                alg,
                numbers: Numbers::Curve {
                    x: encode(x),
                    y: encode(y),
                },
            })
        }
        _ => None,
    }
}

/// A number without the zeros that DER writes before it.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(pem: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        file
    }

    #[test]
    fn the_private_and_the_public_file_of_a_pair_publish_one_key() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let (private, public) = (file(&pair.serialize_pem()), file(&pair.public_key_pem()));
        let files = [private.path().to_owned(), public.path().to_owned()];
        let keys = TokenKeys::load(&files).unwrap();
        assert_eq!(keys.algorithms(), ["ES256"]);
        let set: serde_json::Value = serde_json::from_str(&keys.key_set()).unwrap();
        assert_eq!(set["keys"].as_array().unwrap().len(), 1);
        assert_eq!(set["keys"][0]["crv"], "P-256");
        assert_eq!(set["keys"][0]["x"].as_str().unwrap().len(), 43);
        assert!(set["keys"][0].get("d").is_none());
    }

    #[test]
    fn rsa_keys_are_published_with_modulus_and_exponent() {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let public = file(&pair.public_key_pem());
        let keys = TokenKeys::load(&[public.path().to_owned()]).unwrap();
        let set: serde_json::Value = serde_json::from_str(&keys.key_set()).unwrap();
        assert_eq!(set["keys"][0]["kty"], "RSA");
        assert_eq!(set["keys"][0]["alg"], "RS256");
        assert_eq!(set["keys"][0]["e"], "AQAB");
    }

    #[test]
    fn a_file_without_a_key_is_refused_by_name() {
        let empty = file("nothing");
        let error = TokenKeys::load(&[empty.path().to_owned()]).unwrap_err();
        assert!(matches!(error, TokenKeyError::NoKey(_)));
        let error = TokenKeys::load(&[PathBuf::from("/nowhere/sa.pub")]).unwrap_err();
        assert!(matches!(error, TokenKeyError::Read(..)));
    }
}
