//! What services are given out of what all of them share: addresses of the cluster, and ports of the nodes.
//!
//! An address is reserved by creating its `IPAddress` object, as kube-apiserver does since 1.33, out of the ranges of
//! the `ServiceCIDR` objects; a node port by entering it in a record of all of them. The store lets one writer do each, so
//! two servers never give out the same. What was reserved for a write that did not count is given back, unless nobody
//! knows whether it counted; what a service no longer has is given back when the store has taken the change. A server
//! that is killed in between leaves a reservation behind, never a service without one.
//!
//! What a change of a service's type does to its fields is the catalogue's rule of services.

mod ports;
mod range;

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use peerage_core::{Status, StatusCause};
use peerage_objects::field::FieldError;
use peerage_store::{StoreExt as _, WriteError};
use serde_json::{Value, json};
use tracing::warn;

use crate::call::Call;
use crate::error::ApiError;
use ports::Outcome;
use range::Range;

/// Draws before the free addresses or ports are counted out.
const DRAWS: usize = 16;

/// What a service holds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Held {
    addresses: BTreeSet<String>,
    ports: BTreeSet<u16>,
}

impl Held {
    /// What the object holds; nothing if it is no service.
    pub(super) fn of(call: &Call, object: &Value) -> Self {
        if !is_service(call) {
            return Self::default();
        }
        let spec = &object["spec"];
        let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
        let node_ports = spec["ports"].as_array().into_iter().flatten();
        let node_ports = node_ports.map(|p| &p["nodePort"]);
        Self {
            addresses: addresses
                .filter_map(|a| a.as_str().filter(|a| *a != "None"))
                .map(str::to_owned)
                .collect(),
            ports: node_ports
                .chain([&spec["healthCheckNodePort"]])
                .filter_map(|p| u16::try_from(p.as_u64()?).ok().filter(|p| *p > 0))
                .collect(),
        }
    }

    /// What is here and not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self {
            addresses: &self.addresses - &other.addresses,
            ports: &self.ports - &other.ports,
        }
    }
}

fn is_service(call: &Call) -> bool {
    call.resource().group.is_empty() && &*call.resource().kind == "Service"
}

/// Completes a service that has passed all checks, and reserves what it did not hold before. The result is what has
/// been reserved; a dry run reserves nothing.
pub(super) async fn reserve(
    call: &Call,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Held, ApiError> {
    if !is_service(call) || service["spec"]["type"] == "ExternalName" {
        return Ok(Held::default());
    }
    let held = old.map(|old| Held::of(call, old)).unwrap_or_default();
    let mut reserving = Reserving {
        call,
        owner: owner(call, service),
        held,
        new: Held::default(),
        dry_run,
    };
    match reserving.all(service).await {
        Ok(()) => Ok(reserving.new),
        Err(error) => {
            release(call, &reserving.owner, &reserving.new).await;
            Err(error)
        }
    }
}

/// Gives back what a service no longer holds. What cannot be given back stays reserved; the log says so.
pub(super) async fn release(call: &Call, owner: &Owner, held: &Held) {
    for key in held.addresses.iter().filter_map(|a| address_key(call, a)) {
        let store = &call.api().store;
        let result = match store.get(key.clone()).await {
            Ok(Some(kv)) if owner.has(&kv.value) => store
                .delete(key.clone(), Some(kv.mod_revision))
                .await
                .map(drop),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = result {
            warn!(%error, key, "what a service held could not be given back");
        }
    }
    if let Err(error) = ports::release(call, &held.ports).await {
        warn!(?error, ports = ?held.ports, "what a service held could not be given back");
    }
}

/// The service that something is reserved for.
pub(super) struct Owner {
    namespace: String,
    name: String,
}

/// The service of a write.
pub(super) fn owner(call: &Call, service: &Value) -> Owner {
    Owner {
        namespace: call.info.namespace().to_owned(),
        name: service["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

impl Owner {
    fn reference(&self) -> Value {
        json!({ "resource": "services", "namespace": self.namespace, "name": self.name })
    }

    /// Whether a reservation is this service's.
    fn has(&self, value: &[u8]) -> bool {
        let value: Value = serde_json::from_slice(value).unwrap_or_default();
        let parent = &value["spec"]["parentRef"];
        parent["namespace"] == *self.namespace && parent["name"] == *self.name
    }
}

struct Reserving<'a> {
    call: &'a Call,
    owner: Owner,
    held: Held,
    new: Held,
    dry_run: bool,
}

impl Reserving<'_> {
    async fn all(&mut self, service: &mut Value) -> Result<(), ApiError> {
        let name = self.owner.name.clone();
        let spec = &mut service["spec"];
        let ranges = range::of_cluster(self.call)?;
        families(spec, &ranges.first).map_err(|e| self.invalid(&name, e))?;
        if spec["clusterIP"] == "None" {
            spec["clusterIPs"] = json!(["None"]);
        } else {
            self.address(spec, &ranges.all).await?;
        }
        let kind = spec["type"].as_str().unwrap_or_default();
        let balanced = kind == "LoadBalancer";
        if kind == "NodePort" || balanced && spec["allocateLoadBalancerNodePorts"] != false {
            self.node_ports(spec).await?;
        }
        if balanced && spec["externalTrafficPolicy"] == "Local" {
            let port = &spec["healthCheckNodePort"];
            let port = self.port(port, "spec.healthCheckNodePort").await?;
            spec["healthCheckNodePort"] = json!(port);
        }
        Ok(())
    }

    fn invalid(&self, name: &str, error: FieldError) -> ApiError {
        ApiError::invalid(self.call.resource(), name, vec![error])
    }

    async fn address(&mut self, spec: &mut Value, ranges: &[Range]) -> Result<(), ApiError> {
        let wanted = spec["clusterIP"].as_str().filter(|a| !a.is_empty());
        let given = match wanted {
            Some(wanted) if self.held.addresses.contains(wanted) => wanted.to_owned(),
            Some(wanted) => {
                let wanted = wanted.to_owned();
                self.wanted_address(&wanted, ranges).await?;
                wanted
            }
            None => self.any_address(spec, ranges).await?,
        };
        spec["clusterIP"] = json!(given);
        spec["clusterIPs"] = json!([given]);
        Ok(())
    }

    async fn wanted_address(&mut self, wanted: &str, ranges: &[Range]) -> Result<(), ApiError> {
        let refused = |why: &str| {
            let detail = format!("failed to allocate IP {wanted}: {why}");
            FieldError::invalid("spec.clusterIPs", json!([wanted]), &detail)
        };
        let name = self.owner.name.clone();
        let Ok(address) = wanted.parse::<IpAddr>() else {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            let error = FieldError::invalid("spec.clusterIPs[0]", wanted, detail);
            return Err(self.invalid(&name, error));
        };
        if !ranges.iter().any(|r| r.contains(address)) {
            let why = "the provided network does not match the current range";
            return Err(self.invalid(&name, refused(why)));
        }
        if self.take_address(address).await? {
            return Ok(());
        }
        Err(self.invalid(&name, refused("provided IP is already allocated")))
    }

    async fn any_address(&mut self, spec: &Value, ranges: &[Range]) -> Result<String, ApiError> {
        let v6 = spec["ipFamilies"][0] == "IPv6";
        let ranges = ranges.iter().filter(|r| r.is_v6() == v6);
        for range in ranges {
            for _ in 0..DRAWS {
                let address = range.draw(rand::random());
                if !self.is_known(address) && self.take_address(address).await? {
                    return Ok(address.to_string());
                }
            }
            for address in range.all() {
                if !self.is_known(address) && self.take_address(address).await? {
                    return Ok(address.to_string());
                }
            }
        }
        let what = "failed to allocate a serviceIP: range is full";
        Err(Status::internal(what).into())
    }

    /// Whether the cache has a reservation of the address.
    fn is_known(&self, address: IpAddr) -> bool {
        let resources = &self.call.api().resources;
        resources
            .get("networking.k8s.io", "v1", "ipaddresses")
            .and_then(|served| served.place.as_ref())
            .is_some_and(|place| place.cache.get(&address.to_string()).is_some())
    }

    async fn take_address(&mut self, address: IpAddr) -> Result<bool, ApiError> {
        let text = address.to_string();
        let Some(key) = address_key(self.call, &text) else {
            // A version without such objects has nothing to tell the addresses apart by.
            return Ok(true);
        };
        let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
            "metadata": {
                "name": text, "uid": uuid::Uuid::new_v4().to_string(), "generation": 1,
                "creationTimestamp": peerage_objects::time::show(Timestamp::now()),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": family,
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": { "parentRef": self.owner.reference() },
        });
        let catalogue = &self.call.api().catalogue;
        let value = match catalogue.kind("networking.k8s.io", "v1", "IPAddress") {
            Some(resource) => catalogue.to_stored(resource, object),
            None => object,
        };
        let taken = self.take(key, &value).await?;
        if taken && !self.dry_run {
            self.new.addresses.insert(text);
        }
        Ok(taken)
    }

    async fn node_ports(&mut self, spec: &mut Value) -> Result<(), ApiError> {
        let Some(ports) = spec["ports"].as_array_mut() else {
            return Ok(());
        };
        for (at, port) in ports.iter_mut().enumerate() {
            if port.is_object() {
                let path = format!("spec.ports[{at}].nodePort");
                let number = self.port(&port["nodePort"], &path).await?;
                port["nodePort"] = json!(number);
            }
        }
        Ok(())
    }

    /// The port that is wanted, or any.
    async fn port(&mut self, wanted: &Value, path: &str) -> Result<u16, ApiError> {
        let wanted = wanted.as_i64().filter(|n| *n != 0);
        let own = wanted.and_then(|port| u16::try_from(port).ok());
        let own = own.filter(|p| self.held.ports.contains(p) || self.new.ports.contains(p));
        if let Some(port) = own {
            return Ok(port);
        }
        let name = self.owner.name.clone();
        let refused = |number: i64, why: &str| FieldError::invalid(path, number, why);
        match (ports::take(self.call, wanted, self.dry_run).await?, wanted) {
            (Outcome::Taken(port), _) => {
                if !self.dry_run {
                    self.new.ports.insert(port);
                }
                Ok(port)
            }
            (Outcome::Gone, Some(number)) => {
                let why = "provided port is already allocated";
                Err(self.invalid(&name, refused(number, why)))
            }
            (Outcome::Outside(first, last), number) => {
                let why = format!(
                    "provided port is not in the valid range. The range of valid ports is {first}-{last}"
                );
                Err(self.invalid(&name, refused(number.unwrap_or_default(), &why)))
            }
            (Outcome::Gone, None) => {
                let what = "failed to allocate a nodePort: range is full";
                Err(Status::internal(what).into())
            }
        }
    }

    /// Creates a key that tells that something is taken; false if it is already.
    async fn take(&self, key: String, value: &Value) -> Result<bool, ApiError> {
        let store = &self.call.api().store;
        let fault = |e: &peerage_store::StoreError| self.call.store_error(e);
        if self.dry_run {
            return Ok(store.get(key).await.map_err(|e| fault(&e))?.is_none());
        }
        match store.create(key, value.to_string(), 0).await {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict { .. }) => Ok(false),
            Err(WriteError::Store(error)) => Err(fault(&error)),
        }
    }
}

/// Which families of addresses the service has: those it names, else the cluster's first one.
fn families(spec: &mut Value, ranges: &[Range]) -> Result<(), StatusCause> {
    let own = if ranges.first().is_some_and(Range::is_v6) {
        "IPv6"
    } else {
        "IPv4"
    };
    let other = if own == "IPv6" { "IPv4" } else { "IPv6" };
    let dual = ranges.iter().any(|r| r.is_v6()) && ranges.iter().any(|r| !r.is_v6());
    let headless = spec["clusterIP"] == "None";
    let selects = spec["selector"].as_object().is_some_and(|s| !s.is_empty());
    let bare = headless && !selects;
    let policy = spec["ipFamilyPolicy"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if policy == "RequireDualStack" && !dual && !bare {
        let detail = "this cluster is not configured for dual-stack services";
        return Err(FieldError::invalid("spec.ipFamilyPolicy", policy, detail));
    }
    let named = spec["ipFamilies"].as_array().cloned().unwrap_or_default();
    for (at, family) in named.iter().enumerate() {
        let served = ranges
            .iter()
            .any(|r| *family == if r.is_v6() { "IPv6" } else { "IPv4" });
        if !served && !bare {
            let path = format!("spec.ipFamilies[{at}]");
            let detail = "not configured on this cluster";
            return Err(FieldError::invalid(path, family.clone(), detail));
        }
    }
    if policy.is_empty() {
        // Nobody knows what addresses the endpoints of a service without a selector have.
        let both = bare && named.len() != 1 || named.len() > 1;
        spec["ipFamilyPolicy"] = json!(if both {
            "RequireDualStack"
        } else {
            "SingleStack"
        });
    }
    if named.is_empty() {
        let both = bare && spec["ipFamilyPolicy"] != "SingleStack";
        spec["ipFamilies"] = if both {
            json!([own, other])
        } else {
            json!([own])
        };
    }
    Ok(())
}

/// The key of an address's reservation; none in a version that has no such kind.
fn address_key(call: &Call, address: &str) -> Option<String> {
    let served = call
        .api()
        .resources
        .get("networking.k8s.io", "v1", "ipaddresses")?;
    Some(format!("{}{address}", served.place.as_ref()?.prefix))
}
