//! A watch that outlives the connections it uses.
//!
//! It is a stream of its own on some endpoint. When that breaks, another one is opened, from the revision
//! after the last one delivered. Nothing is read ahead of whoever polls it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream;
use peerage_store::{
    ProgressRequester, Revision, StoreError, WatchRequest, WatchResponse, WatchStream,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::connection::{Backoff, Connections};
use crate::convert;
use crate::messages as etcd;
use crate::status::{PERMISSION_DENIED, from_status, says_token_has_ended, token_has_ended};

const PATH: &str = "/etcdserverpb.Watch/Watch";
/// How many requests wait to be sent: the first one, and for progress.
const REQUESTS: usize = 4;

type Requests = mpsc::Sender<etcd::WatchRequest>;

/// Opens a watch. Returns when a server has begun it, so that no later change can be missed.
pub(super) async fn open(
    connections: Arc<Connections>,
    request: WatchRequest,
) -> Result<WatchStream, StoreError> {
    let mut watcher = Watcher {
        connections,
        next: request.start,
        request,
        stream: None,
        fragments: Vec::new(),
        progress: Arc::default(),
        backoff: Backoff::default(),
        renewed: false,
    };
    watcher
        .reopen_within(watcher.connections.request_timeout())
        .await?;
    let start = watcher.next;
    let progress = watcher.progress.clone();
    let items = stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await {
            Ok(batch) => Some((Ok(batch), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let requester = ProgressRequester::new(move || progress.ask());
    Ok(WatchStream::new(start, items, requester))
}

/// The oldest revision that the cluster keeps, which it tells a watch that starts too early.
pub(super) async fn compact_revision(connections: &Connections) -> Option<Revision> {
    let request = etcd::WatchCreateRequest {
        key: bytes::Bytes::from_static(&[0]),
        start_revision: 1,
        ..etcd::WatchCreateRequest::default()
    };
    let ask = async {
        let (_requests, queue) = requests(request);
        let queue = ReceiverStream::new(queue);
        let stream = connections
            .stream(connections.endpoint(), PATH, queue)
            .await;
        let mut stream: Streaming<etcd::WatchResponse> = stream.ok()?;
        while let Some(response) = stream.message().await.ok()? {
            if response.canceled {
                return Some(response.compact_revision).filter(|&revision| revision > 0);
            }
        }
        None
    };
    tokio::time::timeout(connections.connect_timeout(), ask)
        .await
        .ok()?
}

/// A queue of requests that begins with the one that makes the watch.
fn requests(create: etcd::WatchCreateRequest) -> (Requests, mpsc::Receiver<etcd::WatchRequest>) {
    let (requests, queue) = mpsc::channel(REQUESTS);
    // There is room for it: the queue is new.
    let _ = requests.try_send(etcd::WatchRequest {
        request_union: Some(etcd::RequestUnion::CreateRequest(create)),
    });
    (requests, queue)
}

/// Whether somebody wants to know how far the watch has come, and how to ask.
#[derive(Default)]
struct Progress {
    wanted: AtomicBool,
    requests: Mutex<Option<Requests>>,
}

impl Progress {
    fn ask(&self) {
        self.wanted.store(true, Ordering::Release);
        self.send();
    }

    fn connect(&self, requests: Option<Requests>) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = requests;
        if self.wanted.load(Ordering::Acquire) {
            self.send();
        }
    }

    fn send(&self) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = &*requests {
            let ask = etcd::WatchProgressRequest {};
            // If the queue is full it has been asked already.
            let _ = requests.try_send(etcd::WatchRequest {
                request_union: Some(etcd::RequestUnion::ProgressRequest(ask)),
            });
        }
    }
}

struct Watcher {
    connections: Arc<Connections>,
    request: WatchRequest,
    /// The first revision that is still to be delivered; 0 until the first server has said.
    next: Revision,
    /// The stream in use, and the endpoint it is from.
    stream: Option<(Streaming<etcd::WatchResponse>, usize)>,
    /// The part of a batch that is not complete yet.
    fragments: Vec<etcd::Event>,
    progress: Arc<Progress>,
    backoff: Backoff,
    /// Whether the last thing that was tried is another token.
    renewed: bool,
}

/// Why a stream is of no use.
enum Broken {
    /// Another one may do.
    Again(Status),
    /// None would do.
    Ended(StoreError),
}

impl From<Status> for Broken {
    fn from(status: Status) -> Self {
        match from_status(&status, 0) {
            StoreError::Unavailable { .. } | StoreError::Exhausted { .. } => Broken::Again(status),
            error => Broken::Ended(error),
        }
    }
}

impl Watcher {
    /// The next batch, on as many streams as it takes.
    async fn next(&mut self) -> Result<WatchResponse, StoreError> {
        loop {
            let Some((stream, endpoint)) = &mut self.stream else {
                self.reopen().await?;
                continue;
            };
            let endpoint = *endpoint;
            let message = match stream.message().await {
                Ok(Some(message)) => self.message(message),
                Ok(None) => Err(Broken::Again(Status::unavailable("the stream ended"))),
                Err(status) => Err(Broken::from(status)),
            };
            match message {
                Ok(Some(batch)) => {
                    self.backoff.reset();
                    return Ok(batch);
                }
                Ok(None) => {}
                Err(Broken::Ended(error)) => return Err(error),
                Err(Broken::Again(status)) => self.broke(&status, endpoint).await,
            }
        }
    }

    async fn broke(&mut self, status: &Status, endpoint: usize) {
        tracing::debug!(%status, endpoint, "a watch's stream broke");
        self.stream = None;
        self.fragments.clear();
        self.progress.connect(None);
        self.connections.leave(endpoint);
        tokio::time::sleep(self.backoff.next()).await;
    }

    /// Opens a stream, however long it takes.
    async fn reopen(&mut self) -> Result<(), StoreError> {
        loop {
            let endpoint = self.connections.endpoint();
            match self.try_open(endpoint).await {
                Ok(()) => return Ok(()),
                Err(Broken::Ended(error)) => return Err(error),
                Err(Broken::Again(status)) => self.broke(&status, endpoint).await,
            }
        }
    }

    async fn reopen_within(&mut self, limit: std::time::Duration) -> Result<(), StoreError> {
        let late = |_| StoreError::Unavailable {
            reason: "no server began the watch in time".to_owned(),
        };
        tokio::time::timeout(limit, self.reopen())
            .await
            .map_err(late)?
    }

    /// One try to open a stream.
    async fn try_open(&mut self, endpoint: usize) -> Result<(), Broken> {
        let connections = self.connections.clone();
        let opened = tokio::time::timeout(connections.connect_timeout(), self.open(endpoint));
        let late = |_| Err(Broken::Again(Status::unavailable("no answer to a watch")));
        opened.await.unwrap_or_else(late)
    }

    async fn open(&mut self, endpoint: usize) -> Result<(), Broken> {
        let mut create = convert::watch_to(&self.request);
        create.start_revision = self.next;
        let (requests, queue) = requests(create);
        let queue = ReceiverStream::new(queue);
        let stream = self.connections.stream(endpoint, PATH, queue).await;
        let mut stream: Streaming<etcd::WatchResponse> = match stream {
            Ok(stream) => stream,
            Err(status) => return Err(self.refused(status)),
        };
        let first = stream.message().await?;
        let first = first.ok_or_else(|| Status::unavailable("the stream ended"))?;
        self.created(&first)?;
        self.renewed = false;
        self.stream = Some((stream, endpoint));
        self.progress.connect(Some(requests));
        Ok(())
    }

    fn created(&mut self, first: &etcd::WatchResponse) -> Result<(), Broken> {
        if first.canceled {
            return Err(self.cancelled(first));
        }
        if self.next == 0 {
            // A watch from now on: this is the last revision before it.
            self.next = convert::revision_of(first.header.as_ref()) + 1;
        }
        Ok(())
    }

    /// A batch for the reader, or nothing yet.
    fn message(&mut self, message: etcd::WatchResponse) -> Result<Option<WatchResponse>, Broken> {
        if message.canceled {
            return Err(self.cancelled(&message));
        }
        if message.created {
            return Ok(None);
        }
        if message.events.is_empty() {
            self.progress.wanted.store(false, Ordering::Release);
            let revision = convert::revision_of(message.header.as_ref());
            self.next = self.next.max(revision + 1);
            return Ok(Some(WatchResponse {
                revision,
                events: Vec::new(),
            }));
        }
        self.fragments.extend(message.events);
        if message.fragment {
            return Ok(None);
        }
        self.batch().map_err(Broken::Ended)
    }

    fn batch(&mut self) -> Result<Option<WatchResponse>, StoreError> {
        let events = std::mem::take(&mut self.fragments).into_iter();
        let mut events = events
            .map(convert::event_from)
            .collect::<Result<Vec<_>, _>>()?;
        events.retain(|event| event.kv.mod_revision >= self.next);
        let Some(revision) = events.last().map(|event| event.kv.mod_revision) else {
            return Ok(None);
        };
        self.next = revision + 1;
        if self.progress.wanted.load(Ordering::Acquire) {
            // etcd drops the question while a watch is behind.
            self.progress.send();
        }
        Ok(Some(WatchResponse { revision, events }))
    }

    /// What it means that a stream did not begin.
    fn refused(&mut self, status: Status) -> Broken {
        if token_has_ended(&status) && self.renew_token() {
            return Broken::Again(status);
        }
        status.into()
    }

    fn cancelled(&mut self, message: &etcd::WatchResponse) -> Broken {
        let compact_revision = message.compact_revision;
        if compact_revision > 0 {
            return Broken::Ended(StoreError::Compacted { compact_revision });
        }
        let reason = message.cancel_reason.clone();
        if says_token_has_ended(&reason) {
            return match self.renew_token() {
                true => Broken::Again(Status::unauthenticated(reason)),
                false => Broken::Ended(StoreError::Denied { reason }),
            };
        }
        if reason.contains(PERMISSION_DENIED) {
            return Broken::Ended(StoreError::Denied { reason });
        }
        if message.created {
            return Broken::Ended(StoreError::Invalid { reason });
        }
        Broken::Again(Status::unavailable(reason))
    }

    /// Whether another token is worth a try: there is a name, and the last token brought a message.
    fn renew_token(&mut self) -> bool {
        let renew = self.connections.has_user() && !self.renewed;
        self.renewed = true;
        if renew {
            self.connections.forget_token();
        }
        renew
    }
}
