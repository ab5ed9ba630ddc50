//! What `peerage check --print` writes, given to those whom it is for: the gateway, started with the flags of the static pod
//! and of the systemd unit, beside a real server, and a real server that is asked whether it would take the objects.

use std::path::{Path, PathBuf};

use peerage_testkit::daemon::{DaemonSpec, Ready};
use peerage_testkit::kube::{Apiserver, ControlPlane, ports};
use peerage_testkit::pki::Pki;
use peerage_testkit::wire::Outgoing;
use serde_json::json;
use tokio::process::Command;

use crate::ours::executable;
use crate::versions::{self, NEWER_ONLY};

/// Where the printed files expect kubeadm's certificates.
const KUBEADM: &str = "/etc/kubernetes/pki";

async fn print(what: &str, plane: &ControlPlane) -> String {
    let file = |flag: &str, name: &str| format!("--{flag}={}", plane.pki().file(name).display());
    let output = Command::new(executable())
        .args(["check", "--print", what, "--kubeconfig=/there/is/none"])
        .args(["older", "newer"].map(|name| plane.server(name).url()))
        .arg(file("certificate-authority", "ca.crt"))
        .arg(file("client-certificate", "admin.crt"))
        .arg(file("client-key", "admin.key"))
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The certificates under the names that kubeadm gives them.
fn as_kubeadm_names_them(pki: &Pki, directory: &Path) -> PathBuf {
    let named = directory.join("kubeadm");
    std::fs::create_dir(&named).unwrap();
    for (name, file) in [
        ("apiserver.crt", "server.crt"),
        ("apiserver.key", "server.key"),
        ("ca.crt", "ca.crt"),
        ("front-proxy-client.crt", "front-proxy-client.crt"),
        ("front-proxy-client.key", "front-proxy-client.key"),
        ("front-proxy-ca.crt", "front-proxy-ca.crt"),
    ] {
        std::os::unix::fs::symlink(pki.file(file), named.join(name)).unwrap();
    }
    named
}

/// The flags in the lines that begin so, as the printed file itself says to find them; all servers of a test share a host,
/// so that ports and addresses are put in as whoever deploys them would.
fn flags(printed: &str, begins: &str, plane: &ControlPlane, pki: &Path) -> Vec<String> {
    let lines = printed.lines().filter_map(|it| it.strip_prefix(begins));
    let flags = lines.filter(|it| it.starts_with("--"));
    let flags = flags.filter_map(|it| it.split_whitespace().next());
    let mut servers = 0;
    let mut own: Vec<String> = Vec::new();
    for flag in flags {
        let (name, value) = flag.split_once('=').unwrap();
        own.push(match name {
            "--upstream" => format!("--upstream={}", plane.server("older").url()),
            "--peer" => {
                servers += 1;
                format!("--peer={}", plane.server("newer").url())
            }
            "--secure-port" => continue,
            _ => format!(
                "{name}={}",
                value.replace(KUBEADM, &pki.display().to_string())
            ),
        });
    }
    assert!(servers > 0, "no --peer in {printed}");
    own
}

/// A gateway with these flags and free ports; it is ready when this returns.
async fn start(name: &str, flags: Vec<String>, plane: &ControlPlane) -> Apiserver {
    let (address, admin) = (ports::free(), ports::free());
    let free = [
        format!("--secure-port={}", address.port()),
        format!("--admin-bind-address={admin}"),
    ];
    let first = std::iter::once("gateway".to_owned());
    let daemon = DaemonSpec {
        name: name.to_owned(),
        program: executable().to_owned(),
        args: first.chain(flags).chain(free).collect(),
        hostname: None,
        directory: plane.directory().to_owned(),
        ready: Ready::Http(admin, "/readyz"),
    };
    let audit = plane.directory().join("no-audit");
    Apiserver::start(daemon, address, plane.pki(), audit).await
}

/// Asks the newer server whether it would create an object of these words, none of them unknown to it.
async fn would_be_created(plane: &ControlPlane, collection: &str, object: &str) {
    let target = format!("{collection}?dryRun=All&fieldValidation=Strict");
    let mut create = Outgoing::new("POST", &target).header("Content-Type", "application/yaml");
    create.body = Some(object.as_bytes().to_vec());
    let server = plane.server("newer").client("admin");
    let answer = server.send(&create).await.unwrap();
    assert_eq!(answer.status(), 201, "{object}\n{}", answer.in_words());
}

#[tokio::test]
async fn what_is_printed_is_taken_by_those_whom_it_is_for() {
    let plane = versions::pair_without_own_proxies().await;
    let pki = as_kubeadm_names_them(plane.pki(), plane.directory());
    let pod = print("static-pod", &plane).await;
    let unit = print("systemd", &plane).await;
    for (name, printed, begins) in [("static-pod", &pod, "    - "), ("systemd", &unit, "  ")] {
        let gateway = start(name, flags(printed, begins, &plane, &pki), &plane).await;
        gateway.serves(NEWER_ONLY).await;
    }

    let system = "/api/v1/namespaces/kube-system";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = format!("{system}/serviceaccounts");
    plane.server("newer").create(&accounts, &account).await;
    let pod = pod.replace("<REPLACE-ME>", "peerage:1");
    would_be_created(&plane, &format!("{system}/pods"), &pod).await;
    let policy = print("network-policy", &plane).await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/kube-system/networkpolicies";
    would_be_created(&plane, policies, &policy).await;
}
