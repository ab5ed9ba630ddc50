//! Row 14: a flag that is missing.

use tokio::process::Command;

use super::{Row, World, has};
use crate::ours::executable;
use crate::versions;

/// What a server and gateways do whom nobody told whose certificates to believe of peers.
pub(super) async fn without_an_authority_for_peers(world: &World) -> Row {
    let kubernetes = kube_apiserver(world).await;
    let upstream = format!("--upstream={}", world.server("older").url());
    let peer = format!("--peer={}", world.server("newer-a").url());
    let sidecar = gateway(world, &[&upstream, &peer]).await;
    let balancer = gateway(world, &[&peer]).await;
    let what = "what is started without --peer-ca-file";
    let row = Row::of(14, what, [kubernetes, sidecar, balancer]);
    row.expect(has("does not start, and says why: error: --peer-ca-file"))
}

async fn kube_apiserver(world: &World) -> String {
    let spec = versions::kube_apiserver(&versions::older()).named("bare");
    let spec = spec.gate("UnknownVersionInteroperabilityProxy=true");
    let bare = world.plane.start(spec).await;
    let log = std::fs::read_to_string(bare.log_file()).unwrap();
    bare.stop().await;
    // At its start it lists all flags, whether they matter or not.
    let mut lines = log.lines().filter(|line| !line.contains("FLAG:"));
    match lines.find(|line| line.contains("peer-ca")) {
        Some(line) => format!("starts, and says: {line}"),
        None => "starts, and says nothing".to_owned(),
    }
}

async fn gateway(world: &World, servers: &[&str]) -> String {
    let file = |flag: &str, name: &str| {
        let path = world.plane.pki().file(name);
        format!("--{flag}={}", path.display())
    };
    let output = Command::new(executable())
        .args(["gateway", "--bind-address=127.0.0.1", "--secure-port=0"])
        .args([
            file("tls-cert-file", "server.crt"),
            file("tls-private-key-file", "server.key"),
            file("client-ca-file", "ca.crt"),
            file("proxy-client-cert-file", "front-proxy-client.crt"),
            file("proxy-client-key-file", "front-proxy-client.key"),
        ])
        .args(servers)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(10), output).await;
    match output {
        Err(_) => "starts".to_owned(),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
            let said = said.lines().next().unwrap_or_default().to_owned();
            format!("does not start, and says why: {said}")
        }
    }
}
