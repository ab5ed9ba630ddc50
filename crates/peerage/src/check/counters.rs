//! What servers count: requests that were rerouted, and what went wrong with them.
//!
//! Counters are totals since a server's start, so one look at them is a statement and no verdict: what went wrong may
//! have been last week's. Whoever looks again (`--watch`) is told what went wrong in between, and that is judged.

use std::collections::BTreeMap;

use super::report::Item;
use super::rights;
use super::series::sum;
use super::world::{Got, Problem, World, good};
use crate::output::counted;

const CHECK: &str = "rerouted";
const THROUGH: &str = "a gateway, through which the counters of a server behind it are read; its own are at its --admin-bind-address (--gateway)";

/// What servers and gateways had counted when they were last looked at, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted(BTreeMap<String, Counts>);

impl Counted {
    /// Takes what was counted by now. Of those who did not tell now, what they told last stays.
    pub(super) fn take(&mut self, world: &World) {
        let told = sources(world).filter_map(|(name, metrics)| {
            let answer = good(metrics).ok()?;
            let counts = Counts::read(&String::from_utf8_lossy(&answer.body));
            Some((name.to_owned(), counts))
        });
        self.0.extend(told);
    }
}

/// The counters of one server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// Requests that were sent on.
    rerouted: f64,
    /// Those of them that were answered 5xx.
    failed: f64,
    /// Requests that could not be sent on.
    errors: f64,
    /// Documents of peers that could not be had.
    fetches: f64,
    /// Requests that said to come from a peer and did not.
    strangers: f64,
}

impl Counts {
    fn read(text: &str) -> Self {
        const REROUTED: &str = "apiserver_rerouted_request_total";
        let all = |metric: &str| sum(text, metric, |_| true).unwrap_or_default();
        let failed = sum(text, REROUTED, |it| it.label("code").starts_with('5'));
        Self {
            rerouted: all(REROUTED),
            failed: failed.unwrap_or_default(),
            errors: all("apiserver_peer_proxy_errors_total"),
            fetches: all("apiserver_peer_discovery_sync_errors_total"),
            strangers: all("peerage_proxy_guard_ignored_total"),
        }
    }

    fn each(self) -> [f64; 5] {
        let Self {
            rerouted,
            failed,
            errors,
            fetches,
            strangers,
        } = self;
        [rerouted, failed, errors, fetches, strangers]
    }

    /// How much was added since; none if the server was started again in between, which sets all to nothing.
    fn since(self, before: Self) -> Option<Self> {
        let mut pairs = self.each().into_iter().zip(before.each());
        let added = Self {
            rerouted: self.rerouted - before.rerouted,
            failed: self.failed - before.failed,
            errors: self.errors - before.errors,
            fetches: self.fetches - before.fetches,
            strangers: self.strangers - before.strangers,
        };
        pairs.all(|(now, before)| now >= before).then_some(added)
    }

    fn went_wrong(self) -> bool {
        self.failed + self.errors + self.fetches > 0.0
    }

    fn in_words(self) -> String {
        let Self {
            rerouted, failed, ..
        } = self;
        let mut says = vec![
            format!("{rerouted} rerouted"),
            format!("{failed} answered 5xx"),
        ];
        let rest = [
            (self.errors, "proxy error", ""),
            (self.fetches, "failed fetch", " of a peer's discovery"),
            (
                self.strangers,
                "request",
                " with a peer's header from somebody else",
            ),
        ];
        let rest = rest.into_iter().filter(|(count, ..)| *count > 0.0);
        says.extend(rest.map(|(count, what, of)| counted(count, what) + of));
        says.join(", ")
    }
}

/// Who shows counters, and what came when they were asked for. What a gateway's clients read through it are those of a
/// server behind it, now of one and now of another.
fn sources(world: &World) -> impl Iterator<Item = (&str, &Got)> {
    let servers = world
        .answering()
        .filter(|it| !it.is_gateway())
        .filter_map(|it| Some((&*it.name, &it.answers()?.metrics)));
    let gateways = world.gateways.iter().map(|it| (&*it.url, &it.metrics));
    servers.chain(gateways)
}

/// Judges the counters of every server that shows any.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let is_gateway = |name: &str| world.gateways.iter().any(|it| it.url == name);
    let item = |(name, metrics): (&str, &Got)| match good(metrics) {
        Ok(answer) => {
            let now = Counts::read(&String::from_utf8_lossy(&answer.body));
            let before = world.before.0.get(name).copied();
            Some(judge_counts(name, now, before).of_numbers())
        }
        // What is said of a gateway's own address is said where its readiness is judged.
        Err(_) if is_gateway(name) => None,
        Err(problem) => Some(unread(name, &problem)),
    };
    let through = world.answering().filter(|it| it.is_gateway());
    let through = through.map(|it| Item::skip(CHECK, &it.name, THROUGH));
    through.chain(sources(world).filter_map(item)).collect()
}

fn unread(name: &str, problem: &Problem) -> Item {
    rights::unread(CHECK, name, rights::METRICS, problem)
}

fn judge_counts(name: &str, now: Counts, before: Option<Counts>) -> Item {
    let total = match now == Counts::default() {
        true => "nothing rerouted since it started".to_owned(),
        false => format!("since it started: {}", now.in_words()),
    };
    match before.and_then(|before| now.since(before)) {
        Some(grown) if grown.went_wrong() => {
            let says = format!("in this round: {}; {total}", grown.in_words());
            Item::warn(CHECK, name, says).fix(
                "see what is said of the peers' ports and Leases, and the server's log; while a peer is restarted some are usual",
            )
        }
        Some(_) => Item::pass(
            CHECK,
            name,
            format!("nothing went wrong in this round; {total}"),
        ),
        None if now.went_wrong() => {
            let says = format!("{total}; whether that grows is seen with --watch");
            Item::pass(CHECK, name, says)
        }
        None => Item::pass(CHECK, name, total),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    fn counts(rerouted: u32, failed: u32, errors: u32, fetches: u32) -> Counts {
        Counts::read(&format!(
            "apiserver_rerouted_request_total{{code=\"200\"}} {}\napiserver_rerouted_request_total{{code=\"503\"}} {failed}\n\
             apiserver_peer_proxy_errors_total{{type=\"x\"}} {errors}\n\
             apiserver_peer_discovery_sync_errors_total{{type=\"hostport_resolution\"}} {fetches}\n",
            rerouted - failed
        ))
    }

    #[test]
    fn totals_are_told_and_only_what_grows_is_a_warning() {
        let seen = counts(5, 2, 1, 3);
        for (now, before, verdict, says) in [
            (
                Counts::read(""),
                None,
                Verdict::Pass,
                "nothing rerouted since it started",
            ),
            (
                counts(3, 0, 0, 0),
                None,
                Verdict::Pass,
                "since it started: 3 rerouted, 0 answered 5xx",
            ),
            (
                seen,
                None,
                Verdict::Pass,
                "since it started: 5 rerouted, 2 answered 5xx, 1 proxy error, 3 failed fetches of a peer's discovery; \
                 whether that grows is seen with --watch",
            ),
            (
                seen,
                Some(seen),
                Verdict::Pass,
                "nothing went wrong in this round; since it started: 5 rerouted",
            ),
            (
                counts(9, 2, 1, 3),
                Some(seen),
                Verdict::Pass,
                "nothing went wrong in this round; since it started: 9 rerouted",
            ),
            (
                counts(6, 3, 1, 3),
                Some(seen),
                Verdict::Warn,
                "in this round: 1 rerouted, 1 answered 5xx; since it started: 6 rerouted",
            ),
            (
                counts(5, 2, 2, 3),
                Some(seen),
                Verdict::Warn,
                "in this round: 0 rerouted, 0 answered 5xx, 1 proxy error; ",
            ),
            (
                counts(5, 2, 1, 4),
                Some(seen),
                Verdict::Warn,
                "in this round: 0 rerouted, 0 answered 5xx, 1 failed fetch of ",
            ),
            // Started again: what it counted before is gone, and what was wrong then is not known to be wrong now.
            (
                counts(1, 1, 0, 0),
                Some(seen),
                Verdict::Pass,
                "since it started: 1 rerouted, 1 answered 5xx; whether",
            ),
        ] {
            let item = judge_counts("old", now, before);
            assert_eq!(item.verdict, verdict, "{item:?}");
            assert!(item.says.starts_with(says), "{says}: {item:?}");
        }
    }
}
