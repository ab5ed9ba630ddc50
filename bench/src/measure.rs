//! One measurement: a workload through a setup, with what everybody involved spent on it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use crate::fanout::Watches;
use crate::load::{Call, Client, Endpoint, Load, Loaded};
use crate::meter::{self, Metered};
use crate::results::{Part, Sample};

/// Before each measurement, so that the one before has no part in it (garbage collection, mostly).
const SETTLE: Duration = Duration::from_millis(300);
/// How long a setup may take to know what the newer server serves.
const SYNC: Duration = Duration::from_secs(60);
/// What a client asks before the clock starts.
const WARM: usize = 4;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// What counts of requests are divided by.
    pub(crate) divisor: usize,
    /// Objects in the large collection.
    pub(crate) objects: usize,
    /// Watches.
    pub(crate) watches: usize,
}

impl Size {
    pub(crate) const WHOLE: Self = Self {
        divisor: 1,
        objects: 5000,
        watches: 1000,
    };
    /// Shows that everything works, and nothing else.
    pub(crate) const QUICK: Self = Self {
        divisor: 40,
        objects: 100,
        watches: 60,
    };

    fn requests(self, whole: usize) -> usize {
        (whole / self.divisor).max(8)
    }
}

/// What is to be measured, and how often.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The executable.
    pub(crate) peerage: PathBuf,
    pub(crate) size: Size,
    pub(crate) rounds: usize,
    /// What names of workloads have to contain.
    pub(crate) workload: String,
    /// What names of setups have to contain.
    pub(crate) through: String,
    /// Whether these are whole names.
    pub(crate) exact: bool,
}

impl Plan {
    /// Whether a measurement is wanted.
    pub(crate) fn wants(&self, workload: &str, setup: &str) -> bool {
        let fits = |name: &str, wanted: &str| match self.exact {
            true => name == wanted,
            false => name.contains(wanted),
        };
        fits(workload, &self.workload) && fits(setup, &self.through)
    }
}

/// A way to a server, and who is involved.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) endpoint: Endpoint,
    pub(crate) processes: Vec<Metered>,
}

/// What is done.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// So many requests by so many clients.
    Ask {
        call: Call,
        /// Ask first for the ETag that this setup has, and then whether there is anything else.
        again: bool,
        clients: usize,
        requests: usize,
    },
    /// Watches of a collection, and so many changes of one object of it, written directly to `writer` where that
    /// is another server.
    Watch {
        collection: String,
        object: String,
        writer: Option<Endpoint>,
        changes: usize,
    },
}

impl Work {
    pub(crate) fn ask(call: Call, clients: usize, requests: usize) -> Self {
        Self::Ask {
            call,
            again: false,
            clients,
            requests,
        }
    }

    pub(crate) fn ask_again(call: Call, clients: usize, requests: usize) -> Self {
        Self::Ask {
            call,
            again: true,
            clients,
            requests,
        }
    }
}

async fn conditional(endpoint: &Endpoint, call: &Call) -> anyhow::Result<Call> {
    let answer = Client::connect(endpoint).await?.ask(call).await?;
    let tag = answer.headers().get("etag").context("no ETag")?;
    let call = call.clone().header("if-none-match", tag.to_str()?);
    Ok(call.expecting(304))
}

/// A measurement to be made.
pub(crate) struct Measurement<'a> {
    pub(crate) part: Part,
    pub(crate) workload: &'a str,
    pub(crate) round: usize,
    pub(crate) size: Size,
}

impl Measurement<'_> {
    /// Makes it.
    pub(crate) async fn of(&self, setup: &Setup, work: &Work) -> anyhow::Result<Sample> {
        let what = || format!("{} through {}", self.workload, setup.name);
        let sample = self.measure(setup, work).await.with_context(what)?;
        eprintln!(
            "round {} {:32} {:40} {:9.1}/s p50 {:8.3} ms p99 {:8.3} ms  CPU s/10 000: {}",
            self.round,
            self.workload,
            setup.name,
            sample.rate(),
            sample.p50_ms,
            sample.p99_ms,
            in_words(&sample),
        );
        Ok(sample)
    }

    async fn measure(&self, setup: &Setup, work: &Work) -> anyhow::Result<Sample> {
        let size = self.size;
        match work {
            Work::Ask {
                call,
                again,
                clients,
                requests,
            } => {
                let call = match again {
                    true => conditional(&setup.endpoint, call).await?,
                    false => call.clone(),
                };
                let requests = size.requests(*requests);
                let load = Load::prepare(&setup.endpoint, *clients, &call, WARM).await?;
                let load = load.run(requests);
                self.metered(setup, load).await
            }
            Work::Watch {
                collection,
                object,
                writer,
                changes,
            } => {
                let watches = Watches::open(&setup.endpoint, collection, size.watches).await?;
                let load = watches.run(
                    writer.as_ref().unwrap_or(&setup.endpoint),
                    object,
                    (*changes / size.divisor).max(2),
                );
                self.metered(setup, load).await
            }
        }
    }

    async fn metered(
        &self,
        setup: &Setup,
        load: impl Future<Output = anyhow::Result<Loaded>>,
    ) -> anyhow::Result<Sample> {
        tokio::time::sleep(SETTLE).await;
        let own = std::process::id();
        let (before, own_before) = (meter::cpu(&setup.processes), meter::cpu_of(own));
        let loaded = load.await?;
        let (after, own_after) = (meter::cpu(&setup.processes), meter::cpu_of(own));
        let mut sample = Sample::of(self.part, self.workload, setup.name, self.round, &loaded);
        sample.cpu = meter::used(&before, &after);
        sample.generator = own_after - own_before;
        sample.memory = meter::memory(&setup.processes);
        Ok(sample)
    }
}

fn in_words(sample: &Sample) -> String {
    let each = sample.cpu.keys().map(|role| {
        let seconds = sample.cpu_per_10_000(role).unwrap_or_default();
        format!("{role} {seconds:.2} ")
    });
    each.collect()
}

/// Waits until a setup answers as expected.
pub(crate) async fn until_served(endpoint: &Endpoint, call: &Call) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + SYNC;
    loop {
        let mut client = Client::connect(endpoint).await?;
        match client.ask(call).await {
            Ok(_) => return Ok(()),
            Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
