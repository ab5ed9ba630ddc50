//! What Peerage does better, row by row, measured: the same request at the same time through the older server's own
//! proxy, through a gateway beside that server and through a balancer over all.
//!
//! Peerage's columns are asserted, and of the pairs that the README quotes, that Kubernetes' column is another. That is
//! written down as it was seen, `target/interop/table-OLDER-NEWER.json`, of which `interop/matrix` makes the tables in
//! docs/interop.md; only then all faults are complained of together. A number is a subject, which may have several rows.
//! The rows run one after the other on one control plane, because most of them stop or pause servers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Backend, ControlPlane, Gateway, Logs, RunningGateway};
use peerage_testkit::wire::{Answer, Outgoing};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

mod definitions;
mod failing;
mod flags;
mod records;
mod stand_in;
mod well;

use failing::freshness;

/// The servers and what stands in front of them.
struct World {
    sidecar: RunningGateway,
    balancer: RunningGateway,
    plane: ControlPlane,
}

/// One row, as it was seen.
#[derive(Serialize)]
struct Row {
    row: u32,
    what: &'static str,
    kubernetes: String,
    sidecar: String,
    balancer: String,
    /// Whether Kubernetes' own proxy does what is expected too.
    kubernetes_too: bool,
    /// Where it goes wrong in merging discovery, which kube-apiservers before 1.35 do not do.
    #[serde(skip)]
    in_merging: bool,
    /// What is not as expected, to be complained of when all rows are written down.
    #[serde(skip)]
    faults: Vec<String>,
}

/// The pairs of which the README says what Kubernetes' own proxy does. Of others only Peerage's columns are asserted.
const QUOTED: [(&str, &str); 2] = [("1.35", "1.37"), ("1.34", "1.37")];

impl World {
    async fn start() -> World {
        let spec = |version: String, name: &str| {
            versions::kube_apiserver(&version).named(name).own_proxy()
        };
        let plane = ControlPlane::on(Backend::Etcd("3.6"))
            .server(spec(versions::older(), "older"))
            .server(spec(versions::newer(), "newer-a"))
            .server(spec(versions::newer(), "newer-b"))
            .start()
            .await;
        let [older, a, b] = ["older", "newer-a", "newer-b"].map(|name| plane.server(name));
        let sidecar = Gateway::beside(older).peer(a).peer(b);
        let balancer = Gateway::balancing(&[older, a, b]);
        let (sidecar, balancer) = tokio::join!(start(&plane, sidecar), start(&plane, balancer));
        versions::acquaint(older).await;
        World {
            sidecar,
            balancer,
            plane,
        }
    }

    fn server(&self, name: &str) -> &Apiserver {
        self.plane.server(name)
    }

    /// What clients can be given: the older server with its own proxy, and the gateways.
    fn ways(&self) -> [&Apiserver; 3] {
        [self.server("older"), &self.sidecar, &self.balancer]
    }

    /// The same request through each, at the same time.
    async fn each(&self, request: &Outgoing) -> [Seen; 3] {
        send_each(self.ways(), "admin", request).await
    }

    /// A row in which the words of each answer say it all.
    async fn ask(&self, row: u32, what: &'static str, request: &Outgoing) -> Row {
        let words = self.each(request).await.map(|seen| seen.words());
        Row::of(row, what, words)
    }

    /// How many of `count` requests through each are answered 200.
    async fn good_of(&self, count: usize, request: &Outgoing) -> [usize; 3] {
        let mut good = [0; 3];
        for _ in 0..count {
            for (good, seen) in good.iter_mut().zip(self.each(request).await) {
                *good += usize::from(seen.status() == Some(200));
            }
        }
        good
    }

    /// Waits until no gateway counts on a server any more.
    async fn missed(&self, server: &Apiserver) {
        let address = server.address().to_string();
        for gateway in [&self.sidecar, &self.balancer] {
            let what = format!("{} misses {address}", gateway.name());
            until(&what, || async {
                let peer = gateway.peer(&address).await;
                peer.is_none_or(|peer| peer["state"] != "serving" || peer["ready"] != true)
            })
            .await;
        }
    }

    /// Waits until everybody knows that the newer servers are back.
    async fn recover(&self) {
        self.server("newer-a").ready().await;
        self.server("newer-b").ready().await;
        versions::acquaint(self.server("older")).await;
        for way in self.ways() {
            until("the newer servers' API is back", || async {
                let read = Outgoing::new("GET", NEWER_ONLY);
                let answer = way.client("admin").send(&read).await;
                answer.is_ok_and(|answer| answer.status() == 200)
            })
            .await;
        }
    }
}

/// Lets time pass that is a row's own subject, or in which the older server's own proxy, which cannot be asked what it
/// knows, may take notice. What gateways know is waited for instead.
async fn later(time: Duration) {
    sleep(time).await;
}

/// The same request as a user through each of the ways, at the same time.
async fn send_each(ways: [&Apiserver; 3], user: &str, request: &Outgoing) -> [Seen; 3] {
    let ask = |way: &Apiserver| {
        let client = way.client(user);
        async move {
            let started = Instant::now();
            let answer = timeout(Duration::from_secs(70), client.send(request)).await;
            Seen {
                took: started.elapsed(),
                answer: answer.ok().and_then(Result::ok),
            }
        }
    };
    let [a, b, c] = ways.map(ask);
    let (a, b, c) = tokio::join!(a, b, c);
    [a, b, c]
}

impl Logs for World {
    fn logs(&self) -> String {
        self.plane.logs() + &self.sidecar.log() + &self.balancer.log()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

/// One answer, or that there was none.
struct Seen {
    took: Duration,
    answer: Option<Answer>,
}

impl Seen {
    fn status(&self) -> Option<u16> {
        self.answer.as_ref().map(Answer::status)
    }

    /// Status, form and what else says whether a client can live with it.
    fn words(&self) -> String {
        let Some(answer) = &self.answer else {
            return format!("no answer in {} s", self.took.as_secs());
        };
        let mut words = answer.status().to_string();
        if answer.status() >= 400 {
            let form = answer.head.header("content-type").unwrap_or("no type");
            let status = answer.json()["kind"] == "Status";
            words += if status { " Status" } else { ", " };
            if !status {
                words += form.split(';').next().unwrap_or_default();
            }
            match answer.head.header("retry-after") {
                Some(after) => words += &format!(", Retry-After: {after}"),
                None if answer.status() == 503 => words += ", no Retry-After",
                None => {}
            }
        }
        if self.took > Duration::from_secs(4) {
            words += &format!(" after {} s", self.took.as_secs());
        }
        words
    }
}

impl Row {
    /// Both gateways have to fit.
    fn expect(mut self, fits: impl Fn(&str) -> bool) -> Row {
        self.fault_unless(fits(&self.balancer), "balancer", &self.balancer.clone());
        self.expect_beside(fits)
    }

    /// The one beside the older server has to fit; a balancer has nothing of its own to show.
    fn expect_beside(mut self, fits: impl Fn(&str) -> bool) -> Row {
        self.fault_unless(fits(&self.sidecar), "sidecar", &self.sidecar.clone());
        self.kubernetes_too = fits(&self.kubernetes);
        self
    }

    /// What Kubernetes' own proxy does wrong here is in its merging of discovery.
    fn in_merging(mut self) -> Row {
        self.in_merging = true;
        self
    }

    /// It is a fault when Kubernetes' own proxy does it as well, in a pair of which the README says that it does not.
    fn expect_better(&mut self, older: &str, newer: &str) {
        let quoted = QUOTED.contains(&(older, newer));
        if quoted && (versions::merges_discovery(older) || !self.in_merging) {
            let other = !self.kubernetes_too;
            self.fault_unless(other, "Kubernetes, too", &self.kubernetes.clone());
        }
    }

    fn fault_unless(&mut self, right: bool, whose: &str, words: &str) {
        if !right {
            let Row { row, what, .. } = self;
            self.faults
                .push(format!("row {row}, {what}: {whose}: {words}"));
        }
    }

    fn of(row: u32, what: &'static str, [kubernetes, sidecar, balancer]: [String; 3]) -> Row {
        Row {
            row,
            what,
            kubernetes,
            sidecar,
            balancer,
            kubernetes_too: false,
            in_merging: false,
            faults: Vec::new(),
        }
    }
}

fn has(expected: &'static str) -> impl Fn(&str) -> bool {
    move |words| words.starts_with(expected)
}

fn refused_for_now(words: &str) -> bool {
    words.starts_with("503 Status, Retry-After: ")
}

#[tokio::test]
async fn every_row_is_better_than_kubernetes_own_proxy_beside_it() {
    let world = World::start().await;
    let mut rows = well::while_all_is_well(&world).await;
    rows.push(records::a_fetch_of_an_old_peer(&world).await);
    rows.extend(failing::while_servers_fail(&world).await);
    rows.extend(failing::after_a_restart_of_the_older(&world).await);
    rows.extend(definitions::while_a_definition_comes_and_goes(&world).await);
    let finders = records::Finders::start(&world).await;
    rows.push(records::a_label_patch(&world, &finders).await);
    rows.extend(stand_in::with_a_peer_that_does_as_told(&world, &finders).await);
    // Last, because kube-apiservers are long in coming to rest after it.
    rows.push(records::a_stray_lease(&world, &finders).await);
    rows.push(flags::without_an_authority_for_peers(&world).await);
    if !versions::merges_discovery(&versions::older()) {
        rows.push(records::beside_an_old_server().await);
    }
    rows.sort_by_key(|row| row.row);
    for row in &mut rows {
        row.expect_better(&versions::older(), &versions::newer());
    }
    write(&rows);
    let faults: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.faults)
        .map(String::as_str)
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

fn write(rows: &[Row]) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../interop");
    std::fs::create_dir_all(&directory).unwrap();
    let name = format!("table-{}-{}.json", versions::older(), versions::newer());
    let text = serde_json::to_vec_pretty(rows).unwrap();
    std::fs::write(directory.join(name), text).unwrap();
    for row in rows {
        println!(
            "{:2} {} | {} | {} | {}",
            row.row, row.what, row.kubernetes, row.sidecar, row.balancer
        );
    }
}
