//! Gateways on their own addresses: whether each is ready, and all that it says of servers, of where it has them from and
//! of what it sends nothing to. What one of Peerage's servers says of its peers is judged alike.
//!
//! `known.rs` judges whether it knows every server, `published.rs` whether pods come to one.
//!
//! Invariant: of `/debug/peers` nothing that is wrong there passes unsaid; its own words are repeated.

mod known;
mod published;

use serde_json::Value;

use super::report::{Item, Unmended, some};
use super::rights;
use super::world::{Gateway, Problem, World, good};
use crate::output::counted;

const READY: &str = "ready";
const PEER: &str = "peer";
const ASIDE: &str = "aside";
const SOURCE: &str = "source";
const FINDING: &str = "finding";
/// How many servers are named.
const NAMED: usize = 6;
/// What is said of a server that seems to be starting.
const LISTS_LESS: &str = "serving: it lists less than before it was away or not ready, as a server that starts does; what \
     only it had is 503 meanwhile";
/// What a wrong address is to be corrected in.
const NO_GATEWAY: &str = "--gateway is the gateway's --admin-bind-address";

/// Judges every gateway that was named by its own address.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let each = world.gateways.iter().map(|it| judge_gateway(world, it));
    let mut items: Vec<Item> = each.flatten().collect();
    items.extend(known::judge(world));
    items.extend(published::judge(world));
    items
}

fn judge_gateway(world: &World, gateway: &Gateway) -> Vec<Item> {
    let name = &gateway.url;
    let state = gateway.state();
    let ready = match (good(&gateway.ready), &state) {
        (Ok(_), Some(_)) => Item::pass(READY, name, "/readyz is good (a gateway)"),
        (Ok(_), None) => {
            let problem = good(&gateway.debug).err();
            let problem = problem.as_ref().map(rights::in_words);
            let problem = problem.unwrap_or_else(|| "not what a gateway answers".to_owned());
            let says = format!("no gateway: /debug/peers: {problem}");
            Item::fail(READY, name, says).fix(NO_GATEWAY)
        }
        (Err(Problem::Other(text)), None) => Item::fail(READY, name, without_address(&text, name))
            .fix("start it, or correct --gateway (it is the gateway's --admin-bind-address)"),
        (Err(Problem::Other(text)), Some(state)) => {
            let away = world.away_for(state);
            let fix = match away.is_empty() {
                true => "see its log".to_owned(),
                false => format!("start {}, or see what is said of each", some(&away, NAMED)),
            };
            Item::fail(READY, name, without_address(&text, name)).fix(fix)
        }
        (Err(problem), _) => {
            let says = format!("no gateway: /readyz: {}", rights::in_words(&problem));
            Item::fail(READY, name, says).fix(NO_GATEWAY)
        }
    };
    let told = state.map(|it| told(world, &it, name));
    std::iter::once(ready)
        .chain(told.into_iter().flatten())
        .collect()
}

/// What went wrong, without the address that the item is already about.
fn without_address(text: &str, url: &str) -> String {
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let text = text.strip_prefix(url).unwrap_or(text).trim_start();
    text.replace(&format!(" at {host}"), "")
}

/// All that a state of `/debug/peers` says, but of servers that are said to be away already.
pub(super) fn told(world: &World, state: &Value, name: &str) -> Vec<Item> {
    let list = |key: &str| state[key].as_array().into_iter().flatten();
    let unsaid = |it: &&Value| !world.is_away(&it["address"]);
    let peers = list("peers").filter(unsaid).map(|it| peer(it, name));
    let aside = list("aside").filter(unsaid);
    let aside = aside.map(|it| set_aside(it, it["id"] == state["beside"], name));
    let sources = list("sources").map(|it| source(it, name));
    let findings = list("findings").map(|it| {
        Item::warn(FINDING, name, text(it, "message"))
            .fix("correct what names these servers: --peer, --peers-file, --peer-dns, or their host names")
    });
    peers.chain(aside).chain(sources).chain(findings).collect()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// A server that requests may be sent to.
fn peer(peer: &Value, name: &str) -> Item {
    let subject = format!("{} seen by {name}", text(peer, "id"));
    let state = text(peer, "state");
    let error = peer["error"]["message"].as_str();
    let why = error.map_or_else(|| text(peer, "why"), str::to_owned);
    let not_its_own = peer["notItsOwn"].as_u64().unwrap_or_default();
    let warn = || Item::warn(PEER, &subject, format!("{state}: {why}"));
    match state.as_str() {
        "gone" | "unreachable" | "crashed" => Item::fail(PEER, &subject, format!("{state}: {why}"))
            .fix("start it again, or delete its identity Lease if it is not coming back; if it runs, see what is said of \
                  its port and certificate"),
        _ if error.is_some() => warn().fix("see what is said of its port and certificate"),
        "serving" if not_its_own > 0 => Item::warn(
            PEER,
            &subject,
            format!(
                "answers merged documents: lists {} that it does not serve",
                counted(not_its_own, "API")
            ),
        )
        .fix("upgrade it to 1.35 or newer, or name the server itself and not a load balancer"),
        "serving" if peer["starting"] == true => Item::warn(PEER, &subject, LISTS_LESS).fix(
            "wait until it lists the rest, or has been ready for 15 seconds without: then that is taken for gone (404)",
        ),
        "serving" => {
            let odd = ["remark", "versionError"].map(|key| peer[key].as_str());
            let says = std::iter::once(&*why).chain(odd.into_iter().flatten());
            Item::pass(PEER, &subject, says.collect::<Vec<_>>().join("; "))
        }
        "left" => warn().fix(
            "start it again if it stopped; if it did not, it is not in the list any more: put it back into --peer, \
             --peers-file or what else names it; if it is to be gone, wait",
        ),
        _ => warn().fix(
            "wait until it is heard; if that does not happen, see its log and what is said of its port",
        ),
    }
}

/// An address that nothing is sent to. Without the server that it stands beside a gateway is not what it is meant to be.
fn set_aside(aside: &Value, is_own: bool, name: &str) -> Item {
    let subject = format!("{} seen by {name}", text(aside, "id"));
    let mut says = text(aside, "why");
    if let Some(error) = aside["error"].as_str() {
        says.push_str(&format!(" ({error})"));
    }
    let fix = match aside["kind"].as_str() {
        Some("same_server") => return Item::pass(ASIDE, &subject, says),
        Some("oneself") if is_own => {
            "--upstream has to be the port of the kube-apiserver itself (6444 where the gateway has 6443)"
        }
        Some("oneself") => {
            "name the server's own address and port instead, or take this one off the list (--peer, --peers-file, --peer-dns)"
        }
        Some("stranger") => {
            "correct the address; if it is right, --peer-ca-file and --peer-server-name have to fit its certificate"
        }
        Some("never_heard") => {
            "start the server there, or take the address off the list (--peer, --peers-file, --peer-dns, its identity Lease)"
        }
        _ => "see the gateway's log, and docs/gateway.md, \"Server identity\"",
    };
    let item: fn(&'static str, &str, String) -> Unmended = match is_own {
        true => Item::fail,
        false => Item::warn,
    };
    item(ASIDE, &subject, says).fix(fix)
}

/// Where servers are known from.
fn source(source: &Value, name: &str) -> Item {
    let kind = text(source, "name");
    let subject = format!("{kind} of {name}");
    let count = |key: &str| source[key].as_u64().unwrap_or_default();
    let servers = counted(count("servers"), "server");
    if let Some(error) = source["error"].as_str() {
        // The error of a right that is missing says itself how to give it.
        let (error, how) = match error.split_once(". Allow it: ") {
            Some((error, how)) => (error, format!("allow it: {how}")),
            None => (error, mend(&kind).to_owned()),
        };
        let says = format!("it cannot be read: {error}; {servers} of the last time it could");
        return Item::warn(SOURCE, &subject, says).fix(how);
    }
    match count("skipped") {
        0 => Item::pass(SOURCE, &subject, servers),
        skipped => {
            let says = format!("{} passed over, {servers}", counted(skipped, "entry"));
            Item::warn(SOURCE, &subject, says)
                .fix("correct them: the gateway's log names each and says what is wrong with it")
        }
    }
}

fn mend(source: &str) -> &'static str {
    match source {
        "file" => "mend the file of --peers-file",
        "leases" => "see that a server answers, and that --peers-from-leases-user may list Leases",
        "etcd" => "see --etcd-servers and its certificates, and that etcd answers",
        "dns" => "see the name of --peer-dns, and this host's resolver",
        _ => "see the gateway's log",
    }
}
