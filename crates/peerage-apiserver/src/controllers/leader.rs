//! Who of several servers runs a controller: the holder of a Lease, which is taken over when it has not been
//! renewed for its duration, and given up when its holder stops.
//!
//! Clocks are not compared: a Lease of another is timed from when this server saw it change last.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::loopback::Loopback;

/// How long a Lease counts without renewal; the others wait that long before they take over.
const DURATION: Duration = Duration::from_secs(15);
/// How often it is renewed, and how long a renewal may take: a holder that cannot renew has stopped to lead before
/// another one begins.
const RENEW: Duration = Duration::from_secs(5);
const JSON: &str = "application/json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// One controller's Lease.
pub(super) struct Leadership {
    client: Loopback,
    name: String,
    holder: String,
    /// The last state of another's Lease and when this server first saw it.
    seen: Option<(Value, Instant)>,
}

impl Leadership {
    pub(super) fn new(client: Loopback, controller: &str, holder: &str) -> Self {
        Self {
            client,
            name: format!("peerage-{controller}-controller"),
            holder: holder.to_owned(),
            seen: None,
        }
    }

    /// Takes and renews the Lease, and tells whether this server holds it, until `stop`.
    pub(super) async fn keep(mut self, leads: watch::Sender<bool>, stop: CancellationToken) {
        loop {
            let held = tokio::select! {
                held = tokio::time::timeout(RENEW, self.hold()) => held.unwrap_or(false),
                () = stop.cancelled() => break,
            };
            let changed = leads.send_if_modified(|leads| std::mem::replace(leads, held) != held);
            if changed {
                info!(
                    lease = self.name,
                    held, "the lead of a controller has changed hands"
                );
            }
            tokio::select! { () = tokio::time::sleep(RENEW) => {}, () = stop.cancelled() => break }
        }
        if leads.send_replace(false) {
            let _ = tokio::time::timeout(RENEW, self.release()).await;
        }
    }

    fn path(&self) -> String {
        format!("{LEASES}/{}", self.name)
    }

    async fn hold(&mut self) -> bool {
        let current = match self
            .client
            .send(Method::GET, &self.path(), JSON, None)
            .await
        {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                debug!(%error, "could not read a controller's Lease");
                return false;
            }
        };
        let result = match current {
            None => {
                let lease = self.lease(None, &self.holder);
                self.client
                    .send(Method::POST, LEASES, JSON, Some(lease))
                    .await
            }
            Some(current) if self.may_take(&current) => {
                let lease = self.lease(Some(&current), &self.holder);
                self.client
                    .send(Method::PUT, &self.path(), JSON, Some(lease))
                    .await
            }
            Some(_) => return false,
        };
        result.is_ok()
    }

    /// Lets the next one begin at once.
    async fn release(&self) {
        let Ok(current) = self
            .client
            .send(Method::GET, &self.path(), JSON, None)
            .await
        else {
            return;
        };
        if current["spec"]["holderIdentity"] == *self.holder {
            let lease = self.lease(Some(&current), "");
            let released = self
                .client
                .send(Method::PUT, &self.path(), JSON, Some(lease))
                .await;
            debug!(
                released = released.is_ok(),
                lease = self.name,
                "gave up the lead"
            );
        }
    }

    fn may_take(&mut self, lease: &Value) -> bool {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if holder.is_empty() || holder == self.holder {
            return true;
        }
        match &self.seen {
            Some((spec, since)) if *spec == lease["spec"] => since.elapsed() > DURATION,
            _ => {
                self.seen = Some((lease["spec"].clone(), Instant::now()));
                false
            }
        }
    }

    fn lease(&self, current: Option<&Value>, holder: &str) -> Value {
        let version = current.map(|l| l["metadata"]["resourceVersion"].clone());
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.name, "namespace": "kube-system", "resourceVersion": version },
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": DURATION.as_secs(),
                "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            },
        })
    }
}
