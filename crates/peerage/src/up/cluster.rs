//! The processes of `peerage up` together: started in order, kept running, stopped in the reverse order.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures::future::{FutureExt, select_all};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::layout::{Layout, Member};
use super::process::{Process, Spec, obituary};
use crate::client::{ApiClient, PATIENCE};
use crate::exit::{Failure, Kind};
use crate::pki::directory;
use crate::pki::kubeconfig::Connection;

/// How long a process may take to be ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often readiness is asked for.
const POLL: Duration = Duration::from_millis(50);
/// How long a process may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long to wait before a process that ended by itself is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(3);

/// A process and how to start it again.
struct Slot {
    spec: Spec,
    process: Option<Process>,
}

/// The store and the servers.
pub(super) struct Cluster {
    layout: Layout,
    /// The store first, then the servers in the layout's order.
    slots: Vec<Slot>,
}

impl Cluster {
    /// Nothing runs yet.
    pub(super) fn new(layout: Layout) -> Self {
        let servers = layout
            .members()
            .iter()
            .map(|member| layout.server_process(member));
        let specs = std::iter::once(layout.store_process()).chain(servers);
        let slots = specs
            .map(|spec| Slot {
                spec,
                process: None,
            })
            .collect();
        Self { layout, slots }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A client of a server, as `system:masters`.
    pub(super) fn client(&self, member: &Member) -> Result<ApiClient, Failure> {
        let url = format!("https://127.0.0.1:{}", member.port);
        let connection = Connection::of_directory(self.layout.pki(), url, directory::ADMIN)?;
        ApiClient::new(&connection, PATIENCE).map_err(|e| Failure::new(Kind::Failed, e))
    }

    /// Starts everything and waits until it is ready.
    pub(super) async fn start(&mut self) -> Result<(), Failure> {
        let store = format!("127.0.0.1:{}", self.layout.store_port());
        self.start_slot(0, &store).await?;
        for index in 0..self.layout.members().len() {
            self.start_member(index).await?;
        }
        Ok(())
    }

    /// Starts one server and waits until it is ready.
    async fn start_member(&mut self, index: usize) -> Result<(), Failure> {
        let url = format!("https://127.0.0.1:{}", self.layout.members()[index].port);
        self.start_slot(index + 1, &url).await
    }

    async fn start_slot(&mut self, slot: usize, place: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        self.launch(slot)?;
        self.wait_ready(slot).await?;
        let id = self.slots[slot]
            .process
            .as_ref()
            .and_then(Process::id)
            .unwrap_or_default();
        say!(
            "  {:<10} {place:<26} pid {id:<8} ready in {:.1} s",
            self.slots[slot].spec.name,
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn launch(&mut self, slot: usize) -> Result<(), Failure> {
        let slot = &mut self.slots[slot];
        slot.process = Some(Process::start(&slot.spec)?);
        Ok(())
    }

    async fn wait_ready(&mut self, slot: usize) -> Result<(), Failure> {
        let client = match slot.checked_sub(1) {
            None => None,
            Some(member) => Some(self.client(&self.layout.members()[member])?),
        };
        let store = SocketAddr::from((Ipv4Addr::LOCALHOST, self.layout.store_port()));
        let begun = Instant::now();
        let mut seen = String::new();
        while begun.elapsed() < START_LIMIT {
            self.check(slot)?;
            let answer = match &client {
                None => TcpStream::connect(store)
                    .await
                    .map(drop)
                    .map_err(|e| e.to_string()),
                Some(client) => client.ready().await,
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(problem) => seen = problem,
            }
            sleep(POLL).await;
        }
        let spec = &self.slots[slot].spec;
        Err(Failure::failed(format!(
            "{} is not ready after {} s ({seen}); see {}",
            spec.name,
            START_LIMIT.as_secs(),
            spec.log.display()
        )))
    }

    /// An error when that process has ended.
    fn check(&mut self, slot: usize) -> Result<(), Failure> {
        let slot = &mut self.slots[slot];
        match slot.process.as_mut().and_then(Process::ended) {
            Some(status) => Err(Failure::failed(obituary(&slot.spec, status))),
            None => Ok(()),
        }
    }

    /// What ended without being asked to, to explain another failure.
    pub(super) fn obituaries(&mut self) -> Vec<String> {
        let ended = |slot: &mut Slot| {
            let status = slot.process.as_mut()?.ended()?;
            Some(obituary(&slot.spec, status))
        };
        self.slots.iter_mut().filter_map(ended).collect()
    }

    /// Kills one server (SIGKILL) and waits until it is gone.
    pub(super) async fn kill_member(&mut self, index: usize) {
        if let Some(mut process) = self.slots[index + 1].process.take() {
            process.kill().await;
        }
    }

    /// Starts one server again; does not wait until it is ready.
    pub(super) fn relaunch_member(&mut self, index: usize) -> Result<(), Failure> {
        self.launch(index + 1)
    }

    /// Waits until a server is ready.
    pub(super) async fn wait_member(&mut self, index: usize) -> Result<(), Failure> {
        self.wait_ready(index + 1).await
    }

    /// Keeps everything running: what ends by itself is started again. Returns only when that fails.
    pub(super) async fn keep_running(&mut self) -> Result<(), Failure> {
        loop {
            let Some((slot, status)) = self.next_end().await else {
                return Err(Failure::failed("no process runs"));
            };
            let name = &self.slots[slot].spec.name;
            say!(
                "{name} ended ({status}); it is started again in {} s",
                RESTART_PAUSE.as_secs()
            );
            sleep(RESTART_PAUSE).await;
            self.launch(slot)?;
            self.wait_ready(slot).await?;
            say!("{} is back", self.slots[slot].spec.name);
        }
    }

    /// The next process that ends.
    async fn next_end(&mut self) -> Option<(usize, String)> {
        let waits = self
            .slots
            .iter_mut()
            .enumerate()
            .filter_map(|(index, slot)| {
                let process = slot.process.as_mut()?;
                Some(async move { (index, process.wait().await) }.boxed())
            });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return None;
        }
        let ((index, status), _, _) = select_all(waits).await;
        Some((
            index,
            status.map_or_else(|| "unknown".to_owned(), |status| status.to_string()),
        ))
    }

    /// Stops the servers together, then the store they write to.
    pub(super) async fn stop(&mut self) {
        let mut processes = self.slots.iter_mut().map(|slot| slot.process.take());
        let store = processes.next().flatten();
        let servers = processes.flatten();
        let stops = servers.map(|mut server| async move { server.stop(STOP_LIMIT).await });
        futures::future::join_all(stops).await;
        if let Some(mut store) = store {
            store.stop(STOP_LIMIT).await;
        }
    }
}
