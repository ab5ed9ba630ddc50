//! Clients that their users would write: small programs over client-go, controller-runtime, kube-rs, the Python and the
//! JavaScript client, and Helm.
//!
//! `interop/clients` has them. Each follows the ConfigMaps of a namespace that have a sequence number and prints a line
//! for each event; anything else that it says is what a user would see in a log.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::daemon::{Daemon, DaemonSpec, Ready};
use crate::kubectl::kubeconfig;
use crate::pki::Pki;

/// A program and the words that say what it is to do.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// Its name in messages.
    pub name: &'static str,
    /// What `interop/clients/build` calls it.
    build: &'static str,
    /// The first argument, where there are several ways to use it.
    mode: Option<&'static str>,
    /// Whether it prints each state of an object, not only what it made of the last.
    pub sees_each_state: bool,
}

/// Everything that follows ConfigMaps.
pub const LIBRARIES: [Library; 7] = [
    library("client-go", "go", Some("informer")),
    library("client-go-dynamic", "go", Some("dynamic")),
    Library {
        sees_each_state: false,
        ..library("controller-runtime", "go", Some("manager"))
    },
    library("kube-rs-watcher", "kube-rs", Some("watcher")),
    library("kube-rs-reflector", "kube-rs", Some("reflector")),
    library("python", "python", None),
    library("javascript", "javascript", None),
];

const fn library(name: &'static str, build: &'static str, mode: Option<&'static str>) -> Library {
    Library {
        name,
        build,
        mode,
        sees_each_state: true,
    }
}

/// A line that a client printed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// What happened: `READY` when it has listed, `DELETED`, or one of the library's words for a new state.
    #[serde(rename = "type")]
    pub kind: String,
    /// The ConfigMap.
    #[serde(default)]
    pub name: String,
    /// The sequence number in it.
    #[serde(default)]
    pub sequence: u64,
}

/// A client that runs. [`Daemon`]'s methods stop it.
pub struct Follower {
    /// What it is.
    pub library: Library,
    daemon: Daemon,
}

impl Library {
    /// Starts it as `admin` of the server at `url`; it has listed when this returns.
    pub async fn follow(self, url: &str, namespace: &str, pki: &Pki, directory: &Path) -> Follower {
        let build = self.build;
        let built = tokio::task::spawn_blocking(move || executable(build));
        let mut words = built.await.unwrap();
        let config = directory.join(format!("{}-{namespace}.kubeconfig", self.name));
        std::fs::write(&config, kubeconfig(url, pki, "admin")).unwrap();
        let program = PathBuf::from(words.remove(0));
        words.extend(self.mode.map(str::to_owned));
        words.extend([config.display().to_string(), namespace.to_owned()]);
        let name = format!("{}-{namespace}", self.name);
        let daemon = DaemonSpec {
            name,
            program,
            args: words,
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Printed("READY"),
        };
        Follower {
            library: self,
            daemon: Daemon::start(daemon).await,
        }
    }
}

impl Follower {
    /// What it has printed so far, in order.
    pub fn events(&self) -> Vec<Event> {
        let text = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let events = text.lines().map(serde_json::from_str);
        events.filter_map(Result::ok).collect()
    }

    /// What it says besides: what a user would find in its log, but for lines of klog that only inform.
    pub fn complaints(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let other = text
            .lines()
            .filter(|line| serde_json::from_str::<Event>(line).is_err());
        other
            .filter(|line| !informs(line))
            .map(str::to_owned)
            .collect()
    }

    /// What it has printed about each object, in order.
    pub fn by_object(&self) -> BTreeMap<String, Vec<Event>> {
        let mut objects: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        for event in self.events() {
            objects.entry(event.name.clone()).or_default().push(event);
        }
        objects
    }
}

/// `I1129 23:59:59.000000 …`: klog's way to say that nothing is wrong.
fn informs(line: &str) -> bool {
    let mut letters = line.chars();
    letters.next() == Some('I') && letters.take(4).all(|letter| letter.is_ascii_digit())
}

impl Deref for Follower {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// Helm's executable. The first time this takes minutes.
pub async fn helm() -> PathBuf {
    let built = tokio::task::spawn_blocking(|| executable("helm"));
    PathBuf::from(built.await.unwrap().remove(0))
}

/// The program and its first arguments.
fn executable(client: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/clients/build");
    let output = Command::new(&script)
        .arg(client)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    let (script, status) = (script.display(), output.status);
    assert!(status.success(), "{script} {client}: {status}");
    let words = String::from_utf8(output.stdout).unwrap();
    words.lines().map(str::to_owned).collect()
}
