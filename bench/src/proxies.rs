//! Ways to a newer server's API: directly, through an older kube-apiserver's own proxy, through `peerage gateway` beside
//! that older server or as a balancer over both, through HAProxy and nginx.
//!
//! One control plane for all: an etcd, kube-apiserver 1.37 that serves as 1.34 (the older), kube-apiserver 1.37 as itself
//! (the newer), both with their own proxy on, nobody auditing. What is asked for exists at the newer server only, where
//! not said otherwise.

use std::path::Path;

use anyhow::Context;
use peerage_testkit::daemon::Daemon;
use peerage_testkit::kube::{Apiserver, Etcd, Gateway, KubeApiserver, RunningGateway};
use serde_json::json;

use crate::load::{Call, Client, TOKEN};
use crate::measure::{Measurement, Plan, Setup, Size, Work, until_served};
use crate::meter::Metered;
use crate::ordinary::Ordinary;
use crate::place::{self, Place};
use crate::results::{Part, Results};

pub(crate) const DIRECT: &str = "kube-apiserver directly";
pub(crate) const OWN: &str = "kube-apiserver's own proxy";
pub(crate) const GATEWAY: &str = "peerage gateway";
pub(crate) const DIRECT_CERTIFICATE: &str = "kube-apiserver directly, certificate";
pub(crate) const OWN_CERTIFICATE: &str = "kube-apiserver's own proxy, certificate";
pub(crate) const GATEWAY_CERTIFICATE: &str = "peerage gateway, certificate";
pub(crate) const GATEWAY_AUDIT: &str = "peerage gateway that audits";
pub(crate) const BALANCER: &str = "peerage gateway as a balancer";
pub(crate) const OLDER: &str = "older kube-apiserver directly";

pub(crate) const GET: &str = "small GET";
pub(crate) const GET_ALONE: &str = "small GET, 1 client";
pub(crate) const GET_LOCAL: &str = "small GET, local";
pub(crate) const LIST_20: &str = "list of 20";
pub(crate) const LIST_5000: &str = "list of 5 000";
pub(crate) const DISCOVERY: &str = "merged discovery";
pub(crate) const DISCOVERY_304: &str = "merged discovery, If-None-Match";
pub(crate) const WATCH: &str = "1 000 watches";
pub(crate) const CREATE: &str = "1 MiB create";

/// What only the newer server has: many of the one, few of the other.
const MANY: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
const FEW: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
/// What both have.
const LOCAL: &str = "/api/v1/namespaces/default/configmaps";
const DISCOVERY_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// As many clients as the figures that the aims were set from.
pub(crate) const CLIENTS: usize = 8;
/// Bytes of the large object, nearly all of them in one string.
const LARGE: usize = 1 << 20;

/// Everything that runs.
struct Bench {
    ordinary: Vec<(Ordinary, Daemon, std::net::SocketAddr)>,
    gateway: RunningGateway,
    auditing: RunningGateway,
    balancer: RunningGateway,
    newer: Apiserver,
    older: Apiserver,
    etcd: Etcd,
    place: Place,
}

/// Runs all rounds.
pub(crate) async fn run(plan: &Plan, results: &mut Results) -> anyhow::Result<()> {
    let bench = Bench::start(&plan.peerage, results).await?;
    bench.fill(plan.size).await?;
    bench.wait().await?;
    let workloads = bench.workloads();
    for round in 0..plan.rounds {
        for (workload, work, setups) in &workloads {
            let measurement = Measurement {
                part: Part::Proxies,
                workload,
                round,
                size: plan.size,
            };
            let mut setups = setups.clone();
            let first = round % setups.len();
            setups.rotate_left(first);
            for name in setups {
                if !plan.wants(workload, name) {
                    continue;
                }
                let setup = bench.setup(name)?;
                results.samples.push(measurement.of(&setup, work).await?);
                if *workload == CREATE {
                    bench.delete_large().await?;
                }
            }
        }
    }
    Ok(())
}

impl Bench {
    async fn start(peerage: &Path, results: &mut Results) -> anyhow::Result<Self> {
        let versions = &mut results.machine.programs;
        for ordinary in Ordinary::ALL {
            versions.insert(ordinary.name().to_owned(), ordinary.version()?);
        }
        let place = Place::new()?;
        let etcd = place.etcd().await;
        let unaudited = place.unaudited();
        let server = |name: &str| {
            let spec = KubeApiserver::of(place::KUBERNETES).named(name).own_proxy();
            let spec = spec.token(TOKEN, "bench", &["system:masters"]);
            spec.flags(&[&unaudited])
        };
        let (pki, directory) = (&place.pki, place.directory());
        let older = server("older").emulating(place::OLDER);
        let older = older.start(pki, directory, &etcd.url()).await;
        let newer = server("newer").start(pki, directory, &etcd.url()).await;
        let sidecar = || Gateway::beside(&older).peer(&newer);
        let gateway = sidecar().flags(&[&unaudited]);
        let gateway = gateway.start(peerage, pki, directory).await;
        let auditing = sidecar().start(peerage, pki, directory).await;
        let balancer = Gateway::balancing(&[&older, &newer]).flags(&[&unaudited]);
        let balancer = balancer.start(peerage, pki, directory).await;
        let mut ordinary = Vec::new();
        for each in Ordinary::ALL {
            let (daemon, address) = each.start(pki, directory, newer.address()).await?;
            ordinary.push((each, daemon, address));
        }
        Ok(Self {
            ordinary,
            gateway,
            auditing,
            balancer,
            newer,
            older,
            etcd,
            place,
        })
    }

    /// Makes what is asked for.
    async fn fill(&self, size: Size) -> anyhow::Result<()> {
        let newer = self.place.endpoint(self.newer.address());
        let many = json!({
            "apiVersion": "storagemigration.k8s.io/v1",
            "kind": "StorageVersionMigration",
            "metadata": {"name": "bench-NUMBER", "labels": {"app.kubernetes.io/part-of": "bench"}},
            "spec": {"resource": {"group": "", "resource": "secrets"}},
        });
        place::create(&newer, MANY, &many, size.objects).await?;
        let few = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "bench-NUMBER", "labels": {"app.kubernetes.io/part-of": "bench"}},
            "spec": {"taint": {"key": "example.com/bench", "effect": "NoSchedule"}},
        });
        place::create(&newer, FEW, &few, 20).await?;
        place::create(&newer, LOCAL, &place::config_map("bench-NUMBER"), 20).await
    }

    /// Waits until everybody knows what the newer server has.
    async fn wait(&self) -> anyhow::Result<()> {
        for name in [DIRECT, OWN, GATEWAY, GATEWAY_AUDIT, BALANCER] {
            let setup = self.setup(name)?;
            for collection in [MANY, FEW, LOCAL] {
                let call = Call::get(format!("{collection}/bench-7"));
                until_served(&setup.endpoint, &call).await.context(name)?;
            }
        }
        Ok(())
    }

    fn workloads(&self) -> Vec<(&'static str, Work, Vec<&'static str>)> {
        let all = vec![DIRECT, OWN, GATEWAY, "HAProxy", "nginx"];
        let more = [
            DIRECT_CERTIFICATE,
            OWN_CERTIFICATE,
            GATEWAY_CERTIFICATE,
            GATEWAY_AUDIT,
            BALANCER,
        ];
        let get = Call::get(format!("{MANY}/bench-7"));
        let local = Call::get(format!("{LOCAL}/bench-7"));
        let discovery = Call::get_as("/apis", DISCOVERY_TYPE);
        let watch = Work::Watch {
            collection: FEW.to_owned(),
            object: format!("{FEW}/bench-7"),
            writer: Some(self.place.endpoint(self.newer.address())),
            changes: 10,
        };
        vec![
            (
                GET,
                Work::ask(get.clone(), CLIENTS, 3000),
                [&all[..], &more].concat(),
            ),
            (GET_ALONE, Work::ask(get, 1, 500), all.clone()),
            (
                GET_LOCAL,
                Work::ask(local, CLIENTS, 3000),
                vec![OLDER, GATEWAY, BALANCER],
            ),
            (
                LIST_20,
                Work::ask(Call::get(FEW), CLIENTS, 1500),
                all.clone(),
            ),
            (
                LIST_5000,
                Work::ask(Call::get(MANY), CLIENTS, 32),
                all.clone(),
            ),
            (
                DISCOVERY,
                Work::ask(discovery.clone(), CLIENTS, 3000),
                all.clone(),
            ),
            (
                DISCOVERY_304,
                Work::ask_again(discovery, CLIENTS, 3000),
                all.clone(),
            ),
            // nginx 1.22 keeps the head of an answer back until there is some of its body: an idle watch does not begin.
            (WATCH, watch, all[..4].to_vec()),
            (CREATE, Work::ask(large(), CLIENTS, 24), all),
        ]
    }

    fn setup(&self, name: &'static str) -> anyhow::Result<Setup> {
        let (address, proxy) = match name {
            DIRECT | DIRECT_CERTIFICATE => (self.newer.address(), None),
            OWN | OWN_CERTIFICATE | OLDER => (self.older.address(), None),
            GATEWAY | GATEWAY_CERTIFICATE => (self.gateway.address(), self.gateway.id()),
            GATEWAY_AUDIT => (self.auditing.address(), self.auditing.id()),
            BALANCER => (self.balancer.address(), self.balancer.id()),
            name => {
                let mut all = self.ordinary.iter();
                let found = all.find(|(ordinary, ..)| ordinary.name() == name);
                let (_, daemon, address) = found.context(name)?;
                (*address, daemon.id())
            }
        };
        let roles = [
            ("proxy", proxy),
            ("older", self.older.id()),
            ("newer", self.newer.id()),
            ("etcd", self.etcd.id()),
        ];
        let known = roles.into_iter();
        let processes = known.filter_map(|(role, pid)| Some(Metered { role, pid: pid? }));
        let mut endpoint = self.place.endpoint(address);
        endpoint.certificate =
            [DIRECT_CERTIFICATE, OWN_CERTIFICATE, GATEWAY_CERTIFICATE].contains(&name);
        Ok(Setup {
            name,
            endpoint,
            processes: processes.collect(),
        })
    }

    async fn delete_large(&self) -> anyhow::Result<()> {
        let endpoint = self.place.endpoint(self.newer.address());
        let mut call = Call::get(format!("{MANY}?labelSelector=large%3Dyes"));
        call.method = "DELETE";
        let mut client = Client::connect(&endpoint).await?;
        client.ask(&call).await?;
        Ok(())
    }
}

/// The newer API has no field for a megabyte; the name of an owner may be as long as one likes.
fn large() -> Call {
    let owner = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "uid": "00000000-0000-4000-8000-000000000000",
        "name": "x".repeat(LARGE),
    });
    let object = json!({
        "apiVersion": "storagemigration.k8s.io/v1",
        "kind": "StorageVersionMigration",
        "metadata": {
            "generateName": "large-",
            "labels": {"large": "yes"},
            "ownerReferences": [owner],
        },
        "spec": {"resource": {"group": "", "resource": "secrets"}},
    });
    // The server chooses the names.
    Call::create(MANY, object.to_string())
}
