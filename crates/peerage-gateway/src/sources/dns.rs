//! Servers from DNS: every address of a name is one, looked up again every few seconds.
//!
//! What is found is an address and nothing more; whether a server of this control plane is there, its certificate says,
//! under the name that all of them have and not under the one that was looked up.
//!
//! Invariants: an answer that fails or is empty changes nothing; an address is let go of only after it was missing from
//! several answers, since some name servers give a part of them each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use tokio::time::timeout;

use super::Found;
use super::publish::Publisher;

/// How often names are looked up.
const EVERY: Duration = Duration::from_secs(10);
/// How long one answer may take.
const WAIT: Duration = Duration::from_secs(5);
/// From how many answers in a row an address may be missing.
const MISSES: u32 = 2;
/// Addresses of one name.
const MOST: usize = 100;

/// A name each of whose addresses is a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// The name, and the port of all servers.
    pub name: Authority,
    /// The failure domain that they are in.
    pub zone: Option<Arc<str>>,
}

/// Looks the names up for ever.
pub(super) async fn follow(names: Vec<DnsName>, mut publisher: Publisher) {
    let mut names: Vec<_> = names
        .into_iter()
        .map(|name| (name, Addresses::default()))
        .collect();
    loop {
        let mut failure = None;
        for (name, addresses) in &mut names {
            match look_up(&name.name).await {
                Ok(answer) => addresses.take(answer),
                Err(error) => failure = Some((error.reason(), format!("{}: {error}", name.name))),
            }
        }
        // The others count although one failed.
        let servers = names.iter().flat_map(|(name, it)| it.servers(name));
        let servers: Vec<_> = servers.collect();
        if failure.is_none() || !servers.is_empty() {
            publisher.found(servers, 0);
        }
        if let Some((reason, text)) = failure {
            publisher.failed(reason, text);
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error("cannot be looked up: {0}")]
    Failed(#[from] std::io::Error),
    #[error("no answer within {WAIT:?}")]
    Late,
    #[error("has no address")]
    Empty,
}

impl LookupError {
    fn reason(&self) -> &'static str {
        match self {
            LookupError::Failed(_) => "lookup",
            LookupError::Late => "deadline",
            LookupError::Empty => "empty",
        }
    }
}

async fn look_up(name: &Authority) -> Result<Vec<SocketAddr>, LookupError> {
    let answer = timeout(WAIT, tokio::net::lookup_host(name.as_str()));
    let found: Vec<_> = answer
        .await
        .map_err(|_| LookupError::Late)??
        .take(MOST)
        .collect();
    match found.is_empty() {
        true => Err(LookupError::Empty),
        false => Ok(found),
    }
}

/// The addresses of one name, and from how many answers each was missing.
#[derive(Default)]
struct Addresses(BTreeMap<SocketAddr, u32>);

impl Addresses {
    fn take(&mut self, answer: Vec<SocketAddr>) {
        for misses in self.0.values_mut() {
            *misses += 1;
        }
        for address in answer {
            self.0.insert(address, 0);
        }
        self.0.retain(|_, misses| *misses <= MISSES);
        while self.0.len() > MOST {
            self.0.pop_last();
        }
    }

    fn servers<'a>(&'a self, name: &'a DnsName) -> impl Iterator<Item = Found> + 'a {
        self.0.keys().filter_map(|address| {
            let address = address.to_string().parse().ok()?;
            Some(Found {
                zone: name.zone.clone(),
                ..Found::at(address)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_let_go_of_when_it_was_missing_several_times() {
        let address = |n: u8| SocketAddr::from(([10, 0, 0, n], 6443));
        let name = DnsName {
            name: "cp.example:6443".parse().unwrap(),
            zone: Some("z".into()),
        };
        let mut addresses = Addresses::default();
        addresses.take(vec![address(1), address(2)]);
        let mut seen = Vec::new();
        for _ in 0..4 {
            addresses.take(vec![address(2)]);
            seen.push(addresses.servers(&name).count());
        }
        assert_eq!(seen, [2, 2, 1, 1]);
        addresses.take((0..200).map(address).collect());
        assert_eq!(addresses.servers(&name).count(), MOST);
        let first = addresses.servers(&name).next().unwrap();
        assert_eq!((first.zone.as_deref(), first.live), (Some("z"), true));
    }

    #[tokio::test]
    async fn a_name_is_looked_up_with_its_port() {
        let found = look_up(&"localhost:6443".parse().unwrap()).await.unwrap();
        assert!(
            found
                .iter()
                .all(|a| a.ip().is_loopback() && a.port() == 6443)
        );
    }
}
