//! What processes cost: CPU time and memory, as the kernel counts them in `/proc`.
//!
//! A role such as `proxy` is a process and all its descendants, so that nginx' workers and `peerage up`'s servers count
//! as one. CPU time is user and system time of all threads, ended ones included, in ticks of ten milliseconds: what is
//! measured has to run for seconds.

use std::collections::BTreeMap;
use std::fs;

/// A process that is measured, by what it does for the request.
#[derive(Debug, Clone)]
pub(crate) struct Metered {
    /// `proxy`, `older`, `newer`, `etcd`, `server`.
    pub(crate) role: &'static str,
    /// The process, which counts with its descendants.
    pub(crate) pid: u32,
}

/// Seconds of CPU time by role.
pub(crate) type Cpu = BTreeMap<String, f64>;

/// Memory of processes, in KiB.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Memory {
    /// Resident, with pages that several processes share counted for each.
    pub(crate) rss: u64,
    /// Resident, with shared pages divided among those who share them.
    pub(crate) pss: u64,
}

/// CPU time so far.
pub(crate) fn cpu(processes: &[Metered]) -> Cpu {
    let seconds = |it: &Metered| tree(it.pid).iter().map(|pid| cpu_of(*pid)).sum::<f64>();
    let each = processes.iter();
    each.map(|it| (it.role.to_owned(), seconds(it))).collect()
}

/// What was used between two readings.
pub(crate) fn used(before: &Cpu, after: &Cpu) -> Cpu {
    let of = |role: &String| before.get(role).copied().unwrap_or_default();
    let each = after.iter();
    each.map(|(role, seconds)| (role.clone(), (seconds - of(role)).max(0.0)))
        .collect()
}

/// Memory now, by role.
pub(crate) fn memory(processes: &[Metered]) -> BTreeMap<String, Memory> {
    let each = processes.iter();
    each.map(|it| (it.role.to_owned(), memory_of_tree(it.pid)))
        .collect()
}

/// Memory of a process and its descendants.
pub(crate) fn memory_of_tree(pid: u32) -> Memory {
    let each = tree(pid).into_iter().map(memory_of);
    each.fold(Memory::default(), |sum, it| Memory {
        rss: sum.rss + it.rss,
        pss: sum.pss + it.pss,
    })
}

/// CPU time of one process.
pub(crate) fn cpu_of(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain anything; fields 14 and 15 are user and system time.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / ticks_per_second()
}

fn ticks_per_second() -> f64 {
    let known = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    known.ok().flatten().unwrap_or(100) as f64
}

fn memory_of(pid: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Memory {
        rss: kib("Rss:").unwrap_or_default(),
        pss: kib("Pss:").unwrap_or_default(),
    }
}

/// A process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    found
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads.flatten().map(|thread| {
        let list = fs::read_to_string(thread.path().join("children"));
        list.unwrap_or_default()
    });
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}
