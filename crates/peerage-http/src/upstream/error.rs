//! Why a request did not get an answer, whose fault it was, and whether it may be sent elsewhere.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustls::pki_types::CertificateDer;

use super::interim::TOO_MANY;
use crate::tls::{names, words};
use crate::{BoxError, Request};

/// How far a request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It cannot be sent over this kind of connection at all.
    Request,
    /// It waited for a free connection.
    Queue,
    /// The server's name was looked up.
    Resolve,
    /// The TCP connection was made.
    Connect,
    /// The TLS handshake ran.
    Tls,
    /// The HTTP connection was set up.
    Handshake,
    /// It was being sent.
    Send,
    /// Its answer was awaited.
    Response,
    /// Its answer did not begin in time.
    Timeout,
}

/// A request without an answer.
pub struct SendError {
    stage: Stage,
    cause: Cause,
    address: String,
    sent: bool,
    connection: Option<u64>,
    /// Locked only so that the error can be shared: bodies cannot.
    request: Mutex<Option<Box<Request>>>,
    source: Option<BoxError>,
}

/// What went wrong. The variants' labels are the values of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    NotForwarded,
    NoUpgrade,
    Saturated,
    Address,
    Resolve,
    Refused,
    ConnectTimeout,
    Unreachable,
    TlsTimeout,
    TlsName,
    TlsIssuer,
    TlsExpired,
    TlsRejected,
    NoTls,
    TlsOther,
    Handshake,
    Closed,
    PingTimeout,
    GoAway,
    RefusedStream,
    Reset,
    BadAnswer,
    EndedHere,
    RequestBody,
    FirstByte,
}

impl Cause {
    pub(crate) fn stage(self) -> Stage {
        match self {
            Cause::NotForwarded | Cause::NoUpgrade => Stage::Request,
            Cause::Saturated => Stage::Queue,
            Cause::Address | Cause::Resolve => Stage::Resolve,
            Cause::Refused | Cause::ConnectTimeout | Cause::Unreachable => Stage::Connect,
            Cause::TlsTimeout | Cause::TlsName | Cause::TlsIssuer => Stage::Tls,
            Cause::TlsExpired | Cause::TlsRejected => Stage::Tls,
            Cause::NoTls | Cause::TlsOther => Stage::Tls,
            Cause::Handshake => Stage::Handshake,
            Cause::RequestBody => Stage::Send,
            Cause::Closed | Cause::PingTimeout | Cause::GoAway => Stage::Response,
            Cause::EndedHere => Stage::Response,
            Cause::RefusedStream | Cause::Reset | Cause::BadAnswer => Stage::Response,
            Cause::FirstByte => Stage::Timeout,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Cause::NotForwarded => "not_forwarded",
            Cause::NoUpgrade => "no_upgrade",
            Cause::Saturated => "saturated",
            Cause::Address => "bad_address",
            Cause::Resolve => "resolve",
            Cause::Refused => "connect_refused",
            Cause::ConnectTimeout => "connect_timeout",
            Cause::Unreachable => "connect",
            Cause::TlsTimeout => "tls_timeout",
            Cause::TlsName => "tls_name",
            Cause::TlsIssuer => "tls_issuer",
            Cause::TlsExpired => "tls_expired",
            Cause::TlsRejected => "tls_rejected",
            Cause::NoTls => "no_tls",
            Cause::TlsOther => "tls",
            Cause::Handshake => "handshake",
            Cause::Closed => "closed",
            Cause::PingTimeout => "ping_timeout",
            Cause::GoAway => "goaway",
            Cause::RefusedStream => "refused_stream",
            Cause::Reset => "reset",
            Cause::BadAnswer => "bad_answer",
            Cause::EndedHere => "ended_here",
            Cause::RequestBody => "request_body",
            Cause::FirstByte => "first_byte_timeout",
        }
    }

    /// What happened, to be followed by the address.
    fn text(self) -> &'static str {
        match self {
            Cause::NotForwarded => "requests of this kind are not forwarded to",
            Cause::NoUpgrade => "only SPDY and WebSocket upgrades are forwarded to",
            Cause::Saturated => "too many requests wait for a connection to",
            Cause::Address => "this is no address that a request could name:",
            Cause::Resolve => "no address was found for",
            Cause::Refused => "nobody accepts connections at",
            Cause::ConnectTimeout => "no connection in time to",
            Cause::Unreachable => "no connection to",
            Cause::TlsTimeout => "no TLS handshake in time with",
            Cause::TlsName => "the certificate has not the expected name: that of",
            Cause::TlsIssuer => "the certificate is not from a trusted CA: that of",
            Cause::TlsExpired => "the certificate is not valid at this time: that of",
            Cause::TlsRejected => "the TLS handshake was refused by",
            Cause::NoTls => "no TLS is spoken (is it the port of HTTPS?) by",
            Cause::TlsOther => "the TLS handshake failed with",
            Cause::Handshake => "no HTTP connection to",
            Cause::Closed => "the connection ended before the answer from",
            Cause::PingTimeout => "no sign of life from",
            Cause::GoAway => "the connection was about to be closed by",
            Cause::RefusedStream => "the request was turned away by",
            Cause::Reset => "the request was cancelled by",
            Cause::BadAnswer => "the answer cannot be understood: that of",
            Cause::EndedHere => "our own side ended the connection to",
            Cause::RequestBody => "the request's body broke off on its way to",
            Cause::FirstByte => "no answer in time from",
        }
    }

    /// See [`SendError::is_silence`]. Names every cause, so that a new one has to be thought about.
    fn is_silence(self) -> bool {
        match self {
            Cause::NotForwarded | Cause::NoUpgrade | Cause::RequestBody => false,
            Cause::Reset | Cause::RefusedStream | Cause::GoAway | Cause::BadAnswer => false,
            Cause::EndedHere | Cause::FirstByte | Cause::Saturated => false,
            Cause::Address | Cause::Resolve => true,
            Cause::Refused | Cause::ConnectTimeout | Cause::Unreachable => true,
            Cause::TlsTimeout | Cause::TlsName | Cause::TlsIssuer | Cause::TlsExpired => true,
            Cause::TlsRejected | Cause::NoTls | Cause::TlsOther | Cause::Handshake => true,
            Cause::Closed | Cause::PingTimeout => true,
        }
    }

    /// Whether the server certainly has not begun to act on the request.
    pub(crate) fn is_unprocessed(self) -> bool {
        use Stage::{Connect, Handshake, Queue, Request, Resolve, Tls};
        matches!(self, Cause::GoAway | Cause::RefusedStream)
            || matches!(
                self.stage(),
                Request | Queue | Resolve | Connect | Tls | Handshake
            )
    }
}

impl SendError {
    pub(crate) fn new(cause: Cause, address: &str, source: Option<BoxError>) -> Self {
        Self {
            stage: cause.stage(),
            cause,
            address: address.to_owned(),
            sent: false,
            connection: None,
            request: Mutex::default(),
            source,
        }
    }

    pub(crate) fn with_sent(mut self, sent: bool) -> Self {
        self.sent = sent;
        self
    }

    pub(crate) fn with_request(mut self, request: Option<Request>) -> Self {
        self.request = Mutex::new(request.map(Box::new));
        self
    }

    pub(crate) fn with_connection(mut self, connection: u64) -> Self {
        self.connection = Some(connection);
        self
    }

    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// How far the request got.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// A short word for metrics, from a fixed set.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.cause.label()
    }

    /// Whether the server may have seen, and acted on, the request.
    #[must_use]
    pub fn sent(&self) -> bool {
        self.sent
    }

    /// The number of the connection that this happened on, or of the attempt at one that failed. One that breaks fails all
    /// requests on it, or waiting for it, at once: their errors have the same number, and no other has it.
    #[must_use]
    pub fn connection(&self) -> Option<u64> {
        self.connection
    }

    /// The request as it was given, if it does no harm to send it elsewhere: the server has not acted on it, or
    /// its method is safe; and its body can be had again.
    pub fn take_request(&mut self) -> Option<Request> {
        let request = self.request.get_mut();
        let request = request.unwrap_or_else(PoisonError::into_inner).take();
        request.map(|request| *request)
    }

    /// Whether the failure says that the server cannot be reached. One that resets a stream, or whose answer makes no
    /// sense, is there, and one client's odd request must not take it away from all others.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        self.cause.is_silence()
    }

    /// Whether whoever answers there showed somebody else's certificate, and how one can tell.
    #[must_use]
    pub fn stranger(&self) -> Option<Stranger> {
        match self.cause {
            Cause::TlsName => Some(Stranger::Name),
            Cause::TlsIssuer => Some(Stranger::Issuer),
            _ => None,
        }
    }

    /// What is wrong with that certificate.
    #[must_use]
    pub fn strangers_certificate(&self) -> Option<String> {
        let source = self.source.as_ref();
        source
            .filter(|_| self.stranger().is_some())
            .map(ToString::to_string)
    }

    /// Whether the request or its sender is to blame, and neither the server nor the way to it: it is of a kind that is
    /// not sent on, or its body broke off before its end. Another server would not fare better.
    #[must_use]
    pub fn is_senders_fault(&self) -> bool {
        matches!(
            self.cause,
            Cause::NotForwarded | Cause::NoUpgrade | Cause::RequestBody
        )
    }
}

/// By what a certificate is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It is for another name.
    Name,
    /// It is another authority's.
    Issuer,
}

/// Without the request's headers, which may name credentials.
impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("cause", &self.cause)
            .field("address", &self.address)
            .field("sent", &self.sent)
            .field("connection", &self.connection)
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cause.text(), self.address)?;
        match &self.source {
            // What the certificates are is what has to be known to mend it.
            Some(source) if self.stage == Stage::Tls => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // That of a handshake is said already.
        let source = self.source.as_deref().filter(|_| self.stage != Stage::Tls);
        source.map(|source| source as _)
    }
}

/// What a failed handshake says about the two certificates.
pub(crate) fn tls_cause(error: &io::Error) -> Cause {
    use rustls::CertificateError as C;
    let inner = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            C::NotValidForName | C::NotValidForNameContext { .. } => Cause::TlsName,
            // Two authorities with one name differ in their signatures only.
            C::UnknownIssuer | C::BadSignature => Cause::TlsIssuer,
            C::Expired
            | C::ExpiredContext { .. }
            | C::NotValidYet
            | C::NotValidYetContext { .. } => Cause::TlsExpired,
            _ => Cause::TlsOther,
        },
        Some(rustls::Error::AlertReceived(_)) => Cause::TlsRejected,
        Some(rustls::Error::InvalidMessage(_)) => Cause::NoTls,
        _ => Cause::TlsOther,
    }
}

/// What has to be known of the two sides to mend it.
pub(crate) fn tls_detail(
    cause: Cause,
    error: &io::Error,
    expected: &str,
    doubted: Option<&CertificateDer<'_>>,
) -> String {
    match (cause, doubted) {
        (Cause::TlsName, Some(doubted)) => {
            format!("it is for {}, not for {expected:?}", names::hosts(doubted))
        }
        (Cause::TlsIssuer, Some(doubted)) => format!(
            "it was issued by {}, which the CA file does not vouch for",
            names::issuer(doubted)
        ),
        _ => {
            let inner = error.get_ref();
            let refusal = inner.and_then(|it| it.downcast_ref::<rustls::Error>());
            refusal.map_or_else(|| error.to_string(), words::of_error)
        }
    }
}

/// What hyper's error about a request on an established connection means, its body having broken off or not.
///
/// hyper calls its own failures those of its user, too: that its task went away with the connection, or that it reset a
/// stream. Whether the client is to blame, only who reads the client's body can tell.
pub(crate) fn exchange_cause(error: &hyper::Error, body_broke: bool) -> Cause {
    let mut sources =
        std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |e| {
            e.source()
        });
    let is_too_many = |e: &io::Error| e.kind() == TOO_MANY;
    if error.is_timeout() {
        return Cause::PingTimeout;
    }
    if sources
        .clone()
        .filter_map(|e| e.downcast_ref())
        .any(is_too_many)
    {
        return Cause::BadAnswer;
    }
    let h2 = sources.find_map(|e| e.downcast_ref::<h2::Error>());
    let our_own = match body_broke || error.is_body_write_aborted() {
        true => Cause::RequestBody,
        false => Cause::EndedHere,
    };
    match h2 {
        Some(h2)
            if h2.is_go_away() && h2.is_remote() && h2.reason() == Some(h2::Reason::NO_ERROR) =>
        {
            Cause::GoAway
        }
        Some(h2) if h2.is_reset() && h2.is_remote() => match h2.reason() {
            Some(h2::Reason::REFUSED_STREAM) => Cause::RefusedStream,
            _ => Cause::Reset,
        },
        // Our own library resets what breaks the protocol, hyper what its user gave up.
        Some(h2) if h2.is_reset() && h2.is_library() => Cause::BadAnswer,
        Some(h2) if h2.is_reset() => our_own,
        Some(h2) if h2.is_go_away() && h2.is_library() => match h2.reason() {
            Some(h2::Reason::ENHANCE_YOUR_CALM) => Cause::EndedHere,
            _ => Cause::BadAnswer,
        },
        _ if error.is_user() => our_own,
        _ if error.is_parse() => Cause::BadAnswer,
        _ => Cause::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_says_of_a_server_does_not_hang_on_the_words_of_metrics() {
        let error = |cause| SendError::new(cause, "server:6443", None);
        for cause in [
            Cause::Reset,
            Cause::RefusedStream,
            Cause::GoAway,
            Cause::BadAnswer,
            Cause::EndedHere,
            Cause::FirstByte,
            Cause::Saturated,
            Cause::RequestBody,
            Cause::NotForwarded,
        ] {
            assert!(!error(cause).is_silence(), "{cause:?}");
        }
        for cause in [
            Cause::Refused,
            Cause::Closed,
            Cause::PingTimeout,
            Cause::TlsName,
        ] {
            assert!(error(cause).is_silence(), "{cause:?}");
        }
        let strangers = [
            (Cause::TlsName, Some(Stranger::Name)),
            (Cause::TlsIssuer, Some(Stranger::Issuer)),
            (Cause::TlsExpired, None),
            (Cause::TlsRejected, None),
        ];
        for (cause, is) in strangers {
            assert_eq!(error(cause).stranger(), is, "{cause:?}");
        }
    }
}
