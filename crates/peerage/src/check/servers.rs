//! Each server by itself: whether it can be reached, is ready, and takes part in the Mixed Version Proxy.

use super::command_line::{GATE, ON_BY_DEFAULT};
use super::report::{Item, some};
use super::rights;
use super::series::samples;
use super::world::{Answers, Gateway, Problem, Server, World, debug_peers, good};
use crate::diff::lifecycle::Release;
use crate::output::counted;
use serde_json::Value;

const REACHABLE: &str = "reachable";
const READY: &str = "ready";
const PROXY: &str = "proxy";
const PEER: &str = "peer";
/// How many other contexts of a server are named.
const ALSO: usize = 5;
/// The check of `/readyz` that is there when the filter is: with the gate and `--peer-ca-file`.
const HOOK: &str = "poststarthook/mixed-version-proxy-handler";
/// The first release whose proxy merges discovery and asks peers for what they serve themselves.
const MERGES: Release = Release(1, 35);

/// Judges each server by itself, and each gateway.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let servers = world.servers.iter().flat_map(judge_server);
    let unusable = world.unusable.iter().map(|it| {
        let says = format!("not asked: its context cannot be used: {}", it.why);
        Item::skip(REACHABLE, &it.name, says)
    });
    servers
        .chain(unusable)
        .chain(world.gateways.iter().flat_map(judge_gateway))
        .collect()
}

fn judge_gateway(gateway: &Gateway) -> Vec<Item> {
    let name = &gateway.url;
    let seen = debug_peers(&gateway.debug).map(|debug| peers(&debug, name));
    let seen = seen.unwrap_or_default();
    let ready = match good(&gateway.ready) {
        Ok(_) => Item::pass(READY, name, "/readyz is good (a gateway)"),
        Err(Problem::Other(text)) => {
            Item::fail(READY, name, without_address(&text, name)).fix(match seen.is_empty() {
                true => "start it, or correct --gateway (it is the gateway's --admin-bind-address)",
                false => "see what it says of its servers below",
            })
        }
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

fn judge_server(server: &Server) -> Vec<Item> {
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
            return vec![Item::fail(REACHABLE, name, says).fix(fix)];
        }
    };
    let answers = match &server.answers {
        Ok(answers) => answers,
        Err(problem) => {
            let fix = "see what is said of its certificate; nothing else of it was checked";
            return vec![Item::fail(REACHABLE, name, problem).fix(fix)];
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
        proxy(server, answers),
    ];
    if let Some(debug) = server.debug() {
        items.extend(peers(&debug, name));
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
fn proxy(server: &Server, answers: &Answers) -> Item {
    let name = &server.name;
    if server.is_gateway() {
        let by = server.answered_by();
        let by = by.map_or(String::new(), |by| format!(" (this was answered by {by})"));
        return Item::pass(PROXY, name, format!("a gateway{by}"));
    }
    if let Some(debug) = server.debug() {
        return match debug["enabled"] == false {
            false => Item::pass(PROXY, name, "on (Peerage's)"),
            true => Item::fail(PROXY, name, "off: no request is forwarded").fix(
                "--peer-ca-file, --proxy-client-cert-file and --proxy-client-key-file, as `peerage pki init` prints them",
            ),
        };
    }
    match good(&answers.metrics) {
        Ok(metrics) => by_gate(server, answers, &String::from_utf8_lossy(&metrics.body)),
        Err(problem) => without_metrics(name, answers, &problem),
    }
}

/// By the gate in its metrics, and what its `/readyz` checks.
fn by_gate(server: &Server, answers: &Answers, metrics: &str) -> Item {
    let name = &server.name;
    let version = server.version();
    let is_old = version.as_ref().is_some_and(|it| it.binary < MERGES);
    let gates = samples(metrics, "kubernetes_feature_enabled");
    let gate = gates.iter().find(|it| it.label("name") == GATE);
    match (gate.map(|it| it.value > 0.0), hook(answers)) {
        (None, _) => Item::fail(PROXY, name, format!("it has no gate {GATE}: it cannot reroute"))
            .fix("put `peerage gateway` before it"),
        (Some(false), _) => gate_off(name, version.map(|it| it.emulated), is_old),
        (Some(true), Ok(false)) => Item::fail(
            PROXY,
            name,
            "the gate is on, but without --peer-ca-file it reroutes and merges nothing, and says nothing about it",
        )
        .fix("--peer-ca-file=/etc/kubernetes/pki/ca.crt (`peerage check --print kubeadm`)"),
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

fn gate_off(name: &str, release: Option<Release>, is_old: bool) -> Item {
    let default = match release {
        Some(release) if release < ON_BY_DEFAULT => " (the default before 1.36)",
        _ => "",
    };
    let item = Item::fail(PROXY, name, format!("the gate {GATE} is off{default}"));
    if is_old {
        return item.fix("put `peerage gateway` before it, and leave the gate off until 1.35");
    }
    item.fix(format!(
        "--feature-gates={GATE}=true and --peer-ca-file (`peerage check --print kubeadm`), or put `peerage gateway` before it"
    ))
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

/// What one of Peerage's servers says of its peers.
fn peers(debug: &Value, name: &str) -> Vec<Item> {
    let peers = debug["peers"].as_array().cloned().unwrap_or_default();
    let items = peers.iter().map(|peer| {
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

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn a_gateway_that_is_away_is_named_once() {
        let url = "http://127.0.0.1:1";
        let away = || {
            Err(format!(
                "{url} did not answer: nobody accepts connections at 127.0.0.1:1"
            ))
        };
        let items = judge_gateway(&Gateway {
            url: url.to_owned(),
            ready: away(),
            debug: away(),
            metrics: away(),
        });
        let [item] = items.as_slice() else {
            panic!("{items:?}");
        };
        assert_eq!(item.verdict, Verdict::Fail);
        assert_eq!(item.says, "did not answer: nobody accepts connections");
        let fix = item.fix.as_deref().unwrap_or_default();
        assert!(
            fix.starts_with("start it") && !fix.contains("below"),
            "{fix}"
        );
    }
}
