//! How a source tells what it read, or that it could not: the list in force, its age, counts, and words in the log.
//!
//! Invariants: a failure leaves the list as it is; the same failure, and that it is over, are logged once a minute at
//! most, also where a source goes to and fro.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use peerage_core::shown::counted;
use peerage_http::metrics::Registry;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::proven::{Proven, normal};
use super::{Finding, Found, SourceName};

/// Between two log lines about one source that goes on failing in one way.
const REPEAT: Duration = Duration::from_secs(60);

/// Entries that are passed over and have a line of their own, within [`REPEAT`].
const LINES: usize = 10;
/// As much of an entry as is logged.
const LONGEST: usize = 200;
/// How long a server of a source that has nothing any more may be silent before it is let go of.
const SILENT: Duration = Duration::from_secs(60);

/// What a source said last.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) servers: Arc<[Found]>,
    /// Entries that were passed over.
    pub(super) skipped: usize,
    /// When the list was last known to be right.
    pub(super) heard: Option<Instant>,
    /// Why it cannot be read now.
    pub(super) trouble: Option<String>,
}

/// The speaking end of one source.
pub(super) struct Publisher {
    name: SourceName,
    state: watch::Sender<State>,
    changed: Arc<Notify>,
    troubles: Troubles,
    log: Log,
    skips: Skips,
    /// Who says which servers answer, for a source that does not lose all of them at once in earnest.
    emptied: Option<Proven>,
}

/// How many entries that are passed over have been told, so that a thousand of them do not fill the log.
#[derive(Default)]
struct Skips {
    since: Option<Instant>,
    told: usize,
    /// Those that were not told, and when it was last said how many.
    more: usize,
    counted: Option<Instant>,
}

impl Skips {
    /// Whether one more is worth a line.
    fn passes(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + REPEAT) {
            self.since = Some(now);
            self.told = 0;
        }
        let passes = self.told < LINES;
        match passes {
            true => self.told += 1,
            false => self.more += 1,
        }
        passes
    }

    /// How many more there were, if that is worth a line.
    fn rest(&mut self, now: Instant) -> Option<usize> {
        let due = self.counted.is_none_or(|at| now >= at + REPEAT);
        if self.more == 0 || !due {
            return None;
        }
        self.counted = Some(now);
        Some(std::mem::take(&mut self.more))
    }
}

/// What the log was told last, so that a source that fails again and again does not fill it.
#[derive(Default)]
struct Log(Option<Told>);

struct Told {
    failure: String,
    at: Instant,
    /// That it is over was said too.
    over: bool,
}

impl Log {
    /// Whether a failure is worth a line: another one than before, or one that was not told for a while.
    fn fails(&mut self, failure: &str, now: Instant) -> bool {
        let told = |it: &Told| it.failure == failure && now < it.at + REPEAT;
        if self.0.as_ref().is_some_and(told) {
            return false;
        }
        self.0 = Some(Told {
            failure: failure.to_owned(),
            at: now,
            over: false,
        });
        true
    }

    /// Whether it is worth a line that all is well: a failure was told, and not yet its end.
    fn recovers(&mut self) -> bool {
        let told = self.0.as_mut();
        told.is_some_and(|it| !std::mem::replace(&mut it.over, true))
    }
}

impl Publisher {
    pub(super) fn new(
        name: SourceName,
        changed: Arc<Notify>,
        troubles: Troubles,
    ) -> (Publisher, watch::Receiver<State>) {
        let (state, said) = watch::channel(State::default());
        let publisher = Publisher {
            name,
            state,
            changed,
            troubles,
            log: Log::default(),
            skips: Skips::default(),
            emptied: None,
        };
        (publisher, said)
    }

    /// Of a source that is written by programs. That all of its servers said goodbye in one moment is less likely than
    /// that somebody deleted what they write, or put another store in its place: those that go on answering are kept.
    pub(super) fn keeps_who_answers(mut self, proven: Proven) -> Publisher {
        self.emptied = Some(proven);
        self
    }

    /// Who is kept of the list in force although the source has nothing any more.
    fn kept(&self, servers: &[Found]) -> Option<Vec<Found>> {
        let proven = self.emptied.as_ref().filter(|_| servers.is_empty())?;
        let before = self.state.borrow().servers.clone();
        let answering = proven.within(SILENT, Instant::now());
        let answers = |it: &&Found| {
            let known = answering.as_ref();
            known.is_none_or(|known| known.contains(&normal(&it.address)))
        };
        let kept: Vec<Found> = before.iter().filter(answers).cloned().collect();
        (!kept.is_empty()).then_some(kept)
    }

    /// This is the whole list now; so many entries were passed over.
    pub(super) fn found(&mut self, servers: Vec<Found>, skipped: usize) {
        if let Some(kept) = self.kept(&servers) {
            let text = "it has no server any more, all at once; those that go on answering are kept until it has some again";
            return self.found_but(kept, skipped, "emptied", text.to_owned());
        }
        if self.log.recovers() {
            tracing::info!(
                source = self.name.as_str(),
                "a source of servers can be read again"
            );
        }
        self.keep(servers, skipped, None);
    }

    /// This is the list now, and something about the source is not as it should be; `reason` is a metric label.
    pub(super) fn found_but(
        &mut self,
        servers: Vec<Found>,
        skipped: usize,
        reason: &'static str,
        text: String,
    ) {
        let servers = self.kept(&servers).unwrap_or(servers);
        self.keep(servers, skipped, Some(text.clone()));
        self.lacks(reason, text);
    }

    /// Something about the source is not as it should be; its list counts all the same.
    pub(super) fn lacks(&mut self, reason: &'static str, text: String) {
        self.troubles.failed(self.name, reason);
        if self.log.fails(&text, Instant::now()) {
            tracing::warn!(
                source = self.name.as_str(),
                reason,
                "a source of servers is not read as it should be: {text}"
            );
        }
        self.state.send_modify(|state| state.trouble = Some(text));
    }

    fn keep(&mut self, servers: Vec<Found>, skipped: usize, trouble: Option<String>) {
        if let Some(more) = self.skips.rest(Instant::now()) {
            tracing::warn!(
                source = self.name.as_str(),
                more,
                "more entries are passed over"
            );
        }
        self.state.send_modify(|state| {
            let (source, count) = (self.name.as_str(), servers.len());
            if state.heard.is_none() {
                let servers = counted(count, "server");
                tracing::info!(source, "this source names {servers}");
            } else if state.servers.len() != count {
                tracing::info!(
                    source,
                    before = state.servers.len(),
                    now = count,
                    "a source names another number of servers than before"
                );
            }
            state.servers = servers.into();
            state.skipped = skipped;
            state.heard = Some(Instant::now());
            state.trouble = trouble;
        });
        self.changed.notify_one();
    }

    /// The list is what it was.
    pub(super) fn confirmed(&self) {
        self.state.send_modify(|state| {
            state.heard = Some(Instant::now());
            state.trouble = None;
        });
    }

    /// Time, or an answer that tells a part, has changed the list; that all of it is right was not heard.
    pub(super) fn aged(&self, servers: Vec<Found>) {
        let servers = self.kept(&servers).unwrap_or(servers);
        let changed = self.state.send_if_modified(|state| {
            let changed = *state.servers != *servers;
            state.servers = servers.into();
            changed
        });
        if changed {
            self.changed.notify_one();
        }
    }

    /// It could not be read; `reason` is a metric label.
    pub(super) fn failed(&mut self, reason: &'static str, text: String) {
        self.troubles.failed(self.name, reason);
        if self.log.fails(&text, Instant::now()) {
            tracing::warn!(
                source = self.name.as_str(),
                reason,
                "a source of servers cannot be read, so what it said last stays in force: {text}"
            );
        }
        self.state.send_modify(|state| state.trouble = Some(text));
    }

    /// An entry is passed over.
    pub(super) fn skipped(&mut self, entry: &str, why: &str) {
        self.troubles.failed(self.name, "entry");
        if self.skips.passes(Instant::now()) {
            let entry: String = entry.chars().take(LONGEST).collect();
            let why: String = why.chars().take(2 * LONGEST).collect();
            tracing::warn!(
                source = self.name.as_str(),
                entry,
                "an entry is passed over: {why}"
            );
        }
    }
}

/// What went wrong with sources, counted.
#[derive(Clone, Default)]
pub(super) struct Troubles {
    errors: Family<ErrorLabels, Counter>,
    findings: Family<KindLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    source: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabels {
    source: &'static str,
}

impl Troubles {
    fn failed(&self, source: SourceName, reason: &'static str) {
        let labels = ErrorLabels {
            source: source.as_str(),
            reason,
        };
        self.errors.get_or_create(&labels).inc();
    }

    pub(super) fn found(&self, finding: &Finding) {
        let kind = finding.kind.as_str();
        self.findings.get_or_create(&KindLabels { kind }).inc();
        tracing::warn!(kind, servers = ?finding.servers, "{}", finding.message);
    }

    pub(super) fn register(
        &self,
        registry: &Registry,
        states: Vec<(SourceName, watch::Receiver<State>)>,
    ) {
        registry.register(
            "peerage_gateway_source_errors_total",
            "Times that a source of servers could not be read, or an entry of it not be used",
            self.errors.clone(),
        );
        registry.register(
            "peerage_gateway_source_findings_total",
            "Contradictions found in what sources say of servers",
            self.findings.clone(),
        );
        let gauges: [(&str, &str, Read); 2] = [
            (
                "peerage_gateway_source_servers",
                "Servers in the list of a source that is in force",
                |state, _| state.servers.len() as f64,
            ),
            (
                "peerage_gateway_source_age_seconds",
                "Time since the list of a source was last known to be right; -1 if it never was",
                |state, now| state.heard.map_or(-1.0, |at| (now - at).as_secs_f64()),
            ),
        ];
        for (name, help, read) in gauges {
            let states = states.clone();
            registry.register(name, help, Gauges { states, read });
        }
    }
}

type Read = fn(&State, Instant) -> f64;

/// One gauge for each source, read when it is scraped.
struct Gauges {
    states: Vec<(SourceName, watch::Receiver<State>)>,
    read: Read,
}

impl EncodeMetric for Gauges {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let now = Instant::now();
        for (source, state) in &self.states {
            let value = (self.read)(&state.borrow(), now);
            let labels = SourceLabels {
                source: source.as_str(),
            };
            encoder.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauges").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(start_paused = true)]
    async fn a_source_that_has_nothing_all_at_once_keeps_who_answers() {
        let at = |port: u16| Found::at(format!("10.0.0.1:{port}").parse().unwrap());
        let answering = Arc::new(Mutex::new(vec![at(1).address]));
        let proven = Proven::default();
        let (publisher, said) =
            Publisher::new(SourceName::Etcd, Arc::default(), Troubles::default());
        let mut publisher = publisher.keeps_who_answers(proven.clone());
        let ports = || {
            let servers = said.borrow().servers.clone();
            let ports = servers.iter().filter_map(|it| it.address.port_u16());
            ports.collect::<Vec<_>>()
        };
        publisher.found(vec![at(1), at(2)], 0);
        publisher.found(vec![at(1)], 0);
        assert_eq!(ports(), [1], "one that says goodbye goes at once");
        publisher.found(vec![at(1), at(2)], 0);
        publisher.found(Vec::new(), 0);
        assert_eq!(ports(), [1, 2], "nobody can say who answers");
        let asked = answering.clone();
        proven.judge_by(move || asked.lock().unwrap().clone());
        publisher.found(Vec::new(), 0);
        assert_eq!(ports(), [1]);
        let trouble = said.borrow().trouble.clone().unwrap();
        assert!(trouble.contains("all at once"), "{trouble}");
        answering.lock().unwrap().clear();
        tokio::time::advance(SILENT / 2).await;
        publisher.aged(Vec::new());
        assert_eq!(ports(), [1], "it may be back in a moment");
        tokio::time::advance(SILENT).await;
        publisher.found(Vec::new(), 0);
        assert_eq!(ports(), [0; 0]);
        assert_eq!(said.borrow().trouble, None);
    }

    #[test]
    fn of_many_entries_a_few_are_told_and_how_many_more() {
        let start = Instant::now();
        let mut skips = Skips::default();
        assert_eq!(skips.rest(start), None);
        let told = (0..20_000).filter(|_| skips.passes(start)).count();
        assert_eq!((told, skips.rest(start)), (LINES, Some(20_000 - LINES)));
        assert!(!skips.passes(start));
        assert_eq!(skips.rest(start), None, "not again within a minute");
        let later = start + REPEAT;
        assert!(skips.passes(later));
        assert_eq!(skips.rest(later), Some(1));
    }

    #[test]
    fn a_source_that_goes_to_and_fro_has_two_lines_a_minute() {
        let start = Instant::now();
        let mut log = Log::default();
        let mut lines = Vec::new();
        for second in (0..120).step_by(10) {
            let now = start + Duration::from_secs(second);
            if log.fails("refused", now) {
                lines.push((second, "fails"));
            }
            if log.recovers() {
                lines.push((second, "recovers"));
            }
        }
        let expected = [0, 60].map(|at| [(at, "fails"), (at, "recovers")]);
        assert_eq!(lines, expected.concat());
        assert!(
            log.fails("another", start),
            "another failure is told at once"
        );
    }
}
