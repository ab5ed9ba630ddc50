//! A registry of counters and its text form.
//!
//! What is counted belongs to who counts it. This only fixes how it looks: the text format 0.0.4 that
//! kube-apiserver serves and Prometheus reads, with the names exactly as given.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::{CONTENT_TYPE, HeaderValue};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::{Metric, Registry as Inner};

use crate::{Response, body};

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
        let text = HeaderValue::from_static(prometheus_text::CONTENT_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, text);
        response
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
