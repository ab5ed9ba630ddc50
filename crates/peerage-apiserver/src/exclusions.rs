//! Which APIs the shared store defines, for the proxy: custom resource definitions, and APIServices with a service
//! behind them. Every server reads them from the same store, so requests for them are not sent on.
//!
//! They are followed in the cache and begin and end with their objects; see `peerage_core::Exclusions` for what is
//! different from Kubernetes.

use std::sync::Arc;

use peerage_core::{Exclusion, Exclusions};
use serde::Deserialize;
use tokio::sync::watch;

use crate::cache::{Cache, CachedObject, KindCache};

/// Publishes what the store defines, from now on.
pub(crate) fn follow(cache: &Cache, root: &str) -> watch::Receiver<Arc<Exclusions>> {
    let kind = |plural: &str| {
        cache
            .kind(&format!("{root}/{plural}/"))
            .cloned()
            .unwrap_or_default()
    };
    let definitions = kind("apiextensions.k8s.io/customresourcedefinitions");
    let services = kind("apiregistration.k8s.io/apiservices");
    let (published, followed) = watch::channel(Arc::new(read(&definitions, &services)));
    tokio::spawn(publish(definitions, services, published));
    followed
}

async fn publish(
    definitions: Arc<KindCache>,
    services: Arc<KindCache>,
    published: watch::Sender<Arc<Exclusions>>,
) {
    let (mut definitions_changed, mut services_changed) =
        (definitions.changes(), services.changes());
    loop {
        definitions_changed.borrow_and_update();
        services_changed.borrow_and_update();
        let now = read(&definitions, &services);
        published.send_if_modified(|before| {
            let changed = **before != now;
            if changed {
                *before = Arc::new(now);
            }
            changed
        });
        let ended = tokio::select! {
            changed = definitions_changed.changed() => changed.is_err(),
            changed = services_changed.changed() => changed.is_err(),
            () = published.closed() => true,
        };
        if ended {
            return;
        }
    }
}

fn read(definitions: &KindCache, services: &KindCache) -> Exclusions {
    let definitions = definitions.snapshot("", 0).objects;
    let services = services.snapshot("", 0).objects;
    let custom = definitions.iter().flat_map(|o| of_definition(o));
    let aggregated = services.iter().filter_map(|o| of_service(o));
    custom.chain(aggregated).collect()
}

#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    names: Names,
    /// Only in `v1beta1`, which is also how Kubernetes stores them; with `versions` it repeats the first.
    version: Option<String>,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Names {
    plural: String,
}

#[derive(Deserialize)]
struct Version {
    name: String,
}

/// Every version of the custom resource, served or not.
fn of_definition(object: &CachedObject) -> Vec<Exclusion> {
    let Some(Definition { spec }) = object.parse() else {
        return Vec::new();
    };
    let versions = spec.versions.iter().map(|v| &v.name);
    versions
        .chain(&spec.version)
        .map(|version| Exclusion::resource(&spec.group, version, &spec.names.plural))
        .collect()
}

#[derive(Deserialize)]
struct Service {
    spec: ServiceSpec,
}

#[derive(Deserialize)]
struct ServiceSpec {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    service: Option<serde::de::IgnoredAny>,
}

/// The group-version, if somebody else than an API server of this cluster answers for it.
fn of_service(object: &CachedObject) -> Option<Exclusion> {
    let Service { spec } = object.parse()?;
    spec.service?;
    Some(Exclusion::version(&spec.group, &spec.version))
}
