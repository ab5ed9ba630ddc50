//! What a run found out, as it is kept: every figure of every round.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::load::{Loaded, quantile};
use crate::meter::{Cpu, Memory};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// Ways to a newer server: directly, kube-apiserver's own proxy, the gateway, ordinary proxies
    Proxies,
    /// `peerage apiserver` and kube-apiserver
    Servers,
    /// `peerage up` and two kube-apiservers with etcd, from nothing
    Planes,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Proxies, Self::Servers, Self::Planes];
}

/// Everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) samples: Vec<Sample>,
    pub(crate) starts: Vec<Start>,
}

/// Where and with what.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) processors: String,
    pub(crate) kernel: String,
    /// Programs and their versions.
    pub(crate) programs: BTreeMap<String, String>,
    /// The load average when the run began and when it ended.
    pub(crate) load: [String; 2],
}

/// One workload through one setup in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) part: Part,
    pub(crate) workload: String,
    pub(crate) setup: String,
    pub(crate) round: usize,
    /// Requests answered, or events that arrived.
    pub(crate) count: usize,
    pub(crate) seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Bytes of answers' bodies.
    pub(crate) bytes: usize,
    /// CPU seconds by role.
    pub(crate) cpu: Cpu,
    /// CPU seconds of the load generator, which count for nobody.
    pub(crate) generator: f64,
    pub(crate) memory: BTreeMap<String, Memory>,
}

/// One start of something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) part: Part,
    pub(crate) what: String,
    pub(crate) round: usize,
    pub(crate) ready_ms: f64,
    /// A little after that.
    pub(crate) memory: Memory,
}

impl Sample {
    /// Of a load.
    pub(crate) fn of(
        part: Part,
        workload: &str,
        setup: &str,
        round: usize,
        loaded: &Loaded,
    ) -> Self {
        Self {
            part,
            workload: workload.to_owned(),
            setup: setup.to_owned(),
            round,
            count: loaded.latencies.len(),
            seconds: loaded.seconds,
            p50_ms: quantile(&loaded.latencies, 0.5),
            p99_ms: quantile(&loaded.latencies, 0.99),
            bytes: loaded.bytes,
            cpu: Cpu::new(),
            generator: 0.0,
            memory: BTreeMap::new(),
        }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// CPU seconds per 10 000 requests of a role.
    pub(crate) fn cpu_per_10_000(&self, role: &str) -> Option<f64> {
        Some(self.cpu.get(role)? * 10_000.0 / self.count as f64)
    }

    /// The same, of all roles together.
    pub(crate) fn total_cpu_per_10_000(&self) -> f64 {
        self.cpu.values().sum::<f64>() * 10_000.0 / self.count as f64
    }
}

impl Results {
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(file).with_context(|| file.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| file.display().to_string())
    }

    pub(crate) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        std::fs::write(file, text).with_context(|| file.display().to_string())
    }

    /// Forgets what was found out about a part.
    pub(crate) fn forget(&mut self, part: Part) {
        self.samples.retain(|sample| sample.part != part);
        self.starts.retain(|start| start.part != part);
    }

    /// The samples of a workload through a setup.
    pub(crate) fn of(&self, workload: &str, setup: &str) -> Vec<&Sample> {
        let all = self.samples.iter();
        all.filter(|s| s.workload == workload && s.setup == setup)
            .collect()
    }

    /// A figure of a workload through a setup; none if that was not measured.
    pub(crate) fn figure(
        &self,
        workload: &str,
        setup: &str,
        figure: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.of(workload, setup).into_iter().map(figure))
    }

    /// A figure of starts.
    pub(crate) fn start(&self, what: &str, figure: impl Fn(&Start) -> f64) -> Option<Spread> {
        let all = self.starts.iter().filter(|start| start.what == what);
        Spread::of(all.map(figure))
    }
}

impl Machine {
    /// Looks at this machine.
    pub(crate) fn describe(&mut self) -> anyhow::Result<()> {
        let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = cpus.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(": "));
        let count = std::thread::available_parallelism()?;
        self.processors = format!("{count} × {}", model.map_or("processor", |(_, it)| it));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        kernel.trim().clone_into(&mut self.kernel);
        self.date = jiff::Timestamp::now().strftime("%F").to_string();
        self.load[0] = load_average();
        Ok(())
    }
}

/// The load average of the last minute.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// A figure of a sample, and its name.
pub(crate) type Figure = (&'static str, fn(&Sample) -> f64);

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[half - 1] + values[half]) / 2.0,
            _ => values[half],
        };
        Some(Self {
            least,
            median,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_values_lies_between_the_middle_ones() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter());
        let expected = Spread {
            least: 1.0,
            median: 2.5,
            most: 4.0,
        };
        assert_eq!(spread, Some(expected));
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
