//! Servers from DNS: every address of a name is one, looked up again every few seconds.
//!
//! What is found is an address and nothing more; whether a server of this control plane is there, its certificate says,
//! under the name that all of them have and not under the one that was looked up.
//!
//! Invariants: an answer that fails or is empty changes nothing; an address is let go of only after it was missing from
//! several answers, since some name servers give a part of them each time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::uri::Authority;
use peerage_core::chain;
use tokio::time::timeout;

use super::Found;
use super::publish::Publisher;

/// How often names are looked up.
const EVERY: Duration = Duration::from_secs(10);
/// How long one answer may take.
const WAIT: Duration = Duration::from_secs(5);
/// From how many answers in a row an address may be missing.
const MISSES: u32 = 2;
/// Names that are looked up at one time: each may keep a thread of the system's resolver busy.
const AT_ONCE: usize = 8;
/// Addresses of one name that are kept; more are no control plane.
const MOST: usize = 500;
/// As much of an answer as is looked at.
const MOST_ANSWERED: usize = 10_000;

/// A name each of whose addresses is a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// The name, and the port of all servers.
    pub name: Authority,
    /// The failure domain that they are in.
    pub zone: Option<Arc<str>>,
}

/// Looks the names up for ever.
pub(super) async fn follow(names: Vec<DnsName>, publisher: Publisher) {
    follow_by(look_up, names, publisher).await;
}

async fn follow_by<L, A>(look_up: L, names: Vec<DnsName>, mut publisher: Publisher)
where
    L: Fn(Authority) -> A,
    A: Future<Output = Result<Vec<SocketAddr>, LookupError>>,
{
    let mut names: Vec<_> = names
        .into_iter()
        .map(|name| (name, Addresses::default()))
        .collect();
    loop {
        let asked: Vec<_> = names
            .iter()
            .map(|(name, _)| in_time(look_up(name.name.clone())))
            .collect();
        let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let mut faults = Faults {
            failures: Vec::new(),
            too_long: Vec::new(),
        };
        for ((name, addresses), answer) in names.iter_mut().zip(answers) {
            match answer {
                Ok(answer) => {
                    let left_out = addresses.take(answer);
                    if left_out > 0 {
                        let of = MOST + left_out;
                        let text =
                            format!("{}: only {MOST} of its {of} addresses count", name.name);
                        faults.too_long.push(text);
                    }
                }
                Err(error) => faults
                    .failures
                    .push((error.reason(), format!("{}: {}", name.name, chain(&error)))),
            }
        }
        let servers = names.iter().flat_map(|(name, it)| it.servers(name));
        tell(&mut publisher, servers.collect(), faults);
        tokio::time::sleep(EVERY).await;
    }
}

/// What is wrong with the answers: a metric label and words, for each name; whole ones are wrong in that they are too long.
struct Faults {
    failures: Vec<(&'static str, String)>,
    too_long: Vec<String>,
}

/// The list is whole, and known to be right, only if every name was answered; the others count although one was not.
fn tell(publisher: &mut Publisher, servers: Vec<Found>, faults: Faults) {
    let Some(reason) = faults.failures.first().map(|(reason, _)| *reason) else {
        if faults.too_long.is_empty() {
            return publisher.found(servers, 0);
        }
        let text = format!(
            "{}; no control plane has so many servers: find out what the name is for",
            faults.too_long.join("; ")
        );
        return publisher.found_but(servers, 0, "too_many", text);
    };
    let texts = faults.failures.into_iter().map(|(_, text)| text);
    let texts: Vec<_> = texts.chain(faults.too_long).collect();
    publisher.aged(servers);
    publisher.failed(reason, texts.join("; "));
}

async fn in_time(
    answer: impl Future<Output = Result<Vec<SocketAddr>, LookupError>>,
) -> Result<Vec<SocketAddr>, LookupError> {
    let found = timeout(WAIT, answer)
        .await
        .map_err(|_| LookupError::Late)??;
    match found.is_empty() {
        true => Err(LookupError::Empty),
        false => Ok(found),
    }
}

#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error("cannot be looked up")]
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

async fn look_up(name: Authority) -> Result<Vec<SocketAddr>, LookupError> {
    let found = tokio::net::lookup_host(name.as_str()).await?;
    Ok(found.take(MOST_ANSWERED).collect())
}

/// The addresses of one name, and from how many answers each was missing.
#[derive(Default)]
struct Addresses(BTreeMap<SocketAddr, u32>);

impl Addresses {
    /// Takes in an answer; returns how many of its addresses there is no room for. Those that were there before stay.
    fn take(&mut self, answer: Vec<SocketAddr>) -> usize {
        for misses in self.0.values_mut() {
            *misses += 1;
        }
        for address in &answer {
            if let Some(misses) = self.0.get_mut(address) {
                *misses = 0;
            }
        }
        self.0.retain(|_, misses| *misses <= MISSES);
        let new: BTreeSet<_> = answer.into_iter().collect();
        let mut new = new
            .into_iter()
            .filter(|it| !self.0.contains_key(it))
            .collect::<Vec<_>>();
        let left_out = new.split_off(new.len().min(MOST - self.0.len()));
        self.0.extend(new.into_iter().map(|address| (address, 0)));
        left_out.len()
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
    use super::super::SourceName;
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
        let many = (0..700u16).map(|n| SocketAddr::from(([10, 0, 0, 1], n)));
        assert_eq!(addresses.take(many.collect()), 700 - MOST + 1);
        assert_eq!(addresses.servers(&name).count(), MOST);
        let stays = addresses
            .servers(&name)
            .any(|it| it.address == "10.0.0.2:6443");
        assert!(stays, "it was there before");
        let first = addresses.servers(&name).next().unwrap();
        assert_eq!((first.zone.as_deref(), first.live), (Some("z"), true));
    }

    #[tokio::test]
    async fn a_name_is_looked_up_with_its_port() {
        let found = look_up("localhost:6443".parse().unwrap()).await.unwrap();
        assert!(
            found
                .iter()
                .all(|a| a.ip().is_loopback() && a.port() == 6443)
        );
    }

    fn names(count: usize) -> Vec<DnsName> {
        let name = |n| DnsName {
            name: format!("cp-{n}.example:6443").parse().unwrap(),
            zone: None,
        };
        (0..count).map(name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn while_names_are_not_answered_the_list_stays_and_ages() {
        let (publisher, mut said) =
            Publisher::new(SourceName::Dns, Arc::default(), Default::default());
        let dead = Arc::new(AtomicBool::new(false));
        let broken = dead.clone();
        let resolver = move |name: Authority| {
            let is_dead = broken.load(Ordering::Relaxed) && name.host() == "cp-0.example";
            let address = SocketAddr::from(([10, 0, 0, 1], 6443));
            std::future::ready(match is_dead {
                true => Err(std::io::Error::other("no name server").into()),
                false => Ok(vec![address]),
            })
        };
        let following = tokio::spawn(follow_by(resolver, names(2), publisher));
        said.wait_for(|it| it.heard.is_some()).await.unwrap();
        let heard = said.borrow().heard.unwrap();
        dead.store(true, Ordering::Relaxed);
        said.wait_for(|it| it.trouble.is_some()).await.unwrap();
        tokio::time::sleep(EVERY * 6).await;
        let state = said.borrow().clone();
        assert_eq!(state.servers.len(), 2);
        assert_eq!(state.heard, Some(heard), "nothing was heard since");
        let trouble = state.trouble.unwrap();
        assert!(trouble.contains("cp-0.example:6443") && trouble.contains("no name server"));
        dead.store(false, Ordering::Relaxed);
        said.wait_for(|it| it.trouble.is_none()).await.unwrap();
        assert!(said.borrow().heard > Some(heard));
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_name_has_too_many_addresses_is_told() {
        let (publisher, mut said) =
            Publisher::new(SourceName::Dns, Arc::default(), Default::default());
        let many = |_| {
            let all = (0..700u16).map(|n| SocketAddr::from(([10, 0, 0, 1], n)));
            std::future::ready(Ok(all.collect()))
        };
        let following = tokio::spawn(follow_by(many, names(1), publisher));
        said.wait_for(|it| it.heard.is_some()).await.unwrap();
        let state = said.borrow().clone();
        assert_eq!(state.servers.len(), MOST);
        let trouble = state.trouble.unwrap();
        let expected = "cp-0.example:6443: only 500 of its 700 addresses count";
        assert!(trouble.contains(expected), "{trouble}");
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_looked_up_side_by_side_and_a_bounded_number_at_a_time() {
        let (publisher, mut said) =
            Publisher::new(SourceName::Dns, Arc::default(), Default::default());
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = most.clone();
        let slow = move |_| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(4)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                Ok(vec![SocketAddr::from(([10, 0, 0, 1], 6443))])
            }
        };
        let start = tokio::time::Instant::now();
        let following = tokio::spawn(follow_by(slow, names(AT_ONCE * 2), publisher));
        said.wait_for(|it| it.heard.is_some()).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 8, "two rounds of four seconds");
        assert_eq!(seen.load(Ordering::Relaxed), AT_ONCE);
        following.abort();
    }
}
