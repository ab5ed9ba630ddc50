//! What servers count: requests that were rerouted, and what went wrong with them, since each started.

use super::report::Item;
use super::rights;
use super::series::sum;
use super::world::{Server, World, good};

const CHECK: &str = "rerouted";

/// Judges the counters of every server that shows any.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let servers = world.servers.iter().filter_map(judge_server);
    let gateways = world.gateways.iter().filter_map(|gateway| {
        let answer = good(&gateway.metrics).ok()?;
        let text = String::from_utf8_lossy(&answer.body);
        Some(judge_text(&gateway.url, &text))
    });
    servers.chain(gateways).collect()
}

fn judge_server(server: &Server) -> Option<Item> {
    let name = &server.name;
    let text = match good(&server.answers()?.metrics) {
        Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
        Err(problem) => return Some(rights::unread(CHECK, name, rights::METRICS, &problem)),
    };
    Some(judge_text(name, &text))
}

fn judge_text(name: &str, text: &str) -> Item {
    const REROUTED: &str = "apiserver_rerouted_request_total";
    let count = |metric: &str| sum(text, metric, |_| true).unwrap_or_default();
    let failed = sum(text, REROUTED, |it| it.label("code").starts_with('5')).unwrap_or_default();
    let all = sum(text, REROUTED, |_| true);
    let proxy = count("apiserver_peer_proxy_errors_total");
    let sync = count("apiserver_peer_discovery_sync_errors_total");
    let unknown = count("peerage_proxy_guard_ignored_total");
    let Some(all) = all else {
        return Item::pass(CHECK, name, "nothing rerouted since it started");
    };
    let mut says = vec![format!("{all} rerouted since it started")];
    // While a server starts, its peers cannot be found yet: a few of these are usual.
    if sync > 0.0 {
        says.push(format!("{sync} failed fetches of a peer's discovery"));
    }
    if unknown > 0.0 {
        says.push(format!("{unknown} with a peer's header from somebody else"));
    }
    if failed + proxy == 0.0 {
        return Item::pass(CHECK, name, says.join(", "));
    }
    says.push(format!("{failed} answered 5xx, {proxy} proxy errors"));
    Item::warn(CHECK, name, says.join(", ")).fix(
        "if the numbers grow (--watch), see what is said of the peers' ports and Leases; if not, a server was away for a while",
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn errors_are_told_and_a_start_is_no_error() {
        for (text, verdict, says) in [
            ("", Verdict::Pass, "nothing rerouted"),
            (
                "apiserver_rerouted_request_total{code=\"200\"} 3\napiserver_peer_discovery_sync_errors_total{type=\"hostport_resolution\"} 2\n",
                Verdict::Pass,
                "3 rerouted since it started, 2 failed fetches",
            ),
            (
                "apiserver_rerouted_request_total{code=\"200\"} 3\napiserver_rerouted_request_total{code=\"503\"} 2\n",
                Verdict::Warn,
                "2 answered 5xx, 0 proxy errors",
            ),
            (
                "apiserver_rerouted_request_total{code=\"200\"} 3\napiserver_peer_proxy_errors_total{type=\"x\"} 1\n",
                Verdict::Warn,
                "0 answered 5xx, 1 proxy errors",
            ),
        ] {
            let item = judge_text("old", text);
            assert_eq!(item.verdict, verdict, "{item:?}");
            assert!(item.says.contains(says), "{item:?}");
        }
    }
}
