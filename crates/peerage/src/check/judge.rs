//! The checklist in its order: from what was seen to items. Pure; each topic has a file of its own.

use super::report::{Item, Report};
use super::world::World;
use super::{apis, certificates, clocks, command_line, counters, ports, records, servers, skew};

const FEWER: &str = "what is passed above is not the whole; ask fewer servers at a time, or compare with `peerage diff`";

/// Judges everything.
pub(super) fn judge(world: &World) -> Report {
    let mut items = servers::judge(world);
    items.extend(skew::judge(world));
    items.extend(clocks::judge(world));
    items.extend(command_line::judge(world));
    items.extend(certificates::judge(world));
    if !world.nobody_answers() {
        items.extend(records::judge(world));
    }
    items.extend(ports::judge(world));
    items.extend(apis::judge(world));
    items.extend(counters::judge(world));
    let left_out = world.left_out.iter();
    items.extend(left_out.map(|says| Item::warn("left-out", "", says).fix(FEWER)));
    Report::new(world.now, items)
}
