//! Whose a certificate is, in words for people: bounded, and escaped, because anybody may show any certificate.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Characters of one name that are shown.
const LENGTH: usize = 64;
/// Names that are shown.
const NAMES: usize = 6;

/// Who signed it, quoted: the common name, else the whole name.
#[must_use]
pub fn issuer(certificate: &CertificateDer<'_>) -> String {
    let Ok((_, read)) = X509Certificate::from_der(certificate) else {
        return "an issuer that cannot be read".to_owned();
    };
    let issuer = read.issuer();
    let common = issuer.iter_common_name().filter_map(|it| it.as_str().ok());
    match common.last() {
        Some(name) => quoted(name),
        None => quoted(&issuer.to_string()),
    }
}

/// The hosts that it is for, quoted.
pub(crate) fn hosts(certificate: &CertificateDer<'_>) -> String {
    let read = X509Certificate::from_der(certificate).ok();
    let names = read.as_ref().and_then(|(_, read)| {
        let extension = read.subject_alternative_name().ok()??;
        Some(&extension.value.general_names)
    });
    let names: Vec<String> = names.into_iter().flatten().filter_map(host).collect();
    let shown: Vec<String> = names.iter().take(NAMES).map(|name| quoted(name)).collect();
    match names.len() {
        0 => "no host".to_owned(),
        all if all > NAMES => format!("{} and {} more", shown.join(", "), all - NAMES),
        _ => shown.join(", "),
    }
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|it| it.to_string())
        }
        _ => None,
    }
}

fn quoted(name: &str) -> String {
    let short: String = name.chars().take(LENGTH).collect();
    let rest = if short.len() < name.len() { "…" } else { "" };
    format!("{short:?}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    #[test]
    fn names_are_bounded_and_cannot_break_a_line() {
        let hosts_of = |names: &[&str]| hosts(&Authority::new("ca").server("x", names).der);
        assert_eq!(hosts_of(&[]), "no host");
        assert_eq!(
            hosts_of(&["a", "10.0.0.1", "::1"]),
            r#""a", "10.0.0.1", "::1""#
        );
        let many = hosts_of(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        assert!(many.ends_with(r#""f" and 2 more"#), "{many}");
        let signed = |name: &str| issuer(&Authority::new(name).client("x").der);
        assert_eq!(signed("cluster ca"), r#""cluster ca""#);
        assert_eq!(signed("a\nb"), r#""a\nb""#);
        assert!(signed(&"x".repeat(500)).chars().count() < 80);
        let nonsense = CertificateDer::from(vec![1, 2, 3]);
        assert_eq!(hosts(&nonsense), "no host");
        assert_eq!(issuer(&nonsense), "an issuer that cannot be read");
    }
}
