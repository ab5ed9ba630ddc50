//! Who a client says it is to a cluster that asks for a name and a password.
//!
//! Invariant: a password from a file is the one that the file has, or had when it could last be read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peerage_http::BoxError;
use peerage_http::reload::{Reload, Reloaded, Reloading};

/// For reading the file again while a request waits: one of a server that is away hangs.
const REREAD: Duration = Duration::from_secs(2);

/// A name and its password. Clones follow the same file.
#[derive(Clone)]
pub struct EtcdUser {
    name: Arc<str>,
    password: Arc<Reloading<String>>,
    /// Whether the file is being read because a password was refused.
    reading: Arc<AtomicBool>,
}

/// A file has no password.
#[derive(Debug, thiserror::Error)]
enum PasswordError {
    #[error("its first line is empty")]
    Empty,
    #[error("it is not text")]
    Text(#[from] std::str::Utf8Error),
}

impl EtcdUser {
    /// A password that stays as it is.
    pub fn new(name: impl Into<Arc<str>>, password: impl Into<String>) -> Self {
        Self::with(name, Reloading::fixed("etcd password", password.into()))
    }

    /// The password is the first line of this file, also when that changes.
    ///
    /// # Errors
    /// The file cannot be read, or its first line is empty.
    pub fn from_file(name: impl Into<Arc<str>>, file: PathBuf) -> Result<Self, BoxError> {
        let password = Reloading::load("etcd password", vec![file], |bytes| first_line(&bytes[0]))?;
        Ok(Self::with(name, password))
    }

    fn with(name: impl Into<Arc<str>>, password: Reloading<String>) -> Self {
        EtcdUser {
            name: name.into(),
            password: Arc::new(password),
            reading: Arc::default(),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What follows the file.
    pub fn reloads(&self) -> Vec<Arc<dyn Reload>> {
        vec![self.password.clone()]
    }

    pub(super) fn password(&self) -> Arc<String> {
        self.password.get()
    }

    /// Reads the file now, which may be newer than the password that was refused; gives up on one that hangs.
    pub(super) async fn reread(&self) {
        if self.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let user = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            if let Reloaded::Failed(error) = user.password.reload() {
                tracing::debug!(error, "the password towards the store cannot be read again");
            }
            user.reading.store(false, Ordering::Release);
        });
        let _ = tokio::time::timeout(REREAD, read).await;
    }
}

impl std::fmt::Debug for EtcdUser {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EtcdUser").field(&self.name).finish()
    }
}

fn first_line(bytes: &[u8]) -> Result<String, PasswordError> {
    let text = std::str::from_utf8(bytes)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(PasswordError::Empty),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use peerage_store::{Store as _, StoreError, StoreExt as _};
    use tokio::net::TcpListener;
    use tonic::body::Body;
    use tonic::server::Grpc;
    use tonic::{Code, Request, Response, Status};
    use tonic_prost::ProstCodec;

    use super::super::{EtcdOptions, EtcdStore};
    use super::*;
    use crate::messages as etcd;

    /// A cluster with one user, whose password may be changed, and how often it was asked for a token.
    #[derive(Clone, Default)]
    struct Cluster {
        password: Arc<Mutex<String>>,
        asked: Arc<AtomicUsize>,
    }

    impl Cluster {
        async fn start(password: &str) -> (Cluster, String) {
            let cluster = Cluster::default();
            cluster.change(password);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let serves = cluster.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let cluster = serves.clone();
                async move { Ok::<_, Infallible>(cluster.answer(request).await) }
            });
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            tokio::spawn(async move {
                let server = tonic::transport::Server::builder();
                server.serve_with_incoming(service, incoming).await
            });
            (cluster, address)
        }

        fn change(&self, password: &str) {
            *self.password.lock().unwrap() = password.to_owned();
        }

        fn password(&self) -> String {
            self.password.lock().unwrap().clone()
        }

        async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
            if request.uri().path().ends_with("/Authenticate") {
                let method = tower::service_fn(move |asked: Request<etcd::AuthenticateRequest>| {
                    self.asked.fetch_add(1, Ordering::Relaxed);
                    let is_right = asked.get_ref().password == self.password();
                    let token = self.password();
                    std::future::ready(match is_right {
                        true => Ok(Response::new(etcd::AuthenticateResponse {
                            token,
                            ..Default::default()
                        })),
                        false => Err(Status::invalid_argument(
                            "etcdserver: authentication failed, invalid user ID or password",
                        )),
                    })
                });
                return Grpc::new(ProstCodec::default())
                    .unary(method, request)
                    .await;
            }
            let method = tower::service_fn(move |asked: Request<etcd::RangeRequest>| {
                let token = asked.metadata().get("token");
                let is_right = token.is_some_and(|it| *it == *self.password());
                std::future::ready(match is_right {
                    true => Ok(Response::new(etcd::RangeResponse::default())),
                    false => Err(Status::new(
                        Code::Unauthenticated,
                        "etcdserver: invalid auth token",
                    )),
                })
            });
            Grpc::new(ProstCodec::default())
                .unary(method, request)
                .await
        }
    }

    #[tokio::test]
    async fn a_password_that_changes_with_its_file_goes_on_letting_in() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "one\n").unwrap();
        let (cluster, address) = Cluster::start("one").await;
        let mut options = EtcdOptions::new([address]);
        options.user = Some(EtcdUser::from_file("root", file.clone()).unwrap());
        let store = EtcdStore::connect(options).await.unwrap();

        std::fs::write(&file, "two\n").unwrap();
        store.get("/a").await.unwrap();
        cluster.change("two");
        store
            .get("/a")
            .await
            .expect("nobody has told it that the file changed");
        // The other way round: it is refused until the file has changed too.
        cluster.change("three");
        let refused = store.get("/a").await.unwrap_err();
        assert!(matches!(refused, StoreError::Denied { .. }), "{refused}");
        std::fs::write(&file, "three\n").unwrap();
        let lets_in = async {
            while store.get("/a").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), lets_in)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_password_that_is_refused_is_not_tried_for_every_request() {
        let (cluster, address) = Cluster::start("one").await;
        let mut options = EtcdOptions::new([address]);
        options.user = Some(EtcdUser::new("root", "guess"));
        let store = EtcdStore::lazy(options).unwrap();
        let began = std::time::Instant::now();
        for _ in 0..50 {
            let refused = store.status().await.unwrap_err();
            assert!(matches!(refused, StoreError::Denied { .. }), "{refused}");
        }
        let asked = cluster.asked.load(Ordering::Relaxed);
        let most = 1 + began.elapsed().as_secs() as usize;
        assert!(asked <= most, "{asked} times");
    }

    #[test]
    fn a_file_without_a_password_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        for bytes in [&b""[..], b"\ntwo\n", b"\xff\n"] {
            std::fs::write(&file, bytes).unwrap();
            assert!(EtcdUser::from_file("root", file.clone()).is_err());
        }
        assert!(EtcdUser::from_file("root", folder.path().join("none")).is_err());
        assert!(!format!("{:?}", EtcdUser::new("root", "guess")).contains("guess"));
    }
}
