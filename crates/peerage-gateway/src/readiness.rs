//! Whether a gateway is ready, and what it says of it: in a line for everybody, and to who runs it of each server.

use std::fmt::Write as _;

use peerage_core::shown::one_line;
use peerage_proxy::PeerProxy;
use tokio_util::sync::CancellationToken;

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
    let peers = proxy.debug().peers.into_iter();
    let unusable = peers.filter(|peer| peer.state != "serving");
    unusable
        .map(|peer| {
            let said = peer.error.map_or(peer.why, |it| it.message);
            format!("{}: {said}", peer.id)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
