//! What time it is, by the clocks of the servers and of this machine, and which of them are wrong.
//!
//! Invariant: a clock is measured by the middle one of all, so that one that is wrong is told by itself and nothing that
//! is right is measured by it.

use jiff::{SignedDuration, Timestamp};

use super::report::Item;
use super::world::{Ahead, World};

const CLOCK: &str = "clock";
/// What this machine is called among the servers.
const HERE: &str = "this machine";
/// Seconds from which on Leases' times mislead whoever reads them.
const NOTICEABLE: f64 = 2.0;
/// Seconds from which on tokens and new certificates are refused.
const HARMFUL: f64 = 60.0;

/// A clock, by this machine's.
#[derive(Debug, Clone, Copy)]
struct Clock<'w> {
    /// The server; none for this machine.
    server: Option<&'w str>,
    ahead: Ahead,
}

impl Clock<'_> {
    const HERE: Clock<'static> = Clock {
        server: None,
        ahead: Ahead {
            least: 0.0,
            most: 0.0,
        },
    };

    /// What it shows most likely.
    fn middle(&self) -> f64 {
        (self.ahead.least + self.ahead.most) / 2.0
    }

    /// By how much it is ahead of another.
    fn by(&self, other: &Clock<'_>) -> Ahead {
        Ahead {
            least: self.ahead.least - other.ahead.most,
            most: self.ahead.most - other.ahead.least,
        }
    }

    fn is_off(&self, other: &Clock<'_>) -> bool {
        distance(self.by(other)).0 >= NOTICEABLE
    }

    /// Among other clocks.
    fn in_words(&self) -> String {
        match self.server {
            Some(name) => format!("that of {name}"),
            None => "this machine's clock".to_owned(),
        }
    }
}

/// The clocks of the servers that tell theirs.
fn known(world: &World) -> Vec<Clock<'_>> {
    let clock = |it: &'_ super::world::Server| it.answers()?.ahead;
    let servers = world.servers.iter();
    servers
        .filter_map(|it| {
            Some(Clock {
                server: Some(&it.name),
                ahead: clock(it)?,
            })
        })
        .collect()
}

/// The clock to go by: this machine's, unless the middle one of all contradicts it.
fn reference<'w>(known: &[Clock<'w>]) -> Clock<'w> {
    let mut all: Vec<Clock<'w>> = known.to_vec();
    all.push(Clock::HERE);
    all.sort_by(|a, b| a.middle().total_cmp(&b.middle()));
    let (lower, upper) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    // Of two in the middle the one that differs less from this machine's: one server alone proves nothing against it.
    let middle = match lower.middle().abs() <= upper.middle().abs() {
        true => lower,
        false => upper,
    };
    match middle.is_off(&Clock::HERE) {
        true => middle,
        false => Clock::HERE,
    }
}

/// Now, by the clock to go by.
pub(super) fn now(world: &World) -> Timestamp {
    later(world.now, reference(&known(world)).middle())
}

/// A time that a server wrote by its own clock, by the one to go by. Servers are known by host and port.
pub(super) fn corrected(world: &World, server: &str, time: Timestamp) -> Timestamp {
    let known = known(world);
    let reference = reference(&known);
    let named = world.servers.iter().find(|it| it.address == server);
    let clock = named.and_then(|it| known.iter().find(|clock| clock.server == Some(&it.name)));
    match clock.filter(|it| it.is_off(&reference)) {
        Some(clock) => later(time, reference.middle() - clock.middle()),
        None => time,
    }
}

fn later(time: Timestamp, seconds: f64) -> Timestamp {
    let by = SignedDuration::from_millis((seconds * 1000.0) as i64);
    time.checked_add(by).unwrap_or(time)
}

/// Judges the clocks: each by itself, and in pairs only those that are right as far as that goes.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let known = known(world);
    let reference = reference(&known);
    let mut items = Vec::new();
    if reference.server.is_some() {
        items.push(judge_clock(HERE, &Clock::HERE, &reference));
    }
    for clock in &known {
        items.push(judge_clock(clock.server.unwrap_or(HERE), clock, &reference));
    }
    let right: Vec<&Clock<'_>> = known.iter().filter(|it| !it.is_off(&reference)).collect();
    for (at, one) in right.iter().enumerate() {
        for other in right[at + 1..].iter().filter(|it| it.is_off(one)) {
            items.push(judge_clock(one.server.unwrap_or(HERE), one, other));
        }
    }
    items
}

/// By how much at least it is off, and in which direction.
fn distance(ahead: Ahead) -> (f64, &'static str) {
    if ahead.least > 0.0 {
        (ahead.least, "ahead of")
    } else if ahead.most < 0.0 {
        (-ahead.most, "behind")
    } else {
        (0.0, "with")
    }
}

fn judge_clock(name: &str, clock: &Clock<'_>, reference: &Clock<'_>) -> Item {
    let (off, direction) = distance(clock.by(reference));
    if off < NOTICEABLE {
        return Item::pass(CLOCK, name, "right within two seconds");
    }
    let says = format!(
        "at least {:.0} s {direction} {}",
        off.floor(),
        reference.in_words()
    );
    let fix = "synchronise it (chrony, systemd-timesyncd): Leases, certificates and tokens are judged by it";
    match off < HARMFUL {
        true => Item::warn(CLOCK, name, says).fix(fix),
        false => Item::fail(CLOCK, name, says).fix(fix),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::report::Verdict;
    use super::*;

    fn clock(server: &'static str, ahead: f64) -> Clock<'static> {
        Clock {
            server: Some(server),
            ahead: Ahead {
                least: ahead - 0.5,
                most: ahead + 0.5,
            },
        }
    }

    #[test]
    fn a_clock_is_off_only_by_what_the_date_proves() {
        for (least, most, off) in [
            (-0.9, 0.2, 0.0),
            (1.5, 2.6, 1.5),
            (100.0, 101.2, 100.0),
            (-31.0, -30.0, 30.0),
        ] {
            assert_eq!(distance(Ahead { least, most }).0, off);
        }
        for (off, verdict) in [
            (0.0, Verdict::Pass),
            (2.4, Verdict::Pass),
            (2.5, Verdict::Warn),
            (-60.0, Verdict::Warn),
            (60.5, Verdict::Fail),
        ] {
            let item = judge_clock("a", &clock("a", off), &Clock::HERE);
            assert_eq!(item.verdict, verdict, "{off}");
        }
    }

    #[test]
    fn clocks_are_measured_by_the_middle_one() {
        for (ahead, expected) in [
            (&[][..], None),
            (&[90.0], None),
            (&[90.0, 0.1], None),
            (&[90.0, -90.0], None),
            (&[90.0, 90.1], Some("0")),
            (&[0.5, 1.0, 1.5], None),
            (&[-90.0, -90.1, -300.0], Some("0")),
            (&[90.0, 90.0, 0.0], None),
        ] {
            let names = ["0", "1", "2"];
            let known = ahead.iter().zip(names).map(|(at, name)| clock(name, *at));
            let known: Vec<Clock<'_>> = known.collect();
            assert_eq!(reference(&known).server, expected, "{ahead:?}");
        }
    }
}
