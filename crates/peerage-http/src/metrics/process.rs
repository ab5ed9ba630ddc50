//! What the process uses, from `/proc`, under the names that Prometheus clients give it.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks a second in `/proc`: 100 on every architecture Linux runs servers on.
const TICKS: f64 = 100.0;
/// Bytes of a kB as `/proc` means it.
const KILO: f64 = 1024.0;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let times = times();
        if let Some(cpu) = times.map(|times| times.cpu) {
            let help = "Total user and system CPU time spent in seconds";
            write(
                &mut encoder,
                "process_cpu_seconds",
                help,
                &ConstCounter::new(cpu),
            )?;
        }
        if let Some(bytes) = resident() {
            let help = "Resident memory size in bytes";
            write(
                &mut encoder,
                "process_resident_memory_bytes",
                help,
                &ConstGauge::new(bytes),
            )?;
        }
        if let Some(open) = open_files() {
            let help = "Number of open file descriptors";
            write(
                &mut encoder,
                "process_open_fds",
                help,
                &ConstGauge::new(open),
            )?;
        }
        if let Some(start) = times.and_then(|times| Some(booted()? + times.start)) {
            let help = "Start time of the process since unix epoch in seconds";
            write(
                &mut encoder,
                "process_start_time_seconds",
                help,
                &ConstGauge::new(start),
            )?;
        }
        Ok(())
    }
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}

/// Seconds of processor time, and from the start of the system to that of the process.
#[derive(Clone, Copy)]
struct Times {
    cpu: f64,
    start: f64,
}

fn times() -> Option<Times> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain anything; numbers follow the last one.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Times {
        cpu: (ticks(11)? + ticks(12)?) / TICKS,
        start: ticks(19)? / TICKS,
    })
}

fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * KILO)
}

fn open_files() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    u32::try_from(count).ok().map(f64::from)
}

fn booted() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}
