//! A small client of an API server, for the commands that ask one: JSON in and out, one server, no retries.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
pub use peerage_core::chain;
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{
    Body, ClientTls, Pem, Request, SendError, Stranger, Upstream, UpstreamOptions, body,
};
use serde_json::Value;

use crate::credentials;
use crate::pki::kubeconfig::Connection;

/// Accepts the aggregated discovery document with what peers serve.
pub const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Accepts the aggregated discovery document of the server alone.
pub const LOCAL: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// Longest answer that is read.
const LONGEST_ANSWER: usize = 64 << 20;
/// The usual wait for the start of an answer, and for its next part.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address or the certificates cannot be used.
    #[error("cannot connect to {url}: {problem}")]
    Setup {
        /// The server.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The request could not be made.
    #[error("cannot ask for {target}: {problem}")]
    Request {
        /// What was asked for.
        target: String,
        /// What is wrong.
        problem: String,
    },
    /// The server did not answer.
    #[error("{url} did not answer: {problem}")]
    Send {
        /// The server.
        url: String,
        /// Why.
        problem: String,
    },
    /// The server answered with a certificate that is not believed.
    #[error("{url} shows a certificate that is not believed: {problem}; look first at {look}")]
    Stranger {
        /// The server.
        url: String,
        /// What is wrong with it.
        problem: String,
        /// What may be wrong here.
        look: String,
    },
    /// The answer broke off.
    #[error("the answer of {url} broke off: {problem}")]
    Body {
        /// The server.
        url: String,
        /// Why.
        problem: String,
    },
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Status and message, for people.
    pub fn in_words(&self) -> String {
        let json = self.json();
        let text = String::from_utf8_lossy(&self.body);
        let message = json["message"].as_str().unwrap_or(text.trim());
        let message: String = message.chars().take(300).collect();
        format!("{} {message}", self.status.as_u16())
    }
}

/// A client of one server.
#[derive(Debug, Clone)]
pub struct ApiClient {
    upstream: Upstream,
    url: String,
    authority_from: String,
    token: Option<String>,
    /// What a 401 is about.
    refused: String,
    headers: HeaderMap,
    wait: Duration,
}

impl ApiClient {
    /// A client by a kubeconfig's connection, which waits that long for a connection, the start of an answer and each of
    /// its parts.
    pub fn new(connection: &Connection, wait: Duration) -> Result<Self, ClientError> {
        let failed = |problem: String| ClientError::Setup {
            url: connection.url.clone(),
            problem,
        };
        let address = connection
            .url
            .strip_prefix("https://")
            .map(|rest| rest.trim_end_matches('/'));
        let address = address.filter(|address| !address.contains('/') && !address.is_empty());
        let address =
            address.ok_or_else(|| failed("the URL has to be https://host:port".to_owned()))?;
        let authority: http::uri::Authority =
            address.parse().map_err(|e| failed(format!("{e}")))?;
        let roots = connection.authority.clone();
        let roots = roots
            .ok_or_else(|| failed("no certificate authority to check the server by".to_owned()))?;
        let mut options = ClientTlsOptions::new(Pem::bytes(roots));
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        options.server_name = connection
            .server_name
            .clone()
            .unwrap_or_else(|| host.to_owned());
        options.identity = match (&connection.certificate, &connection.key) {
            (Some(certificate), Some(key)) => {
                Some((Pem::bytes(certificate.clone()), Pem::bytes(key.clone())))
            }
            (None, None) => None,
            // To ask as nobody instead would only move the mistake.
            (Some(_), None) => {
                return Err(failed(
                    "there is a client certificate without its key".to_owned(),
                ));
            }
            (None, Some(_)) => {
                return Err(failed(
                    "there is a client key without its certificate".to_owned(),
                ));
            }
        };
        let tls = ClientTls::load(options).map_err(|e| failed(chain(&e)))?;
        let with_port = match authority.port() {
            Some(_) => address.to_owned(),
            None => format!("{address}:443"),
        };
        let options = UpstreamOptions::new(with_port, tls);
        Ok(Self {
            token: connection.token.clone(),
            refused: credentials::refused(connection),
            authority_from: connection.authority_from.clone(),
            ..Self::of(options, &connection.url, wait)
        })
    }

    /// A client of a plain HTTP address on loopback, without credentials.
    pub fn plain(url: &str, wait: Duration) -> Result<Self, ClientError> {
        let address = url
            .strip_prefix("http://")
            .map(|rest| rest.trim_end_matches('/'));
        let address = address.filter(|it| it.parse::<http::uri::Authority>().is_ok());
        let address = address.ok_or_else(|| ClientError::Setup {
            url: url.to_owned(),
            problem: "a gateway's own address (its --admin-bind-address) is plain HTTP: write http://HOST:PORT".to_owned(),
        })?;
        let options = UpstreamOptions::new(address, ClientTls::plain());
        Ok(Self::of(options, url, wait))
    }

    fn of(mut options: UpstreamOptions, url: &str, wait: Duration) -> Self {
        options.queue_timeout = wait;
        options.connect_timeout = wait;
        options.handshake_timeout = wait;
        options.first_byte_timeout = wait;
        Self {
            upstream: Upstream::new(options),
            url: url.to_owned(),
            authority_from: String::new(),
            token: None,
            refused: String::new(),
            headers: HeaderMap::new(),
            wait,
        }
    }

    /// The same client with headers that every request carries.
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// What a 401 is most likely about.
    pub fn refused(&self) -> &str {
        &self.refused
    }

    /// Asks for a path.
    pub async fn get(&self, target: &str) -> Result<Answer, ClientError> {
        self.ask(Method::GET, target, "application/json", None)
            .await
    }

    /// Asks for a path in a certain form.
    pub async fn get_as(&self, target: &str, accept: &str) -> Result<Answer, ClientError> {
        self.ask(Method::GET, target, accept, None).await
    }

    /// Deletes what is at a path.
    pub async fn delete(&self, target: &str) -> Result<Answer, ClientError> {
        self.ask(Method::DELETE, target, "application/json", None)
            .await
    }

    /// Creates an object in a collection.
    pub async fn create(&self, target: &str, object: &Value) -> Result<Answer, ClientError> {
        let content = ("application/json", object.to_string());
        self.ask(Method::POST, target, "application/json", Some(content))
            .await
    }

    /// Merges a patch into an object.
    pub async fn merge(&self, target: &str, patch: &Value) -> Result<Answer, ClientError> {
        let content = ("application/merge-patch+json", patch.to_string());
        self.ask(Method::PATCH, target, "application/json", Some(content))
            .await
    }

    /// Watches a path (with its `watch=true`).
    pub async fn watch(&self, target: &str) -> Result<Watch, ClientError> {
        let answer = self
            .send(Method::GET, target, "application/json", None)
            .await?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            let answer = self.read(head, body).await?;
            return Err(self.no_answer(answer.in_words()));
        }
        Ok(Watch {
            body: Some(body),
            read: BytesMut::new(),
        })
    }

    /// Whether the server says that it is ready, or what it says instead.
    pub async fn ready(&self) -> Result<(), String> {
        match self.get("/readyz").await {
            Ok(answer) if answer.status == StatusCode::OK => Ok(()),
            Ok(answer) => Err(answer.in_words()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn ask(
        &self,
        method: Method,
        target: &str,
        accept: &str,
        content: Option<(&str, String)>,
    ) -> Result<Answer, ClientError> {
        let (head, body) = self
            .send(method, target, accept, content)
            .await?
            .into_parts();
        self.read(head, body).await
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        accept: &str,
        content: Option<(&str, String)>,
    ) -> Result<peerage_http::Response, ClientError> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(target)
            .header(header::ACCEPT, accept)
            .header(
                header::USER_AGENT,
                concat!("peerage/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some((content_type, _)) = &content {
            request = request.header(header::CONTENT_TYPE, *content_type);
        }
        let body = content.map_or_else(body::empty, |(_, text)| body::full(text));
        let request: Request = request.body(body).map_err(|e| ClientError::Request {
            target: target.to_owned(),
            problem: e.to_string(),
        })?;
        self.upstream
            .send(request)
            .await
            .map_err(|e| self.unsent(&e))
    }

    async fn read(&self, head: http::response::Parts, body: Body) -> Result<Answer, ClientError> {
        let body = body::collect(body, LONGEST_ANSWER, self.wait).await;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.map_err(|e| ClientError::Body {
                url: self.url.clone(),
                problem: chain(&e),
            })?,
        })
    }

    fn unsent(&self, error: &SendError) -> ClientError {
        let Some(problem) = error.strangers_certificate() else {
            return self.no_answer(chain(error));
        };
        ClientError::Stranger {
            url: self.url.clone(),
            problem,
            look: match error.stranger() {
                Some(Stranger::Name) => {
                    "the address, and the name that is asked for instead (tls-server-name)"
                        .to_owned()
                }
                _ => self.authority_from.clone(),
            },
        }
    }

    fn no_answer(&self, problem: String) -> ClientError {
        ClientError::Send {
            url: self.url.clone(),
            problem,
        }
    }
}

/// An open watch.
pub struct Watch {
    /// None when it has ended: a body must not be read beyond its end.
    body: Option<Body>,
    read: BytesMut,
}

impl Watch {
    /// The next event; `None` when the watch has ended, or nothing came within `patience`.
    pub async fn next(&mut self, patience: Duration) -> Option<Value> {
        tokio::time::timeout(patience, self.next_line())
            .await
            .ok()
            .flatten()
    }

    /// Whether the watch ends within `patience`.
    pub async fn ends(&mut self, patience: Duration) -> bool {
        let rest = async { while self.next_line().await.is_some() {} };
        tokio::time::timeout(patience, rest).await.is_ok()
    }

    async fn next_line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end);
                self.read.advance(1);
                return serde_json::from_slice(&line).ok();
            }
            if self.read.len() > LONGEST_ANSWER {
                return None;
            }
            match self.body.as_mut()?.frame().await {
                Some(Ok(frame)) => self
                    .read
                    .extend_from_slice(&frame.into_data().unwrap_or_default()),
                _ => self.body = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn connection(url: &str) -> Connection {
        Connection {
            url: url.to_owned(),
            server_name: None,
            authority: Some("no certificate".to_owned()),
            authority_from: "a test".to_owned(),
            certificate: None,
            key: None,
            token: None,
        }
    }

    #[test]
    fn addresses_and_authorities_that_cannot_be_used_are_refused() {
        for url in [
            "http://127.0.0.1:1",
            "https://",
            "https://a/b",
            "127.0.0.1:6443",
            "https://127.0.0.1:6443",
        ] {
            let error = ApiClient::new(&connection(url), PATIENCE)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!("cannot connect to {url}: ")),
                "{error}"
            );
        }
        let mut without = connection("https://127.0.0.1:6443");
        without.authority = None;
        assert!(
            ApiClient::new(&without, PATIENCE)
                .unwrap_err()
                .to_string()
                .contains("authority")
        );
    }

    #[tokio::test]
    async fn an_answer_is_waited_for_as_long_as_one_wants() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let begun = std::time::Instant::now();
        let client = ApiClient::plain(&url, Duration::from_millis(20)).unwrap();
        let error = client.get("/readyz").await.unwrap_err().to_string();
        assert!(error.contains("did not answer"), "{error}");
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_watch_is_read_line_by_line_however_it_is_cut() {
        let (mut sender, body) = peerage_http::channel(8);
        let mut watch = Watch {
            body: Some(body),
            read: BytesMut::new(),
        };
        for part in [
            "{\"type\":\"ADD",
            "ED\"}\n{\"type\":",
            "\"DELETED\"}\n",
            "{\"type\":\"cut",
        ] {
            sender.send_data(part.into()).await.unwrap();
        }
        drop(sender);
        let patience = Duration::from_secs(60);
        assert_eq!(watch.next(patience).await.unwrap()["type"], "ADDED");
        assert_eq!(watch.next(patience).await.unwrap()["type"], "DELETED");
        assert_eq!(watch.next(patience).await, None);
        assert!(watch.ends(patience).await);
    }
}
