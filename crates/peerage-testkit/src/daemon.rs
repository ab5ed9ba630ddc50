//! A program that a test runs beside itself: real servers, which know nothing of tests, and ours alike.
//!
//! It can be killed, paused, resumed, stopped and started again with the same arguments, from any runtime: nothing here
//! holds on to one, so that several tests can share a daemon. It writes to a log file, whose end is shown when something
//! goes wrong. The kernel kills it when this process ends, however that happens; so that the end of a test's thread is
//! not taken for that, all are started by one thread that never ends. Where the kernel does not do so, its standard input
//! ends, which ours can be told to heed.
//!
//! Signals go to the daemon's own id and to nothing else: once it is known to have ended, that id may be another
//! program's, and who signals it is told how it ended instead.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
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
    /// It has printed a line with these words since it was started.
    Printed(&'static str),
    /// It has logged this message, as JSON, since it was started. What else that line says, such as a port that the
    /// system chose, is in [`Daemon::logged`].
    Logged(&'static str),
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
    state: Mutex<State>,
}

/// What is known of the process.
#[derive(Default)]
enum State {
    /// Not started yet, or ended as it was told to.
    #[default]
    Absent,
    /// It was running when it was last looked at; its log began here.
    Running(Child, u64),
    /// It ended by itself, and its id is nobody's or another's.
    Ended(ExitStatus),
}

impl State {
    /// Looks at it.
    fn now(&mut self) -> &mut Self {
        if let Self::Running(child, _) = self
            && let Some(status) = child.try_wait().unwrap()
        {
            *self = Self::Ended(status);
        }
        self
    }
}

/// Whether a thread of a process has not stopped, as far as the system says.
fn goes_on(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        // After the name, which may hold anything.
        stat.rsplit_once(") ")?.1.chars().next()
    });
    states.any(|state| !"TtZX".contains(state))
}

impl Daemon {
    /// Starts a program; it is ready when this returns.
    pub async fn start(spec: DaemonSpec) -> Self {
        let daemon = Self {
            spec,
            state: Mutex::default(),
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
        let mut state = self.state();
        let runs = matches!(state.now(), State::Running(..));
        if !runs {
            let logged = std::fs::metadata(self.log_file()).map_or(0, |file| file.len());
            *state = State::Running(children_of_one_thread(self.command()), logged);
        }
        drop(state);
        assert!(!runs, "{} runs already", self.spec.name);
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        let waited = timeout(START, async {
            while !self.is_ready().await {
                if let Some(status) = self.ended() {
                    self.complain(&format!("ended: {status}"));
                }
                sleep(POLL).await;
            }
        });
        if waited.await.is_err() {
            self.complain(&format!("is not ready within {START:?}"));
        }
    }

    async fn is_ready(&self) -> bool {
        match &self.spec.ready {
            Ready::Tcp(address) => TcpStream::connect(address).await.is_ok(),
            Ready::Http(address, path) => plain(*address, "GET", path, "").await.is_ok(),
            Ready::Https(client, path) => {
                let answer = client.send(&Outgoing::new("GET", path)).await;
                answer.is_ok_and(|answer| answer.status() == 200)
            }
            Ready::Printed(words) => self.printed().contains(words),
            Ready::Logged(message) => self.logged(message).is_some(),
        }
    }

    /// Kills it (SIGKILL); it is gone when this returns.
    pub fn kill(&self) {
        let state = std::mem::take(&mut *self.state());
        if let State::Running(mut child, _) = state {
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
            self.complain(&format!("does not stop within {STOP:?}"));
        };
        *self.state() = State::Absent;
        status
    }

    /// Freezes it (SIGSTOP): connections stay, and nothing answers. On a busy machine some of its threads go on for a
    /// while after the signal; none does when this returns.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let end = Instant::now() + START;
        while self.id().is_some_and(goes_on) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends it a signal; it has to run.
    pub fn signal(&self, signal: Signal) {
        let mut state = self.state();
        let wrong = match state.now() {
            State::Running(child, _) => {
                let id = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
                nix::sys::signal::kill(id, signal).unwrap();
                return;
            }
            State::Ended(status) => format!("ended by itself: {status}"),
            State::Absent => "does not run".to_owned(),
        };
        drop(state);
        self.complain(&wrong);
    }

    /// Its process id; none when it does not run.
    pub fn id(&self) -> Option<u32> {
        match self.state().now() {
            State::Running(child, _) => Some(child.id()),
            _ => None,
        }
    }

    /// How it ended, when it did so by itself.
    pub fn ended(&self) -> Option<ExitStatus> {
        match self.state().now() {
            State::Ended(status) => Some(*status),
            _ => None,
        }
    }

    /// Never poisoned for long: who finds it so panics for another reason.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, wrong: &str) -> ! {
        panic!("{} {wrong}\n{}", self.spec.name, self.log())
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

    /// What it has printed since it was started.
    fn printed(&self) -> String {
        let from = match &*self.state() {
            State::Running(_, from) => *from,
            _ => return String::new(),
        };
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(self.log_file()) {
            file.seek(SeekFrom::Start(from)).unwrap();
            file.read_to_end(&mut text).unwrap();
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The line with a message that it has logged as JSON since it was started.
    pub fn logged(&self, message: &str) -> Option<Value> {
        let printed = self.printed();
        let entries = printed.lines().map(serde_json::from_str::<Value>);
        let mut entries = entries.filter_map(Result::ok);
        entries.find(|entry| entry["message"] == message)
    }

    /// The file of its log.
    pub fn log_file(&self) -> PathBuf {
        self.spec.directory.join(format!("{}.log", self.spec.name))
    }

    fn command(&self) -> Command {
        let spec = &self.spec;
        let mut command = match &spec.hostname {
            Some(name) => with_hostname(name),
            None if cfg!(target_os = "linux") => Command::new("setpriv"),
            None => Command::new("env"),
        };
        if cfg!(target_os = "linux") {
            command.args(["--pdeathsig", "KILL", "--"]);
        }
        command.arg(&spec.program).args(&spec.args);
        command.env_clear().env("PATH", path()).env("TZ", "UTC");
        command.env("HOME", &spec.directory);
        let log = log_file(&self.log_file());
        command
            .stdin(Stdio::piped())
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
