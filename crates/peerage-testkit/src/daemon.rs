//! A program that a test runs beside itself: real servers, which know nothing of tests, and ours alike.
//!
//! It can be killed, paused, resumed, stopped and started again with the same arguments, from any runtime: nothing here
//! holds on to one, so that several tests can share a daemon. It writes to a log file, whose end is shown when something
//! goes wrong. The kernel kills it when this process ends, however that happens; so that the end of a test's thread is
//! not taken for that, all are started by one thread that never ends.
//!
//! Signals go to the daemon's own id and to nothing else.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::wire::{Client, Outgoing};

/// How long a daemon may take to be ready. Real servers need seconds; much more when a machine's cores are busy.
const START: Duration = Duration::from_secs(120);
/// How long a daemon may take to stop when it is asked to.
const STOP: Duration = Duration::from_secs(90);
/// How often one is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How much of a log is shown.
const SHOWN_LINES: usize = 60;

/// How it is known that a daemon is ready.
#[derive(Clone)]
pub enum Ready {
    /// It takes connections.
    Tcp(SocketAddr),
    /// A path answers 200, without TLS.
    Http(SocketAddr, &'static str),
    /// A path answers 200 to a user.
    Https(Client, &'static str),
    /// Its log, which is in this file, has the words.
    Logged(PathBuf, &'static str),
}

impl Ready {
    async fn holds(&self) -> bool {
        match self {
            Self::Tcp(address) => TcpStream::connect(address).await.is_ok(),
            Self::Http(address, path) => plain(*address, "GET", path, "").await.is_ok(),
            Self::Https(client, path) => {
                let answer = client.send(&Outgoing::new("GET", path)).await;
                answer.is_ok_and(|answer| answer.status() == 200)
            }
            Self::Logged(file, words) => {
                std::fs::read_to_string(file).is_ok_and(|log| log.contains(words))
            }
        }
    }
}

/// A program and its arguments.
#[derive(Clone)]
pub struct DaemonSpec {
    /// Its name in messages, and its log file's.
    pub name: String,
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// A host name of its own, where that is what a server takes its identity from.
    pub hostname: Option<String>,
    /// Where its log is.
    pub directory: PathBuf,
    /// How it is known to be ready.
    pub ready: Ready,
}

/// A program that runs, or ran and can be started again.
pub struct Daemon {
    spec: DaemonSpec,
    child: Mutex<Option<Child>>,
}

impl Daemon {
    /// Starts a program; it is ready when this returns.
    pub async fn start(spec: DaemonSpec) -> Self {
        let daemon = Self {
            spec,
            child: Mutex::default(),
        };
        daemon.restart().await;
        daemon
    }

    /// Starts it again, on the same port, when it has ended; it is ready when this returns.
    pub async fn restart(&self) {
        self.spawn();
        self.ready().await;
    }

    /// Starts it again without waiting until it is ready.
    pub fn spawn(&self) {
        let mut child = self.child.lock().unwrap();
        assert!(child.is_none(), "{} runs already", self.spec.name);
        *child = Some(children_of_one_thread(self.command()));
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        let waited = timeout(START, async {
            while !self.spec.ready.holds().await {
                if let Some(status) = self.ended() {
                    panic!("{} ended: {status}\n{}", self.spec.name, self.log());
                }
                sleep(POLL).await;
            }
        });
        if waited.await.is_err() {
            panic!(
                "{} is not ready within {START:?}\n{}",
                self.spec.name,
                self.log()
            );
        }
    }

    /// Kills it (SIGKILL); it is gone when this returns.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it to stop (SIGTERM), as a service manager does, and waits until it has; how it ended.
    pub async fn stop(&self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let waited = timeout(STOP, async {
            loop {
                if let Some(status) = self.ended() {
                    return status;
                }
                sleep(POLL).await;
            }
        });
        let Ok(status) = waited.await else {
            panic!(
                "{} does not stop within {STOP:?}\n{}",
                self.spec.name,
                self.log()
            );
        };
        self.child.lock().unwrap().take();
        status
    }

    /// Freezes it (SIGSTOP): connections stay, and nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends it a signal; it has to run.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.lock().unwrap();
        let child = child
            .as_ref()
            .unwrap_or_else(|| panic!("{} does not run", self.spec.name));
        let id = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(id, signal).unwrap();
    }

    /// Its process id; none when it was killed or stopped.
    pub fn id(&self) -> Option<u32> {
        self.child.lock().unwrap().as_ref().map(Child::id)
    }

    /// How it ended, when it was started and runs no more.
    pub fn ended(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap();
        child.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        let file = self.log_file();
        let text = std::fs::read(&file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        let shown: String = shown
            .iter()
            .map(|line| format!("    {:.600}\n", line))
            .collect();
        format!("the end of {}:\n{shown}", file.display())
    }

    /// The file of its log.
    pub fn log_file(&self) -> PathBuf {
        self.spec.directory.join(format!("{}.log", self.spec.name))
    }

    fn command(&self) -> Command {
        let spec = &self.spec;
        let mut command = match &spec.hostname {
            None => Command::new("setpriv"),
            Some(name) => with_hostname(name),
        };
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&spec.program)
            .args(&spec.args);
        command.env_clear().env("PATH", path()).env("TZ", "UTC");
        command.env("HOME", &spec.directory);
        let log = log_file(&self.log_file());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.spec.name, self.log());
        }
        self.kill();
    }
}

/// A shell in a namespace of host names, which becomes the program; the process id stays the same.
fn with_hostname(name: &str) -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::Uid::effective().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let script = r#"hostname "$1" && shift && exec setpriv "$@""#;
    command.args(["--uts", "--", "sh", "-c", script, "sh", name]);
    command
}

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

fn log_file(path: &Path) -> File {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs a command from the one thread that starts all of them, whose end would be that of its children.
fn children_of_one_thread(command: Command) -> Child {
    type Job = (Command, mpsc::Sender<std::io::Result<Child>>);
    static STARTER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, reply) in jobs {
                // Whoever asked waits for it.
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let words = format!("{command:?}");
    let (reply, started) = mpsc::channel();
    STARTER.lock().unwrap().send((command, reply)).unwrap();
    let started = started.recv().unwrap();
    started.unwrap_or_else(|e| panic!("{words}: {e} (util-linux is needed)"))
}

/// A request without TLS on a connection of its own; the body of a 200, and else the whole answer as an error.
pub(crate) async fn plain(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<String, String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(Duration::from_secs(30), exchange).await;
    let answer = answer
        .map_err(|_| "no answer".to_owned())?
        .map_err(|e| e.to_string())?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(answer),
    }
}
