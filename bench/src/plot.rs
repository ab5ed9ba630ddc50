//! Plots of what was found, as SVG: horizontal bars, one below the other, with whiskers from the least to the most.

use std::fmt::Write as _;

use crate::results::{Figure, Results, Sample, Spread};
use crate::tables::digits;
use crate::{proxies, servers};

const WIDTH: f64 = 860.0;
/// Where bars begin; labels are left of it.
const LEFT: f64 = 230.0;
/// Where the longest bar ends; its figure is right of it.
const RIGHT: f64 = 760.0;
const ROW: f64 = 24.0;
const BAR: f64 = 16.0;
/// Colours that differ for the colour-blind, too.
const COLOURS: [&str; 4] = ["#0072b2", "#e69f00", "#999999", "#56b4e9"];

/// Bars of one kind of figure.
struct Panel {
    title: String,
    /// What the colours stand for.
    parts: Vec<&'static str>,
    rows: Vec<Row>,
}

struct Row {
    label: String,
    /// In the order of the panel's parts.
    values: Vec<f64>,
    spread: Spread,
}

/// All plots: the end of the file's name, and what is in it.
pub(crate) fn all(results: &Results) -> Vec<(&'static str, String)> {
    let ways = [
        cpu(results, proxies::GET),
        latency(results),
        cpu(results, proxies::DISCOVERY),
    ];
    let servers = [
        per_core(results, servers::GET),
        per_core(results, servers::LIST_20),
    ];
    vec![("proxies", svg(&ways)), ("servers", svg(&servers))]
}

const WAYS: [&str; 5] = [
    proxies::DIRECT,
    proxies::OWN,
    proxies::GATEWAY,
    "HAProxy",
    "nginx",
];
const ROLES: [&str; 4] = ["proxy", "older", "newer", "etcd"];

fn cpu(results: &Results, workload: &str) -> Panel {
    let row = |setup: &str| {
        let role = |role| {
            let of = |s: &Sample| s.cpu_per_10_000(role).unwrap_or_default();
            Some(results.figure(workload, setup, of)?.median)
        };
        Some(Row {
            label: setup.to_owned(),
            values: ROLES.iter().filter_map(|it| role(it)).collect(),
            spread: results.figure(workload, setup, Sample::total_cpu_per_10_000)?,
        })
    };
    Panel {
        title: format!("CPU seconds per 10 000 requests: {workload}"),
        parts: ROLES.to_vec(),
        rows: WAYS.into_iter().filter_map(row).collect(),
    }
}

fn latency(results: &Results) -> Panel {
    let figures: [Figure; 2] = [("p50", |s| s.p50_ms), ("p99", |s| s.p99_ms)];
    let pairs = WAYS.into_iter().flat_map(|way| figures.map(|f| (way, f)));
    let row = |(setup, (name, figure)): (&str, Figure)| {
        let spread = results.figure(proxies::GET, setup, figure)?;
        Some(Row {
            label: format!("{setup}, {name}"),
            values: vec![spread.median],
            spread,
        })
    };
    Panel {
        title: format!("Milliseconds: {}, 8 clients", proxies::GET),
        parts: Vec::new(),
        rows: pairs.filter_map(row).collect(),
    }
}

fn per_core(results: &Results, workload: &str) -> Panel {
    let setups = [
        servers::KUBE,
        servers::PEERAGE_ETCD,
        servers::PEERAGE_SQLITE,
    ];
    let row = |setup: &str| {
        let figure = |s: &Sample| 10_000.0 / s.total_cpu_per_10_000();
        let spread = results.figure(workload, setup, figure)?;
        Some(Row {
            label: setup.to_owned(),
            values: vec![spread.median],
            spread,
        })
    };
    Panel {
        title: format!("Requests per CPU second of server and store: {workload}"),
        parts: Vec::new(),
        rows: setups.into_iter().filter_map(row).collect(),
    }
}

fn svg(panels: &[Panel]) -> String {
    let mut body = String::new();
    let mut top = 10.0;
    for panel in panels {
        top = draw(&mut body, panel, top);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" viewBox=\"0 0 {WIDTH} {top}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{top}\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws a panel from `top` on, and says where it ends.
fn draw(body: &mut String, panel: &Panel, top: f64) -> f64 {
    let _ = writeln!(
        body,
        "<text x=\"10\" y=\"{}\" font-size=\"14\" font-weight=\"bold\">{}</text>",
        top + 14.0,
        escaped(&panel.title)
    );
    legend(body, panel, top + 14.0);
    let most = panel.rows.iter().map(|row| row.spread.most);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let mut y = top + 26.0;
    for row in &panel.rows {
        draw_row(body, row, y, (RIGHT - LEFT) / most);
        y += ROW;
    }
    y + 16.0
}

fn legend(body: &mut String, panel: &Panel, y: f64) {
    let mut x = 560.0;
    for (part, colour) in panel.parts.iter().zip(COLOURS) {
        let _ = writeln!(
            body,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{part}</text>",
            y - 9.0,
            x + 14.0
        );
        x += 62.0;
    }
}

fn draw_row(body: &mut String, row: &Row, y: f64, scale: f64) {
    let middle = y + BAR / 2.0;
    let _ = writeln!(
        body,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        LEFT - 8.0,
        middle + 4.0,
        escaped(&row.label)
    );
    let mut x = LEFT;
    for (value, colour) in row.values.iter().zip(COLOURS) {
        let width = value * scale;
        let _ = writeln!(
            body,
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
        );
        x += width;
    }
    let (least, most) = (
        LEFT + row.spread.least * scale,
        LEFT + row.spread.most * scale,
    );
    let _ = writeln!(
        body,
        "<path d=\"M{least:.1} {middle}H{most:.1}M{least:.1} {}v8M{most:.1} {}v8\" stroke=\"black\" fill=\"none\"/>",
        middle - 4.0,
        middle - 4.0
    );
    let _ = writeln!(
        body,
        "<text x=\"{:.1}\" y=\"{}\">{}</text>",
        x.max(most) + 6.0,
        middle + 4.0,
        digits(row.spread.median)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
