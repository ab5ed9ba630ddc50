//! Executables of real servers, built from their Go modules by `interop/go/build` when they are first asked for.
//!
//! That script keeps them by name and version, lets one build while others wait, and says on standard error what it
//! does; here is only which module has which program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of a minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program<'a> {
    /// kube-apiserver, of `1.37`.
    KubeApiserver(&'a str),
    /// kube-controller-manager, of `1.37`.
    KubeControllerManager(&'a str),
    /// etcd, of `3.6`.
    Etcd(&'a str),
    /// The project's own part of a kubelet.
    Kubelet,
}

impl Program<'_> {
    /// The executable. The first time this takes minutes.
    pub async fn executable(self) -> PathBuf {
        let (module, program) = match self {
            Self::KubeApiserver(version) => (format!("kubernetes-{version}"), "kube-apiserver"),
            Self::KubeControllerManager(version) => {
                (format!("kubernetes-{version}"), "kube-controller-manager")
            }
            Self::Etcd(version) => (format!("etcd-{version}"), "etcd"),
            Self::Kubelet => ("kubelet".to_owned(), "kubelet"),
        };
        let built = tokio::task::spawn_blocking(move || build(&module, program));
        built.await.unwrap()
    }
}

fn build(module: &str, program: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/go/build");
    let output = Command::new(&script)
        .args([module, program])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    assert!(
        output.status.success(),
        "{} {module} {program}: {}",
        script.display(),
        output.status
    );
    String::from_utf8(output.stdout).unwrap().trim().into()
}
