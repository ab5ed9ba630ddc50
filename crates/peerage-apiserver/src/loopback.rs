//! This server as its own client: requests of its controllers, through the proxy and the local handlers, so that
//! they reach what only a peer serves too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use peerage_core::{RequestInfo, User};
use peerage_http::{HttpService, Request};
use serde_json::Value;
use tower::Service as _;

/// The user that a kube-apiserver's own requests run as.
const USER: &str = "system:apiserver";
/// Largest answer that is read.
const LIMIT: usize = 64 << 20;
const PAUSE: Duration = Duration::from_secs(30);
/// Longest time that a request may take until its answer begins; as for anybody else's.
const DEADLINE: Duration = Duration::from_secs(60);

/// A request of this server to itself failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoopbackError {
    /// The path cannot be asked for.
    #[error("{0:?} is no path that can be asked for")]
    Path(String),
    /// The answer could not be read.
    #[error("the answer to {method} {path} could not be read: {reason}")]
    Answer {
        method: Method,
        path: String,
        reason: String,
    },
    /// The answer was a failure.
    #[error("{method} {path}: {code} {message}")]
    Refused {
        method: Method,
        path: String,
        code: StatusCode,
        message: String,
    },
}

impl LoopbackError {
    /// The status of the answer, if there was one.
    pub(crate) fn code(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(StatusCode::NOT_FOUND)
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.code() == Some(StatusCode::CONFLICT)
    }
}

/// A client of this server inside of it.
#[derive(Clone)]
pub(crate) struct Loopback {
    service: HttpService,
    user: Arc<User>,
}

impl Loopback {
    /// `service` is what comes after authorization.
    pub(crate) fn new(service: HttpService) -> Self {
        let groups = [crate::authz::SYSTEM_MASTERS, "system:authenticated"];
        Self {
            service,
            user: Arc::new(User::new(USER, groups)),
        }
    }

    /// Sends a request and reads the JSON answer; a status of 400 or more is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<Value>,
    ) -> Result<Value, LoopbackError> {
        let bad_path = |_| LoopbackError::Path(path.to_owned());
        let info = RequestInfo::parse(method.as_str(), path)
            .map_err(|_| LoopbackError::Path(path.to_owned()))?;
        let bytes = body.map(|b| Bytes::from(b.to_string())).unwrap_or_default();
        let mut request = Request::new(peerage_http::full(bytes));
        *request.uri_mut() = path.parse().map_err(bad_path)?;
        request
            .headers_mut()
            .insert(header::ACCEPT, header::HeaderValue::from_static(accept));
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/json"),
        );
        *request.method_mut() = method.clone();
        request.extensions_mut().insert(Arc::new(info.into_owned()));
        request.extensions_mut().insert(self.user.clone());
        // It is always ready: nothing behind it has a queue of its own.
        let mut service = self.service.clone();
        let answer = tokio::time::timeout(DEADLINE, service.call(request)).await;
        let unreadable = |reason: String| LoopbackError::Answer {
            method: method.clone(),
            path: path.to_owned(),
            reason,
        };
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => return Err(unreadable(format!("it did not come within {DEADLINE:?}"))),
        };
        let code = response.status();
        let bytes = peerage_http::body::collect(response.into_body(), LIMIT, PAUSE)
            .await
            .map_err(|e| unreadable(e.to_string()))?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if code.as_u16() < 400 {
            return Ok(value);
        }
        let message = value["message"].as_str().unwrap_or_default().to_owned();
        Err(LoopbackError::Refused {
            method,
            path: path.to_owned(),
            code,
            message,
        })
    }
}
