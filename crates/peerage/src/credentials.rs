//! Credentials of the commands that ask servers: refused where they are read if no server could take them, and explained
//! when a server does not.
//!
//! Invariant: no token and no key is in a message, nor a part of one.

use std::path::Path;

use jiff::Timestamp;
use peerage_http::tls;

use crate::client::chain;
use crate::exit::Failure;
use crate::pki::Facts;
use crate::pki::kubeconfig::Connection;

/// A flag and the file that it names.
pub type Named<'a> = (&'a str, &'a Path);

/// Reads a file that a flag names.
pub fn read((flag, file): Named<'_>) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|e| Failure::unavailable(format!("{flag}: cannot read {}: {e}", file.display())))
}

/// Reads a certificate and its private key, which have to be a pair.
pub fn read_pair(certificate: Named<'_>, key: Named<'_>) -> Result<(String, String), Failure> {
    let pems = (read(certificate)?, read(key)?);
    let file = |(_, file): Named<'_>| file.display().to_string();
    let (in_certificate, in_key) = (file(certificate), file(key));
    tls::check_pair(
        (pems.0.as_bytes(), &in_certificate),
        (pems.1.as_bytes(), &in_key),
    )
    .map_err(|e| Failure::usage(format!("{}, {}: {}", certificate.0, key.0, chain(&e))))?;
    Ok(pems)
}

/// Reads a file that holds one token.
pub fn read_token(named: Named<'_>) -> Result<String, Failure> {
    let text = read(named)?;
    let (flag, file) = named;
    token(&text).map_err(|why| Failure::usage(format!("{flag}: {} {why}", file.display())))
}

/// The token that a text holds, without what surrounds it.
///
/// # Errors
/// What is wrong with the text, as what follows a file's name.
pub fn token(text: &str) -> Result<String, &'static str> {
    let token = text.trim();
    if token.is_empty() {
        return Err("is empty: write the token into it, or leave it out to ask without");
    }
    // It becomes a header, in which a blank would end it.
    match token.chars().all(|c| c.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(
            "holds more than a token: one line without blanks, and nothing else, has to be in it",
        ),
    }
}

/// What a server's 401 is most likely about.
pub fn refused(connection: &Connection) -> String {
    if connection.token.is_some() {
        return "the server does not believe the token: it has run out, or is another cluster's; get a new one, as with \
                kubectl create token"
            .to_owned();
    }
    let Some(certificate) = &connection.certificate else {
        return "nothing was given that says who asks; give a client certificate or a token"
            .to_owned();
    };
    let Ok(facts) = Facts::from_pem(certificate) else {
        return "the server does not believe the client certificate".to_owned();
    };
    let (name, now) = (&facts.common_name, Timestamp::now());
    if facts.not_after <= now {
        return format!(
            "the client certificate of {name:?} {}: renew it, and write it into the kubeconfig if it is from there",
            facts.ended()
        );
    }
    if facts.not_before > now {
        return format!(
            "the client certificate of {name:?} {}: set the clocks right, or make it anew",
            facts.begins()
        );
    }
    format!(
        "the server does not believe the client certificate of {name:?}, signed by {:?}: take one of an authority in the \
         server's --client-ca-file",
        facts.issuer
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn pair(year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let name = rcgen::DnType::CommonName;
        params.distinguished_name.push(name, "bob");
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn files_that_no_server_could_take_are_refused_by_flag_and_name() {
        let temp = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = temp.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (ours, theirs) = (pair(2020), pair(2020));
        let (certificate, key) = (file("a.crt", &ours.0), file("a.key", &ours.1));
        let other = file("b.key", &theirs.1);
        let read = |certificate: &Path, key: &Path| {
            read_pair(("--client-certificate", certificate), ("--client-key", key))
        };
        assert_eq!(read(&certificate, &key).unwrap(), ours);
        for (certificate, key, says) in [
            (&certificate, &other, "b.key"),
            (&key, &certificate, "no certificate in "),
            (&certificate, &certificate, "no private key in "),
        ] {
            let failure = read(certificate, key).unwrap_err().to_string();
            assert!(
                failure.starts_with("--client-certificate, --client-key: "),
                "{failure}"
            );
            assert!(failure.contains(says), "{failure}");
        }
        for (text, says) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("SECRET\nSECRET\n", "holds more than a token"),
            ("SECRET SECRET", "holds more than a token"),
            ("SECRÉT", "holds more than a token"),
        ] {
            let path = file("token", text);
            let failure = read_token(("--token-file", &path)).unwrap_err().to_string();
            let named = format!("--token-file: {} {says}", path.display());
            assert!(failure.starts_with(&named), "{failure}");
            assert!(!failure.contains("SECR"), "{failure}");
        }
        let good = file("token", "\nabc.d-e_f==\n");
        assert_eq!(read_token(("--token-file", &good)).unwrap(), "abc.d-e_f==");
    }

    #[test]
    fn a_refusal_is_explained_by_what_was_given() {
        let with = |certificate: Option<String>, token: Option<&str>| {
            refused(&Connection {
                certificate,
                token: token.map(str::to_owned),
                ..Connection::default()
            })
        };
        assert!(with(None, None).contains("give a client certificate or a token"));
        assert!(with(None, Some("SECRET")).contains("the token: it has run out"));
        assert!(!with(None, Some("SECRET")).contains("SECRET"));
        for (year, says) in [
            (2020, "of \"bob\" ended 2020-01-01: renew it"),
            (2999, "of \"bob\" begins 2998-01-01 only: set the clocks"),
        ] {
            let text = with(Some(pair(year).0), None);
            assert!(text.contains(says), "{text}");
        }
    }
}
