//! One group of flags after the other, each made into its part of the settings.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::{Authentication, AuthorizationMode, PeerProxy, Peers, ServiceAccounts, Serving};
use crate::apiserver::flags::ApiserverFlags;
use crate::apiserver::gates::FeatureGates;
use crate::common_flags::{pair, parse_bool};
use crate::settings_error::SettingsError;

pub(super) fn peers(
    flags: &ApiserverFlags,
    gates: FeatureGates,
    warnings: &mut Vec<String>,
) -> Result<Peers, SettingsError> {
    if !gates.proxy {
        let given = [
            ("--peer-ca-file", flags.peer_ca_file.is_some()),
            ("--peer-advertise-ip", flags.peer_advertise_ip.is_some()),
            ("--peer-advertise-port", flags.peer_advertise_port.is_some()),
        ];
        if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(SettingsError::GateOff { flag });
        }
    }
    let advertise = advertised(flags)?;
    let names = ("--proxy-client-cert-file", "--proxy-client-key-file");
    let client = pair(
        names,
        &flags.proxy_client_cert_file,
        &flags.proxy_client_key_file,
    )?;
    let proxy = match (&flags.peer_ca_file, client) {
        (Some(ca), Some(pair)) => Some(PeerProxy {
            ca: ca.clone(),
            pair,
        }),
        (Some(_), None) => return Err(SettingsError::NoProxyClient),
        (None, _) => None,
    };
    if gates.proxy && proxy.is_none() {
        warnings.push(
            "no --peer-ca-file: requests for APIs that only a peer serves are answered 404 here, and discovery is this \
             server's alone; to change it, give --peer-ca-file (the authority of the peers' serving certificates) with \
             --proxy-client-cert-file and --proxy-client-key-file"
                .to_owned(),
        );
    }
    Ok(Peers {
        proxy,
        advertise,
        hold: flags.peer_hold,
        header_for_all: flags.peer_header_for_all,
    })
}

/// Where peers are told to come to, if that is said: both or neither.
fn advertised(flags: &ApiserverFlags) -> Result<Option<SocketAddr>, SettingsError> {
    match (flags.peer_advertise_ip, flags.peer_advertise_port) {
        (Some(ip), Some(port)) => Ok(Some(SocketAddr::new(ip, port))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(SettingsError::HalfAnAddress {
            given: "--peer-advertise-ip",
            missing: "--peer-advertise-port",
        }),
        (None, Some(_)) => Err(SettingsError::HalfAnAddress {
            given: "--peer-advertise-port",
            missing: "--peer-advertise-ip",
        }),
    }
}

/// `1.36`, `v1.36`, `1.36.0` or `kube=1.36`.
pub(super) fn version(given: &[String]) -> Result<Option<String>, SettingsError> {
    let Some(text) = given.last() else {
        return Ok(None);
    };
    let wrong = || SettingsError::Version { text: text.clone() };
    let bare = text.strip_prefix("kube=").unwrap_or(text);
    let bare = bare.strip_prefix('v').unwrap_or(bare);
    let numbers: Vec<u16> = bare
        .split('.')
        .map(|part| part.parse().map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    match numbers[..] {
        [major, minor] | [major, minor, _] => Ok(Some(format!("{major}.{minor}"))),
        _ => Err(wrong()),
    }
}

pub(super) fn runtime_config(pairs: &[String]) -> Result<Vec<(String, bool)>, SettingsError> {
    let read = |pair: &String| {
        // A name alone turns it on, as in kube-apiserver.
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let on =
            parse_bool(value).map_err(|_| SettingsError::RuntimeConfig { pair: pair.clone() })?;
        Ok((name.trim().to_owned(), on))
    };
    pairs
        .iter()
        .filter(|pair| !pair.is_empty())
        .map(read)
        .collect()
}

pub(super) fn hostname(given: Option<&str>) -> Result<String, SettingsError> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => gethostname::gethostname().to_string_lossy().into_owned(),
    };
    // The identity Lease carries it as a label, and a label's value has at most 63 characters.
    let good = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let ends_well = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let valid = name.len() <= 63
        && name.bytes().all(good)
        && ends_well(name.bytes().next())
        && ends_well(name.bytes().last());
    if valid {
        Ok(name)
    } else {
        Err(SettingsError::Hostname { name })
    }
}

pub(super) fn service_ranges(given: &[String]) -> Result<Vec<(IpAddr, u8)>, SettingsError> {
    let read = |text: &String| {
        let wrong = || SettingsError::ServiceRange { text: text.clone() };
        let (ip, bits) = text.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        if bits <= longest {
            Ok((ip, bits))
        } else {
            Err(wrong())
        }
    };
    let ranges: Vec<_> = given
        .iter()
        .filter(|text| !text.is_empty())
        .map(read)
        .collect::<Result<_, _>>()?;
    let v4 = ranges.iter().filter(|(ip, _)| ip.is_ipv4()).count();
    if v4 > 1 || ranges.len() - v4 > 1 {
        return Err(SettingsError::ServiceRange {
            text: given.join(","),
        });
    }
    Ok(ranges)
}

pub(super) fn serving(flags: &ApiserverFlags, data_dir: &Path) -> Result<Serving, SettingsError> {
    let limit = |count: u32| (count > 0).then_some(count);
    Ok(Serving {
        bind: flags.serving.bind(),
        advertise_address: flags.advertise_address,
        pair: flags.serving.pair()?,
        cert_dir: flags
            .cert_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("pki")),
        max_reads: limit(flags.max_requests_inflight),
        max_writes: limit(flags.max_mutating_requests_inflight),
        request_timeout: flags.request_timeout,
        min_watch_timeout: Duration::from_secs(u64::from(flags.min_request_timeout)),
        shutdown_delay: flags.serving.shutdown_delay_duration,
    })
}

pub(super) fn authentication(
    flags: &ApiserverFlags,
    proxies: bool,
    warnings: &mut Vec<String>,
) -> Result<Authentication, SettingsError> {
    let front_proxy = flags.front_proxy.settings();
    if proxies && front_proxy.is_none() {
        warnings.push(
            "no --requestheader-client-ca-file: requests that peers send here are refused (401), because nobody may \
             speak for others; give the authority of the peers' --proxy-client-cert-file"
                .to_owned(),
        );
    }
    if flags.service_account_signing_key_file.is_some() && flags.service_account_issuer.is_empty() {
        return Err(SettingsError::NoIssuer);
    }
    Ok(Authentication {
        client_ca: flags.client_ca_file.clone(),
        anonymous: flags.anonymous_auth,
        tokens: flags.token_auth_file.clone(),
        front_proxy,
        service_accounts: ServiceAccounts {
            issuers: flags.service_account_issuer.clone(),
            keys: flags.service_account_key_file.clone(),
            signing_key: flags.service_account_signing_key_file.clone(),
            audiences: flags.api_audiences.clone(),
        },
    })
}

pub(super) fn authorization(
    given: &[String],
    warnings: &mut Vec<String>,
) -> Result<Vec<AuthorizationMode>, SettingsError> {
    let mut modes = Vec::new();
    for name in given {
        let mode = match name.as_str() {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            "RBAC" => AuthorizationMode::Rbac,
            "Node" => {
                warnings.push(
                    "--authorization-mode=Node: nodes have what RBAC gives them and nothing more; kubelets need the \
                     binding system:node to the group system:nodes"
                        .to_owned(),
                );
                continue;
            }
            _ => return Err(SettingsError::AuthorizationMode { name: name.clone() }),
        };
        if modes.contains(&mode) {
            return Err(SettingsError::AuthorizationMode { name: name.clone() });
        }
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err(SettingsError::AuthorizationMode {
            name: given.join(","),
        });
    }
    if modes.contains(&AuthorizationMode::AlwaysAllow) {
        warnings.push(
            "--authorization-mode=AlwaysAllow: anyone who reaches this server may do anything"
                .to_owned(),
        );
    }
    Ok(modes)
}
