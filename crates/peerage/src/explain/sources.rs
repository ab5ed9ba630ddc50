//! Where `peerage explain` has its facts from: a server's own view, servers' discovery, or saved documents.

use std::path::Path;
use std::sync::Arc;

use http::StatusCode;
use peerage_core::PeerView;
use peerage_core::discovery::{ApiGroupDiscoveryList, read_core, read_groups};
use peerage_core::route::Explanation;
use peerage_core::view::{Documents, LocalApis, Millis, Peer, PeerState, Readiness, ViewInputs};
use peerage_proxy::headers;
use serde::Deserialize;

use super::{ExplainFlags, Request, Silent};
use crate::client::{ApiClient, PATIENCE, chain};
use crate::discovery;
use crate::exit::{Failure, Kind};
use crate::output::plain;
use crate::pki::kubeconfig::{self, Connection};

/// What a server answers to `GET /debug/peers?explain=`; other servers answer something else.
#[derive(Deserialize)]
struct DebugAnswer {
    explanation: Explanation,
}

/// Asks the server or gateway itself; `None` when it does not know the question.
pub(super) async fn ask(
    flags: &ExplainFlags,
    request: &Request,
) -> Result<Option<Explanation>, Failure> {
    let client = match &flags.gateway {
        Some(url) => ApiClient::plain(url, PATIENCE).map_err(|e| Failure::usage(chain(&e)))?,
        None => client(flags, flags.context.as_deref())?,
    };
    let question = encode(&format!("{} {}", request.method, request.target));
    let answer = client
        .get(&format!("/debug/peers?explain={question}"))
        .await;
    let answer = answer.map_err(|e| Failure::new(Kind::Unavailable, e))?;
    if answer.status == StatusCode::BAD_REQUEST {
        return Err(Failure::usage(answer.in_words()));
    }
    let parsed = serde_json::from_slice::<DebugAnswer>(&answer.body).ok();
    match (&flags.gateway, parsed) {
        (Some(url), None) => Err(Failure::unavailable(format!(
            "{url} explains nothing: is it the --admin-bind-address of a gateway, and that gateway as new as this peerage?"
        ))),
        (_, parsed) => Ok(parsed.map(|answer| answer.explanation)),
    }
}

/// A view of the discovery of several servers of a kubeconfig.
pub(super) async fn fetched(flags: &ExplainFlags) -> Result<(PeerView, Silent), Failure> {
    let contexts = kubeconfig::contexts(&flags.kubeconfig)?;
    let local_name = flags.context.clone().unwrap_or(contexts.current);
    let connection = kubeconfig::read(&flags.kubeconfig, Some(&local_name))?;
    let local = client_of(&connection)?;
    let documents = documents(&local).await?;
    let is_gateway = self::is_gateway(&local).await;
    let names = match flags.peer_context.is_empty() {
        true => contexts.names,
        false => flags.peer_context.clone(),
    };
    let mut peers = Vec::new();
    for name in names.into_iter().filter(|name| *name != local_name) {
        let mut peer = Peer::new(name.as_str(), "");
        match self::peer(flags, &name).await {
            Ok(Some(documents)) => peer = live(peer, documents),
            Ok(None) => {
                eprintln!("{} is a gateway and nobody's peer: left out", plain(&name));
                continue;
            }
            Err(failure) => {
                let text = format!("{name} counts as not heard: {failure}");
                eprintln!("{}", plain(&text));
            }
        }
        peers.push(Arc::new(peer));
    }
    let asked = Silent {
        name: local_name,
        url: connection.url,
        is_gateway,
    };
    Ok((view(documents, peers), asked))
}

/// What a context's server serves; nothing for a gateway.
async fn peer(flags: &ExplainFlags, name: &str) -> Result<Option<Documents>, Failure> {
    let client = client(flags, Some(name))?;
    if is_gateway(&client).await {
        return Ok(None);
    }
    documents(&client).await.map(Some)
}

/// Whether others answer for it.
async fn is_gateway(client: &ApiClient) -> bool {
    let answer = client.get("/version").await;
    answer.is_ok_and(|it| headers::is_of_gateway(&it.headers))
}

/// A view of saved documents.
pub(super) fn saved(local: &str, peers: &[String]) -> Result<PeerView, Failure> {
    let documents = read_files("--local", local)?;
    let mut all = Vec::new();
    for (position, words) in peers.iter().enumerate() {
        let (name, files) = match words.split_once('=') {
            Some((name, files)) => (name.to_owned(), files),
            None => (format!("peer-{}", position + 1), words.as_str()),
        };
        let peer = Peer::new(name, "");
        all.push(Arc::new(live(peer, read_files("--peer", files)?)));
    }
    Ok(view(documents, all))
}

fn live(mut peer: Peer, documents: Documents) -> Peer {
    peer.state = PeerState::Live;
    peer.readiness = Readiness::Ready;
    peer.documents = Some(Arc::new(documents));
    peer.heard_at = Some(Millis::default());
    peer
}

fn view(local: Documents, peers: Vec<Arc<Peer>>) -> PeerView {
    PeerView::build(ViewInputs {
        local: LocalApis {
            id: "local".into(),
            documents: Some(Arc::new(local)),
            ..LocalApis::default()
        },
        peers,
        synced: true,
        ..ViewInputs::default()
    })
}

/// One or two files, of `/apis` and of `/api` in any order.
fn read_files(flag: &str, files: &str) -> Result<Documents, Failure> {
    let mut groups = ApiGroupDiscoveryList::default();
    let mut core = ApiGroupDiscoveryList::default();
    for file in files.split(',') {
        let bytes = std::fs::read(Path::new(file))
            .map_err(|e| Failure::unavailable(format!("{flag}: cannot read {file:?}: {e}")))?;
        match (read_core(&bytes), read_groups(&bytes)) {
            (Ok(document), _) => core = document,
            (_, Ok(document)) => groups = document,
            (_, Err(e)) => return Err(Failure::usage(format!("{flag}: {file}: {}", chain(&e)))),
        }
    }
    Ok(Documents::new(groups, core))
}

async fn documents(client: &ApiClient) -> Result<Documents, Failure> {
    let found = discovery::read(client).await;
    let found = found.map_err(|e| Failure::unavailable(format!("discovery: {}", chain(&e))))?;
    Ok(Documents::new(found.apis, found.core))
}

fn client(flags: &ExplainFlags, context: Option<&str>) -> Result<ApiClient, Failure> {
    client_of(&kubeconfig::read(&flags.kubeconfig, context)?)
}

fn client_of(connection: &Connection) -> Result<ApiClient, Failure> {
    ApiClient::new(connection, PATIENCE).map_err(|e| Failure::new(Kind::Unavailable, e))
}

/// A query's value, with everything escaped that is not a letter, digit or one of `-._~` (RFC 3986 2.3).
fn encode(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
