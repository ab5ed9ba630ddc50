//! One task per peer that keeps its documents and its health up to date.
//!
//! A round asks `/readyz`, then `/api` and `/apis` conditionally; it counts as good only when both documents are
//! there, and only then are they published. Requests never wait for a round. What the documents mean is
//! `peerage_core`'s; who is polled is the writer's.
//!
//! Invariants: a round is bounded by its deadlines, so one silent peer delays nobody else; a failed round changes
//! no document; a peer is asked for ever, at least every few seconds.

mod fetch;
mod schedule;
mod verify;

use std::sync::Arc;

use http::StatusCode;
use peerage_core::Documents;
use peerage_core::discovery::{self, ApiGroupDiscoveryList, DocumentError};
use rand::RngExt;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub(crate) use fetch::{Answer, Fetch, FetchError, Fetched, fetch};
use schedule::{Rhythm, Schedule};

use crate::openapi;
use crate::options::PollOptions;
use crate::peer::{Heard, Link, Part, Peer, Trouble};
use crate::shared::Shared;

/// Polls the peer until cancelled.
pub(crate) async fn run(shared: Arc<Shared>, peer: Arc<Peer>, stop: CancellationToken) {
    let mut schedule = Schedule::new(rhythm(&shared.options.poll), Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = peer.poke.notified() => {
                schedule.hurry(Instant::now());
                continue;
            }
            () = sleep_until(schedule.due()), if peer.link().is_some() => {}
        }
        let Some(link) = peer.link() else { continue };
        let good = tokio::select! {
            () = stop.cancelled() => return,
            good = round(&shared, &peer, &link) => good,
        };
        let jitter = rand::rng().random_range(0.0..1.0);
        schedule.finished(good, Instant::now(), jitter);
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
    #[error("cannot fetch {path}: {source}")]
    Fetch {
        path: &'static str,
        source: FetchError,
    },
    #[error("cannot use what {path} answered: {source}")]
    Document {
        path: &'static str,
        source: DocumentError,
    },
    #[error("this server itself answers at the address of the peer")]
    Oneself,
}

impl RoundError {
    fn reason(&self) -> &'static str {
        match self {
            RoundError::Fetch { source, .. } => source.reason(),
            RoundError::Document { source, .. } => source.reason(),
            RoundError::Oneself => "oneself",
        }
    }
}

async fn round(shared: &Shared, peer: &Peer, link: &Link) -> bool {
    match try_round(shared, peer, link).await {
        Ok(()) => {
            peer.set_trouble(None);
            true
        }
        Err(error) => {
            report(shared, peer, &error);
            false
        }
    }
}

async fn try_round(shared: &Shared, peer: &Peer, link: &Link) -> Result<(), RoundError> {
    probe(shared, peer, link).await?;
    let old = peer.documents();
    // Both are asked for even if the first fails, so that both failures are counted.
    let core = document(shared, peer, link, &CORE, old.as_deref().map(|d| &d.core)).await;
    let groups = document(
        shared,
        peer,
        link,
        &GROUPS,
        old.as_deref().map(|d| &d.groups),
    )
    .await;
    let (core, groups) = match (core, groups) {
        (Ok(core), Ok(groups)) => (core, groups),
        (Err(first), Err(second)) => {
            report(shared, peer, &first);
            return Err(second);
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    publish(shared, peer, link, old.as_deref(), core, groups).await;
    openapi::refresh(shared, peer, link).await;
    Ok(())
}

/// Asks `/readyz`, which is also the half-open probe of the breaker.
async fn probe(shared: &Shared, peer: &Peer, link: &Link) -> Result<(), RoundError> {
    let path = "/readyz";
    let started = Instant::now();
    let mut what = what(shared, path, None);
    what.deadline = started + shared.options.poll.probe_deadline;
    let answer = fetch(&link.upstream, what).await;
    let ready = match answer {
        Ok(_) => true,
        Err(FetchError::Status(status)) => !status.is_server_error(),
        Err(source) if source.is_transport() => {
            shared.peer_failed(peer);
            return Err(RoundError::Fetch { path, source });
        }
        Err(_) => true,
    };
    shared.peer_answered(peer, started.elapsed());
    if peer.health.is_ready() != ready {
        peer.health.set_ready(ready);
        shared.changed.notify_one();
    }
    Ok(())
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
    shared: &Shared,
    peer: &Peer,
    link: &Link,
    kind: &Kind,
    old: Option<&Part>,
) -> Result<Part, RoundError> {
    let path = kind.path;
    let fetched = ask(shared, link, path, old).await?;
    let fetched = fetched.map_err(|source| {
        if source.is_transport() {
            shared.peer_failed(peer);
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
            let list =
                (kind.read)(&bytes).map_err(|source| RoundError::Document { path, source })?;
            let list = match old {
                Some(old) if *old.list == list => old.list.clone(),
                _ => Arc::new(list),
            };
            Ok(Part { list, etag })
        }
    }
}

/// Asks for one document and counts what came.
async fn ask(
    shared: &Shared,
    link: &Link,
    path: &str,
    old: Option<&Part>,
) -> Result<Result<Fetched, FetchError>, RoundError> {
    let mut what = what(shared, path, old.and_then(|part| part.etag.as_ref()));
    what.accept = Some(fetch::PEER_ACCEPT);
    let answer = fetch(&link.upstream, what).await;
    shared.metrics.discovery_fetched(match &answer {
        Ok(answer) if matches!(answer.fetched, Fetched::Unchanged) => StatusCode::NOT_MODIFIED,
        Ok(_) => StatusCode::OK,
        Err(FetchError::Status(status)) => *status,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    });
    let own_id = shared.snapshot.load().view.local_id().clone();
    if let Ok(Answer { server, .. }) = &answer
        && server
            .as_ref()
            .is_some_and(|server| server == own_id.as_bytes())
    {
        return Err(RoundError::Oneself);
    }
    Ok(answer.map(|answer| answer.fetched))
}

fn what<'a>(shared: &Shared, path: &'a str, etag: Option<&'a http::HeaderValue>) -> Fetch<'a> {
    Fetch {
        path,
        accept: None,
        etag,
        deadline: Instant::now() + shared.options.poll.deadline,
        size_limit: shared.options.poll.size_limit,
    }
}

async fn publish(
    shared: &Shared,
    peer: &Peer,
    link: &Link,
    old: Option<&Heard>,
    core: Part,
    groups: Part,
) {
    let checked = Instant::now();
    let same = |old: &&Heard| {
        Arc::ptr_eq(&old.core.list, &core.list) && Arc::ptr_eq(&old.groups.list, &groups.list)
    };
    if let Some(old) = old.filter(same) {
        peer.confirm_documents(Heard {
            checked,
            core,
            groups,
            ..old.clone()
        });
        return;
    }
    let (own, not_own) = verify::keep_own(shared, link, &groups.list).await;
    if not_own > 0 {
        say_merged(shared, peer, not_own);
    }
    let nothing = Documents::default();
    let before = old.map_or(&nothing, |old| &old.served);
    peer.set_documents(Heard {
        served: Arc::new(Documents::renewed(before, own, (*core.list).clone())),
        not_own,
        changed: checked,
        checked,
        core,
        groups,
    });
    shared.changed.notify_one();
}

fn say_merged(shared: &Shared, peer: &Peer, not_own: usize) {
    shared.metrics.merged_documents(&peer.id);
    tracing::warn!(
        peer = &*peer.id,
        not_own,
        "a peer lists APIs that it does not serve itself, so it seems to answer merged documents; these are left out"
    );
}

fn report(shared: &Shared, peer: &Peer, error: &RoundError) {
    let reason = error.reason();
    shared.metrics.sync_error(&peer.id, reason);
    peer.set_trouble(Some(Trouble {
        reason,
        text: error.to_string(),
        at: Instant::now(),
    }));
    if let Some(held_back) = peer.log_gate.pass(Instant::now()) {
        tracing::warn!(
            peer = &*peer.id,
            reason,
            held_back,
            "cannot read what a peer serves, so its last documents stay in force: {error}"
        );
    }
}
