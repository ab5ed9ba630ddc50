//! Servers in the same process with certificates of their own, and what the tests of both ends share.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use peerage_http::testing::{Authority, Subject};
use peerage_http::tls::{ClientTlsOptions, ServerTlsOptions};
use peerage_http::{
    ClientTls, Pem, Request, Response, Server, ServerOptions, ServerTls, Upstream, UpstreamOptions,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes that works; what waits for it has failed.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Ca(Authority);

impl Ca {
    pub fn new(name: &str) -> Self {
        Self(Authority::new(name))
    }

    pub fn pem(&self) -> Pem {
        self.0.pem()
    }

    /// A pair for this common name and these DNS names.
    pub fn pair(&self, name: &str, hosts: &[&str]) -> (Pem, Pem) {
        let subject = Subject {
            name,
            hosts,
            ..Subject::default()
        };
        self.0.issue(&subject).pems()
    }

    pub fn server_tls(&self) -> ServerTls {
        self.server_tls_with(&[b"h2", b"http/1.1"])
    }

    pub fn server_tls_with(&self, alpn: &[&[u8]]) -> ServerTls {
        let (certificate, key) = self.pair("server", &["kubernetes.default.svc"]);
        let mut options = ServerTlsOptions::new(certificate, key);
        options.alpn = alpn.iter().map(|name| name.to_vec()).collect();
        options.client_cas = vec![self.pem()];
        ServerTls::load(options).unwrap()
    }

    pub fn client_tls(&self) -> ClientTls {
        let mut options = ClientTlsOptions::new(self.pem());
        options.identity = Some(self.pair("client", &[]));
        ClientTls::load(options).unwrap()
    }
}

/// A server that is told to stop when it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub stop: CancellationToken,
    pub task: tokio::task::JoinHandle<peerage_http::server::Drained>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runs a server whose answers this function makes.
pub async fn serve<F, A>(tls: ServerTls, options: ServerOptions, answer: F) -> Running
where
    F: Fn(Request) -> A + Clone + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let service = tower::service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let task = tokio::spawn(Server::serve(listener, tls, service, options, stop.clone()));
    Running {
        address,
        stop,
        task,
    }
}

pub fn upstream(address: SocketAddr, tls: ClientTls) -> Upstream {
    Upstream::new(UpstreamOptions::new(address.to_string(), tls))
}

pub fn get(path: &str) -> Request {
    let mut request = http::Request::new(peerage_http::empty());
    *request.uri_mut() = path.parse().unwrap();
    request
}

pub async fn text(response: Response) -> String {
    let body = peerage_http::body::collect(response.into_body(), 1 << 24, LONG)
        .await
        .unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}
