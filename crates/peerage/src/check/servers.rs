//! Each server by itself: whether it can be reached, is ready, and takes part in the Mixed Version Proxy.

use super::command_line::{GATE, ON_BY_DEFAULT};
use super::gateways;
use super::report::{Item, some};
use super::rights;
use super::series::samples;
use super::world::{Answers, Problem, Server, Standing, Way, World, good};
use crate::diff::lifecycle::Release;

const REACHABLE: &str = "reachable";
const READY: &str = "ready";
const PROXY: &str = "proxy";
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
        .chain(gateways::judge(world))
        .collect()
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
        ready(world, server, answers),
        proxy(world, server, answers),
    ];
    if let Some(debug) = server.debug() {
        items.extend(gateways::told(world, &debug, name));
    }
    items
}

fn ready(world: &World, server: &Server, answers: &Answers) -> Item {
    let name = &server.name;
    let text = match (good(&answers.ready), &answers.ready) {
        (Ok(_), _) => return Item::pass(READY, name, "/readyz is good"),
        (Err(Problem::Other(_)), Ok(answer)) => answer,
        (Err(problem), _) => return rights::unread(READY, name, rights::HEALTH, &problem),
    };
    let body = String::from_utf8_lossy(&text.body);
    let failed: Vec<String> = body
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .map(|line| line.split(' ').next().unwrap_or(line).to_owned())
        .collect();
    let says = match failed.is_empty() {
        true => text.in_words(),
        false => some(&failed, 6),
    };
    let away = world.away();
    let fix = match (server.is_gateway(), away.is_empty()) {
        (false, _) => "see its log for what these checks wait for".to_owned(),
        (true, false) => format!("start {}, which it sends requests to", some(&away, 6)),
        (true, true) => {
            "start the servers behind it; with its --admin-bind-address as --gateway it is asked which".to_owned()
        }
    };
    Item::fail(READY, name, format!("/readyz fails: {says}")).fix(fix)
}

/// Whether it reroutes and merges, by what it says of its gates and serves.
fn proxy(world: &World, server: &Server, answers: &Answers) -> Item {
    let name = &server.name;
    if server.is_gateway() {
        let by = server.answered_by();
        let by = by.map_or(String::new(), |by| format!(" (this was answered by {by})"));
        return Item::pass(PROXY, name, format!("a gateway{by}"));
    }
    if let Some(behind) = world.behind(server) {
        let gateway = behind.gateway;
        let says = format!("clients come through the gateway {gateway}");
        return match behind.standing {
            Standing::Serving => {
                Item::pass(PROXY, name, format!("{says}, whatever its own proxy does"))
            }
            Standing::Away => Item::skip(PROXY, name, format!("{says}, which cannot use it now")),
            Standing::Unknown => Item::skip(
                PROXY,
                name,
                format!("not judged while {gateway} does not say which servers are behind it"),
            ),
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
