//! Many idle watches, and how long a change takes to reach all of them.
//!
//! The writer asks a server directly, so that every setup gets the same changes; the time runs from when the write is
//! sent until a watcher has read the line of its event.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::load::{Call, Client, Endpoint, Loaded};

/// Watches on one connection: less than servers allow by default, as the many clients of a cluster have.
const PER_CONNECTION: usize = 50;
/// How long a change may take to reach everybody.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two changes, so that the one does not wait for the other.
const PAUSE: Duration = Duration::from_millis(20);

/// Watches that are open.
pub(crate) struct Watches {
    count: usize,
    arrivals: mpsc::UnboundedReceiver<Instant>,
    tasks: JoinSet<()>,
    _clients: Vec<Client>,
}

impl Watches {
    /// Opens watches of a collection from now on.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        collection: &str,
        count: usize,
    ) -> anyhow::Result<Self> {
        let mut first = Client::connect(endpoint).await?;
        let list = first
            .ask(&Call::get(format!("{collection}?limit=1")))
            .await?;
        let list: Value = serde_json::from_slice(list.body())?;
        let version = list["metadata"]["resourceVersion"].as_str();
        let version = version.context("a list without a resourceVersion")?;
        let target = format!("{collection}?watch=true&resourceVersion={version}");
        let call = Call::get(target);
        let connections = count.div_ceil(PER_CONNECTION);
        let groups = (0..connections).map(|at| {
            let here = PER_CONNECTION.min(count - at * PER_CONNECTION);
            on_one_connection(endpoint, &call, here)
        });
        let (report, arrivals) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let mut clients = Vec::new();
        for (client, bodies) in try_join_all(groups).await? {
            clients.push(client);
            for body in bodies {
                tasks.spawn(follow(body, report.clone()));
            }
        }
        Ok(Self {
            count,
            arrivals,
            tasks,
            _clients: clients,
        })
    }

    /// Writes so many times, and waits each time until every watcher knows.
    pub(crate) async fn run(
        mut self,
        writer: &Endpoint,
        object: &str,
        changes: usize,
    ) -> anyhow::Result<Loaded> {
        let mut writer = Client::connect(writer).await?;
        let mut latencies = Vec::new();
        let run = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let run = run.as_millis();
        let started = Instant::now();
        for tick in 0..changes {
            let body = format!(r#"{{"metadata":{{"labels":{{"tick":"{run}-{tick}"}}}}}}"#);
            let write = Call::with("PATCH", object, "application/merge-patch+json", body);
            let sent = Instant::now();
            writer.ask(&write).await?;
            for _ in 0..self.count {
                let arrived = tokio::time::timeout(PATIENCE, self.arrivals.recv()).await;
                let arrived = arrived.context("a watcher did not hear of a change")?;
                let arrived = arrived.context("all watches ended")?;
                latencies.push(arrived.duration_since(sent));
            }
            tokio::time::sleep(PAUSE).await;
        }
        ensure!(self.tasks.try_join_next().is_none(), "a watch ended");
        latencies.sort_unstable();
        Ok(Loaded {
            seconds: started.elapsed().as_secs_f64(),
            latencies,
            bytes: 0,
        })
    }
}

async fn on_one_connection(
    endpoint: &Endpoint,
    call: &Call,
    count: usize,
) -> anyhow::Result<(Client, Vec<Incoming>)> {
    let mut client = Client::connect(endpoint).await?;
    let mut bodies = Vec::new();
    for _ in 0..count {
        bodies.push(client.open(call, 0).await?.into_body());
    }
    Ok((client, bodies))
}

/// Reports when each event has been read. An event is a line.
async fn follow(mut body: Incoming, report: mpsc::UnboundedSender<Instant>) {
    while let Some(Ok(frame)) = body.frame().await {
        let now = Instant::now();
        let data = frame.into_data().unwrap_or_default();
        for _ in data.iter().filter(|byte| **byte == b'\n') {
            if report.send(now).is_err() {
                return;
            }
        }
    }
}
