//! A registry of counters and its text form.
//!
//! What is counted belongs to who counts it. This only fixes how it looks: the text format 0.0.4 that
//! kube-apiserver serves and Prometheus reads, with the names exactly as given.

mod process;

use std::sync::{Arc, Mutex, PoisonError};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::{Metric, Registry as Inner};

use crate::{Response, body};

/// The text format. Names need no other escape than underscores, which newer readers want to be told.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A set of metrics. Clones are the same set.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<Mutex<Inner>>);

impl Registry {
    /// Adds a metric under a Kubernetes-style name. The `_total` of a counter is part of `name` (and is not
    /// written twice).
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let help = help.strip_suffix('.').unwrap_or(help); // The encoder adds one.
        self.lock().register(name, help, metric);
    }

    /// Adds what Prometheus clients tell of their process: start, processor time, memory, file descriptors.
    /// Where the system does not say, they are left out.
    pub fn register_process(&self) {
        self.lock().register_collector(Box::new(process::Process));
    }

    /// All metrics in the text format 0.0.4.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if prometheus_text::encode(&mut text, &self.lock()).is_err() {
            tracing::error!("metrics cannot be written");
        }
        text
    }

    /// The answer to `GET /metrics`.
    #[must_use]
    pub fn response(&self) -> Response {
        let mut response = Response::new(body::full(self.text()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        response
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;

    #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
    struct Labels {
        code: u16,
        group: String,
    }

    #[test]
    fn names_and_help_are_written_as_given() {
        let registry = Registry::default();
        let rerouted = Family::<Labels, Counter>::default();
        registry.register(
            "apiserver_rerouted_request_total",
            "[ALPHA] Requests.",
            rerouted.clone(),
        );
        let labels = Labels {
            code: 200,
            group: "a\"b\\c\n".to_owned(),
        };
        rerouted.get_or_create(&labels).inc();
        let expected = "# HELP apiserver_rerouted_request_total [ALPHA] Requests.\n\
                        # TYPE apiserver_rerouted_request_total counter\n\
                        apiserver_rerouted_request_total{code=\"200\",group=\"a\\\"b\\\\c\\n\"} 1\n";
        assert_eq!(registry.text(), expected);
        assert_eq!(
            registry.response().headers()[CONTENT_TYPE],
            "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_tells_what_it_uses() {
        let registry = Registry::default();
        registry.register_process();
        let text = registry.text();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_start_time_seconds",
        ] {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("{name} ")));
            let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            assert!(value.is_some_and(|value| value >= 0.0), "{name} in {text}");
        }
    }
}
