//! One connection per endpoint, made when it is needed and again when it broke, and who is asked next.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::Stream;
use hyper_util::rt::TokioIo;
use peerage_http::ClientTls;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{ConnectError, EtcdOptions, EtcdUser};
use crate::messages::{AuthenticateRequest, AuthenticateResponse};
use crate::status::{authentication_is_off, password_is_refused, token_has_ended};

/// When a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// It changes nothing, or changes the same twice.
    Always,
    /// Only if no byte of it was sent.
    IfNotSent,
}

/// How often an idle connection is asked whether it is still there, which no etcd minds, and how long
/// it may take to say so.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);
/// How much of an answer may be on its way unread; what bounds a slow watcher on this side.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// How long a refused password is not tried again. Asking takes the cluster long by intent, and everybody who asks waits
/// for the one before.
const REFUSED: Duration = Duration::from_secs(1);

/// Has etcd end a stream whose member knows no leader.
const REQUIRE_LEADER: &str = "hasleader";

/// The connections to a store's endpoints.
pub(super) struct Connections {
    channels: Vec<Channel>,
    /// Which one is in use.
    current: AtomicUsize,
    options: EtcdOptions,
    /// What is known of the token to send; `None` before the cluster was asked.
    token: Mutex<Option<Token>>,
    /// Asking takes the cluster long by intent, so one asks for all.
    asking: Semaphore,
    /// What was answered to a password that was refused, and when.
    refused: Mutex<Option<Refused>>,
    /// What went wrong last, until a server answers.
    trouble: Mutex<Option<String>>,
}

struct Refused {
    password: Arc<String>,
    status: Status,
    at: Instant,
}

/// What the cluster gave for name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// It goes with every request.
    Given(AsciiMetadataValue),
    /// The cluster lets everybody in; etcd's own client goes on without too.
    NotWanted,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let endpoints = &self.options.endpoints;
        f.debug_struct("Connections")
            .field("endpoints", endpoints)
            .finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn new(options: EtcdOptions) -> Result<Self, ConnectError> {
        if options.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        let channels = options
            .endpoints
            .iter()
            .map(|endpoint| channel(endpoint, &options));
        Ok(Connections {
            channels: channels.collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            options,
            token: Mutex::default(),
            asking: Semaphore::new(1),
            refused: Mutex::default(),
            trouble: Mutex::default(),
        })
    }

    /// Sends one message and returns the answer.
    pub(super) async fn unary<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        retry: Retry,
    ) -> Result<A, Status>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let call = |mut grpc: Grpc<Channel>, request: Request<Q>| async move {
            let path = PathAndQuery::from_static(path);
            grpc.ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let response = grpc.unary(request, path, ProstCodec::<Q, A>::new()).await?;
            Ok(response.into_inner())
        };
        self.attempts(retry, || message.clone(), call).await
    }

    /// Sends one message on a stream of its own and returns the first answer.
    pub(super) async fn first_of_stream<Q, A>(
        &self,
        path: &'static str,
        message: Q,
    ) -> Result<A, Status>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let call = |grpc: Grpc<Channel>, request: Request<Q>| async move {
            let request = request.map(|message| tokio_stream::once(message));
            let mut answers: Streaming<A> = start_stream(grpc, path, request).await?;
            let first = answers.message().await?;
            first.ok_or_else(|| Status::unavailable("the stream ended without an answer"))
        };
        self.attempts(Retry::Always, || message.clone(), call).await
    }

    /// Opens a stream on an endpoint.
    pub(super) async fn stream<Q, A>(
        &self,
        endpoint: usize,
        path: &'static str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut request = Request::new(messages);
        // Of a member that is cut off from the others nothing more would be heard, and nothing would tell.
        let wanted = AsciiMetadataValue::from_static("true");
        request.metadata_mut().insert(REQUIRE_LEADER, wanted);
        let token = self.authorize(&mut request, endpoint).await?;
        let started = start_stream(self.grpc(endpoint), path, request).await;
        if let Err(status) = &started {
            self.renew(status, token);
        }
        started
    }

    /// Forgets the token in use, so that the next request asks for another one. A watch is told by a message that its
    /// token has ended.
    pub(super) fn forget_token(&self) {
        self.token().take();
    }

    /// The endpoint in use.
    pub(super) fn endpoint(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Goes on to the next endpoint, unless that has been done since `failed` was in use.
    pub(super) fn leave(&self, failed: usize) {
        let next = (failed + 1) % self.channels.len();
        let order = Ordering::Relaxed;
        // If it is another one already, that one is to be tried.
        let _ = self.current.compare_exchange(failed, next, order, order);
    }

    /// Whether `status` says that the token which was sent is worth nothing, so that another one is worth a try. It is
    /// forgotten, unless somebody else has renewed it meanwhile.
    fn renew(&self, status: &Status, sent: Option<Token>) -> bool {
        if sent.is_none() || !token_has_ended(status) {
            return false;
        }
        let mut token = self.token();
        if *token == sent {
            *token = None;
        }
        true
    }

    /// Whether there is a name and password to give.
    pub(super) fn has_user(&self) -> bool {
        self.options.user.is_some()
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.options.request_timeout
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<Token>> {
        lock(&self.token)
    }

    /// Why no server answers, as the last try had it; none while one does.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    fn grpc(&self, index: usize) -> Grpc<Channel> {
        Grpc::new(self.channels[index].clone()).max_decoding_message_size(self.options.max_answer)
    }

    /// Tries until it works, may not be tried again, or time is up.
    async fn attempts<Q, A, F: Future<Output = Result<A, Status>>>(
        &self,
        retry: Retry,
        message: impl Fn() -> Q,
        call: impl Fn(Grpc<Channel>, Request<Q>) -> F,
    ) -> Result<A, Status> {
        let deadline = Instant::now() + self.options.request_timeout;
        let mut backoff = Backoff::default();
        let mut failures = 0;
        let mut renewed = false;
        loop {
            let current = self.endpoint();
            let mut sent = None;
            let attempt = async {
                let mut request = Request::new(message());
                sent = self.authorize(&mut request, current).await?;
                call(self.grpc(current), request).await
            };
            let result = tokio::time::timeout_at(deadline, attempt).await;
            let status = match result {
                Ok(Ok(answer)) => {
                    lock(&self.trouble).take();
                    return Ok(answer);
                }
                Ok(Err(status)) => status,
                Err(_) => return Err(self.late()),
            };
            // A no is an answer too.
            *lock(&self.trouble) = has_no_answer(&status).then(|| in_words(&status));
            if !renewed && self.renew(&status, sent) {
                renewed = true;
                continue;
            }
            if !may_retry(&status, retry) || Instant::now() >= deadline {
                return Err(explained(status));
            }
            self.leave(current);
            failures += 1;
            if failures % self.channels.len() == 0 {
                let pause = backoff.next();
                if Instant::now() + pause >= deadline {
                    return Err(explained(status));
                }
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Time is up. What went wrong before is the reason, if something did.
    fn late(&self) -> Status {
        let text = "the store did not answer in time";
        Status::deadline_exceeded(match self.trouble() {
            Some(trouble) => format!("{text}; what went wrong last: {trouble}"),
            None => text.to_owned(),
        })
    }

    /// Adds what the cluster gave for name and password, asking for it if need be, and says what that is.
    async fn authorize<T>(
        &self,
        request: &mut Request<T>,
        current: usize,
    ) -> Result<Option<Token>, Status> {
        let Some(user) = &self.options.user else {
            return Ok(None);
        };
        let known = self.token().clone();
        let token = match known {
            Some(token) => token,
            None => self.ask_for_token(user, current).await?,
        };
        if let Token::Given(token) = &token {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(Some(token))
    }

    async fn ask_for_token(&self, user: &EtcdUser, current: usize) -> Result<Token, Status> {
        let closed = |_| Status::internal("nobody may ask for a token any more");
        let _permit = self.asking.acquire().await.map_err(closed)?;
        // Whoever asked before may have got it.
        let known = self.token().clone();
        if let Some(token) = known {
            return Ok(token);
        }
        let password = user.password();
        if let Some(status) = self.was_refused(&password) {
            return Err(status);
        }
        let answer = self.authenticate(user.name(), &password, current).await;
        let token = match answer {
            Err(status) if password_is_refused(&status) => {
                self.try_newer(user, password, status, current).await?
            }
            answer => answer?,
        };
        lock(&self.refused).take();
        *self.token() = Some(token.clone());
        Ok(token)
    }

    /// After a password was refused: the one that its file has by now, if that is another.
    async fn try_newer(
        &self,
        user: &EtcdUser,
        mut password: Arc<String>,
        mut status: Status,
        current: usize,
    ) -> Result<Token, Status> {
        user.reread().await;
        let newer = user.password();
        if newer != password {
            match self.authenticate(user.name(), &newer, current).await {
                Err(again) if password_is_refused(&again) => (password, status) = (newer, again),
                answer => return answer,
            }
        }
        *lock(&self.refused) = Some(Refused {
            password,
            status: status.clone(),
            at: Instant::now(),
        });
        Err(status)
    }

    /// What was said to this password a moment ago.
    fn was_refused(&self, password: &Arc<String>) -> Option<Status> {
        let refused = lock(&self.refused);
        let refused = refused.as_ref()?;
        let same = refused.password == *password && refused.at.elapsed() < REFUSED;
        same.then(|| refused.status.clone())
    }

    async fn authenticate(
        &self,
        name: &str,
        password: &str,
        current: usize,
    ) -> Result<Token, Status> {
        let request = Request::new(AuthenticateRequest {
            name: name.to_owned(),
            password: password.to_owned(),
        });
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let mut grpc = self.grpc(current);
        grpc.ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::new();
        let response = match grpc.unary(request, path, codec).await {
            Ok(response) => response.into_inner(),
            Err(status) if authentication_is_off(&status) => return Ok(Token::NotWanted),
            Err(status) => return Err(status),
        };
        let unusable = |_| Status::unauthenticated("the cluster gave a token that cannot be sent");
        let mut token: AsciiMetadataValue = response.token.parse().map_err(unusable)?;
        token.set_sensitive(true);
        Ok(Token::Given(token))
    }
}

async fn start_stream<Q, A>(
    mut grpc: Grpc<Channel>,
    path: &'static str,
    request: Request<impl Stream<Item = Q> + Send + 'static>,
) -> Result<Streaming<A>, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static(path);
    let response = grpc
        .streaming(request, path, ProstCodec::<Q, A>::new())
        .await?;
    Ok(response.into_inner())
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether no server has said this.
fn has_no_answer(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.source().is_some()
}

/// A failure with its reasons, down to the first one.
fn in_words(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// The same status, whose text has its reasons: what it becomes an error of has no others.
fn explained(status: Status) -> Status {
    match status.source() {
        Some(_) => Status::new(status.code(), in_words(&status)),
        None => status,
    }
}

/// A status that this side made up has a source; one that a server sent has none.
fn may_retry(status: &Status, retry: Retry) -> bool {
    has_no_answer(status) && (retry == Retry::Always || was_not_sent(status))
}

/// Whether there was no connection to send it on.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Pauses that grow, up to a bound, each by chance a little shorter.
#[derive(Debug, Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(super) fn next(&mut self) -> Duration {
        let pause = Self::FIRST
            .saturating_mul(1 << self.0.min(10))
            .min(Self::LONGEST);
        self.0 += 1;
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }

    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }
}

fn channel(endpoint: &str, options: &EtcdOptions) -> Result<Channel, ConnectError> {
    let wrong = |reason: String| ConnectError::Endpoint {
        endpoint: endpoint.to_owned(),
        reason,
    };
    let scheme = if options.tls.is_tls() {
        "https"
    } else {
        "http"
    };
    let address = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("{scheme}://{endpoint}"),
    };
    let uri: Uri = address.parse().map_err(|error| wrong(format!("{error}")))?;
    if uri.scheme_str() != Some(scheme) {
        return Err(wrong(match scheme {
            "https" => "it is without TLS, but TLS is configured".to_owned(),
            _ => "it wants TLS, but no certificate authority is configured".to_owned(),
        }));
    }
    let host = uri
        .host()
        .ok_or_else(|| wrong("it has no host".to_owned()))?;
    let port = uri
        .port_u16()
        .ok_or_else(|| wrong("it has no port".to_owned()))?;
    // An IPv6 address is in brackets in an URI, and nowhere else.
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = options.server_name.clone().unwrap_or_else(|| host.clone());
    let name = ServerName::try_from(name).map_err(|error| wrong(format!("{error}")))?;
    let dial = Dial {
        host,
        port,
        name,
        tls: options.tls.clone(),
    };
    let dial = Arc::new(dial);
    let connector = tower::service_fn(move |_: Uri| {
        let dial = dial.clone();
        async move { dial.connect().await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from(uri)
        .connect_timeout(options.connect_timeout)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    Ok(endpoint.connect_with_connector_lazy(connector))
}

/// One endpoint, and how to prove that it is the one.
struct Dial {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: ClientTls,
}

impl Dial {
    async fn connect(
        &self,
    ) -> io::Result<Either<TcpStream, tokio_rustls::client::TlsStream<TcpStream>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match self.tls.config(false) {
            None => Ok(Either::Left(stream)),
            Some((config, _)) => {
                let connector = TlsConnector::from(config);
                let stream = connector.connect(self.name.clone(), stream).await?;
                Ok(Either::Right(stream))
            }
        }
    }
}
