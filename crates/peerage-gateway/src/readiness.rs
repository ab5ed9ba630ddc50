//! Whether a gateway is ready, and what it says of it: in a line for everybody, and to who runs it of each server, when
//! that is asked and, whenever it changes, in the log.

use std::fmt::Write as _;
use std::net::SocketAddr;

use peerage_core::shown::one_line;
use peerage_proxy::PeerProxy;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Servers of which it is said why they cannot be used.
const TROUBLES: usize = 8;

/// Why a gateway is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    /// It is stopping: it says so from the first moment.
    Stopping,
    /// Some server was neither heard nor given up since the start.
    Unheard,
    /// No server can be used.
    NoneUsable,
}

impl Unready {
    /// None if it is ready. Anybody may ask a balancer, as often as they like, so this costs next to nothing.
    pub(crate) fn of(stop: &CancellationToken, proxy: &PeerProxy) -> Option<Self> {
        if stop.is_cancelled() {
            return Some(Unready::Stopping);
        }
        if !proxy.view().synced() {
            return Some(Unready::Unheard);
        }
        (!proxy.has_usable_peer()).then_some(Unready::NoneUsable)
    }

    /// In one line, for everybody.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Unready::Stopping => "this gateway is stopping\n",
            Unready::Unheard => {
                "not every server behind this gateway has said yet what it serves\n"
            }
            Unready::NoneUsable => "no server behind this gateway can be used\n",
        }
    }

    /// With a line for each server that cannot be used, for who runs the gateway.
    pub(crate) fn with_details(self, troubles: &[String]) -> String {
        let mut text = self.text().to_owned();
        for trouble in troubles.iter().take(TROUBLES) {
            let trouble: String = trouble.chars().take(400).collect();
            text.push_str(&one_line(&trouble));
            text.push('\n');
        }
        if let Some(more @ 1..) = troubles.len().checked_sub(TROUBLES) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "and {more} more");
        }
        text
    }
}

/// What is wrong with each server that cannot be used.
pub(crate) fn troubles(proxy: &PeerProxy) -> Vec<String> {
    let missing = missing(proxy).into_iter();
    missing.map(|it| format!("{}: {}", it.id, it.why)).collect()
}

/// A server that cannot be used.
#[derive(Debug)]
struct Missing {
    id: String,
    /// What kind of trouble that is: it stays the same while the words about it change.
    kind: &'static str,
    why: String,
}

fn missing(proxy: &PeerProxy) -> Vec<Missing> {
    let debug = proxy.debug();
    let unusable = debug.peers.into_iter().filter(|it| it.state != "serving");
    let unusable = unusable.map(|peer| {
        let (kind, why) = match peer.error {
            Some(error) => (error.reason, error.message),
            None => (peer.state, peer.why),
        };
        let id = peer.id;
        Missing { id, kind, why }
    });
    // Another address of a server that counts is not missing.
    let aside = debug
        .aside
        .into_iter()
        .filter(|it| it.kind != "same_server");
    let aside = aside.map(|it| Missing {
        id: it.id,
        kind: it.kind,
        why: it.error.unwrap_or(it.why),
    });
    unusable.chain(aside).collect()
}

/// What the log was told last; nothing to begin with.
#[derive(Default)]
struct Told(Option<State>);

/// Whether the gateway is ready, and if not, who is missing and what kind of trouble each has.
type State = Option<(Unready, Vec<(String, &'static str)>)>;

impl Told {
    /// Whether this is news.
    fn is_news(&mut self, unready: Option<Unready>, missing: &[Missing]) -> bool {
        let state = unready.map(|unready| {
            let missing = missing.iter().map(|it| (it.id.clone(), it.kind));
            (unready, missing.collect())
        });
        let is_news = self.0.as_ref() != Some(&state);
        self.0 = Some(state);
        is_news
    }
}

/// Tells the log whenever it changes whether the gateway is ready, until it stops or ends: the proxy that is followed
/// lives on in this task.
pub(crate) async fn tell(
    proxy: PeerProxy,
    address: SocketAddr,
    stop: CancellationToken,
    life: CancellationToken,
) {
    let mut views = proxy.views();
    let mut told = Told::default();
    loop {
        let unready = Unready::of(&stop, &proxy);
        let missing = match unready {
            Some(Unready::Stopping) => return,
            Some(_) => missing(&proxy),
            None => Vec::new(),
        };
        if told.is_news(unready, &missing) {
            let lines = missing.iter().map(|it| format!("{}: {}", it.id, it.why));
            let lines: Vec<String> = lines.collect();
            let why = unready.map(|it| it.with_details(&lines).trim_end().replace('\n', "; "));
            match (unready, why) {
                (Some(Unready::Unheard), Some(why)) => info!(%address, why, "not ready yet"),
                (_, Some(why)) => warn!(%address, why, "not ready"),
                (_, None) => info!(%address, "ready"),
            }
        }
        match life.run_until_cancelled(views.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_other_words_for_the_same_are_none() {
        let missing = |id: &str, kind, why: &str| Missing {
            id: id.to_owned(),
            kind,
            why: why.to_owned(),
        };
        let refused = |why| [missing("a", "refused", why)];
        let (unheard, none) = (Some(Unready::Unheard), Some(Unready::NoneUsable));
        let mut told = Told::default();
        let news = [
            (unheard, &refused("1 attempt failed")[..], true),
            (unheard, &refused("2 attempts failed"), false),
            (none, &refused("2 attempts failed"), true),
            (none, &[missing("a", "tls_expired", "it ended")], true),
            (none, &[missing("b", "tls_expired", "it ended")], true),
            (none, &[missing("b", "tls_expired", "it ended")], false),
            (None, &[], true),
            (None, &[], false),
            (none, &refused("5 attempts failed"), true),
        ];
        for (at, (unready, missing, is_news)) in news.into_iter().enumerate() {
            assert_eq!(told.is_news(unready, missing), is_news, "{at}");
        }
    }

    #[test]
    fn who_runs_the_gateway_is_told_what_is_wrong_with_each_server() {
        let troubles = [
            "a: it answered 401".to_owned(),
            "b: no\n\u{1b}c\u{202e}".to_owned(),
        ];
        let unready = Unready::NoneUsable;
        assert_eq!(
            unready.with_details(&troubles),
            "no server behind this gateway can be used\na: it answered 401\nb: no \\u{1b}c\\u{202e}\n"
        );
        let many = vec!["it is away".to_owned(); TROUBLES + 2];
        let details = Unready::Unheard.with_details(&many);
        assert_eq!(details.lines().count(), 1 + TROUBLES + 1);
        assert!(details.ends_with("it is away\nand 2 more\n"), "{details}");
        assert_eq!(
            unready.text(),
            "no server behind this gateway can be used\n"
        );
    }
}
