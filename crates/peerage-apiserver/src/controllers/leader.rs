//! Who of several servers runs a controller: the holder of a Lease, which is taken over when it has not been
//! renewed for its duration.

use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::loopback::Loopback;

/// How long a Lease counts without renewal; the others wait that long before they take over.
const DURATION: Duration = Duration::from_secs(15);
/// How often it is renewed.
pub(super) const RENEW: Duration = Duration::from_secs(5);
const JSON: &str = "application/json";

/// One controller's Lease.
pub(super) struct Leadership {
    client: Loopback,
    name: String,
    holder: String,
    /// The last state of another's Lease and when this server first saw it: clocks are not compared.
    seen: Option<(Value, Instant)>,
    leads: bool,
}

impl Leadership {
    pub(super) fn new(client: Loopback, controller: &str, holder: &str) -> Self {
        Self {
            client,
            name: format!("peerage-{controller}-controller"),
            holder: holder.to_owned(),
            seen: None,
            leads: false,
        }
    }

    /// Takes or renews the Lease; whether this server holds it now.
    pub(super) async fn hold(&mut self) -> bool {
        let held = self.try_hold().await;
        if held != self.leads {
            self.leads = held;
            info!(
                lease = self.name,
                held, "the lead of a controller has changed hands"
            );
        }
        held
    }

    async fn try_hold(&mut self) -> bool {
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}",
            self.name
        );
        let current = match self.client.send(Method::GET, &path, JSON, None).await {
            Ok(lease) => Some(lease),
            Err(error) if error.code().is_some_and(|c| c.as_u16() == 404) => None,
            Err(error) => {
                debug!(%error, "could not read a controller's Lease");
                return false;
            }
        };
        let result = match current {
            None => {
                let collection = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
                self.client
                    .send(Method::POST, collection, JSON, Some(self.lease(None)))
                    .await
            }
            Some(lease) if self.may_take(&lease) => {
                self.client
                    .send(Method::PUT, &path, JSON, Some(self.lease(Some(&lease))))
                    .await
            }
            Some(_) => return false,
        };
        result.is_ok()
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

    fn lease(&self, current: Option<&Value>) -> Value {
        let version = current.map(|l| l["metadata"]["resourceVersion"].clone());
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.name, "namespace": "kube-system", "resourceVersion": version },
            "spec": {
                "holderIdentity": self.holder, "leaseDurationSeconds": DURATION.as_secs(),
                "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            },
        })
    }
}
