//! Accepting connections: each is shaken hands with by a task of its own, so that a slow or dead client
//! keeps nobody out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::Connected;

use super::{ServeOptions, StoreTls};

/// An accepted connection. It counts until it is dropped.
pub(super) struct Connection {
    io: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    _permit: OwnedSemaphorePermit,
}

/// How long to wait after the machine refused to accept, for want of file handles usually.
const RETRY: Duration = Duration::from_millis(100);

/// The connections of `listener`, ready to be spoken on, and the task that accepts them. When it has
/// ended the address is free.
pub(super) fn incoming(
    listener: TcpListener,
    options: &ServeOptions,
    shutdown: CancellationToken,
) -> (
    impl Stream<Item = Result<Connection, io::Error>> + use<>,
    AbortOnDropHandle<()>,
) {
    let (ready, connections) = mpsc::channel(16);
    let acceptor = Acceptor {
        listener,
        tls: options.tls.clone(),
        handshake: options.handshake_timeout,
        permits: Arc::new(Semaphore::new(options.max_connections)),
        ready,
    };
    let task = tokio::spawn(async move {
        tokio::select! {
            () = acceptor.run() => {}
            () = shutdown.cancelled() => {}
        }
    });
    (
        ReceiverStream::new(connections),
        AbortOnDropHandle::new(task),
    )
}

struct Acceptor {
    listener: TcpListener,
    tls: Option<StoreTls>,
    handshake: Duration,
    permits: Arc<Semaphore>,
    ready: mpsc::Sender<Result<Connection, io::Error>>,
}

impl Acceptor {
    async fn run(self) {
        loop {
            let Ok(permit) = self.permits.clone().acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => self.welcome(stream, permit),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the store");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn welcome(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let (tls, ready) = (self.tls.as_ref().map(StoreTls::config), self.ready.clone());
        let limit = self.handshake;
        tokio::spawn(async move {
            // Without it the connection is only slower.
            let _ = stream.set_nodelay(true);
            let io = match tls {
                None => Either::Left(stream),
                Some(config) => {
                    let accept = TlsAcceptor::from(config).accept(stream);
                    match tokio::time::timeout(limit, accept).await {
                        Ok(Ok(stream)) => Either::Right(Box::new(stream)),
                        Ok(Err(error)) => {
                            tracing::debug!(%error, "a client of the store failed the handshake");
                            return;
                        }
                        Err(_) => return,
                    }
                }
            };
            let connection = Connection {
                io,
                _permit: permit,
            };
            // The server has ended if nobody takes it.
            let _ = ready.send(Ok(connection)).await;
        });
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
