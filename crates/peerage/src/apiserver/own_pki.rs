//! Certificates that a server makes for itself when it is given none, so that one can be started with no preparation.
//!
//! They are those of `peerage pki init`, in `--cert-dir`; a kubeconfig for them is written to the data directory. What
//! was made once is used again. A server that is given a serving pair or a client authority uses that one instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::ApiserverSettings;
use crate::common_flags::KeyPairFiles;
use crate::pki::directory::{ADMIN, CLUSTER_CA, PkiDirectory, Plan, SERVING};
use crate::pki::kubeconfig::{Kubeconfig, Server};
use crate::pki::{AltName, PkiError};

/// Pairs that end within so many days are renewed at the start.
const RENEW_WITHIN_DAYS: i64 = 30;

/// Makes what is missing and fills it in. Returns the directory when clients are to use it too.
pub(super) fn fill_in(settings: &mut ApiserverSettings) -> Result<Option<PkiDirectory>, PkiError> {
    if settings.serving.pair.is_some() {
        return Ok(None);
    }
    let pki = PkiDirectory::new(&settings.serving.cert_dir);
    let plan = Plan {
        alt_names: alt_names(settings),
        ..Plan::default()
    };
    let made = pki.complete(&plan)?;
    let near = PkiDirectory::near_their_end(RENEW_WITHIN_DAYS, jiff::Timestamp::now());
    pki.renew(near, false)?;
    settings.serving.pair = Some(KeyPairFiles {
        certificate: pki.certificate(SERVING),
        key: pki.key(SERVING),
    });
    if !made.is_empty() {
        tracing::info!(directory = %pki.path().display(), "no --tls-cert-file: certificates were made");
    }
    if settings.authentication.client_ca.is_some() {
        return Ok(None);
    }
    settings.authentication.client_ca = Some(pki.certificate(CLUSTER_CA));
    Ok(Some(pki))
}

/// The address it is reached at, the addresses of the Service `kubernetes`, and the host's name.
fn alt_names(settings: &ApiserverSettings) -> Vec<AltName> {
    let mut names = Vec::new();
    let addresses = [
        Some(settings.serving.bind.ip()),
        settings.serving.advertise_address,
    ];
    let mut add = |name: AltName| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for ip in addresses
        .into_iter()
        .flatten()
        .filter(|ip| !ip.is_unspecified())
    {
        add(AltName::Ip(ip));
    }
    for ip in settings.service_ranges.iter().filter_map(first_address) {
        add(AltName::Ip(ip));
    }
    if let Ok(name) = settings.hostname.parse() {
        add(name);
    }
    names
}

/// The first address after a network's own.
fn first_address((network, bits): &(IpAddr, u8)) -> Option<IpAddr> {
    match network {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
            Some(IpAddr::V4(((u32::from(*ip) & mask).checked_add(1)?).into()))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
            Some(IpAddr::V6(
                ((u128::from(*ip) & mask).checked_add(1)?).into(),
            ))
        }
    }
}

/// Writes how to reach the server at `bound` as `system:masters`.
pub(super) fn write_kubeconfig(
    settings: &ApiserverSettings,
    pki: &PkiDirectory,
    bound: SocketAddr,
) -> Result<PathBuf, PkiError> {
    let reached = match bound.ip() {
        ip if !ip.is_unspecified() => bound,
        IpAddr::V4(_) => (Ipv4Addr::LOCALHOST, bound.port()).into(),
        IpAddr::V6(_) => (Ipv6Addr::LOCALHOST, bound.port()).into(),
    };
    let server = Server {
        name: settings.hostname.clone(),
        url: format!("https://{reached}"),
    };
    let path = settings.data_dir.join("kubeconfig");
    Kubeconfig::of_directory(pki, vec![server], ADMIN)?.write(&path, true)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_service_kubernetes_has_the_first_address_of_the_range() {
        for (range, expected) in [
            (("10.96.0.0", 12), "10.96.0.1"),
            (("10.0.0.77", 24), "10.0.0.1"),
            (("fd00::", 108), "fd00::1"),
            (("1.2.3.4", 0), "0.0.0.1"),
        ] {
            let (ip, bits) = range;
            assert_eq!(
                first_address(&(ip.parse().unwrap(), bits)),
                Some(expected.parse().unwrap())
            );
        }
    }
}
