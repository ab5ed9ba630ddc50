//! One process of `peerage up`: this same executable, started with other words.
//!
//! It has a process group of its own, so that Ctrl-C reaches only the one that stops the others in order, and a pipe as
//! standard input, whose other end only this process holds: when it is closed, by whatever end of this process, the
//! child stops (`--exit-with-stdin`).

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};

use crate::exit::Failure;

/// Lines of a log that are shown when its process has ended.
const LAST_LINES: usize = 12;

/// How to start a process.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// What it is called.
    pub(super) name: String,
    /// Its words after the executable's name.
    pub(super) args: Vec<String>,
    /// Where its output goes.
    pub(super) log: PathBuf,
}

/// A process that was started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Open as long as the child is to run.
    stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts it; the log is continued.
    pub(super) fn start(spec: &Spec) -> Result<Self, Failure> {
        let failed =
            |e: std::io::Error| Failure::failed(format!("cannot start {}: {e}", spec.name));
        let executable = std::env::current_exe().map_err(failed)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&spec.log)
            .map_err(|e| {
                Failure::unavailable(format!("cannot write {}: {e}", spec.log.display()))
            })?;
        let mut child = Command::new(executable)
            .args(&spec.args)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        // Taken out, because waiting for a child closes the one it still has.
        let stdin = child.stdin.take();
        Ok(Self { child, stdin })
    }

    /// Its process id, while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub(super) async fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill().await;
    }

    /// Asks it to stop, and ends it when it takes longer than `grace`.
    pub(super) async fn stop(&mut self, grace: Duration) {
        if let Some(id) = self.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        }
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            self.kill().await;
        }
        self.stdin = None;
    }
}

/// How a process ended, with the last lines of its log.
pub(super) fn obituary(spec: &Spec, status: ExitStatus) -> String {
    let lines = last_lines(&spec.log);
    let indented: String = lines.iter().map(|line| format!("\n    {line}")).collect();
    format!(
        "{} ended ({status}); the end of {}:{indented}",
        spec.name,
        spec.log.display()
    )
}

fn last_lines(log: &Path) -> Vec<String> {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
}
