//! A proxy that serves nothing itself: which of the servers behind it each request goes to.
//!
//! A server's own proxy asks the healthiest peer that has what the server lacks. A front has only servers behind it, of
//! which several may be able to answer, and chooses: the one that it stands beside, else one in its zone, else, for
//! lists and watches, always the same one for the same client (resource versions are comparable across servers, but how
//! far each has read is not), else the least loaded. Under [`Writes::Newest`] versions come before all of that, and
//! [`BoundClients`] are sent to no server that is older than themselves.
//!
//! Leaves to `route` who is able to answer and to `health` who answers at all.
//!
//! Invariants: choosing takes no lock; what is remembered of clients has a fixed size.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use peerage_auth::identity_headers::Family;
use peerage_core::{RequestInfo, User};
use peerage_http::ClientTls;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::accepted::Accepted;
use crate::bound::BoundClients;
use crate::error::ProxyError;
use crate::health::Rank;
use crate::peer::Peer;
use crate::recent::Recent;

/// What makes a proxy a front.
#[derive(Clone)]
pub struct FrontOptions {
    /// The ID of the server that the front stands beside (a sidecar); none for a balancer.
    pub beside: Option<Arc<str>>,
    /// Connections for requests whose credentials the servers judge: without any certificate of ours.
    pub passing: ClientTls,
    /// Where the front is; servers in the same zone are preferred.
    pub zone: Option<Arc<str>>,
    /// Which servers may write what several of them serve.
    pub writes: Writes,
    /// Clients that no server may be older than.
    pub bound: BoundClients,
    /// How users that were authenticated here are told to the servers.
    pub family: Family,
}

/// Which servers may write what several of them serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// The newest that answers, so that no older one erases fields that only it knows. A client that wrote also
    /// reads there for a while.
    #[default]
    Newest,
    /// Whichever server the request would go to anyway.
    Local,
}

/// Marks a request as a question: the answer decides whether a client may read a document that is at hand already.
///
/// It goes to the server that the client's own lists go to, under the condition that the document differs from the one
/// that this server is known to have, so that a yes costs it nothing but the check. It is no traffic to be reported.
#[derive(Clone, Copy, Debug)]
pub struct Question;

/// Who answers a request for a document ([`PeerProxy::answers`](crate::PeerProxy::answers)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// It is no request for such a document: whoever serves what it asks for.
    AsRouted,
    /// The proxy itself, from what it knows, to anybody who asks.
    FromMemory,
    /// One of the servers, because it has to say that there is no such document or method.
    Server,
}

/// How long after its last write a client reads from the newest server too.
const READS_FOLLOW: Duration = Duration::from_secs(600);

/// Clients that are remembered to have written.
const WRITERS: usize = 8192;

/// A front at work.
pub(crate) struct Front {
    pub(crate) options: FrontOptions,
    /// Tokens that the servers accept.
    pub(crate) accepted: Accepted,
    /// Clients that wrote.
    writers: Recent,
}

/// What the newest of the servers that can answer is to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    /// One like the others.
    No,
    /// The first choice: the client wrote there lately.
    First,
    /// The only choice: it writes.
    Only,
}

/// A client, as far as it can be told from others: by its user or credentials, its address and what it calls itself.
#[derive(Debug, Default)]
pub(crate) struct Client {
    user: Option<Arc<User>>,
    authorization: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    address: Option<IpAddr>,
    /// Made when it is first wanted, which most requests do not need.
    key: OnceLock<ClientKey>,
}

impl Client {
    pub(crate) fn of(
        user: Option<Arc<User>>,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Client {
        Client {
            user,
            authorization: headers.get(AUTHORIZATION).cloned(),
            agent: headers.get(USER_AGENT).cloned(),
            address,
            key: OnceLock::new(),
        }
    }

    fn key(&self) -> ClientKey {
        *self.key.get_or_init(|| {
            let octets = self.address.map(|it| match it {
                IpAddr::V4(it) => it.octets().to_vec(),
                IpAddr::V6(it) => it.octets().to_vec(),
            });
            let user = self.user.as_ref();
            ClientKey(agreed(&[
                user.map(|user| user.name.as_bytes()),
                user.map(|user| user.uid.as_bytes()),
                self.authorization.as_ref().map(HeaderValue::as_bytes),
                self.agent.as_ref().map(HeaderValue::as_bytes),
                octets.as_deref(),
            ]))
        })
    }
}

/// A client as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientKey(u64);

impl ClientKey {
    /// How much this server is this client's.
    fn weight(self, id: &str) -> u64 {
        agreed(&[Some(&self.0.to_be_bytes()), Some(id.as_bytes())])
    }
}

/// A number that is the same in every gateway, whatever it was built with and runs on, so that several agree on who
/// answers whom, also while they are replaced one by one.
fn agreed(parts: &[Option<&[u8]>]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        let Some(part) = part else {
            digest.update([0]);
            continue;
        };
        digest.update([1]);
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl Front {
    pub(crate) fn new(options: FrontOptions) -> Front {
        Front {
            options,
            accepted: Accepted::new(Instant::now()),
            writers: Recent::new(WRITERS, READS_FOLLOW, Instant::now()),
        }
    }

    /// Whether this is the server that the front stands beside.
    pub(crate) fn is_beside(&self, peer: &Peer) -> bool {
        self.options.beside.as_ref() == Some(&peer.id)
    }

    /// Puts these peers into the order in which they are tried for this request; refuses a write whose newest server is
    /// not known, and a client that is newer than all of them and must not be.
    pub(crate) fn order(
        &self,
        info: &RequestInfo<'_>,
        client: &Client,
        is_question: bool,
        mut peers: Vec<(Rank, Arc<Peer>)>,
    ) -> Result<Vec<(Rank, Arc<Peer>)>, ProxyError> {
        let oldest = self.options.bound.oldest_for(client.agent.as_ref());
        if let (Some(oldest), false) = (oldest, peers.is_empty()) {
            peers.retain(|(_, peer)| peer.version() >= Some(oldest));
            if peers.is_empty() {
                return Err(ProxyError::TooOld { oldest });
            }
        }
        let newest = self.newest(info, client, &peers);
        if newest == Newest::Only {
            // Any of these may be the newest, and its objects must not be written by an older one.
            if let Some((_, peer)) = peers.iter().find(|(_, peer)| peer.version().is_none()) {
                let peer = peer.id.clone();
                return Err(ProxyError::VersionUnknown { peer });
            }
            let newest = peers.iter().filter_map(|(_, peer)| peer.version()).max();
            // An older server is no second choice: it would erase what the newest stored.
            peers.retain(|(_, peer)| peer.version() == newest);
        }
        let sticks = is_question || matches!(info.verb(), "list" | "watch");
        peers.sort_by_cached_key(|(rank, peer)| {
            let elsewhere = self.options.zone.is_some() && peer.zone() != self.options.zone;
            let place = (!self.is_beside(peer), elsewhere);
            // The highest random weight: the same server for as long as it is there, whoever else comes and goes.
            let weight = sticks.then(|| !client.key().weight(&peer.id));
            let age = (newest == Newest::First).then(|| std::cmp::Reverse(peer.version()));
            (
                rank.tier(),
                age,
                place,
                weight,
                *rank,
                rand::random::<u64>(),
            )
        });
        Ok(peers)
    }

    /// Why this one of several that can answer is asked first, naming the flag that decides it; none where there is no
    /// choice.
    pub(crate) fn choice(
        &self,
        info: &RequestInfo<'_>,
        able: &[Arc<Peer>],
        first: &Peer,
    ) -> Option<&'static str> {
        if able.len() < 2 {
            return None;
        }
        let differs = |of: &dyn Fn(&Peer) -> bool| able.iter().any(|it| !of(it));
        let tier = |it: &Peer| {
            let rank = it.health.rank();
            (!rank.usable(), rank.tier())
        };
        let writes = self.options.writes == Writes::Newest && is_write(info.verb());
        if info.is_resource_request() && writes && differs(&|it| it.version() == first.version()) {
            return Some("the newest (--writes=newest)");
        }
        let is_well = tier(first) == (false, (false, false));
        let mut others = able.iter().filter(|it| it.id != first.id);
        if is_well && others.all(|it| tier(it) > tier(first)) {
            return Some("the only one that is ready and has not failed just now");
        }
        if self.is_beside(first) {
            return Some("the one beside this gateway (--upstream)");
        }
        let near = |it: &Peer| it.zone() == self.options.zone;
        if self.options.zone.is_some() && near(first) && differs(&near) {
            return Some("in this gateway's zone (--zone)");
        }
        Some(match info.verb() {
            "list" | "watch" => "whichever is always this client's for lists and watches",
            _ => "the least loaded now",
        })
    }

    fn newest(
        &self,
        info: &RequestInfo<'_>,
        client: &Client,
        peers: &[(Rank, Arc<Peer>)],
    ) -> Newest {
        if self.options.writes == Writes::Local || !info.is_resource_request() {
            return Newest::No;
        }
        let mut versions = peers.iter().map(|(_, peer)| peer.version());
        let first = versions.next().flatten();
        let is_one = peers.len() < 2;
        if is_one || (first.is_some() && versions.all(|version| version == first)) {
            return Newest::No;
        }
        if is_write(info.verb()) {
            self.writers.note(client.key().0, Instant::now());
            return Newest::Only;
        }
        if self.writers.has(client.key().0, Instant::now()) {
            Newest::First
        } else {
            Newest::No
        }
    }
}

pub(crate) fn is_write(verb: &str) -> bool {
    matches!(
        verb,
        "create" | "update" | "patch" | "delete" | "deletecollection"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::version::ApiVersion;

    fn numbered(number: u64) -> Client {
        Client {
            key: ClientKey(number).into(),
            ..Client::default()
        }
    }

    /// A front, and servers by ID and minor version.
    struct World {
        front: Front,
        servers: Vec<Arc<Peer>>,
    }

    impl World {
        fn new(writes: Writes, servers: &[(&str, u32)]) -> World {
            let options = FrontOptions {
                beside: None,
                passing: ClientTls::plain(),
                zone: None,
                writes,
                bound: BoundClients::default(),
                family: Family::FrontProxy,
            };
            let server = |(id, minor): &(&str, u32)| {
                let peer = Peer::new((*id).into());
                peer.set_version(ApiVersion {
                    major: 1,
                    minor: *minor,
                });
                Arc::new(peer)
            };
            World {
                front: Front::new(options),
                servers: servers.iter().map(server).collect(),
            }
        }

        fn order(&self, client: u64, method: &str, target: &str) -> Vec<String> {
            let info = RequestInfo::parse(method, target).unwrap();
            let peers = self.servers.iter().map(|it| (it.health.rank(), it.clone()));
            let ordered = self
                .front
                .order(&info, &numbered(client), false, peers.collect())
                .unwrap();
            ordered.iter().map(|(_, it)| it.id.to_string()).collect()
        }

        fn first(&self, client: u64, method: &str, target: &str) -> String {
            self.order(client, method, target).swap_remove(0)
        }
    }

    const PODS: &str = "/api/v1/pods";
    const POD: &str = "/api/v1/namespaces/n/pods/p";

    #[test]
    fn one_client_lists_and_watches_at_one_server_and_clients_spread_over_all() {
        let mut world = World::new(Writes::Local, &[("a", 37), ("b", 37), ("c", 37)]);
        let firsts: Vec<String> = (0..300).map(|it| world.first(it, "GET", PODS)).collect();
        for (client, first) in firsts.iter().enumerate() {
            let watch = format!("{PODS}?watch=true");
            assert_eq!(world.first(client as u64, "GET", &watch), *first);
        }
        for server in ["a", "b", "c"] {
            let clients = firsts.iter().filter(|first| *first == server).count();
            assert!((60..140).contains(&clients), "{server}: {clients}");
        }
        // When one goes, only its own clients move.
        world.servers.retain(|it| &*it.id != "c");
        for (client, first) in firsts.iter().enumerate().filter(|(_, it)| *it != "c") {
            assert_eq!(world.first(client as u64, "GET", PODS), *first);
        }
    }

    #[test]
    fn a_bound_client_is_sent_to_no_server_that_is_older() {
        let mut world = World::new(Writes::Newest, &[("a", 35), ("b", 36), ("c", 37)]);
        world.servers.push(Arc::new(Peer::new("unknown".into())));
        world.front.options.bound = BoundClients::new(["kubelet".to_owned()]);
        let order = |agent: &'static str| {
            let client = Client {
                agent: Some(HeaderValue::from_static(agent)),
                ..numbered(1)
            };
            let info = RequestInfo::parse("GET", PODS).unwrap();
            let peers = world.servers.iter();
            let peers = peers.map(|it| (it.health.rank(), it.clone())).collect();
            let ordered = world.front.order(&info, &client, false, peers)?;
            let mut ids: Vec<_> = ordered.iter().map(|(_, it)| it.id.to_string()).collect();
            ids.sort();
            Ok::<_, ProxyError>(ids.join(" "))
        };
        for (agent, servers) in [
            ("kubelet/v1.34.1", "a b c"),
            ("kubelet/v1.36.1", "b c"),
            ("kubelet/v1.37.1", "c"),
            ("kubectl/v1.37.1", "a b c unknown"),
        ] {
            assert_eq!(order(agent).unwrap(), servers, "{agent}");
        }
        let refused = order("kubelet/v1.38.0").unwrap_err();
        assert_eq!(refused.reason(), "too_old");
        assert!(refused.to_string().contains("version 1.38 or newer"));
    }

    #[test]
    fn what_does_not_stick_goes_to_the_least_loaded() {
        let world = World::new(Writes::Local, &[("a", 37), ("b", 37)]);
        let busy = world.servers[0].health.begin();
        for client in 0..20 {
            assert_eq!(world.first(client, "GET", POD), "b");
        }
        drop(busy);
        let firsts: Vec<String> = (0..100).map(|_| world.first(1, "GET", POD)).collect();
        assert!(firsts.iter().any(|it| it == "a") && firsts.iter().any(|it| it == "b"));
    }

    #[test]
    fn a_write_goes_to_the_newest_alone_and_the_writers_reads_there_first() {
        let world = World::new(
            Writes::Newest,
            &[("a", 35), ("b", 37), ("c", 37), ("d", 36)],
        );
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let mut order = world.order(1, method, POD);
            order.sort();
            assert_eq!(order, ["b", "c"], "{method}");
        }
        for _ in 0..20 {
            let order = world.order(1, "GET", POD);
            assert!(["b", "c"].contains(&&*order[0]), "{order:?}");
            assert_eq!(order[2..], ["d", "a"], "an older one is better than none");
        }
        let others: Vec<String> = (2..60).map(|it| world.first(it, "GET", PODS)).collect();
        assert!(others.iter().any(|it| it == "a"), "{others:?}");
    }

    #[test]
    fn a_write_is_refused_while_a_server_of_unknown_version_has_the_resource_too() {
        let mut world = World::new(Writes::Newest, &[("a", 35), ("b", 36)]);
        let write = |world: &World| {
            let info = RequestInfo::parse("PUT", POD).unwrap();
            let peers = world
                .servers
                .iter()
                .map(|it| (it.health.rank(), it.clone()));
            let order = world
                .front
                .order(&info, &numbered(1), false, peers.collect());
            order.map(|order| order[0].1.id.to_string())
        };
        assert_eq!(write(&world).unwrap(), "b");
        world.servers[1].forget_version();
        let refused = write(&world).unwrap_err();
        assert_eq!(refused.reason(), "version_unknown");
        assert!(refused.retry_after(Duration::ZERO).is_some());
        assert_eq!(world.order(1, "GET", POD).len(), 2, "reads go on");
        world.servers[0].forget_version();
        assert!(write(&world).is_err(), "nobody says which is the newest");
        world.servers.pop();
        assert_eq!(write(&world).unwrap(), "a", "nobody else has it");
        world.front.options.writes = Writes::Local;
        world.servers.push(Arc::new(Peer::new("b".into())));
        assert!(write(&world).is_ok());
    }

    #[test]
    fn the_first_choice_is_explained_by_what_decided_it() {
        let mut world = World::new(Writes::Newest, &[("a", 35), ("b", 37)]);
        let choice = |world: &World, method: &str, target: &str, first: usize| {
            let info = RequestInfo::parse(method, target).unwrap();
            let first = &world.servers[first];
            world.front.choice(&info, &world.servers, first)
        };
        let newest = Some("the newest (--writes=newest)");
        assert_eq!(choice(&world, "PUT", POD, 1), newest);
        assert_eq!(choice(&world, "GET", POD, 1), Some("the least loaded now"));
        let lists = choice(&world, "GET", PODS, 1).unwrap();
        assert!(lists.contains("lists and watches"), "{lists}");
        world.front.options.zone = Some("z".into());
        world.servers[1].set_zone(Some("z".into()));
        let near = choice(&world, "GET", POD, 1).unwrap();
        assert!(near.contains("--zone"), "{near}");
        world.front.options.beside = Some("a".into());
        let beside = choice(&world, "GET", POD, 0).unwrap();
        assert!(beside.contains("beside"), "{beside}");
        world.front.options.writes = Writes::Local;
        assert_ne!(choice(&world, "PUT", POD, 1), newest);
        world.servers[0].health.set_ready(false);
        let ready = choice(&world, "GET", POD, 1).unwrap();
        assert!(ready.contains("is ready"), "{ready}");
        world.servers.pop();
        assert_eq!(choice(&world, "GET", POD, 0), None);
    }

    #[test]
    fn writes_stay_where_requests_go_when_that_is_wanted_or_versions_are_the_same() {
        let local = World::new(Writes::Local, &[("a", 35), ("b", 37)]);
        assert_eq!(local.order(1, "PATCH", POD).len(), 2);
        let same = World::new(Writes::Newest, &[("a", 37), ("b", 37)]);
        assert_eq!(same.order(1, "PATCH", POD).len(), 2);
    }

    #[test]
    fn the_server_beside_comes_first_then_the_own_zone_unless_they_are_not_ready() {
        let mut world = World::new(Writes::Local, &[("a", 37), ("b", 37), ("c", 37)]);
        world.front.options.beside = Some("c".into());
        world.front.options.zone = Some("z".into());
        world.servers[1].set_zone(Some("z".into()));
        assert_eq!(world.order(1, "GET", PODS), ["c", "b", "a"]);
        world.servers[2].health.set_ready(false);
        assert_eq!(world.order(1, "GET", PODS), ["b", "a", "c"]);
    }

    /// A gateway of another release has to come to the same: these values must never change.
    #[test]
    fn gateways_of_all_releases_agree_on_who_answers_whom() {
        let empty = agreed(&[]);
        assert_eq!(empty, 0xe3b0_c442_98fc_1c14, "SHA-256 of nothing");
        let world = World::new(Writes::Local, &[("a", 37), ("b", 37), ("c", 37)]);
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, "kubectl".parse().unwrap());
        let user = User {
            name: "jane".to_owned(),
            ..User::default()
        };
        let address = Some(IpAddr::from([192, 0, 2, 7]));
        let key = Client::of(Some(Arc::new(user)), &headers, address).key();
        assert_eq!(key, ClientKey(0xc66a_c181_4246_84b6), "{:#x}", key.0);
        let order = world.order(key.0, "GET", PODS);
        assert_eq!(order, ["a", "c", "b"]);
    }

    #[test]
    fn two_gateways_agree_on_who_answers_whom() {
        let servers = [("a", 37), ("b", 37), ("c", 37)];
        let one = World::new(Writes::Local, &servers);
        let other = World::new(Writes::Local, &servers);
        let key = |agent: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            Client::of(None, &headers, None).key()
        };
        for agent in ["kubectl", "kubelet", "helm"] {
            let (one_key, other_key) = (key(agent), key(agent));
            assert_eq!(one_key, other_key);
            assert_eq!(
                one.first(one_key.0, "GET", PODS),
                other.first(other_key.0, "GET", PODS)
            );
        }
    }
}
