//! The servers: started, replaced, killed; which are up.
//!
//! One task at a time disturbs them. Clients see a server's address and how often it was disturbed: a request that
//! broke off is excused only when its server was disturbed since it was sent, or is down.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;
use tempfile::TempDir;

use super::{NEWEST_ONLY, Plan};
use crate::cluster::until;
use crate::pki::Pki;
use crate::process::{ServerProcess, ServerSpec};
use crate::wire::{Client, Outgoing};

/// Several servers on one store.
pub struct Fleet {
    executable: PathBuf,
    pki: Pki,
    _directory: TempDir,
    slots: Vec<tokio::sync::Mutex<Slot>>,
    seen: Mutex<Vec<Seen>>,
}

struct Slot {
    spec: ServerSpec,
    process: Option<ServerProcess>,
}

/// What clients see of a server.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    address: Option<SocketAddr>,
    disturbed: u64,
}

/// A server as it was when a request was sent to it.
#[derive(Clone)]
pub struct Target {
    slot: usize,
    disturbed: u64,
    /// Asks it, as an administrator.
    pub client: Client,
}

impl Fleet {
    /// Starts all servers at the older version.
    pub async fn start(plan: &Plan) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::create(directory.path());
        let slots = (0..plan.servers).map(|slot| {
            tokio::sync::Mutex::new(Slot {
                spec: ServerSpec::peer(&format!("server-{slot}"), &plan.from, &plan.store),
                process: None,
            })
        });
        let fleet = Self {
            executable: plan.executable.clone(),
            pki,
            _directory: directory,
            slots: slots.collect(),
            seen: Mutex::new(vec![Seen::default(); plan.servers]),
        };
        futures::future::join_all((0..plan.servers).map(|slot| fleet.restart(slot))).await;
        fleet
    }

    /// Some server that is up.
    pub fn pick(&self, random: &mut StdRng) -> Target {
        let seen = self.seen.lock().unwrap().clone();
        let up: Vec<_> = (0..seen.len())
            .filter(|slot| seen[*slot].address.is_some())
            .collect();
        let slot = up[random.random_range(0..up.len())];
        self.target(slot, seen[slot])
    }

    /// All servers that are up.
    pub fn all(&self) -> Vec<Target> {
        let seen = self.seen.lock().unwrap().clone();
        let up = (0..seen.len()).filter(|slot| seen[*slot].address.is_some());
        up.map(|slot| self.target(slot, seen[slot])).collect()
    }

    fn target(&self, slot: usize, seen: Seen) -> Target {
        Target {
            slot,
            disturbed: seen.disturbed,
            client: Client::new(seen.address.unwrap(), &self.pki, "admin"),
        }
    }

    /// Whether a server was killed or stopped since it was picked.
    pub fn was_disturbed(&self, target: &Target) -> bool {
        let seen = self.seen.lock().unwrap()[target.slot];
        seen.address.is_none() || seen.disturbed != target.disturbed
    }

    fn see(&self, slot: usize, address: Option<SocketAddr>) {
        let mut seen = self.seen.lock().unwrap();
        seen[slot].address = address;
        seen[slot].disturbed += 1;
    }

    /// Kills a server (SIGKILL).
    pub async fn kill(&self, slot: usize) {
        eprintln!("kill server-{slot}");
        self.see(slot, None);
        if let Some(server) = self.slots[slot].lock().await.process.take() {
            server.process.kill();
        }
    }

    /// Starts a server that is down.
    pub async fn restart(&self, slot: usize) {
        let mut locked = self.slots[slot].lock().await;
        let server = ServerProcess::start(&self.executable, &self.pki, &locked.spec).await;
        self.see(slot, Some(server.address));
        eprintln!(
            "server-{slot} serves {} at {}",
            locked.spec.version, server.address
        );
        locked.process = Some(server);
    }

    /// Puts a server of another version in the place of one, which is killed or asked to stop.
    pub async fn replace(&self, slot: usize, version: &str, kill: bool) {
        if kill {
            self.kill(slot).await;
        } else {
            eprintln!("stop server-{slot}");
            self.see(slot, None);
            if let Some(server) = self.slots[slot].lock().await.process.take() {
                server.process.stop().await;
            }
        }
        self.slots[slot].lock().await.spec.version = version.to_owned();
        self.restart(slot).await;
    }

    /// Waits until each server lists the newest kind.
    pub async fn wait_until_all_know_the_newest(&self) {
        let request = Outgoing::new("GET", NEWEST_ONLY.collection);
        for target in self.all() {
            until("the newest kind is known", || async {
                let answer = target.client.send(&request).await;
                answer.is_ok_and(|answer| answer.status() == 200)
            })
            .await;
        }
    }

    /// Makes a namespace.
    pub async fn make_namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let request = Outgoing::new("POST", "/api/v1/namespaces").json("application/json", &object);
        let answer = self.all()[0].client.send(&request).await.unwrap();
        assert_eq!(answer.status(), 201, "{}", answer.in_words());
    }

    /// Stops all servers.
    pub async fn stop(&self) {
        for slot in &self.slots {
            if let Some(server) = slot.lock().await.process.take() {
                server.process.stop().await;
            }
        }
    }
}
