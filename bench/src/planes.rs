//! A control plane of two servers from nothing: `peerage up`, and two kube-apiservers with an etcd.
//!
//! `peerage up` also makes its certificates in that time; the others find theirs.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peerage_testkit::kube::{Apiserver, Etcd, KubeApiserver};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::measure::Plan;
use crate::meter::{self, Memory};
use crate::place::{self, Place};
use crate::results::{Part, Results, Start};
use crate::servers::until_ready;

pub(crate) const UP: &str = "peerage up";
pub(crate) const UP_AGAIN: &str = "peerage up, again in the same directory";
pub(crate) const KUBE: &str = "two kube-apiservers with etcd";

/// After this the memory is looked at: what was needed for the start only may have been given back.
const CALM: Duration = Duration::from_secs(3);
/// What `peerage up` prints when it is ready.
const READY: &str = "export KUBECONFIG=";

/// Runs all rounds.
pub(crate) async fn run(plan: &Plan, results: &mut Results) -> anyhow::Result<()> {
    let kube = Kube::start().await?;
    for round in 0..plan.rounds {
        let directory = tempfile::tempdir()?;
        for what in [UP, UP_AGAIN] {
            let (ready, memory) = up(&plan.peerage, directory.path()).await.context(what)?;
            results.starts.push(start(what, round, ready, memory));
        }
        let (ready, memory) = kube.again_empty().await.context(KUBE)?;
        results.starts.push(start(KUBE, round, ready, memory));
    }
    Ok(())
}

fn start(what: &str, round: usize, ready: Duration, memory: Memory) -> Start {
    let ready_ms = ready.as_secs_f64() * 1000.0;
    eprintln!(
        "round {round} {what}: ready in {ready_ms:.0} ms, {} MB resident",
        memory.rss / 1024
    );
    Start {
        part: Part::Planes,
        what: what.to_owned(),
        round,
        ready_ms,
        memory,
    }
}

/// Runs `peerage up` until it is ready.
async fn up(peerage: &Path, directory: &Path) -> anyhow::Result<(Duration, Memory)> {
    let started = Instant::now();
    let mut child = Command::new(peerage)
        .args(["up", "--no-demo", "--data-dir"])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().context("no standard output")?;
    let _open = until_said(stdout).await?;
    let ready = started.elapsed();
    tokio::time::sleep(CALM).await;
    let pid = child.id().context("it ended")?;
    let memory = meter::memory_of_tree(pid);
    stop(&mut child, pid).await?;
    Ok((ready, memory))
}

/// The rest of the output has to be kept open: what writes into a closed pipe ends.
async fn until_said(stdout: ChildStdout) -> anyhow::Result<impl Sized> {
    let mut lines = BufReader::new(stdout).lines();
    loop {
        let line = lines.next_line().await?.context("it ended")?;
        if line.contains(READY) {
            return Ok(lines);
        }
    }
}

async fn stop(child: &mut Child, pid: u32) -> anyhow::Result<()> {
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
    let status = child.wait().await?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

struct Kube {
    servers: [Apiserver; 2],
    etcd: Etcd,
    place: Place,
}

impl Kube {
    async fn start() -> anyhow::Result<Self> {
        let place = Place::new()?;
        let etcd = place.etcd().await;
        let server = |name: &str| {
            let spec = KubeApiserver::of(place::KUBERNETES).named(name).own_proxy();
            spec.flags(&[&place.unaudited()])
        };
        let (pki, directory) = (&place.pki, place.directory());
        let older = server("older").emulating(place::OLDER);
        let older = older.start(pki, directory, &etcd.url()).await;
        let newer = server("newer").start(pki, directory, &etcd.url()).await;
        Ok(Self {
            servers: [older, newer],
            etcd,
            place,
        })
    }

    /// Starts all of it again without what was stored.
    async fn again_empty(&self) -> anyhow::Result<(Duration, Memory)> {
        self.servers.iter().for_each(|server| server.kill());
        self.etcd.kill();
        let data = format!("etcd-{}", self.etcd.address().port());
        std::fs::remove_dir_all(self.place.directory().join(data))?;
        let started = Instant::now();
        self.etcd.restart().await;
        self.servers.iter().for_each(|server| server.spawn());
        for server in &self.servers {
            until_ready(server, started).await?;
        }
        let ready = started.elapsed();
        tokio::time::sleep(CALM).await;
        let servers = self.servers.iter().map(|server| server.id());
        let all = servers.chain([self.etcd.id()]).flatten();
        let memory = all.map(meter::memory_of_tree);
        let memory = memory.fold(Memory::default(), |sum, it| Memory {
            rss: sum.rss + it.rss,
            pss: sum.pss + it.pss,
        });
        Ok((ready, memory))
    }
}
