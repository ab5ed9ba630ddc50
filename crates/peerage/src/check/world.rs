//! What was seen of the servers, before anyone judges it.
//!
//! `gateways.rs` is what gateways say, and what follows for the servers behind them. Invariant: everything here can be made
//! by hand, so that judging is tested without servers.

mod gateways;

use std::collections::BTreeSet;

use http::StatusCode;
use jiff::Timestamp;
use peerage_core::discovery::ApiGroupDiscoveryList;
use peerage_proxy::headers;
use serde_json::Value;

use super::counters::Counted;
use super::handshake::{Handshake, HandshakeError};
use crate::client::Answer;
use crate::diff::lifecycle::Release;
use crate::discovery::Form;
use crate::pki::kubeconfig::Connection;
use crate::targets::Unusable;
pub(super) use gateways::{Gateway, Standing};

/// An answer, or why there is none.
pub(super) type Got = Result<Answer, String>;

/// Why something is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// These credentials may not read it.
    Forbidden,
    /// The server does not know these credentials.
    Unauthorized,
    /// The server has no such thing.
    Missing,
    /// It answered something else, or nothing.
    Other(String),
}

/// The answer if it is a good one.
pub(super) fn good(got: &Got) -> Result<&Answer, Problem> {
    match got {
        Ok(answer) => match answer.status {
            StatusCode::OK => Ok(answer),
            StatusCode::FORBIDDEN => Err(Problem::Forbidden),
            StatusCode::UNAUTHORIZED => Err(Problem::Unauthorized),
            StatusCode::NOT_FOUND => Err(Problem::Missing),
            _ => Err(Problem::Other(answer.in_words())),
        },
        Err(text) => Err(Problem::Other(text.clone())),
    }
}

/// How far a server's clock is ahead of this machine's, in seconds: somewhere between the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ahead {
    /// At least.
    pub(super) least: f64,
    /// At most.
    pub(super) most: f64,
}

/// What one server serves by itself, and what it shows of all.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    /// Groups of `/apis`.
    pub(super) apis: ApiGroupDiscoveryList,
    /// The core group.
    pub(super) core: ApiGroupDiscoveryList,
    /// In which form.
    pub(super) form: Form,
}

/// What a server answered.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    /// `/readyz?verbose`.
    pub(super) ready: Got,
    /// `/version`.
    pub(super) version: Got,
    /// `/metrics`.
    pub(super) metrics: Got,
    /// `/debug/peers`, which Peerage's servers have.
    pub(super) debug: Got,
    /// What it serves by itself.
    pub(super) own: Result<Shown, Problem>,
    /// The aggregated document of `/apis` as clients ask for it.
    pub(super) merged: Got,
    /// The same of `/api`.
    pub(super) merged_core: Got,
    /// The legacy document of `/apis`.
    pub(super) legacy: Got,
    /// The index of OpenAPI v3.
    pub(super) openapi: Got,
    /// Its clock.
    pub(super) ahead: Option<Ahead>,
}

/// A server that was asked.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// What to call it.
    pub(super) name: String,
    /// Other contexts that lead to it, as which it was not asked.
    pub(super) also: Vec<String>,
    /// How it is reached.
    pub(super) connection: Connection,
    /// Its host and port.
    pub(super) address: String,
    /// Its certificate as anyone sees it.
    pub(super) handshake: Result<Handshake, HandshakeError>,
    /// What it answered, if it answered at all.
    pub(super) answers: Result<Answers, String>,
    /// What it answered to the front-proxy certificate, if one was given.
    pub(super) as_peer: Option<Got>,
}

impl Server {
    /// The host of its URL.
    pub(super) fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The answers, if there are any.
    pub(super) fn answers(&self) -> Option<&Answers> {
        self.answers.as_ref().ok()
    }

    /// What it serves by itself, if that is known.
    pub(super) fn own(&self) -> Option<&Shown> {
        self.answers()?.own.as_ref().ok()
    }

    /// Whether an address, as a gateway writes it, is where this server answers.
    pub(super) fn is_at(&self, address: &Value) -> bool {
        let Some(address) = address.as_str() else {
            return false;
        };
        let seen = self.handshake.as_ref().ok().and_then(|it| it.at);
        address == self.address || seen.is_some_and(|at| address == at.to_string())
    }

    /// Whether it could not be asked anything, which is told where its reachability is judged.
    pub(super) fn is_away(&self) -> bool {
        self.answers.is_err()
    }

    /// Whether it is one of Peerage's.
    pub(super) fn is_peerage(&self) -> bool {
        self.debug().is_some()
    }

    /// What it says of its peers, if it is one of Peerage's.
    pub(super) fn debug(&self) -> Option<Value> {
        debug_peers(&self.answers()?.debug)
    }

    /// Whether it is a gateway, which says so to everybody, whatever it answers.
    pub(super) fn is_gateway(&self) -> bool {
        self.answers().is_some_and(|it| is_gateway(&it.version))
    }

    /// Which server answered for it, if it is a gateway that says so to this user.
    pub(super) fn answered_by(&self) -> Option<&str> {
        let version = self.answers()?.version.as_ref().ok()?;
        version.header(headers::PEER.as_str())
    }

    /// Whether requests through it take Peerage's proxy.
    pub(super) fn is_behind_peerage(&self) -> bool {
        self.is_peerage() || self.is_gateway()
    }

    /// What `/version` says.
    pub(super) fn version(&self) -> Option<Version> {
        let value = good(&self.answers()?.version).ok()?.json();
        Version::read(&value)
    }
}

/// Whether whoever answered this is a gateway.
pub(super) fn is_gateway(got: &Got) -> bool {
    let answer = got.as_ref().ok();
    answer.is_some_and(|it| headers::is_of_gateway(&it.headers))
}

/// A proxy's state, if that is what was answered.
pub(super) fn debug_peers(got: &Got) -> Option<Value> {
    let value = good(got).ok()?.json();
    (value["server"].is_string() && value["peers"].is_array()).then_some(value)
}

/// How what only some servers have gets to clients of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By the servers' own proxies.
    Own,
    /// Through gateways: what servers forward and merge themselves is nobody's way.
    Gateways,
    /// There is nothing that only some have, all servers being of this release.
    NotYet(Release),
    /// A gateway that was named does not say for whom it is.
    Unknown,
}

/// What `/version` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// As it is written.
    pub(super) text: String,
    /// The release of the executable.
    pub(super) binary: Release,
    /// The release whose API it serves.
    pub(super) emulated: Release,
}

impl Version {
    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let binary = Release::parse(text("gitVersion"))?;
        let emulated = format!("{}.{}", text("emulationMajor"), text("emulationMinor"));
        Some(Self {
            text: text("gitVersion").to_owned(),
            binary,
            emulated: Release::parse(&emulated).unwrap_or(binary),
        })
    }
}

/// An address that peers are told to connect to.
#[derive(Debug, Clone)]
pub(super) struct Port {
    /// The Lease that says so.
    pub(super) lease: String,
    /// The address.
    pub(super) address: String,
    /// What was seen there.
    pub(super) handshake: Result<Handshake, HandshakeError>,
}

/// A group-version that servers do not all have alike, and what each showed of it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// `apps/v1`.
    pub(super) api_version: String,
    /// Its legacy document, by server.
    pub(super) legacy: Vec<Got>,
    /// Its OpenAPI document, by server.
    pub(super) openapi: Vec<Got>,
}

/// A resource that only some have, and what each server answered when it was read.
#[derive(Debug, Clone)]
pub(super) struct ReadThrough {
    /// Its collection's path.
    pub(super) path: String,
    /// A list of one, by server.
    pub(super) list: Vec<Got>,
    /// An object, by server, if there is one.
    pub(super) object: Option<(String, Vec<Got>)>,
}

/// The flags of a kube-apiserver, from where it was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// Pod or file.
    pub(super) origin: String,
    /// Its release, as far as its image says.
    pub(super) release: Option<Release>,
    /// Its flags.
    pub(super) args: Vec<String>,
}

/// Everything that was seen.
#[derive(Debug, Clone)]
pub(super) struct World {
    /// When.
    pub(super) now: Timestamp,
    /// The servers, in the order they were named.
    pub(super) servers: Vec<Server>,
    /// Contexts that lead to nobody.
    pub(super) unusable: Vec<Unusable>,
    /// Gateways' own addresses.
    pub(super) gateways: Vec<Gateway>,
    /// The identity Leases.
    pub(super) leases: Got,
    /// The endpoints of the `kubernetes` Service.
    pub(super) endpoints: Got,
    /// What authenticating proxies are told.
    pub(super) config: Got,
    /// The pods of kube-apiservers.
    pub(super) pods: Got,
    /// Flags from files.
    pub(super) manifests: Vec<CommandLine>,
    /// The front-proxy certificate, if one was given.
    pub(super) front_proxy: Option<String>,
    /// Where peers are told to connect to.
    pub(super) ports: Vec<Port>,
    /// Group-versions that servers do not have alike.
    pub(super) asked: Vec<Asked>,
    /// Resources that only some have.
    pub(super) read: Vec<ReadThrough>,
    /// What there is more of than was looked at, in words.
    pub(super) left_out: Vec<String>,
    /// What had been counted in the round before, if there was one.
    pub(super) before: Counted,
}

impl World {
    /// The servers that answer: of others it is not known what they are.
    pub(super) fn answering(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|it| it.answers().is_some())
    }

    /// Whether nothing is known that servers share, for want of a server.
    pub(super) fn nobody_answers(&self) -> bool {
        self.answering().next().is_none()
    }

    /// Whether a server that cannot be asked anything was named by this address: what is said of it is said there.
    pub(super) fn is_away(&self, address: &Value) -> bool {
        let mut servers = self.servers.iter();
        servers.any(|it| it.is_away() && it.is_at(address))
    }

    /// The release of all servers of which it is known, if it is one.
    pub(super) fn only_release(&self) -> Option<Release> {
        let named = self.answering().filter(|it| !it.is_gateway());
        let named = named.filter_map(|it| Some(it.version()?.emulated));
        let behind = self.gateways.iter().flat_map(Gateway::peers);
        let behind = behind.filter_map(|it| Release::parse(it["version"].as_str()?));
        let releases: BTreeSet<Release> = named.chain(behind).collect();
        releases.first().copied().filter(|_| releases.len() == 1)
    }

    /// The authorities that servers are checked by, and where they are from.
    pub(super) fn authority(&self) -> Option<(&str, &str)> {
        self.servers.iter().find_map(|it| {
            let connection = &it.connection;
            Some((
                connection.authority.as_deref()?,
                &*connection.authority_from,
            ))
        })
    }
}
