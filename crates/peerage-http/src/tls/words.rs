//! What rustls says of certificates and keys, in words for who has to mend it.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error, InconsistentKeys};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// What is wrong with a certificate or its key.
pub(crate) fn of_error(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key is not the one of that certificate".to_owned()
        }
        Error::InconsistentKeys(_) => {
            "whether the key is the one of that certificate cannot be told".to_owned()
        }
        Error::InvalidCertificate(certificate) => of_certificate(certificate),
        other => other.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as C;
    match error {
        C::ExpiredContext { not_after, .. } => format!("it ended {}", day(*not_after)),
        C::NotValidYetContext { not_before, .. } => format!("it begins {} only", day(*not_before)),
        C::Expired => "it has ended".to_owned(),
        C::NotValidYet => "it has not begun".to_owned(),
        C::BadEncoding => "it is no certificate that can be read".to_owned(),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => "it is for another use".to_owned(),
        C::Other(other) => match other.0.to_string() {
            version if version == "UnsupportedCertVersion" => {
                "it is a certificate of an old form; only version 3 of X.509 can be used".to_owned()
            }
            authority if authority == "CaUsedAsEndEntity" => {
                "it is an authority's certificate and not a server's or a client's".to_owned()
            }
            other => format!("it cannot be used ({other})"),
        },
        other => Error::InvalidCertificate(other.clone()).to_string(),
    }
}

/// Why a certificate is not valid now, if it is not.
pub(super) fn of_time(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let now = i64::try_from(now.as_secs()).ok()?;
    let (from, until) = (&read.validity().not_before, &read.validity().not_after);
    if until.timestamp() < now {
        return Some(format!("ended {}", date(until)));
    }
    (from.timestamp() > now).then(|| format!("begins {} only", date(from)))
}

fn day(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match ASN1Time::from_timestamp(seconds) {
        Ok(time) => date(&time),
        Err(_) => "at a time that has no date".to_owned(),
    }
}

fn date(time: &ASN1Time) -> String {
    time.to_datetime().date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn no_word_of_the_library_is_left_where_there_is_a_better_one() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let other = |text: &str| {
            let error: Box<dyn std::error::Error + Send + Sync> = text.into();
            CertificateError::Other(rustls::OtherError(Arc::from(error)))
        };
        for (error, says) in [
            (
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
                "the key is not the one of that certificate",
            ),
            (
                Error::InvalidCertificate(CertificateError::ExpiredContext {
                    time: at(1_800_000_000),
                    not_after: at(1_609_459_200),
                }),
                "it ended 2021-01-01",
            ),
            (
                Error::InvalidCertificate(CertificateError::NotValidYetContext {
                    time: at(0),
                    not_before: at(1_609_459_200),
                }),
                "it begins 2021-01-01 only",
            ),
            (
                Error::InvalidCertificate(other("UnsupportedCertVersion")),
                "it is a certificate of an old form; only version 3 of X.509 can be used",
            ),
            (
                Error::InvalidCertificate(other("Odd")),
                "it cannot be used (Odd)",
            ),
        ] {
            assert_eq!(of_error(&error), says);
        }
    }
}
