//! Asking: all servers at once, each wait with an end, nothing written anywhere.
//!
//! First every server by itself, then what they share (read through the first that lets us), then the ports that
//! the identity Leases name, and last what follows from how the servers differ. What it means is `judge`'s.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{join_all, join3};
use http::HeaderMap;
use jiff::Timestamp;
use peerage_auth::identity_headers::{self, Family};
use peerage_proxy::headers::{GUARD, GUARD_VALUE};
use peerage_proxy::record::registered::LEASES;
use peerage_proxy::{PEER_ACCEPT, peer_user};

use super::apis::{self, Differing};
use super::counters::Counted;
use super::handshake::{self, HandshakeError};
use super::records;
use super::world::{
    Ahead, Answers, Asked, CommandLine, Gateway, Got, Port, Problem, ReadThrough, Server, Shown,
    World, good, is_gateway,
};
use crate::client::{ApiClient, MERGED, chain};
use crate::discovery::{self, DiscoveryError};
use crate::targets::{Target, Unusable};

/// The name that peers ask each other's certificates for.
pub(super) const PEER_NAME: &str = "kubernetes.default.svc";
/// The most group-versions that are compared document by document.
const MOST_VERSIONS: usize = 16;
/// The most resources of which an object is read.
const MOST_READ: usize = 16;
/// The most ports that are tried.
const MOST_PORTS: usize = 64;

const ENDPOINTS: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dkubernetes";
const CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const PODS: &str =
    "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dkube-apiserver&limit=100";

/// What to ask.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Whom.
    pub(super) targets: Vec<Target>,
    /// Contexts that lead to nobody.
    pub(super) unusable: Vec<Unusable>,
    /// Longest wait for one answer.
    pub(super) wait: Duration,
    /// The front-proxy certificate and key to try.
    pub(super) front_proxy: Option<(String, String)>,
    /// Gateways' own addresses.
    pub(super) gateways: Vec<String>,
    /// Flags from files.
    pub(super) manifests: Vec<CommandLine>,
}

/// Asks everything.
pub(super) async fn gather(plan: &Plan) -> World {
    let servers = plan.targets.iter().map(|target| server(target, plan));
    let gateways = plan.gateways.iter().map(|url| gateway(url, plan.wait));
    let (servers, gateways) = futures::future::join(join_all(servers), join_all(gateways)).await;
    let clients: Vec<Option<ApiClient>> = servers
        .iter()
        .map(|it| {
            let answers = it.answers.is_ok();
            answers
                .then(|| ApiClient::new(&it.connection, plan.wait).ok())
                .flatten()
        })
        .collect();
    let one = |path| shared(&clients, path, plan.wait);
    let leases = format!("{LEASES}&limit=500");
    let (leases, endpoints, (config, pods)) = join3(
        one(&leases),
        one(ENDPOINTS),
        futures::future::join(one(CONFIG), one(PODS)),
    )
    .await;
    let differing = apis::differing(&servers);
    let left_out = left_out(&leases, &pods, &differing);
    let (ports, asked, read) = join3(
        ports(&leases, plan.wait),
        asked(&clients, &differing, plan.wait),
        read_through(&clients, &differing, plan.wait),
    )
    .await;
    World {
        now: Timestamp::now(),
        servers,
        unusable: plan.unusable.clone(),
        gateways,
        leases,
        endpoints,
        config,
        pods,
        manifests: plan.manifests.clone(),
        front_proxy: plan.front_proxy.as_ref().map(|pair| pair.0.clone()),
        ports,
        asked,
        read,
        left_out,
        before: Counted::default(),
    }
}

/// What there is more of than is looked at.
fn left_out(leases: &Got, pods: &Got, differing: &[Differing]) -> Vec<String> {
    let versions: BTreeSet<_> = differing.iter().map(Differing::root).collect();
    let readable = differing.iter().filter(|it| it.readable).count();
    let bounds = [
        (
            versions.len(),
            MOST_VERSIONS,
            "group-versions that servers do not have alike",
        ),
        (readable, MOST_READ, "resources that only some serve"),
        (
            named(leases).len(),
            MOST_PORTS,
            "addresses in identity Leases",
        ),
    ];
    let beyond = bounds.into_iter().filter(|(there, most, _)| there > most);
    let mut left_out: Vec<String> = beyond
        .map(|(there, most, what)| format!("{most} of {there} {what} were looked at"))
        .collect();
    let more = |got: &Got| {
        let list = good(got).map(|it| it.json()).unwrap_or_default();
        list["metadata"]["continue"]
            .as_str()
            .is_some_and(|it| !it.is_empty())
    };
    for (got, what) in [
        (leases, "identity Leases"),
        (pods, "pods of kube-apiservers"),
    ] {
        if more(got) {
            left_out.push(format!(
                "only the first {what} were looked at: there are more than any control plane has"
            ));
        }
    }
    left_out
}

/// What is printed from.
pub(super) struct Cluster {
    /// The identity Leases.
    pub(super) leases: Got,
    /// The pods of kube-apiservers.
    pub(super) pods: Got,
    /// The addresses of those asked that are gateways and no servers.
    pub(super) gateways: Vec<String>,
    /// What gateways say on addresses of their own.
    pub(super) told: Vec<Gateway>,
}

/// The identity Leases, the kube-apiservers' pods, and who of those asked is a gateway, alone.
pub(super) async fn of_cluster(plan: &Plan) -> Cluster {
    let clients: Vec<Option<ApiClient>> = plan
        .targets
        .iter()
        .map(|target| ApiClient::new(&target.connection, plan.wait).ok())
        .collect();
    let one = |path| shared(&clients, path, plan.wait);
    let leases = format!("{LEASES}&limit=500");
    let versions = through_all(&clients, "/version", plan.wait);
    let told = join_all(plan.gateways.iter().map(|url| gateway(url, plan.wait)));
    let versions = futures::future::join(versions, told);
    let (leases, pods, (versions, told)) = join3(one(&leases), one(PODS), versions).await;
    let asked = plan.targets.iter().zip(versions);
    let gateways = asked.filter(|(_, version)| is_gateway(version));
    Cluster {
        leases,
        pods,
        gateways: gateways
            .map(|(target, _)| address(&target.connection.url))
            .collect(),
        told,
    }
}

async fn get(client: &ApiClient, path: &str, accept: &str, wait: Duration) -> Got {
    match tokio::time::timeout(wait, client.get_as(path, accept)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("no answer within {} s", wait.as_secs_f64())),
    }
}

const JSON: &str = "application/json";

/// The host and port of a server's URL.
pub(super) fn address(url: &str) -> String {
    let rest = url.trim_start_matches("https://").trim_end_matches('/');
    let has_port = rest
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match has_port {
        true => rest.to_owned(),
        false => format!("{rest}:443"),
    }
}

async fn server(target: &Target, plan: &Plan) -> Server {
    let connection = &target.connection;
    let mut server = Server {
        name: target.name.clone(),
        also: target.also.clone(),
        connection: connection.clone(),
        address: address(&connection.url),
        handshake: Err(HandshakeError::Timeout(plan.wait)),
        answers: Err("it was not asked".to_owned()),
        as_peer: None,
    };
    let name = connection.server_name.as_deref().unwrap_or(server.host());
    let shake = handshake::shake(&server.address, name, plan.wait);
    let handshake = shake.await;
    if handshake.is_ok() {
        server.answers = match ApiClient::new(connection, plan.wait) {
            Ok(client) => answers(&client, plan.wait).await,
            Err(error) => Err(chain(&error)),
        };
        server.as_peer = as_peer(&server, plan).await;
    }
    server.handshake = handshake;
    server
}

async fn gateway(url: &str, wait: Duration) -> Gateway {
    let (ready, debug, metrics) = match ApiClient::plain(url, wait) {
        Ok(client) => {
            join3(
                get(&client, "/readyz", JSON, wait),
                get(&client, "/debug/peers", JSON, wait),
                get(&client, "/metrics", "text/plain", wait),
            )
            .await
        }
        Err(error) => {
            let problem = chain(&error);
            (Err(problem.clone()), Err(problem.clone()), Err(problem))
        }
    };
    Gateway {
        url: url.to_owned(),
        ready,
        debug,
        metrics,
    }
}

async fn answers(client: &ApiClient, wait: Duration) -> Result<Answers, String> {
    // The first request opens the connection; the second, on the open one, tells the clock.
    let ready = get(client, "/readyz?verbose", JSON, wait).await;
    if let Err(problem) = &ready {
        return Err(problem.clone());
    }
    let (version, ahead) = clocked(client, wait).await;
    let documents = join3(
        own(client, wait),
        get(client, "/apis", MERGED, wait),
        get(client, "/api", MERGED, wait),
    );
    let others = join3(
        get(client, "/metrics", "text/plain", wait),
        get(client, "/debug/peers", JSON, wait),
        futures::future::join(
            get(client, "/apis", JSON, wait),
            get(client, "/openapi/v3", JSON, wait),
        ),
    );
    let ((own, merged, merged_core), (metrics, debug, (legacy, openapi))) =
        futures::future::join(documents, others).await;
    Ok(Answers {
        ready,
        version,
        metrics,
        debug,
        own,
        merged,
        merged_core,
        legacy,
        openapi,
        ahead,
    })
}

/// `/version`, and the server's clock by its `Date` header, which has whole seconds.
async fn clocked(client: &ApiClient, wait: Duration) -> (Got, Option<Ahead>) {
    let seconds = |time: Timestamp| time.as_microsecond() as f64 / 1e6;
    let sent = seconds(Timestamp::now());
    let got = get(client, "/version", JSON, wait).await;
    let received = seconds(Timestamp::now());
    let date = got.as_ref().ok().and_then(|it| it.header("date"));
    let date = date.and_then(|text| {
        let parser = jiff::fmt::rfc2822::DateTimeParser::new();
        parser.parse_timestamp(text).ok()
    });
    let ahead = date.map(|date| Ahead {
        least: seconds(date) - received,
        most: seconds(date) + 1.0 - sent,
    });
    (got, ahead)
}

async fn own(client: &ApiClient, wait: Duration) -> Result<Shown, Problem> {
    // A walk asks for many documents: it gets the time of several.
    let found = tokio::time::timeout(wait * 4, discovery::read(client)).await;
    match found {
        Ok(Ok(found)) => Ok(Shown {
            apis: found.apis,
            core: found.core,
            form: found.form,
        }),
        Ok(Err(DiscoveryError::Status { status, .. })) if status.as_u16() == 403 => {
            Err(Problem::Forbidden)
        }
        Ok(Err(DiscoveryError::Status { status, .. })) if status.as_u16() == 401 => {
            Err(Problem::Unauthorized)
        }
        Ok(Err(error)) => Err(Problem::Other(chain(&error))),
        Err(_) => Err(Problem::Other("no answer in time".to_owned())),
    }
}

/// What the server answers when it is asked as its peers ask it.
async fn as_peer(server: &Server, plan: &Plan) -> Option<Got> {
    let (certificate, key) = plan.front_proxy.clone()?;
    let mut connection = server.connection.clone();
    (connection.certificate, connection.key) = (Some(certificate), Some(key));
    connection.token = None;
    let client = match ApiClient::new(&connection, plan.wait) {
        Ok(client) => client.with_headers(peer_headers()),
        Err(error) => return Some(Err(chain(&error))),
    };
    Some(get(&client, "/apis", PEER_ACCEPT, plan.wait).await)
}

/// The headers by which kube-apiservers ask each other for discovery, and the gateway asks them.
fn peer_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Who it is is plain text, which headers can carry.
    let _ = identity_headers::set_as(&Family::FrontProxy, &mut headers, &peer_user());
    headers.insert(GUARD, GUARD_VALUE);
    headers
}

/// The same object read through the first server that gives it; else the most telling refusal.
async fn shared(clients: &[Option<ApiClient>], path: &str, wait: Duration) -> Got {
    let mut refusal: Got = Err("no server answers".to_owned());
    for client in clients.iter().flatten() {
        let got = get(client, path, JSON, wait).await;
        match good(&got) {
            Ok(_) => return got,
            Err(Problem::Other(_)) if refusal.is_ok() => {}
            Err(_) => refusal = got,
        }
    }
    refusal
}

/// Leases and the addresses in them.
fn named(leases: &Got) -> BTreeSet<(String, String)> {
    let leases = records::leases(leases).into_iter();
    leases
        .filter_map(|lease| {
            let address = lease.address.filter(|it| records::is_socket(it))?;
            Some((lease.name, address))
        })
        .collect()
}

async fn ports(leases: &Got, wait: Duration) -> Vec<Port> {
    let shakes = named(leases)
        .into_iter()
        .take(MOST_PORTS)
        .map(|(lease, address)| async move {
            let handshake = handshake::shake(&address, PEER_NAME, wait).await;
            Port {
                lease,
                address,
                handshake,
            }
        });
    join_all(shakes).await
}

async fn through_all(clients: &[Option<ApiClient>], path: &str, wait: Duration) -> Vec<Got> {
    let gets = clients.iter().map(|client| async move {
        match client {
            Some(client) => get(client, path, JSON, wait).await,
            None => Err("the server does not answer".to_owned()),
        }
    });
    join_all(gets).await
}

async fn asked(
    clients: &[Option<ApiClient>],
    differing: &[Differing],
    wait: Duration,
) -> Vec<Asked> {
    let versions: BTreeSet<_> = differing.iter().map(Differing::root).collect();
    let asked = versions
        .into_iter()
        .take(MOST_VERSIONS)
        .map(|path| async move {
            let openapi = format!("/openapi/v3{path}");
            let (legacy, openapi) = futures::future::join(
                through_all(clients, &path, wait),
                through_all(clients, &openapi, wait),
            )
            .await;
            let api_version = path
                .trim_start_matches("/apis/")
                .trim_start_matches("/api/");
            Asked {
                api_version: api_version.to_owned(),
                legacy,
                openapi,
            }
        });
    join_all(asked).await
}

async fn read_through(
    clients: &[Option<ApiClient>],
    differing: &[Differing],
    wait: Duration,
) -> Vec<ReadThrough> {
    let readable = differing.iter().filter(|it| it.readable).take(MOST_READ);
    let read = readable.map(|it| async move {
        let path = format!("{}/{}", it.root(), it.resource);
        let list = through_all(clients, &format!("{path}?limit=1"), wait).await;
        let object = list.iter().find_map(|got| first_of(&path, it, got));
        let object = match object {
            Some(path) => {
                let answers = through_all(clients, &path, wait).await;
                Some((path, answers))
            }
            None => None,
        };
        ReadThrough { path, list, object }
    });
    join_all(read).await
}

/// The path of the first object of a list.
fn first_of(path: &str, resource: &Differing, list: &Got) -> Option<String> {
    let list = good(list).ok()?.json();
    let metadata = list["items"].as_array()?.first()?["metadata"].clone();
    let name = metadata["name"].as_str()?;
    Some(match metadata["namespace"].as_str() {
        Some(namespace) => format!(
            "{}/namespaces/{namespace}/{}/{name}",
            resource.root(),
            resource.resource
        ),
        None => format!("{path}/{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_as_its_peers_and_the_gateway_ask_it() {
        let headers = peer_headers();
        for (name, value) in [
            ("x-remote-user", "system:apiserver"),
            ("x-remote-uid", "system:apiserver"),
            ("x-remote-group", "system:authenticated"),
            ("x-kubernetes-peer-proxied", "true"),
        ] {
            assert_eq!(
                headers.get(name).map(|it| it.as_bytes()),
                Some(value.as_bytes()),
                "{name}"
            );
        }
    }
}
