//! Request targets with a `#`, which the HTTP library cuts off there before anybody sees them.
//!
//! A target has no fragment (RFC 9112, 3.2; RFC 9113, 8.3.1), and Kubernetes takes what follows a `#` for more of the
//! name or of the query. Without it, `DELETE …/configmaps/#x` would delete the collection, and `…?x=y#z&dryRun=All` would
//! be no dry run. So this reads along what arrives, beside the library, and remembers what is left of such targets:
//! whatever asks for that on the same connection is refused, soon after over HTTP/2 and for ever over HTTP/1.1, where a
//! refusal ends the connection.
//!
//! Over HTTP/1.1 it looks at lines with a `#` that end like a request line, wherever they are: a line of a body that
//! does costs a client who asks for just that nothing but a refusal. Over HTTP/2 it follows header blocks ([`headers`]).
//!
//! Differs: kube-apiserver serves such targets.
//!
//! Invariants: what is read along is never changed or held back; memory has a bound; a connection that cannot be followed
//! ends with an error.

mod frames;
mod headers;
mod huffman;
mod lines;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Uri;

use frames::Frames;
use lines::Lines;

/// Cut targets that are remembered of a connection, and octets of them. Nobody has use for so many; a log in the body of a
/// request over HTTP/1.1 may have some.
const MOST: usize = 1024;
const MOST_OCTETS: usize = 1 << 20;

/// How long one is remembered over HTTP/2, where the library hands a request on as soon as it is there.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What all clients of HTTP/2 send first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The cut targets of a connection.
#[derive(Default)]
pub(super) struct Cut {
    any: AtomicBool,
    targets: Mutex<Vec<Left>>,
}

/// What is left of a target, and until when that is remembered; for ever if nothing says.
struct Left(Box<[u8]>, Option<Instant>);

impl Left {
    fn is_due(&self, now: Instant) -> bool {
        self.1.is_none_or(|until| now < until)
    }
}

impl Cut {
    /// Whether this may be what is left of a target.
    pub(super) fn is_cut(&self, uri: &Uri) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        targets.retain(|it| it.is_due(now));
        targets.iter().any(|it| *it.0 == *target.as_bytes())
    }

    /// Remembers what the library makes of a target, if it cuts it.
    fn note(&self, target: &[u8], until: Option<Instant>) -> io::Result<()> {
        let Some(at) = target.iter().position(|byte| *byte == b'#') else {
            return Ok(());
        };
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        targets.retain(|it| it.is_due(now));
        let octets: usize = targets.iter().map(|it| it.0.len()).sum();
        if targets.len() >= MOST || octets + at > MOST_OCTETS {
            return Err(io::Error::other("too many request targets with a `#`"));
        }
        targets.push(Left(path_and_query(&target[..at]).into(), until));
        self.any.store(true, Ordering::Release);
        Ok(())
    }
}

/// The path and query of a target that may name a scheme and a host.
fn path_and_query(target: &[u8]) -> &[u8] {
    let host = target.windows(3).position(|it| it == b"://");
    let target = match host.filter(|_| !target.starts_with(b"/")) {
        Some(at) => {
            let rest = &target[at + 3..];
            let path = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
            &rest[path.unwrap_or(rest.len())..]
        }
        None => target,
    };
    match target {
        [] => b"/",
        target => target,
    }
}

/// What a connection speaks.
enum Speaks {
    /// The preface will tell; so much of it has been read.
    Unknown(usize),
    Http1(Lines),
    Http2(Box<Frames>),
}

/// Reads along.
pub(super) struct Targets {
    cut: Arc<Cut>,
    speaks: Speaks,
}

impl Targets {
    /// Of a connection of which it is known what it speaks, or not.
    pub(super) fn new(cut: Arc<Cut>, http2: Option<bool>) -> Self {
        let speaks = match http2 {
            None => Speaks::Unknown(0),
            Some(false) => Speaks::Http1(Lines::default()),
            Some(true) => Speaks::Http2(Box::default()),
        };
        Self { cut, speaks }
    }

    /// These bytes have arrived.
    ///
    /// # Errors
    /// If the connection cannot be followed and has to end.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if let Speaks::Unknown(known) = self.speaks {
            let expected = &PREFACE[known..];
            let length = expected.len().min(bytes.len());
            if expected[..length] == bytes[..length] {
                self.speaks = match length == expected.len() {
                    true => Speaks::Http2(Box::new(Frames::behind_the_preface())),
                    false => Speaks::Unknown(known + length),
                };
                bytes = &bytes[length..];
            } else {
                let mut lines = Lines::default();
                lines.read(&PREFACE[..known], &mut |_| Ok(()))?;
                self.speaks = Speaks::Http1(lines);
            }
        }
        let cut = &self.cut;
        match &mut self.speaks {
            Speaks::Unknown(_) => Ok(()),
            Speaks::Http1(lines) => lines.read(bytes, &mut |target| cut.note(target, None)),
            Speaks::Http2(frames) => frames.read(bytes, &mut |target| {
                cut.note(target, Some(Instant::now() + REMEMBERED))
            }),
        }
    }
}

#[cfg(test)]
mod tests;
