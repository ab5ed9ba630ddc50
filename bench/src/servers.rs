//! `peerage apiserver`, on its own SQLite file and on an etcd, and kube-apiserver on an etcd: the same requests.
//!
//! All three run side by side with the same certificates and the same user, authorize by RBAC and audit nothing, and
//! their stores flush to the disk. The etcd counts with the server that it belongs to.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use peerage_testkit::kube::{Apiserver, Etcd, KubeApiserver, PeerageApiserver};
use peerage_testkit::process::ServerSpec;
use peerage_testkit::wire::Outgoing;
use serde_json::json;

use crate::load::{Call, Client, TOKEN};
use crate::measure::{Measurement, Plan, Setup, Size, Work};
use crate::meter::{self, Metered};
use crate::place::{self, Place};
use crate::proxies::CLIENTS;
use crate::results::{Part, Results, Start};

pub(crate) const KUBE: &str = "kube-apiserver, etcd";
pub(crate) const PEERAGE_ETCD: &str = "peerage apiserver, etcd";
pub(crate) const PEERAGE_SQLITE: &str = "peerage apiserver, SQLite";

pub(crate) const GET: &str = "GET";
pub(crate) const LIST_20: &str = "LIST of 20";
pub(crate) const LIST_5000: &str = "LIST of 5 000";
pub(crate) const CREATE: &str = "create";
pub(crate) const WATCH: &str = "watches of one server";

/// How long a server may take to start.
const START: Duration = Duration::from_secs(120);
/// How often a starting server is asked whether it is ready.
const POLL: Duration = Duration::from_millis(5);
/// After that, its memory is looked at.
const CALM: Duration = Duration::from_secs(2);

struct Server {
    name: &'static str,
    server: Apiserver,
    etcd: Option<Etcd>,
}

/// Runs all rounds.
pub(crate) async fn run(plan: &Plan, results: &mut Results) -> anyhow::Result<()> {
    let place = Place::new()?;
    let servers = start(&place, &plan.peerage).await;
    for server in &servers {
        let filled = fill(&place, server, plan.size).await;
        filled.context(server.name)?;
    }
    let workloads = workloads();
    for round in 0..plan.rounds {
        let mut order: Vec<&Server> = servers.iter().collect();
        order.rotate_left(round % servers.len());
        for (workload, work) in &workloads {
            let measurement = Measurement {
                part: Part::Servers,
                workload,
                round,
                size: plan.size,
            };
            for server in &order {
                if !plan.wants(workload, server.name) {
                    continue;
                }
                let setup = server.setup(&place);
                results.samples.push(measurement.of(&setup, work).await?);
                if *workload == CREATE {
                    server.forget_created(&place).await?;
                }
            }
        }
        for server in &order {
            results.starts.push(server.restart(round).await?);
        }
    }
    Ok(())
}

async fn start(place: &Place, peerage: &Path) -> Vec<Server> {
    let (pki, directory) = (&place.pki, place.directory());
    let unaudited = place.unaudited();
    let etcd = place.etcd().await;
    let kube = KubeApiserver::of(place::KUBERNETES).token(TOKEN, "bench", &["system:masters"]);
    let kube = kube.flags(&[&unaudited]);
    let kube = Server {
        name: KUBE,
        server: kube.start(pki, directory, &etcd.url()).await,
        etcd: Some(etcd),
    };
    let common = |mut spec: ServerSpec, name: &str| {
        name.clone_into(&mut spec.name);
        spec.flags.extend([unaudited.clone(), place.tokens()]);
        spec
    };
    let etcd = place.etcd().await;
    let spec = ServerSpec::alone(place::KUBERNETES);
    let mut on_etcd = common(spec.clone(), "on-etcd");
    on_etcd.store = Some(etcd.url());
    let on_etcd = Server {
        name: PEERAGE_ETCD,
        server: PeerageApiserver::start(peerage, pki, directory, &on_etcd).await,
        etcd: Some(etcd),
    };
    let mut on_sqlite = common(spec, "on-sqlite");
    let file = directory.join("peerage.db");
    let storage = format!("--storage=sqlite:{}", file.display());
    on_sqlite.flags.push(storage);
    let on_sqlite = Server {
        name: PEERAGE_SQLITE,
        server: PeerageApiserver::start(peerage, pki, directory, &on_sqlite).await,
        etcd: None,
    };
    vec![kube, on_etcd, on_sqlite]
}

async fn fill(place: &Place, server: &Server, size: Size) -> anyhow::Result<()> {
    let endpoint = place.endpoint(server.server.address());
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for name in ["few", "many", "made"] {
        place::create(&endpoint, "/api/v1/namespaces", &namespace(name), 1).await?;
    }
    let object = place::config_map("bench-NUMBER");
    place::create(&endpoint, &collection("few"), &object, 20).await?;
    place::create(&endpoint, &collection("many"), &object, size.objects).await
}

fn collection(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn workloads() -> Vec<(&'static str, Work)> {
    let (few, many) = (collection("few"), collection("many"));
    let mut object = place::config_map("");
    object["metadata"]["generateName"] = json!("made-");
    let create = Call::create(&collection("made"), object.to_string());
    let watch = Work::Watch {
        object: format!("{few}/bench-7"),
        collection: few.clone(),
        writer: None,
        changes: 10,
    };
    vec![
        (
            GET,
            Work::ask(Call::get(format!("{few}/bench-7")), CLIENTS, 5000),
        ),
        (LIST_20, Work::ask(Call::get(few), CLIENTS, 3000)),
        (LIST_5000, Work::ask(Call::get(many), CLIENTS, 48)),
        (CREATE, Work::ask(create, CLIENTS, 1500)),
        (WATCH, watch),
    ]
}

impl Server {
    fn setup(&self, place: &Place) -> Setup {
        let roles = [
            ("server", self.server.id()),
            ("etcd", self.etcd.as_ref().and_then(|etcd| etcd.id())),
        ];
        let known = roles.into_iter();
        let processes = known.filter_map(|(role, pid)| Some(Metered { role, pid: pid? }));
        Setup {
            name: self.name,
            endpoint: place.endpoint(self.server.address()),
            processes: processes.collect(),
        }
    }

    async fn forget_created(&self, place: &Place) -> anyhow::Result<()> {
        let endpoint = place.endpoint(self.server.address());
        let mut call = Call::get(collection("made"));
        call.method = "DELETE";
        Client::connect(&endpoint).await?.ask(&call).await?;
        Ok(())
    }

    /// Kills the server and starts it again; what it stores in goes on.
    async fn restart(&self, round: usize) -> anyhow::Result<Start> {
        self.server.kill();
        let started = Instant::now();
        self.server.spawn();
        until_ready(&self.server, started).await?;
        let ready = started.elapsed();
        tokio::time::sleep(CALM).await;
        let pid = self.server.id().context("it does not run")?;
        Ok(Start {
            part: Part::Servers,
            what: self.name.to_owned(),
            round,
            ready_ms: ready.as_secs_f64() * 1000.0,
            memory: meter::memory_of_tree(pid),
        })
    }
}

/// Waits until a server that was started says that it is ready.
pub(crate) async fn until_ready(server: &Apiserver, started: Instant) -> anyhow::Result<()> {
    let client = server.client("admin");
    loop {
        let answer = client.send(&Outgoing::new("GET", "/readyz")).await;
        if answer.is_ok_and(|answer| answer.status() == 200) {
            return Ok(());
        }
        ensure!(started.elapsed() < START, "{}", server.log());
        tokio::time::sleep(POLL).await;
    }
}
