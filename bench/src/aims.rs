//! What Peerage aims at, and whether a run met it. Figures are medians over the rounds.

use std::fmt::Write as _;

use crate::results::{Figure, Results, Sample};
use crate::tables::digits;
use crate::{planes, proxies, servers};

/// What is dearer by less than this is taken for equally dear: rounds differ by as much.
const NOISE: f64 = 1.1;

/// An aim, in words, with the figure and its limit.
struct Aim {
    what: String,
    figure: Option<f64>,
    limit: Option<f64>,
    /// Whether more is better.
    at_least: bool,
    unit: &'static str,
}

impl Aim {
    fn met(&self) -> &'static str {
        match (self.figure, self.limit) {
            (Some(figure), Some(limit)) if self.at_least && figure >= limit => "met",
            (Some(figure), Some(limit)) if !self.at_least && figure <= limit => "met",
            (Some(_), Some(_)) => "**missed**",
            _ => "not measured",
        }
    }
}

/// All aims, as a table.
pub(crate) fn table(results: &Results) -> String {
    let aims = [
        forwarding(results),
        latency(results),
        discovery(results),
        planes(results),
        servers(results),
    ];
    let mut text = "| aim | measured | wanted | |\n|---|---|---|---|\n".to_owned();
    for aim in aims.into_iter().flatten() {
        let value = |value: Option<f64>| match value {
            Some(value) => format!("{} {}", digits(value), aim.unit),
            None => "–".to_owned(),
        };
        let sign = if aim.at_least { "≥" } else { "≤" };
        let _ = writeln!(
            text,
            "| {} | {} | {sign} {} | {} |",
            aim.what,
            value(aim.figure),
            value(aim.limit),
            aim.met()
        );
    }
    text
}

fn cpu(results: &Results, workload: &str, setup: &str, roles: &[&str]) -> Option<f64> {
    let of = |s: &Sample| {
        let each = roles.iter().filter_map(|role| s.cpu_per_10_000(role));
        each.sum()
    };
    Some(results.figure(workload, setup, of)?.median)
}

fn forwarding(results: &Results) -> Vec<Aim> {
    let get = |setup, roles: &[&str]| cpu(results, proxies::GET, setup, roles);
    let own = get(proxies::GATEWAY, &["proxy"]);
    let aim = |what: &str, figure, limit| Aim {
        what: what.to_owned(),
        figure,
        limit,
        at_least: false,
        unit: "CPU s per 10 000",
    };
    let servers = ["newer", "etcd"];
    vec![
        aim(
            "the gateway forwards a small GET for at most HAProxy's CPU time",
            own,
            get("HAProxy", &["proxy"]),
        ),
        aim(
            "and an eighth of what kube-apiserver's own proxy takes",
            own,
            get(proxies::OWN, &["older"]).map(|it| it / 8.0),
        ),
        aim(
            "the newer server and etcd spend no more than when asked directly (plus 10 % for noise)",
            get(proxies::GATEWAY, &servers),
            get(proxies::DIRECT, &servers).map(|it| it * NOISE),
        ),
    ]
}

fn latency(results: &Results) -> Vec<Aim> {
    let figures: [(Figure, f64); 2] = [(("p50", |s| s.p50_ms), 10.0), (("p99", |s| s.p99_ms), 5.0)];
    let workloads = [
        (proxies::GET, "8 clients"),
        (proxies::GET_ALONE, "1 client"),
    ];
    let pairs = workloads.into_iter().flat_map(|w| figures.map(|f| (w, f)));
    let aim = |((workload, clients), ((name, figure), part)): ((&str, &str), (Figure, f64))| {
        let of = |setup| Some(results.figure(workload, setup, figure)?.median);
        let direct = of(proxies::DIRECT);
        let added = |setup| Some(of(setup)? - direct?);
        Aim {
            what: format!(
                "{name} that the gateway adds, {clients}: at most 1/{part} of what kube-apiserver's own proxy adds"
            ),
            figure: added(proxies::GATEWAY),
            limit: added(proxies::OWN).map(|it| it / part),
            at_least: false,
            unit: "ms",
        }
    };
    pairs.map(aim).collect()
}

fn discovery(results: &Results) -> Vec<Aim> {
    let everybody = ["proxy", "older", "newer", "etcd"];
    let aim = |workload: &'static str| {
        let of = |setup| cpu(results, workload, setup, &everybody);
        let direct = of(proxies::DIRECT);
        Aim {
            what: format!("{workload}: times as many per core as kube-apiserver serves"),
            figure: of(proxies::GATEWAY).and_then(|own| Some(direct? / own)),
            limit: Some(20.0),
            at_least: true,
            unit: "times",
        }
    };
    vec![aim(proxies::DISCOVERY), aim(proxies::DISCOVERY_304)]
}

fn planes(results: &Results) -> Vec<Aim> {
    let ready = results.start(planes::UP, |s| s.ready_ms);
    // Processes of one program share its pages: adding up what is resident would count them for each.
    let memory = |what| {
        let spread = results.start(what, |s| s.memory.pss as f64 / 1024.0);
        Some(spread?.median)
    };
    vec![
        Aim {
            what: "`peerage up` is ready".to_owned(),
            figure: ready.map(|spread| spread.median),
            limit: Some(1000.0),
            at_least: false,
            unit: "ms",
        },
        Aim {
            what: "and takes a tenth of the memory of two kube-apiservers with etcd".to_owned(),
            figure: memory(planes::UP),
            limit: memory(planes::KUBE).map(|it| it / 10.0),
            at_least: false,
            unit: "MB, shared pages counted once",
        },
    ]
}

fn servers(results: &Results) -> Vec<Aim> {
    let stores = [servers::PEERAGE_SQLITE, servers::PEERAGE_ETCD];
    let workloads = [servers::GET, servers::LIST_20, servers::LIST_5000];
    let pairs = stores.into_iter().flat_map(|s| workloads.map(|w| (s, w)));
    let aim = |(setup, workload): (&str, &str)| {
        let of = |setup| cpu(results, workload, setup, &["server", "etcd"]);
        let kube = of(servers::KUBE);
        Aim {
            what: format!("{setup}: {workload} per core, times kube-apiserver's"),
            figure: of(setup).and_then(|own| Some(kube? / own)),
            limit: Some(3.0),
            at_least: true,
            unit: "times",
        }
    };
    pairs.map(aim).collect()
}
