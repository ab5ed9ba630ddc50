//! One stream of messages for many watches.
//!
//! A task per stream reads the client's requests and the store's events and writes what the client reads.
//! When the client does not read, the task waits, the store's buffers of its watches fill, and the
//! store cuts them off; the client is told by a cancelled watch whose reason says from where to
//! go on.
//!
//! Differs: etcd never cancels a watch for being slow, and keeps its events for it as long as memory lasts.

use std::collections::HashMap;

use futures::stream::SelectAll;
use futures::{Stream, StreamExt};
use peerage_store::{Event, ProgressRequester, Revision, StoreError, WatchStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Shared, header};
use crate::convert;
use crate::messages::{RequestUnion, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::status::{COMPACTED, to_status};

/// How many messages wait for the connection to take them.
const BUFFER: usize = 4;
/// The largest message for a client that takes fragments, about.
const FRAGMENT: usize = 1024 * 1024;
/// The number in an answer that is about no single watch.
const NO_WATCH: i64 = -1;

pub(super) fn serve(
    shared: Shared,
    requests: Streaming<WatchRequest>,
) -> impl Stream<Item = Result<WatchResponse, Status>> + Send + 'static {
    let (answers, stream) = mpsc::channel(BUFFER);
    let session = Session {
        shared,
        answers,
        watches: HashMap::new(),
        events: SelectAll::new(),
        next_id: 0,
        progress: None,
    };
    tokio::spawn(session.run(requests));
    ReceiverStream::new(stream)
}

/// A watch's next item.
type Item = (i64, Result<peerage_store::WatchResponse, StoreError>);
type Items = std::pin::Pin<Box<dyn Stream<Item = Item> + Send>>;

struct Session {
    shared: Shared,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
    watches: HashMap<i64, Watch>,
    events: SelectAll<Items>,
    next_id: i64,
    /// The revision that every watch must have come to before the client is told, if it asked.
    progress: Option<Revision>,
}

struct Watch {
    fragment: bool,
    progress_notify: bool,
    /// How far it has come.
    reached: Revision,
    requester: ProgressRequester,
    /// Ends the store's watch.
    stop: tokio_util::sync::CancellationToken,
}

/// The client does not listen any more.
struct Gone;

impl Session {
    async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let shutdown = self.shared.shutdown.clone();
        loop {
            let done = tokio::select! {
                request = requests.next() => match request {
                    Some(Ok(request)) => self.request(request).await,
                    Some(Err(_)) | None => return,
                },
                Some((id, item)) = self.events.next() => self.item(id, item).await,
                () = self.answers.closed() => return,
                () = shutdown.cancelled() => {
                    let ended = Status::unavailable("etcdserver: server stopped");
                    // A client that does not read finds out when the connection ends.
                    let _ = self.answers.try_send(Err(ended));
                    return;
                }
            };
            if done.is_err() {
                return;
            }
        }
    }

    async fn send(&mut self, response: WatchResponse) -> Result<(), Gone> {
        self.answers.send(Ok(response)).await.map_err(|_| Gone)
    }

    async fn fail(&mut self, status: Status) -> Result<(), Gone> {
        // The last word; whether it is heard makes no difference.
        let _ = self.answers.send(Err(status)).await;
        Err(Gone)
    }

    async fn request(&mut self, request: WatchRequest) -> Result<(), Gone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => self.ask_progress().await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Result<(), Gone> {
        let Some(id) = self.choose_id(create.watch_id) else {
            return self
                .refuse("etcdserver: duplicate watch ID provided on the watch stream")
                .await;
        };
        if self.watches.len() >= self.shared.options.max_watches {
            return self
                .refuse("etcdserver: too many watches on one stream")
                .await;
        }
        let (fragment, progress_notify) = (create.fragment, create.progress_notify);
        let before = match self.shared.current().await {
            Ok(header) => header.revision,
            Err(status) => return self.fail(status).await,
        };
        let request = convert::watch_from(create);
        let from_now = request.start == 0;
        let stream = match self.shared.store.watch(request).await {
            Ok(stream) => stream,
            Err(StoreError::Unavailable { reason }) => {
                return self.fail(Status::unavailable(reason)).await;
            }
            Err(error) => return self.refuse(to_status(&error).message()).await,
        };
        // A client that watches from now on learns here when now was.
        let revision = if from_now {
            stream.start_revision() - 1
        } else {
            before
        };
        self.add(id, stream, fragment, progress_notify);
        self.send(WatchResponse {
            header: Some(header(revision)),
            watch_id: id,
            created: true,
            ..WatchResponse::default()
        })
        .await
    }

    fn choose_id(&mut self, wanted: i64) -> Option<i64> {
        if wanted != 0 {
            return (!self.watches.contains_key(&wanted)).then_some(wanted);
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }

    fn add(&mut self, id: i64, stream: WatchStream, fragment: bool, progress_notify: bool) {
        let stop = tokio_util::sync::CancellationToken::new();
        let watch = Watch {
            fragment,
            progress_notify,
            reached: 0,
            requester: stream.progress_requester(),
            stop: stop.clone(),
        };
        self.watches.insert(id, watch);
        let items = stream.map(move |item| (id, item));
        self.events
            .push(Box::pin(items.take_until(stop.cancelled_owned())));
    }

    async fn refuse(&mut self, reason: &str) -> Result<(), Gone> {
        self.send(WatchResponse {
            header: Some(header(0)),
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        })
        .await
    }

    async fn cancel(&mut self, id: i64) -> Result<(), Gone> {
        let Some(watch) = self.watches.remove(&id) else {
            return Ok(());
        };
        watch.stop.cancel();
        self.send(WatchResponse {
            header: Some(header(watch.reached)),
            watch_id: id,
            canceled: true,
            ..WatchResponse::default()
        })
        .await?;
        self.tell_progress().await
    }

    async fn ask_progress(&mut self) -> Result<(), Gone> {
        match self.shared.current().await {
            Ok(current) => self.progress = Some(current.revision),
            Err(status) => return self.fail(status).await,
        }
        for watch in self.watches.values() {
            watch.requester.request();
        }
        self.tell_progress().await
    }

    /// Tells the client how far all watches have come, if it asked and they have come far enough.
    async fn tell_progress(&mut self) -> Result<(), Gone> {
        let Some(wanted) = self.progress else {
            return Ok(());
        };
        let slowest = self.watches.values().map(|watch| watch.reached).min();
        let reached = slowest.unwrap_or(wanted);
        if reached < wanted {
            return Ok(());
        }
        self.progress = None;
        self.send(WatchResponse {
            header: Some(header(reached)),
            watch_id: NO_WATCH,
            ..WatchResponse::default()
        })
        .await
    }

    async fn item(
        &mut self,
        id: i64,
        item: Result<peerage_store::WatchResponse, StoreError>,
    ) -> Result<(), Gone> {
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        let batch = match item {
            Ok(batch) => batch,
            Err(error) => return self.end(id, error).await,
        };
        watch.reached = watch.reached.max(batch.revision);
        if !batch.is_progress() || watch.progress_notify {
            let fragment = watch.fragment;
            for response in responses(id, batch, fragment) {
                self.send(response).await?;
            }
        }
        self.tell_progress().await
    }

    /// A watch that the store has ended.
    async fn end(&mut self, id: i64, error: StoreError) -> Result<(), Gone> {
        let reached = self.watches.remove(&id).map_or(0, |watch| watch.reached);
        let (compact_revision, cancel_reason) = match error {
            StoreError::Compacted { compact_revision } => (compact_revision, COMPACTED.to_owned()),
            StoreError::Unavailable { reason } => {
                return self.fail(Status::unavailable(reason)).await;
            }
            error => (0, format!("etcdserver: {error}")),
        };
        self.send(WatchResponse {
            header: Some(header(reached)),
            watch_id: id,
            canceled: true,
            compact_revision,
            cancel_reason,
            ..WatchResponse::default()
        })
        .await?;
        self.tell_progress().await
    }
}

/// A batch as one message, or as several if it is large and the client takes fragments.
fn responses(
    id: i64,
    batch: peerage_store::WatchResponse,
    fragment: bool,
) -> impl Iterator<Item = WatchResponse> {
    let limit = if fragment { FRAGMENT } else { usize::MAX };
    let mut parts: Vec<Vec<Event>> = vec![Vec::new()];
    let mut size = 0;
    for event in batch.events {
        let previous = event.previous.as_ref().map_or(0, |kv| kv.value.len());
        let more = event.kv.key.len() + event.kv.value.len() + previous;
        if size > 0 && size + more > limit {
            parts.push(Vec::new());
            size = 0;
        }
        size += more;
        if let Some(part) = parts.last_mut() {
            part.push(event);
        }
    }
    let last = parts.len() - 1;
    let message = move |(index, events): (usize, Vec<Event>)| WatchResponse {
        header: Some(header(batch.revision)),
        watch_id: id,
        fragment: index < last,
        events: events.into_iter().map(convert::event_to).collect(),
        ..WatchResponse::default()
    };
    parts.into_iter().enumerate().map(message)
}
