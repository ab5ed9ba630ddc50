//! Servers from the identity Leases in `kube-system` (KEP-1965) and the address that kube-apiservers with their own
//! proxy write on them (KEP-4020).
//!
//! They are listed and watched through any server behind, the next one when that fails. A Lease says that a server
//! exists and where; whether it answers is found out by the proxy. Leases are renewed every ten seconds and live for an
//! hour, so one that is old when it is first seen belongs to a server that is no more; later on it is the proxy that
//! notices, since a control plane that cannot write may serve all the same.
//!
//! Differs: kube-apiserver takes a labelled Lease of any namespace for a server, and never looks at its time.
//!
//! Invariants: a Lease that cannot be used costs itself alone; a server that cannot be asked takes nothing away; every
//! read has a deadline and a size limit.

mod ask;
mod known;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use peerage_core::chain;
use peerage_http::{Upstream, UpstreamOptions};
use peerage_proxy::PeerRecord;
use rand::RngExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::LeaseOptions;
use super::proven::Proven;
use super::publish::Publisher;
use ask::{AskError, Change, Lines};
use known::{Known, MOST, Told};

/// The first pause when nobody can be asked; doubles up to `RETRY_CAP`.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// Servers say something every minute even if nothing happens; after this silence the list is read again.
const SILENCE: Duration = Duration::from_secs(90);
/// How often what runs out by time alone is looked at.
const TICK: Duration = Duration::from_secs(10);
/// Where there are many Leases, changes that come within this are told together.
const GATHER: Duration = Duration::from_millis(500);

/// Follows the Leases for ever, through the servers of `records`.
pub(super) async fn follow(
    options: LeaseOptions,
    mut records: watch::Receiver<Arc<[PeerRecord]>>,
    proven: Proven,
    mut publisher: Publisher,
) {
    let mut known = Known::default();
    let mut preferred = None;
    let mut failures = 0u32;
    loop {
        let asked = servers(&records.borrow_and_update(), preferred.as_ref());
        if asked.is_empty() {
            publisher.failed(
                "no_server",
                "no server is known that could be asked".to_owned(),
            );
        }
        for address in &asked {
            let upstream = upstream(address, &options);
            let session = Session {
                upstream: &upstream,
                options: &options,
                publisher: &mut publisher,
                known: &mut known,
                proven: &proven,
            };
            let (watched, ended) = session.run().await;
            if watched {
                failures = 0;
                preferred = Some(address.clone());
            }
            match ended {
                Ok(()) => break,
                Err(error) => {
                    let says = format!("{address}: {}{}", chain(&error), error.flag());
                    publisher.failed(error.reason(), says);
                }
            }
        }
        failures = failures.saturating_add(1);
        let pause = RETRY
            .saturating_mul(1 << (failures - 1).min(8))
            .min(RETRY_CAP);
        let pause = pause.mul_f64(rand::rng().random_range(0.8..1.2));
        sleep(RETRY).await;
        // Another server may have appeared that can be asked; that the same ones are there still is no reason to go on.
        let another = records.wait_for(|now| {
            let now = servers(now, None);
            now.iter().any(|address| !asked.contains(address))
        });
        let _ = timeout(pause.saturating_sub(RETRY), another).await;
    }
}

/// Whom to ask: the one that answered last, then all others.
fn servers(records: &[PeerRecord], preferred: Option<&Authority>) -> Vec<Authority> {
    let live = records.iter().filter(|record| record.endpoint_live);
    let mut servers: Vec<_> = live.filter_map(|record| record.address.clone()).collect();
    servers.sort_by_key(|address| Some(address) != preferred);
    servers
}

fn upstream(address: &Authority, options: &LeaseOptions) -> Upstream {
    let mut settings = UpstreamOptions::new(address.as_str(), options.tls.clone());
    settings.max_connections = 1;
    settings.first_byte_timeout = ask::DEADLINE;
    Upstream::new(settings)
}

/// A list and the watch that follows it.
struct Session<'a> {
    upstream: &'a Upstream,
    options: &'a LeaseOptions,
    publisher: &'a mut Publisher,
    known: &'a mut Known,
    proven: &'a Proven,
}

impl Session<'_> {
    /// Whether a watch began, and how it ended: `Ok` if there is nothing wrong with the server.
    async fn run(mut self) -> (bool, Result<(), AskError>) {
        let user = self.options.user.as_ref();
        let list = match ask::list(self.upstream, user).await {
            Ok(list) => list,
            Err(error) => return (false, Err(error)),
        };
        let now = (SystemTime::now(), Instant::now());
        self.known.prefer(self.proven.lately(now.1));
        let more = list.rest.is_some();
        self.known.replace(list.leases, more, now.0, now.1);
        self.publish();
        match ask::watch(self.upstream, user, &list.version).await {
            Ok(lines) => (true, self.watch(lines).await),
            Err(error) => (false, Err(error)),
        }
    }

    async fn watch(&mut self, mut lines: Lines) -> Result<(), AskError> {
        let mut heard = Instant::now();
        // Since when there is something to tell.
        let mut since: Option<Instant> = None;
        loop {
            let pause = since.map_or(TICK, |since| GATHER.saturating_sub(since.elapsed()));
            let next = timeout(pause, lines.next()).await;
            if since.is_some_and(|since| since.elapsed() >= GATHER) {
                since = None;
                self.publish();
            }
            let Ok(next) = next else {
                if heard.elapsed() > SILENCE {
                    return Ok(());
                }
                self.publish_unconfirmed();
                continue;
            };
            heard = Instant::now();
            match next? {
                None => return Ok(()),
                Some(Change::Nothing) if self.known.has_overflowed() => self.publish(),
                Some(Change::Nothing) => self.publisher.confirmed(),
                Some(Change::Unusable) => {}
                Some(change) => {
                    self.take(change, heard);
                    match self.known.are_few() {
                        true => self.publish(),
                        false => drop(since.get_or_insert(heard)),
                    }
                }
            }
        }
    }

    fn take(&mut self, change: Change, now: Instant) {
        match change {
            Change::Is(lease) => {
                self.known.prefer(self.proven.lately(now));
                self.known.put(lease, SystemTime::now(), now);
            }
            Change::Gone(name) => self.known.remove(&name, now),
            Change::Unusable | Change::Nothing => {}
        }
    }

    fn told(&mut self) -> Told {
        let mut told = self.known.servers(SystemTime::now(), Instant::now());
        if self.known.are_all_gone() {
            // Who is remembered of two servers is no longer to be told from who is gone; those that answer stay.
            told.servers.clear();
        }
        told
    }

    fn publish(&mut self) {
        let told = self.told();
        for (id, why) in told.faults {
            self.publisher.skipped(&id, why);
        }
        match self.known.has_overflowed() {
            false => self.publisher.found(told.servers, told.skipped),
            true => {
                let text = format!(
                    "there are more than {MOST} identity Leases, more than any cluster has servers; those count whose \
                     servers have answered lately, and of the others those that were renewed last: find out who writes \
                     them"
                );
                self.publisher
                    .found_but(told.servers, told.skipped, "too_many", text);
            }
        }
    }

    /// Time may have run out for some; that says nothing about the server that is asked.
    fn publish_unconfirmed(&mut self) {
        let told = self.told();
        self.publisher.aged(told.servers);
    }
}
