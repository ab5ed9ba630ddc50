//! Certificates that can be loaded and do not serve all the same: they have run out, or are for something else.
//!
//! Clients and servers refuse them, each in words of its own; who runs the gateway is told here, and again while it runs.
//!
//! Invariant: nothing here keeps a gateway from starting. The files are followed, and a better one may come.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::settings::GatewaySettings;
use crate::output::counted;
use crate::pki::Facts;
use crate::pki::inspect::{self, Usages};

/// How long before its end a certificate is worth a word.
const SOON: i64 = 30;
/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(60);
/// Names that are shown.
const NAMES: usize = 6;

/// What a certificate is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Serve,
    Vouch,
}

/// What is wrong, or soon will be, with the gateway's own certificates.
pub(super) fn look(settings: &GatewaySettings) -> Vec<String> {
    let now = Timestamp::now();
    let serving = ("--tls-cert-file", &settings.pair, Task::Serve);
    let client = (
        "--proxy-client-cert-file",
        &settings.client_pair,
        Task::Vouch,
    );
    let look = |(flag, pair, task): (_, &crate::common_flags::KeyPairFiles, _)| {
        // One that cannot be read has been refused at the start, or is told when it is read again.
        let pem = std::fs::read_to_string(&pair.certificate).unwrap_or_default();
        judge(flag, &pair.certificate, &pem, task, now)
    };
    [serving, client].into_iter().flat_map(look).collect()
}

/// Tells the log, for ever, what is new of it. At the start it is told before.
pub(super) async fn watch(settings: GatewaySettings, mut told: Vec<String>) {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        // A file on a dead mount holds up this task and no other; the next look waits for it.
        let looked = settings.clone();
        let Ok(now) = tokio::task::spawn_blocking(move || look(&looked)).await else {
            continue;
        };
        for warning in now.iter().filter(|it| !told.contains(it)) {
            tracing::warn!("{warning}");
        }
        told = now;
    }
}

fn judge(flag: &str, path: &Path, pem: &str, task: Task, now: Timestamp) -> Vec<String> {
    let (Ok(facts), Ok(usages)) = (Facts::from_pem(pem), inspect::usages(pem)) else {
        return Vec::new();
    };
    let whose = whose(&facts);
    let problems = [
        time(&facts, task, now),
        usage(usages, task),
        (task == Task::Serve && facts.alt_names.is_empty()).then(|| {
            "has no host names (subjectAltName), so no client that checks certificates connects"
                .to_owned()
        }),
    ];
    let say = |problem| format!("{flag}: {} {problem} ({whose})", path.display());
    problems.into_iter().flatten().map(say).collect()
}

fn time(facts: &Facts, task: Task, now: Timestamp) -> Option<String> {
    let refused = match task {
        Task::Serve => "clients that check certificates do not connect",
        Task::Vouch => "servers refuse what comes with it",
    };
    if facts.not_after <= now {
        return Some(format!("{}: {refused}", facts.ended()));
    }
    if facts.not_before > now {
        return Some(format!("{}: until then {refused}", facts.begins()));
    }
    let left = facts.days_left(now);
    (left < SOON).then(|| {
        format!(
            "ends {}, in {}",
            inspect::day(facts.not_after),
            counted(left, "day")
        )
    })
}

fn usage(usages: Usages, task: Task) -> Option<String> {
    match (task, usages) {
        (Task::Serve, Usages { serving: false, .. }) => Some(
            "is not for serving (it has no serverAuth usage): clients that check certificates do not connect".to_owned(),
        ),
        (Task::Vouch, Usages { client: false, .. }) => Some(
            "is not for a client (it has no clientAuth usage): servers refuse it".to_owned(),
        ),
        _ => None,
    }
}

/// Whose it is.
fn whose(facts: &Facts) -> String {
    let names: Vec<&str> = facts.alt_names.iter().map(String::as_str).collect();
    let cn = format!("CN={:?}", facts.common_name);
    match names.as_slice() {
        [] => cn,
        names if names.len() > NAMES => {
            let more = names.len() - NAMES;
            format!("{cn}, for {} and {more} more", names[..NAMES].join(", "))
        }
        names => format!("{cn}, for {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pki::{PkiDirectory, Plan};

    #[test]
    fn a_certificate_that_does_not_serve_is_told_with_its_end_and_its_names() {
        let temp = tempfile::tempdir().unwrap();
        let pki = PkiDirectory::new(temp.path());
        pki.create(&Plan::default(), false).unwrap();
        let pem = |name: &str| std::fs::read_to_string(pki.certificate(name)).unwrap();
        let now = Timestamp::now();
        let at = |days: i64| now + jiff::SignedDuration::from_hours(24 * days + 1);
        let end = Facts::from_pem(&pem("apiserver")).unwrap().not_after;
        let end = end.strftime("%Y-%m-%d");
        let names = "(CN=\"kube-apiserver\", for kubernetes, kubernetes.default, kubernetes.default.svc, \
                     kubernetes.default.svc.cluster.local, localhost, 127.0.0.1 and 1 more)";
        let no_client = "is not for serving (it has no serverAuth usage): clients that check certificates do not connect";
        for (name, task, at, expected) in [
            ("apiserver", Task::Serve, now, vec![]),
            ("front-proxy-client", Task::Vouch, now, vec![]),
            (
                "apiserver",
                Task::Serve,
                at(366),
                vec![format!("ended {end}: clients that check certificates do not connect {names}")],
            ),
            (
                "apiserver",
                Task::Serve,
                at(350),
                vec![format!("ends {end}, in 14 days {names}")],
            ),
            (
                "apiserver",
                Task::Vouch,
                now,
                vec![format!("is not for a client (it has no clientAuth usage): servers refuse it {names}")],
            ),
            (
                "front-proxy-client",
                Task::Serve,
                now,
                vec![
                    format!("{no_client} (CN=\"front-proxy-client\")"),
                    "has no host names (subjectAltName), so no client that checks certificates connects \
                     (CN=\"front-proxy-client\")"
                        .to_owned(),
                ],
            ),
            (
                "front-proxy-client",
                Task::Vouch,
                at(366),
                vec![format!("ended {end}: servers refuse what comes with it (CN=\"front-proxy-client\")")],
            ),
        ] {
            let found = judge("--flag", Path::new("f"), &pem(name), task, at);
            let expected: Vec<String> = expected.iter().map(|it| format!("--flag: f {it}")).collect();
            assert_eq!(found, expected, "{name} {task:?} {at}");
        }
        let early = judge(
            "--flag",
            Path::new("f"),
            &pem("apiserver"),
            Task::Serve,
            at(-1),
        );
        assert!(
            early[0].contains("begins ") && early[0].contains(" only"),
            "{early:?}"
        );
        assert!(judge("--flag", Path::new("f"), "", Task::Serve, now).is_empty());
    }
}
