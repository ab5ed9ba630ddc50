//! `peerage check --watch`: the checklist again and again, in place on a terminal, as lines of what changed elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::CheckFlags;
use super::counters::Counted;
use super::gather::{self, Plan};
use super::judge;
use super::report::{Report, Verdict, line};
use crate::exit::Failure;
use crate::output::{Output, print_line};
use crate::signals::Signals;

/// Moves to the top left and clears what is there and below.
const TOP: &str = "\x1b[H\x1b[J";

/// Repeats until it is asked to stop; the report is the last one.
pub(super) async fn watch(
    plan: &Plan,
    flags: &CheckFlags,
    signals: &Signals,
) -> Result<Option<Report>, Failure> {
    let (interval, output) = (flags.interval, flags.output);
    let in_place = output == Output::Table && std::io::stdout().is_terminal();
    let mut last: Option<Report> = None;
    let mut known: Option<Report> = None;
    let mut counted = Counted::default();
    loop {
        let mut world = tokio::select! {
            world = gather::gather(plan) => world,
            () = signals.shutdown.cancelled() => return Ok(last),
        };
        world.before = counted.clone();
        counted.take(&world);
        let report = judge::judge(&world);
        match output {
            Output::Json if flags.only_problems => print_line(&report.problems())?,
            Output::Json => print_line(&report)?,
            Output::Table if in_place => draw(&report, flags),
            Output::Table => tell(&report, known.as_ref()),
        }
        known = Some(report.remembering(known.as_ref()));
        last = Some(report);
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = signals.shutdown.cancelled() => return Ok(last),
        }
    }
}

fn draw(report: &Report, flags: &CheckFlags) {
    let text = frame(report, flags.interval, flags.only_problems, super::size());
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{TOP}{text}");
    let _ = out.flush();
}

/// What fits on a terminal of this width and height: the worst first, when not all does.
fn frame(
    report: &Report,
    interval: Duration,
    only_problems: bool,
    (width, height): (usize, usize),
) -> String {
    let (time, every) = (report.time.strftime("%H:%M:%S"), interval.as_secs_f64());
    let head = format!("{time} UTC, every {every} s; Ctrl-C stops\n\n");
    let whole = format!("{head}{}", report.in_words(width, only_problems));
    if whole.lines().count() < height {
        return whole;
    }
    let mut sorted = report.clone();
    sorted
        .items
        .sort_by_key(|item| std::cmp::Reverse(item.verdict));
    let text = sorted.in_words(width, only_problems);
    let table: Vec<&str> = text.lines().collect();
    // Head, the line of the rest, a blank one, the summary, and where the cursor stays.
    let room = height.saturating_sub(6).max(1);
    let shown = table.get(..room.min(table.len())).unwrap_or_default();
    format!("{head}{}\n...\n\n{}", shown.join("\n"), report.summary())
}

fn tell(report: &Report, before: Option<&Report>) {
    let time = report.time.strftime("%H:%M:%S");
    let lines = match before {
        Some(before) => report.changes(before),
        None => {
            let worth = report.items.iter().filter(|it| it.verdict > Verdict::Pass);
            let first = std::iter::once(report.summary());
            first.chain(worth.map(line)).collect()
        }
    };
    for line in lines {
        say!("{time} {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Item;
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn a_small_terminal_shows_the_worst_first() {
        let mut items: Vec<Item> = (0..40).map(|_| Item::pass("clock", "a", "right")).collect();
        items.push(Item::fail("ready", "b", "no answer").fix(""));
        let report = Report::new(Timestamp::UNIX_EPOCH, items);
        let frame = super::frame(&report, Duration::from_secs(5), false, (80, 20));
        assert!(frame.lines().count() < 20, "{frame}");
        assert!(
            frame
                .lines()
                .nth(3)
                .is_some_and(|it| it.starts_with("fail   ready")),
            "{frame}"
        );
        assert!(frame.ends_with(&report.summary()));
        let problems = super::frame(&report, Duration::from_secs(5), true, (80, 20));
        assert!(
            problems.ends_with("fail: 40 pass, 0 warn, 1 fail, 0 skipped")
                && !problems.contains("right")
        );
        let all = super::frame(&report, Duration::from_secs(5), false, (80, 60));
        assert!(all.ends_with(&report.summary()) && all.lines().count() > 40);
    }
}
