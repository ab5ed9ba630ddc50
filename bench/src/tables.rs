//! Tables of what was found, in Markdown: medians over the rounds, with the least and the most.

use std::fmt::Write as _;

use crate::results::{Machine, Results, Sample, Spread, Start};
use crate::{planes, proxies, servers};

/// The machine and the programs, in a sentence or two.
pub(crate) fn machine(machine: &Machine) -> String {
    let programs = machine.programs.iter();
    let programs: Vec<String> = programs.map(|(n, v)| format!("{n} {v}")).collect();
    let [before, after] = &machine.load;
    format!(
        "Measured on {}, on {}, Linux {}. Load average before {before}, after {after}. {}.\n",
        machine.date,
        machine.processors,
        machine.kernel,
        programs.join(", ")
    )
}

/// All tables.
pub(crate) fn all(results: &Results) -> String {
    let mut text = String::new();
    text.push_str("## Ways to a newer server\n\n");
    text.push_str(COLUMNS);
    for workload in WORKLOADS {
        text.push_str(&ways(results, workload));
    }
    text.push_str(&memory(results));
    text.push_str("\n## `peerage apiserver` and kube-apiserver\n\n");
    text.push_str(COLUMNS);
    text.push_str(&one_server(results));
    text.push_str("\n## From nothing: `peerage up` and two kube-apiservers\n\n");
    text.push_str(&starts(
        results,
        &[planes::UP, planes::UP_AGAIN, planes::KUBE],
    ));
    text
}

const COLUMNS: &str =
    "Columns named after processes are CPU seconds per 10 000 requests, or events that arrived.\n";

const WORKLOADS: [&str; 9] = [
    proxies::GET,
    proxies::GET_ALONE,
    proxies::GET_LOCAL,
    proxies::LIST_20,
    proxies::LIST_5000,
    proxies::DISCOVERY,
    proxies::DISCOVERY_304,
    proxies::WATCH,
    proxies::CREATE,
];

/// The roles of the first part, which are columns.
const ROLES: [&str; 4] = ["proxy", "older", "newer", "etcd"];

fn ways(results: &Results, workload: &str) -> String {
    let setups = setups(results, workload);
    if setups.is_empty() {
        return String::new();
    }
    let unit = if workload == proxies::WATCH {
        "events/s"
    } else {
        "requests/s"
    };
    let mut text = format!(
        "\n### {workload}\n\n| | {unit} | p50 ms | p99 ms | proxy | older | newer | etcd |\n|---|---|---|---|---|---|---|---|\n"
    );
    for setup in setups {
        let figure = |of: &dyn Fn(&Sample) -> f64| shown(results.figure(workload, &setup, of));
        let _ = write!(
            text,
            "| {setup} | {} | {} | {} |",
            figure(&Sample::rate),
            figure(&|s| s.p50_ms),
            figure(&|s| s.p99_ms)
        );
        for role in ROLES {
            let known = results.of(workload, &setup);
            let values = known.into_iter().filter_map(|s| s.cpu_per_10_000(role));
            let _ = write!(text, " {} |", shown(Spread::of(values)));
        }
        text.push('\n');
    }
    text
}

/// The setups of a workload, in the order of their first measurement in round 0.
fn setups(results: &Results, workload: &str) -> Vec<String> {
    let all = results.samples.iter();
    let of = all.filter(|sample| sample.workload == workload && sample.round == 0);
    of.map(|sample| sample.setup.clone()).collect()
}

fn memory(results: &Results) -> String {
    let mut text = "\n### Memory\n\nResident memory in MB after small GETs, and with 1 000 watches open.\n\n| | proxy | older | newer | etcd | proxy, watches | older, watches | newer, watches |\n|---|---|---|---|---|---|---|---|\n".to_owned();
    for setup in setups(results, proxies::WATCH) {
        let cell = |workload: &str, role: &str| {
            let known = results.of(workload, &setup).into_iter();
            let rss = known.filter_map(|s| Some(s.memory.get(role)?.rss as f64 / 1024.0));
            shown(Spread::of(rss))
        };
        let _ = write!(text, "| {setup} |");
        for role in ROLES {
            let _ = write!(text, " {} |", cell(proxies::GET, role));
        }
        for role in &ROLES[..3] {
            let _ = write!(text, " {} |", cell(proxies::WATCH, role));
        }
        text.push('\n');
    }
    text
}

const SERVERS: [&str; 3] = [
    servers::KUBE,
    servers::PEERAGE_ETCD,
    servers::PEERAGE_SQLITE,
];

fn one_server(results: &Results) -> String {
    let mut text = "\n| | | requests or events/s | p50 ms | p99 ms | server | etcd | requests per CPU second |\n|---|---|---|---|---|---|---|---|\n".to_owned();
    for workload in [
        servers::GET,
        servers::LIST_20,
        servers::LIST_5000,
        servers::CREATE,
        servers::WATCH,
    ] {
        for setup in SERVERS {
            let figure = |of: &dyn Fn(&Sample) -> f64| shown(results.figure(workload, setup, of));
            let cpu = |role: &'static str| {
                let known = results.of(workload, setup).into_iter();
                shown(Spread::of(
                    known.filter_map(move |s| s.cpu_per_10_000(role)),
                ))
            };
            let _ = writeln!(
                text,
                "| {workload} | {setup} | {} | {} | {} | {} | {} | {} |",
                figure(&Sample::rate),
                figure(&|s| s.p50_ms),
                figure(&|s| s.p99_ms),
                cpu("server"),
                cpu("etcd"),
                figure(&|s| 10_000.0 / s.total_cpu_per_10_000()),
            );
        }
    }
    text.push_str(
        "\nStarted again on a store with 5 000 objects; the server alone, without its etcd:\n\n",
    );
    text + &starts(results, &SERVERS)
}

fn starts(results: &Results, what: &[&str]) -> String {
    let mut text =
        "| | ready after ms | resident MB | shared pages counted once, MB |\n|---|---|---|---|\n"
            .to_owned();
    for what in what {
        let figure = |of: &dyn Fn(&Start) -> f64| shown(results.start(what, of));
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} |",
            figure(&|s| s.ready_ms),
            figure(&|s| s.memory.rss as f64 / 1024.0),
            figure(&|s| s.memory.pss as f64 / 1024.0),
        );
    }
    text
}

/// The median, with the least and the most in parentheses.
fn shown(spread: Option<Spread>) -> String {
    let Some(spread) = spread else {
        return "–".to_owned();
    };
    let Spread {
        least,
        median,
        most,
    } = spread;
    format!("{} ({}–{})", digits(median), digits(least), digits(most))
}

/// Three digits that count.
pub(crate) fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_three_digits_and_their_spread() {
        let spread = Spread {
            least: 9.876,
            median: 12.345,
            most: 1234.5,
        };
        assert_eq!(shown(Some(spread)), "12.3 (9.88–1234)");
        assert_eq!(shown(None), "–");
    }
}
