//! Asking a server for identity Leases: one list, and the watch that goes on from it.
//!
//! Invariants: nothing is read beyond a limit; a Lease that cannot be read is left out of the list.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::ACCEPT;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use peerage_auth::identity_headers::{self, IdentityError};
use peerage_http::body::{self, CollectError};
use peerage_http::{Request, Response, SendError, Upstream};
use peerage_proxy::flag_to_look_at;
use peerage_proxy::record::registered::{self, LEASES, Registered};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::known::MOST;
use crate::sources::LeaseUser;

/// Leases that are asked for at a time.
const PAGE: usize = 500;
/// How often; some pages may have little that is of use.
const PAGES: usize = 2 * MOST / PAGE;
/// For a list, and for the head of a watch.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// Leases have about a kilobyte.
const LIST_LIMIT: usize = 4 << 20;
const LINE_LIMIT: usize = 256 << 10;
/// A watch is begun anew every few minutes, so that nothing that was missed stays missed.
const WATCH: &str = "watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=";

/// Why Leases could not be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("no whole answer within {DEADLINE:?}")]
    Deadline,
    #[error(
        "{} may not read Leases (status {status}). Allow it: kubectl -n kube-system create role peerage-gateway \
         --verb=get,list,watch --resource=leases.coordination.k8s.io; kubectl -n kube-system create rolebinding \
         peerage-gateway --role=peerage-gateway --user={}",
        user.as_deref().unwrap_or("the user that the gateway's certificate names"),
        user.as_deref().unwrap_or("NAME, with the common name of that certificate")
    )]
    Refused {
        /// None for whoever the certificate says we are.
        user: Option<String>,
        status: StatusCode,
    },
    #[error("it answered with status {0}")]
    Status(StatusCode),
    #[error("what it answered cannot be used")]
    Body(#[from] CollectError),
    #[error("what it answered is no list of Leases")]
    Shape(#[from] serde_json::Error),
    #[error("its watch broke off")]
    Broken(#[source] peerage_http::BoxError),
    #[error("a line of its watch is longer than {LINE_LIMIT} bytes")]
    TooLong,
    #[error("the user's name cannot be told")]
    User(#[from] IdentityError),
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
}

impl AskError {
    /// The metric label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            AskError::Send(error) => error.reason(),
            AskError::Deadline => "deadline",
            AskError::Refused { .. } => "refused",
            AskError::Status(_) => "status",
            AskError::Body(_) | AskError::Broken(_) => "body",
            AskError::Shape(_) => "shape",
            AskError::TooLong => "too_large",
            AskError::User(_) | AskError::Request(_) => "request",
        }
    }

    /// The flag to look at, to be put behind what is said.
    pub(super) fn flag(&self) -> &'static str {
        match self {
            AskError::Send(error) => flag_to_look_at(error),
            _ => "",
        }
    }
}

/// The Leases at one moment.
pub(super) struct List {
    pub(super) leases: Vec<Registered>,
    /// How the server calls those that are left; none if there are no more.
    pub(super) rest: Option<String>,
    /// Where the watch goes on.
    pub(super) version: String,
}

/// Asks for all Leases, or for as many as count, page by page.
pub(super) async fn list(upstream: &Upstream, user: Option<&LeaseUser>) -> Result<List, AskError> {
    let mut list = page(upstream, user, "").await?;
    for _ in 1..PAGES {
        let Some(rest) = list.rest.take_if(|_| list.leases.len() < MOST) else {
            break;
        };
        let page = page(upstream, user, &format!("&continue={rest}")).await?;
        list.rest = page.rest;
        list.leases.extend(page.leases);
    }
    Ok(list)
}

async fn page(upstream: &Upstream, user: Option<&LeaseUser>, rest: &str) -> Result<List, AskError> {
    let deadline = Instant::now() + DEADLINE;
    let answer = async {
        let response = send(upstream, user, &format!("{LEASES}&limit={PAGE}{rest}")).await?;
        let bytes = body::collect(response.into_body(), LIST_LIMIT, DEADLINE).await?;
        read_list(&bytes)
    };
    timeout_at(deadline, answer)
        .await
        .unwrap_or(Err(AskError::Deadline))
}

/// Asks for everything that happens after a version.
pub(super) async fn watch(
    upstream: &Upstream,
    user: Option<&LeaseUser>,
    version: &str,
) -> Result<Lines, AskError> {
    let target = format!("{LEASES}&{WATCH}{version}");
    let response = send(upstream, user, &target).await?;
    Ok(Lines {
        body: response.into_body(),
        buffer: BytesMut::new(),
    })
}

async fn send(
    upstream: &Upstream,
    user: Option<&LeaseUser>,
    target: &str,
) -> Result<Response, AskError> {
    let mut request: Request = http::Request::get(target).body(peerage_http::empty())?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(user) = user {
        identity_headers::set_as(&user.family, headers, &user.user)?;
    }
    let response = upstream.send(request).await?;
    match response.status() {
        StatusCode::OK => Ok(response),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(AskError::Refused {
            user: user.map(|it| it.user.name.clone()),
            status,
        }),
        other => Err(AskError::Status(other)),
    }
}

#[derive(Deserialize)]
struct ListFile<'a> {
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

fn read_list(bytes: &[u8]) -> Result<List, AskError> {
    let file: ListFile<'_> = serde_json::from_slice(bytes)?;
    let items = file.items.unwrap_or_default();
    let read = |item: &&RawValue| registered::read_lease(item.get().as_bytes());
    Ok(List {
        leases: items.iter().filter_map(read).collect(),
        rest: Some(file.metadata.r#continue).filter(|it| !it.is_empty()),
        version: file.metadata.resource_version,
    })
}

/// A watch, line by line.
pub(super) struct Lines {
    body: peerage_http::Body,
    buffer: BytesMut,
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This Lease is as it is here.
    Is(Registered),
    /// The Lease of this name is no more.
    Gone(String),
    /// All is as it was.
    Nothing,
    /// A Lease that cannot be read.
    Unusable,
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Name {
    name: String,
}

impl Lines {
    /// The next line; none when the watch is over, in good order or because it is too old. Dropping the future loses
    /// nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Change>, AskError> {
        loop {
            if let Some(line) = self.line()? {
                return read_line(&line);
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(AskError::Broken)?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    fn line(&mut self) -> Result<Option<Bytes>, AskError> {
        match self.buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => Ok(Some(self.buffer.split_to(end + 1).freeze())),
            None if self.buffer.len() > LINE_LIMIT => Err(AskError::TooLong),
            None => Ok(None),
        }
    }
}

fn read_line(line: &[u8]) -> Result<Option<Change>, AskError> {
    let line: Line<'_> = serde_json::from_slice(line)?;
    let object = line.object.get().as_bytes();
    Ok(match line.r#type {
        "ADDED" | "MODIFIED" => {
            Some(registered::read_lease(object).map_or(Change::Unusable, Change::Is))
        }
        "DELETED" => {
            let named: Named = serde_json::from_slice(object)?;
            Some(Change::Gone(named.metadata.name))
        }
        // A watch that is too old, or that the server gave up, is begun anew with a list.
        "ERROR" => None,
        _ => Some(Change::Nothing),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LEASE: &str = r#"{"metadata":{"name":"apiserver-a","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}},"spec":{"holderIdentity":"x"}}"#;

    #[test]
    fn a_list_is_read_without_what_is_no_identity_lease() {
        let text = format!(
            r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{LEASE},{{"metadata":{{"labels":7}}}},{{}},7]}}"#
        );
        let list = read_list(text.as_bytes()).unwrap();
        assert_eq!((list.leases.len(), list.version.as_str()), (1, "7"));
        let empty = read_list(br#"{"metadata":{"resourceVersion":"7"},"items":null}"#).unwrap();
        assert!(empty.leases.is_empty());
        assert!(read_list(b"{}").is_err());
    }

    #[tokio::test]
    async fn a_watch_is_read_line_by_line_however_it_is_cut() {
        let lines = format!(
            "{{\"type\":\"ADDED\",\"object\":{LEASE}}}\n{{\"type\":\"BOOKMARK\",\"object\":{{}}}}\n\
             {{\"type\":\"MODIFIED\",\"object\":{{}}}}\n{{\"type\":\"DELETED\",\"object\":{LEASE}}}\n"
        );
        let (mut sender, body) = peerage_http::channel(64);
        let writer = tokio::spawn(async move {
            for part in lines.into_bytes().chunks(7) {
                sender
                    .send_data(Bytes::copy_from_slice(part))
                    .await
                    .unwrap();
            }
        });
        let mut lines = Lines {
            body,
            buffer: BytesMut::new(),
        };
        let mut kinds = Vec::new();
        while let Some(change) = lines.next().await.unwrap() {
            kinds.push(match change {
                Change::Is(lease) => format!("is {}", lease.id),
                Change::Gone(name) => format!("gone {name}"),
                Change::Nothing => "nothing".to_owned(),
                Change::Unusable => "unusable".to_owned(),
            });
        }
        writer.await.unwrap();
        assert_eq!(
            kinds,
            ["is apiserver-a", "nothing", "unusable", "gone apiserver-a"]
        );
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_given_up() {
        let (mut sender, body) = peerage_http::channel(64);
        let writer = tokio::spawn(async move {
            while sender
                .send_data(Bytes::from(vec![b'x'; 64 << 10]))
                .await
                .is_ok()
            {}
        });
        let mut lines = Lines {
            body,
            buffer: BytesMut::new(),
        };
        assert!(matches!(lines.next().await, Err(AskError::TooLong)));
        drop(lines);
        writer.await.unwrap();
    }
}
