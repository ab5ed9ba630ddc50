//! Each server by itself: whether it can be reached, is ready, and takes part in the Mixed Version Proxy.

use super::command_line::{GATE, ON_BY_DEFAULT};
use super::report::{Item, some};
use super::rights;
use super::series::samples;
use super::world::{Answers, Behind, Gateway, Problem, Server, Way, World, good};
use crate::diff::lifecycle::Release;
use crate::output::counted;
use serde_json::Value;

const REACHABLE: &str = "reachable";
const READY: &str = "ready";
const PROXY: &str = "proxy";
const PEER: &str = "peer";
/// What does without servers' own proxies.
const GATEWAY: &str = "put `peerage gateway` before the servers, and name it with --gateway";
/// How many other contexts of a server are named.
const ALSO: usize = 5;
/// The check of `/readyz` that is there when the filter is: with the gate and `--peer-ca-file`.
const HOOK: &str = "poststarthook/mixed-version-proxy-handler";
/// The first release whose proxy merges discovery and asks peers for what they serve themselves.
const MERGES: Release = Release(1, 35);

/// Judges each server by itself, and each gateway.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let servers = world.servers.iter();
    let servers = servers.flat_map(|server| judge_server(world, server));
    let unusable = world.unusable.iter().map(|it| {
        let says = format!("not asked: its context cannot be used: {}", it.why);
        Item::skip(REACHABLE, &it.name, says)
    });
    servers
        .chain(unusable)
        .chain(
            world
                .gateways
                .iter()
                .flat_map(|it| judge_gateway(world, it)),
        )
        .collect()
}

fn judge_gateway(world: &World, gateway: &Gateway) -> Vec<Item> {
    let name = &gateway.url;
    let seen = peers(world, &gateway.peers(), name);
    let ready = match good(&gateway.ready) {
        Ok(_) => Item::pass(READY, name, "/readyz is good (a gateway)"),
        Err(Problem::Other(text)) => Item::fail(READY, name, without_address(&text, name)).fix(
            match gateway.peers().is_empty() {
                true => "start it, or correct --gateway (it is the gateway's --admin-bind-address)",
                false => "see what is said of its servers",
            },
        ),
        Err(problem) => Item::fail(
            READY,
            name,
            format!("no gateway: /readyz: {}", rights::in_words(&problem)),
        )
        .fix("--gateway is the gateway's --admin-bind-address"),
    };
    let mut items = vec![ready];
    items.extend(seen);
    items
}

/// What went wrong, without the address that the item is already about.
fn without_address(text: &str, url: &str) -> String {
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let text = text.strip_prefix(url).unwrap_or(text).trim_start();
    text.replace(&format!(" at {host}"), "")
}

fn judge_server(world: &World, server: &Server) -> Vec<Item> {
    let name = &server.name;
    let seen = match &server.handshake {
        Ok(seen) => seen,
        Err(error) => {
            let fix =
                "start it, or let this machine reach its port; nothing else of it was checked";
            let says = match server.address == *name {
                true => error.to_string(),
                false => format!("{error}, at {}", server.address),
            };
            return vec![Item::fail(REACHABLE, name, says).fix(fix).blind()];
        }
    };
    let answers = match &server.answers {
        Ok(answers) => answers,
        Err(problem) => {
            let fix = "see what is said of its certificate; nothing else of it was checked";
            let problem = problem
                .trim_start_matches(&server.connection.url)
                .trim_start();
            return vec![Item::fail(REACHABLE, name, problem).fix(fix).blind()];
        }
    };
    let version = server
        .version()
        .map_or_else(|| "unknown version".to_owned(), |it| it.text);
    let mut says = format!(
        "{version} at {}, {} ms",
        server.address,
        seen.took.as_millis()
    );
    if !server.also.is_empty() {
        let also = some(&server.also, ALSO);
        says.push_str(&format!(
            "; it is asked as {name}, and not as {also}, which lead there too"
        ));
    }
    let mut items = vec![
        Item::pass(REACHABLE, name, says),
        ready(name, answers),
        proxy(world, server, answers),
    ];
    if let Some(debug) = server.debug() {
        let seen = debug["peers"].as_array().cloned().unwrap_or_default();
        items.extend(peers(world, &seen, name));
    }
    items
}

fn ready(name: &str, answers: &Answers) -> Item {
    match good(&answers.ready) {
        Ok(_) => Item::pass(READY, name, "/readyz is good"),
        Err(Problem::Other(_)) => {
            let text = answers.ready.as_ref().map(|it| it.body.clone());
            let text = text.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let failed: Vec<String> = text
                .lines()
                .filter_map(|line| line.strip_prefix("[-]"))
                .map(|line| line.split(' ').next().unwrap_or(line).to_owned())
                .collect();
            Item::fail(READY, name, format!("/readyz fails: {}", some(&failed, 6)))
                .fix("see its log for what these checks wait for")
        }
        Err(problem) => rights::unread(READY, name, rights::HEALTH, &problem),
    }
}

/// Whether it reroutes and merges, by what it says of its gates and serves.
fn proxy(world: &World, server: &Server, answers: &Answers) -> Item {
    let name = &server.name;
    if server.is_gateway() {
        let by = server.answered_by();
        let by = by.map_or(String::new(), |by| format!(" (this was answered by {by})"));
        return Item::pass(PROXY, name, format!("a gateway{by}"));
    }
    if let Some(Behind { gateway, serving }) = world.behind(server) {
        let says = format!("clients come through the gateway {gateway}");
        return match serving {
            true => Item::pass(PROXY, name, format!("{says}, whatever its own proxy does")),
            false => Item::skip(PROXY, name, format!("{says}, which cannot use it now")),
        };
    }
    if let Some(debug) = server.debug() {
        return match debug["enabled"] == false {
            false => Item::pass(PROXY, name, "on (Peerage's)"),
            true => lacking(
                world,
                name,
                "off: no request is forwarded",
                "--peer-ca-file, --proxy-client-cert-file and --proxy-client-key-file, as `peerage pki init` prints them",
            ),
        };
    }
    match good(&answers.metrics) {
        Ok(metrics) => by_gate(
            world,
            server,
            answers,
            &String::from_utf8_lossy(&metrics.body),
        ),
        Err(problem) => without_metrics(name, answers, &problem),
    }
}

/// By the gate in its metrics, and what its `/readyz` checks.
fn by_gate(world: &World, server: &Server, answers: &Answers, metrics: &str) -> Item {
    let name = &server.name;
    let version = server.version();
    let is_old = version.as_ref().is_some_and(|it| it.binary < MERGES);
    let gates = samples(metrics, "kubernetes_feature_enabled");
    let gate = gates.iter().find(|it| it.label("name") == GATE);
    match (gate.map(|it| it.value > 0.0), hook(answers)) {
        (None, _) => {
            let says = format!("it has no gate {GATE}: it cannot reroute");
            lacking(world, name, &says, GATEWAY)
        }
        (Some(false), _) => gate_off(world, name, version.map(|it| it.emulated), is_old),
        (Some(true), Ok(false)) => {
            let says = "the gate is on, but without --peer-ca-file it reroutes and merges nothing, and says nothing about it";
            let flags =
                "--peer-ca-file=/etc/kubernetes/pki/ca.crt (`peerage check --print kubeadm`)";
            lacking(world, name, says, &format!("{flags}, or {GATEWAY}"))
        }
        (Some(true), _) if is_old => Item::warn(
            PROXY,
            name,
            "on, but before 1.35 it merges no discovery, takes newer peers' merged documents for their own, so that requests go to servers that answer 404, and may end itself when a peer's discovery cannot be read",
        )
        .fix(format!(
            "--feature-gates={GATE}=false there and `peerage gateway` before the servers, or upgrade this one first"
        )),
        (Some(true), Ok(true)) => Item::pass(PROXY, name, format!("on: the gate, and {HOOK}")),
        (Some(true), Err(problem)) => {
            let mut item = rights::unread(PROXY, name, rights::HEALTH, &problem);
            let not_known = "the gate is on; whether --peer-ca-file is there is not known";
            item.says = format!("{not_known}: {}", item.says);
            item
        }
    }
}

/// The item for a server that can do nothing for what only others have. That fails while there is such a thing.
fn lacking(world: &World, name: &str, says: &str, fix: &str) -> Item {
    match world.way() {
        Way::NotYet(release) => {
            let says = format!(
                "{says}; there is nothing to merge yet, all servers that were asked being {release}"
            );
            Item::warn(PROXY, name, says).fix(format!("before the upgrade begins: {fix}"))
        }
        _ => Item::fail(PROXY, name, says).fix(fix),
    }
}

fn gate_off(world: &World, name: &str, release: Option<Release>, is_old: bool) -> Item {
    let default = match release {
        Some(release) if release < ON_BY_DEFAULT => " (the default before 1.36)",
        _ => "",
    };
    let fix = match is_old {
        true => format!("{GATEWAY}, and leave the gate off until 1.35"),
        false => format!(
            "--feature-gates={GATE}=true and --peer-ca-file (`peerage check --print kubeadm`), or {GATEWAY}"
        ),
    };
    let says = format!("the gate {GATE} is off{default}");
    lacking(world, name, &says, &fix)
}

/// Whether its `/readyz` checks the proxy, as far as it says what it checks: it does so well or not.
fn hook(answers: &Answers) -> Result<bool, Problem> {
    let answer = answers
        .ready
        .as_ref()
        .map_err(|e| Problem::Other(e.clone()))?;
    let text = String::from_utf8_lossy(&answer.body);
    let is_list = text
        .lines()
        .any(|it| it.starts_with("[+]") || it.starts_with("[-]"));
    match good(&answers.ready) {
        Err(problem) if !is_list => Err(problem),
        _ => Ok(text.contains(HOOK)),
    }
}

/// `/readyz` tells as much of it as anyone may read.
fn without_metrics(name: &str, answers: &Answers, problem: &Problem) -> Item {
    let (right, problem, seen) = match hook(answers) {
        Ok(true) => return Item::pass(PROXY, name, format!("on: {HOOK} is there")),
        Ok(false) => (
            rights::METRICS,
            problem.clone(),
            "is not there, so nothing is rerouted",
        ),
        Err(problem) => (rights::HEALTH, problem, "may be there or not"),
    };
    let mut item = rights::unread(PROXY, name, right, &problem);
    item.says = format!("{HOOK} {seen}; {}", item.says);
    item
}

/// What one of Peerage's servers says of its peers, but for those that are said to be away already.
fn peers(world: &World, peers: &[Value], name: &str) -> Vec<Item> {
    let told = |it: &&Value| !world.is_away(&it["address"]);
    let items = peers.iter().filter(told).map(|peer| {
        let text = |key: &str| peer[key].as_str().unwrap_or_default().to_owned();
        let subject = format!("{} seen by {}", text("id"), name);
        let (state, why) = (text("state"), text("why"));
        if let Some(message) = peer["error"]["message"].as_str() {
            return Item::warn(PEER, &subject, format!("{state}: {message}"))
                .fix("see what is said of its port and certificate");
        }
        let not_its_own = peer["notItsOwn"].as_u64().unwrap_or_default();
        match state.as_str() {
            "serving" if not_its_own > 0 => Item::warn(
                PEER,
                &subject,
                format!(
                    "answers merged documents: lists {} that it does not serve",
                    counted(not_its_own, "API")
                ),
            )
            .fix("upgrade it to 1.35 or newer, or name the server itself and not a load balancer"),
            "serving" => Item::pass(PEER, &subject, why),
            "gone" | "unreachable" | "crashed" => {
                Item::fail(PEER, &subject, format!("{state}: {why}"))
                    .fix("start it again, or delete its identity Lease if it is not coming back")
            }
            _ => Item::warn(PEER, &subject, format!("{state}: {why}"))
                .fix("wait until it is heard; if that does not happen, see its log and what is said of its port"),
        }
    });
    items.collect()
}
