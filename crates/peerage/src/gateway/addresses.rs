//! Addresses of servers as flags have them: `https://HOST:PORT` or `NAME:PORT`, with more behind `;`.
//!
//! What is wrong with one is said of that one: who wrote it sees what to change.

use http::uri::Authority;
use peerage_gateway::sources::server_address;

use super::settings::ServerAddress;
use crate::settings_error::SettingsError;

/// `https://host:port`, and `;zone=name` or `;id=id` behind it.
pub(super) fn server(flag: &'static str, text: &str) -> Result<ServerAddress, SettingsError> {
    read(text).map_err(|problem| SettingsError::ServerUrl {
        flag,
        url: text.to_owned(),
        problem,
    })
}

/// `host:port`, and `;zone=name` behind it.
pub(super) fn name(flag: &'static str, text: &str) -> Result<ServerAddress, SettingsError> {
    let wrong = |problem: String| SettingsError::ServerName {
        flag,
        name: text.to_owned(),
        problem,
    };
    if text.contains("://") {
        return Err(wrong("it is a name alone, without https://".to_owned()));
    }
    let found = read(&format!("https://{text}")).map_err(wrong)?;
    let host = text.split(';').next().unwrap_or_default();
    if found.id.is_some() {
        return Err(wrong("a name of several servers has no id".to_owned()));
    }
    let port = host.parse().ok().and_then(|it: Authority| it.port_u16());
    match port {
        Some(_) => Ok(found),
        None => Err(wrong("it has no port".to_owned())),
    }
}

fn read(text: &str) -> Result<ServerAddress, String> {
    if text.contains(',') {
        return Err("give the flag once for each server, with no comma".to_owned());
    }
    let mut parts = text.split(';');
    let url = parts.next().unwrap_or_default();
    let mut server = ServerAddress {
        authority: server_address(url).map_err(|_| problem(url))?,
        zone: None,
        id: None,
    };
    for part in parts {
        match part.split_once('=') {
            Some(("zone" | "id", "")) => return Err(format!("{part} has no value")),
            Some(("zone", zone)) => server.zone = Some(zone.to_owned()),
            Some(("id", id)) => server.id = Some(id.to_owned()),
            _ => {
                return Err(format!(
                    "behind ; there is zone=NAME or id=ID, not {part:?}"
                ));
            }
        }
    }
    Ok(server)
}

/// What is wrong with a URL that is none of a server.
fn problem(url: &str) -> String {
    let Some(rest) = url.strip_prefix("https://") else {
        return match url.split_once("://") {
            Some((scheme, _)) => format!("servers are spoken to over https alone, not {scheme}"),
            None => "https:// is missing in front".to_owned(),
        };
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let behind = &rest[host.len()..];
    if host.is_empty() {
        return "it has no host".to_owned();
    }
    if host.contains('@') {
        return "it has a user name; who the gateway is, its certificate says".to_owned();
    }
    if !matches!(behind, "" | "/") && server_address(&url[..url.len() - behind.len()]).is_ok() {
        return format!("a server has no path; leave {behind:?} out");
    }
    match host.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') && port.parse::<u16>().is_err() => {
            format!("{port:?} is no port")
        }
        _ => format!("{host:?} is no host"),
    }
}
