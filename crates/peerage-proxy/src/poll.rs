//! One task per peer that keeps its documents and its health up to date.
//!
//! A round asks `/readyz`, then `/api` and `/apis` conditionally; it counts as good only when both documents are
//! there, and only then are they published. Requests never wait for a round. Behind a front there may be servers of
//! any age: what came, and not what was asked for, says whether it is the aggregated document (v2 from 1.30 on, v2beta1
//! from 1.26 on) or the legacy ones. What the documents mean is `peerage_core`'s; who is polled is the writer's.
//!
//! Invariants: a round is bounded by its deadlines, so one silent peer delays nobody else; a failed round changes
//! no document; a peer is asked for ever, at least every few seconds.

mod believed;
mod fetch;
mod lists;
mod schedule;
mod starting;
mod verify;

use std::sync::Arc;

use http::StatusCode;
use peerage_auth::identity_headers::Family;
use peerage_core::Documents;
use peerage_core::chain;
use peerage_core::discovery::{self, ApiGroupDiscoveryList, DocumentError};
use rand::RngExt;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use believed::Believed;
pub use fetch::{FRONT_ACCEPT, PEER_ACCEPT, peer_user};
pub(crate) use fetch::{Fetch, FetchError, Fetched, fetch};
use lists::{Asker, Lists};
use schedule::{Rhythm, Schedule};

use crate::error::flag_to_look_at;
use crate::identity;
use crate::openapi;
use crate::options::PollOptions;
use crate::peer::{Heard, Link, PATIENCE, Part, Peer, Trouble, TroubleKind};
use crate::shared::Shared;
use crate::version::ApiVersion;

/// Polls the peer until cancelled.
pub(crate) async fn run(shared: Arc<Shared>, peer: Arc<Peer>, stop: CancellationToken) {
    let mut lists = Lists::default();
    let mut schedule = Schedule::new(rhythm(&shared.options.poll), Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = peer.poke.notified() => {
                schedule.hurry(Instant::now());
                continue;
            }
            () = peer.doubted.notified() => {
                schedule.recheck(Instant::now());
                continue;
            }
            () = connection_ended(&peer) => {
                // Some end connections all the time: that is no reason to doubt for longer what is in doubt already.
                if !peer.is_starting() {
                    peer.stirs();
                }
                schedule.connection_ended(Instant::now());
                continue;
            }
            () = sleep_until(schedule.due()), if peer.link().is_some() && !peer.is_resting() => {}
        }
        let Some(link) = peer.link() else { continue };
        peer.round_begins();
        let good = tokio::select! {
            () = stop.cancelled() => return,
            good = round(&shared, &peer, &link, &mut lists) => good,
        };
        let jitter = rand::rng().random_range(0.0..1.0);
        schedule.finished(good, Instant::now(), jitter);
        let changing = || peer.changed_apis_within(shared.options.poll.changing);
        if good && (peer.is_starting() || changing()) {
            schedule.soon(Instant::now());
        }
        if peer.round_ended(good) == PATIENCE {
            shared.changed.notify_one();
        }
    }
}

/// Returns when the server ends a connection on which it was asked.
async fn connection_ended(peer: &Peer) {
    match peer.link() {
        Some(link) => link.probes.ended().await,
        None => std::future::pending().await,
    }
}

fn rhythm(options: &PollOptions) -> Rhythm {
    Rhythm {
        interval: options.interval,
        retry: options.retry,
        retry_cap: options.retry_cap,
    }
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("cannot fetch {path}")]
    Fetch {
        path: &'static str,
        source: FetchError,
    },
    #[error("cannot use what {path} answered")]
    Document {
        path: &'static str,
        source: DocumentError,
    },
    #[error(
        "it takes every request for one of {0:?}, whoever is named: what the gateway shows (--proxy-client-cert-file) is that \
         user's certificate and no front-proxy certificate of this server (--requestheader-client-ca-file and \
         --requestheader-allowed-names there); no request is sent to it. Give a front-proxy certificate, or \
         --identity=impersonate"
    )]
    Disbelieved(String),
    #[error("it has not said yet whom it takes requests for, so no request is sent to it: {0}")]
    Unsaid(String),
}

impl RoundError {
    fn reason(&self) -> &'static str {
        match self {
            RoundError::Fetch { source, .. } => source.reason(),
            RoundError::Document { source, .. } => source.reason(),
            RoundError::Disbelieved(_) => "disbelieved",
            RoundError::Unsaid(_) => "unsaid",
        }
    }

    /// Whether nobody answered.
    fn is_silence(&self) -> bool {
        matches!(self, RoundError::Fetch { source, .. } if source.is_silence())
    }

    /// The flag to look at, to be put behind what is said.
    fn flag(&self) -> &'static str {
        match self {
            RoundError::Fetch {
                source: FetchError::Send(error),
                ..
            } => flag_to_look_at(error),
            _ => "",
        }
    }

    fn kind(&self) -> TroubleKind {
        match self {
            RoundError::Fetch { source, .. } => source.kind(),
            RoundError::Document { .. } | RoundError::Disbelieved(_) | RoundError::Unsaid(_) => {
                TroubleKind::Other
            }
        }
    }
}

async fn round(shared: &Shared, peer: &Peer, link: &Link, lists: &mut Lists) -> bool {
    match try_round(shared, peer, link, lists).await {
        Ok(()) => {
            if peer.trouble().is_some() {
                peer.set_trouble(None);
                shared.changed.notify_one();
            }
            true
        }
        Err(error) => {
            if error.is_silence() {
                peer.stirs();
            }
            report(shared, peer, &error);
            false
        }
    }
}

async fn try_round(
    shared: &Shared,
    peer: &Peer,
    link: &Link,
    lists: &mut Lists,
) -> Result<(), RoundError> {
    let own_id = shared.snapshot.load().view.local_id().clone();
    let own_id = &*own_id;
    probe(shared, peer, link, own_id).await?;
    let asker = Asker {
        shared,
        link,
        own_id,
    };
    let old = peer.documents();
    // Both are asked for even if the first fails, so that both failures are counted.
    let before = old.as_deref().map(|d| &d.core);
    let core = document(asker, peer, lists, &CORE, before).await;
    let before = old.as_deref().map(|d| &d.groups);
    let groups = document(asker, peer, lists, &GROUPS, before).await;
    let (core, groups) = match (core, groups) {
        (Ok(core), Ok(groups)) => (core, groups),
        (Err(first), Err(second)) => {
            report(shared, peer, &first);
            return Err(second);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    publish(asker, peer, lists, old.as_deref(), core, groups).await;
    openapi::refresh(shared, peer, link, own_id).await;
    Ok(())
}

/// Asks `/readyz`, which is also the half-open probe of the breaker.
async fn probe(shared: &Shared, peer: &Peer, link: &Link, own_id: &str) -> Result<(), RoundError> {
    let (started, begun) = (Instant::now(), peer.health.mark());
    let ready = is_ready(shared, peer, link, own_id).await?;
    let took = started.elapsed();
    // Before anybody is named to it.
    match believed::ask(shared, link, own_id).await {
        Believed::Yes | Believed::CannotTell => {}
        Believed::No(name) => {
            link.doubt();
            return Err(RoundError::Disbelieved(name));
        }
        Believed::NotHeard(why) if !link.is_proven() => return Err(RoundError::Unsaid(why)),
        // It has said so before, and is asked again.
        Believed::NotHeard(_) => {}
    }
    identity::note(shared, peer, link);
    if shared.front.is_some() {
        learn_version(shared, peer, link, own_id).await;
    }
    // Not before all that is known: who comes back, or to another address, may have become another version.
    if link.prove() {
        shared.changed.notify_one();
    }
    shared.peer_answered(peer, begun, took);
    if !ready {
        peer.stirs();
    }
    if peer.health.is_ready() != ready {
        peer.health.set_ready(ready);
        shared.changed.notify_one();
    }
    Ok(())
}

async fn is_ready(
    shared: &Shared,
    peer: &Peer,
    link: &Link,
    own_id: &str,
) -> Result<bool, RoundError> {
    let path = "/readyz";
    let mut what = what(shared, own_id, path);
    what.deadline = Instant::now() + shared.options.poll.probe_deadline;
    let listening = async {
        sleep_until(what.deadline - shared.options.poll.probe_deadline / 2).await;
        link.probes.listen();
        std::future::pending().await
    };
    let answer = tokio::select! {
        answer = fetch(&link.probes, what) => answer,
        never = listening => never,
    };
    match answer {
        Ok(_) => Ok(true),
        Err(FetchError::Status(status)) => Ok(!status.is_server_error()),
        Err(source @ FetchError::Oneself) => Err(RoundError::Fetch { path, source }),
        Err(source @ FetchError::Deadline) if link.probes.is_heard() => {
            // It answers pings: whoever has no other server is better off waiting for it.
            if peer.health.is_ready() {
                peer.health.set_ready(false);
                shared.changed.notify_one();
            }
            Err(RoundError::Fetch { path, source })
        }
        Err(source) if source.is_transport() => {
            if source.is_silence() {
                shared.peer_failed(peer, source.connection());
            }
            Err(RoundError::Fetch { path, source })
        }
        Err(_) => Ok(true),
    }
}

/// Asks which version the peer serves. The round goes on if it does not say; what it said before stays true until it says
/// something else.
async fn learn_version(shared: &Shared, peer: &Peer, link: &Link, own_id: &str) {
    let mut what = what(shared, own_id, "/version");
    what.deadline = Instant::now() + shared.options.poll.probe_deadline;
    let said = match fetch(&link.probes, what).await {
        Ok(Fetched::Document { bytes, .. }) => {
            ApiVersion::read(&bytes).ok_or_else(|| "its answer names no version".to_owned())
        }
        Ok(Fetched::Unchanged) => Err(FetchError::UnaskedNotModified.to_string()),
        Err(error) => Err(chain(&error)),
    };
    match said {
        Ok(version) => {
            if peer.set_version(version) {
                tracing::info!(peer = &*peer.id, %version, "a server says which version it serves");
                // Whose documents describe an API hangs on versions too.
                shared.changed.notify_one();
            }
        }
        Err(error) => {
            peer.counts.error("version");
            if let Some(held_back) = peer.log_gate.pass(Instant::now()) {
                let known = peer.version().map(|it| it.to_string());
                tracing::warn!(
                    peer = &*peer.id,
                    known,
                    held_back,
                    "cannot read /version of a server: {error}"
                );
            }
            peer.set_version_trouble(error);
        }
    }
}

/// One of the two documents.
struct Kind {
    path: &'static str,
    read: fn(&[u8]) -> Result<ApiGroupDiscoveryList, DocumentError>,
}

const CORE: Kind = Kind {
    path: "/api",
    read: discovery::read_core,
};

const GROUPS: Kind = Kind {
    path: "/apis",
    read: discovery::read_groups,
};

/// The document that is in force after asking: the old one if the peer says that it has not changed.
async fn document(
    asker: Asker<'_>,
    peer: &Peer,
    lists: &mut Lists,
    kind: &Kind,
    old: Option<&Part>,
) -> Result<Part, RoundError> {
    let path = kind.path;
    let fetched = ask(asker, path, old).await;
    let fetched = fetched.map_err(|source| {
        // It was there when it was asked whether it is ready, and will be asked again.
        if source.is_silence() && !matches!(source, FetchError::Deadline) {
            asker.shared.peer_failed(peer, source.connection());
        }
        RoundError::Fetch { path, source }
    })?;
    match (fetched, old) {
        (Fetched::Unchanged, Some(old)) => Ok(old.clone()),
        (Fetched::Unchanged, None) => Err(RoundError::Fetch {
            path,
            source: FetchError::UnaskedNotModified,
        }),
        (Fetched::Document { bytes, etag }, old) => {
            let is_legacy = asker.shared.front.is_some() && lists::is_legacy(&bytes);
            let list = if is_legacy {
                lists.walk(asker, path, &bytes).await?
            } else {
                (kind.read)(&bytes).map_err(|source| RoundError::Document { path, source })?
            };
            let list = match old {
                Some(old) if *old.list == list => old.list.clone(),
                _ => Arc::new(list),
            };
            Ok(Part {
                list,
                etag,
                is_legacy,
            })
        }
    }
}

/// Asks for one document and counts what came.
async fn ask(asker: Asker<'_>, path: &str, old: Option<&Part>) -> Result<Fetched, FetchError> {
    let shared = asker.shared;
    let mut what = what(shared, asker.own_id, path);
    what.etag = old.and_then(|part| part.etag.as_ref());
    what.accept = Some(match shared.front {
        Some(_) => FRONT_ACCEPT,
        None => PEER_ACCEPT,
    });
    let answer = fetch(&asker.link.probes, what).await;
    shared.metrics.discovery_fetched(match &answer {
        Ok(Fetched::Unchanged) => StatusCode::NOT_MODIFIED,
        Ok(_) => StatusCode::OK,
        Err(FetchError::Status(status)) => *status,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    });
    answer
}

/// An unconditional fetch within the poller's limits.
pub(crate) fn what<'a>(shared: &'a Shared, own_id: &'a str, path: &'a str) -> Fetch<'a> {
    let front = shared.front.as_ref();
    Fetch {
        path,
        accept: None,
        etag: None,
        own_id,
        family: front.map_or(&Family::FrontProxy, |front| &front.options.family),
        deadline: Instant::now() + shared.options.poll.deadline,
        size_limit: shared.options.poll.size_limit,
    }
}

async fn publish(
    asker: Asker<'_>,
    peer: &Peer,
    lists: &mut Lists,
    old: Option<&Heard>,
    core: Part,
    groups: Part,
) {
    let checked = Instant::now();
    let before = starting::before(asker.shared, peer, old, &core, &groups);
    let version = peer.version().or(old.and_then(|old| old.version));
    starting::say(
        peer,
        old.and_then(|old| old.before.as_ref()),
        before.as_ref(),
    );
    let same = |old: &&Heard| {
        Arc::ptr_eq(&old.core.list, &core.list) && Arc::ptr_eq(&old.groups.list, &groups.list)
    };
    let own = if let Some(old) = old.filter(same) {
        let again = match peer.health.is_ready() {
            true => verify::look_again(asker, lists, &core, &groups).await,
            false => None,
        };
        let Some(own) = again else {
            let has_started = before.is_none() && old.before.is_some();
            peer.confirm_documents(Heard {
                checked,
                core,
                groups,
                version,
                before,
                ..old.clone()
            });
            if has_started {
                asker.shared.changed.notify_one();
            }
            return;
        };
        own
    } else if groups.is_legacy {
        ((*groups.list).clone(), 0)
    } else {
        verify::keep_own(asker, lists, old, &core, &groups).await
    };
    let (own, not_own) = own;
    say_merged(peer, not_own, old.map_or(0, |old| old.not_own));
    let served = served(asker, lists, old, own, &core, &groups);
    peer.set_documents(Heard {
        served: Arc::new(served),
        version,
        before,
        not_own,
        changed: checked,
        checked,
        core,
        groups,
    });
    asker.shared.changed.notify_one();
}

/// The documents of what the peer serves itself.
fn served(
    asker: Asker<'_>,
    lists: &mut Lists,
    old: Option<&Heard>,
    own: ApiGroupDiscoveryList,
    core: &Part,
    groups: &Part,
) -> Documents {
    let nothing = Documents::default();
    let before = old.map_or(&nothing, |old| &old.served);
    let mut served = Documents::renewed(before, own, (*core.list).clone());
    if asker.shared.front.is_some() {
        if !groups.is_legacy {
            lists.retain(|it| is_listed(it, &core.list, &groups.list));
        }
        served = served.with_hashes(Arc::new(lists.hashes()));
    }
    served
}

/// Whether one of the two documents lists this group and version (`apps/v1`).
fn is_listed(
    group_version: &str,
    core: &ApiGroupDiscoveryList,
    groups: &ApiGroupDiscoveryList,
) -> bool {
    let (group, version) = group_version
        .rsplit_once('/')
        .unwrap_or(("", group_version));
    let list = if group.is_empty() { core } else { groups };
    let group = list.group(group);
    group.is_some_and(|group| group.version(version).is_some())
}

fn say_merged(peer: &Peer, not_own: usize, before: usize) {
    if not_own == 0 {
        if before > 0 {
            tracing::info!(
                peer = &*peer.id,
                before,
                "a peer serves by itself all that it lists now"
            );
        }
        return;
    }
    peer.counts.error("merged_documents");
    if not_own == before {
        return;
    }
    tracing::warn!(
        peer = &*peer.id,
        not_own,
        "a peer lists APIs that it does not serve itself, so it seems to answer merged documents; these are left out"
    );
}

fn report(shared: &Shared, peer: &Peer, error: &RoundError) {
    let reason = error.reason();
    shared.metrics.sync_error();
    peer.counts.error(reason);
    let (kind, text) = (error.kind(), chain(error) + error.flag());
    if peer.trouble().is_none_or(|before| before.kind != kind) {
        // Who answers there may be another one than before.
        shared.changed.notify_one();
    }
    peer.set_trouble(Some(Trouble {
        kind,
        reason,
        text: text.clone(),
        at: Instant::now(),
    }));
    if let Some(held_back) = peer.log_gate.pass(Instant::now()) {
        tracing::warn!(
            peer = &*peer.id,
            reason,
            held_back,
            "cannot read what a peer serves, so what it said last, if anything, stays in force: {text}"
        );
    }
}
