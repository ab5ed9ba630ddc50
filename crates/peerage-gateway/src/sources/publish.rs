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

use super::{Finding, Found};

/// Between two log lines about one source that goes on failing in one way.
const REPEAT: Duration = Duration::from_secs(60);

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
    name: &'static str,
    state: watch::Sender<State>,
    changed: Arc<Notify>,
    troubles: Troubles,
    log: Log,
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
        name: &'static str,
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
        };
        (publisher, said)
    }

    /// This is the whole list now; so many entries were passed over.
    pub(super) fn found(&mut self, servers: Vec<Found>, skipped: usize) {
        if self.log.recovers() {
            tracing::info!(source = self.name, "a source of servers can be read again");
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
        self.keep(servers, skipped, Some(text.clone()));
        self.lacks(reason, text);
    }

    /// Something about the source is not as it should be; its list counts all the same.
    pub(super) fn lacks(&mut self, reason: &'static str, text: String) {
        self.troubles.failed(self.name, reason);
        if self.log.fails(&text, Instant::now()) {
            tracing::warn!(
                source = self.name,
                reason,
                "a source of servers is not read as it should be: {text}"
            );
        }
        self.state.send_modify(|state| state.trouble = Some(text));
    }

    fn keep(&mut self, servers: Vec<Found>, skipped: usize, trouble: Option<String>) {
        self.state.send_modify(|state| {
            let (source, count) = (self.name, servers.len());
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
                source = self.name,
                reason,
                "a source of servers cannot be read, so what it said last stays in force: {text}"
            );
        }
        self.state.send_modify(|state| state.trouble = Some(text));
    }

    /// An entry is passed over.
    pub(super) fn skipped(&self, entry: &str, why: &str) {
        self.troubles.failed(self.name, "entry");
        tracing::warn!(source = self.name, entry, "an entry is passed over: {why}");
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
    fn failed(&self, source: &'static str, reason: &'static str) {
        let labels = ErrorLabels { source, reason };
        self.errors.get_or_create(&labels).inc();
    }

    pub(super) fn found(&self, finding: &Finding) {
        let kind = finding.kind;
        self.findings.get_or_create(&KindLabels { kind }).inc();
        tracing::warn!(kind, servers = ?finding.servers, "{}", finding.message);
    }

    pub(super) fn register(
        &self,
        registry: &Registry,
        states: Vec<(&'static str, watch::Receiver<State>)>,
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
    states: Vec<(&'static str, watch::Receiver<State>)>,
    read: Read,
}

impl EncodeMetric for Gauges {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let now = Instant::now();
        for (source, state) in &self.states {
            let value = (self.read)(&state.borrow(), now);
            encoder
                .encode_family(&SourceLabels { source })?
                .encode_gauge(&value)?;
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
    use super::*;

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
