//! The recorded conversations, through a gateway in front of the kind of server that they were recorded from (1.37,
//! whatever pair a run is about), and in front of a pair's older server, whose answers without a gateway are compared then.

use std::collections::BTreeMap;

use peerage_testkit::kube::{Backend, ControlPlane, Gateway, KubeApiserver};
use peerage_testkit::recording::{Outcome, Recording, Replayer, Run};

use crate::ours::start;
use crate::versions::{self, NEWER_ONLY};

/// How a gateway stands before its servers.
#[derive(Clone, Copy)]
enum Way {
    Sidecar,
    Balancer,
}

/// The conversation through a gateway; `mvp` with a pair behind it, every other with the newest server.
async fn through(way: Way, name: &str) -> Run {
    let recording = Recording::load(name);
    let newer = KubeApiserver::of("1.37").named("new");
    let older = KubeApiserver::of("1.37").emulating("1.34").named("old");
    let pair = name == "mvp";
    let plane = ControlPlane::on(Backend::Etcd("3.6"));
    let plane = if pair { plane.server(older) } else { plane };
    let plane = plane.server(newer).start().await;
    let new = plane.server("new");
    let gateway = match (way, pair) {
        (Way::Sidecar, true) => Gateway::beside(plane.server("old")).peer(new),
        (Way::Sidecar, false) => Gateway::beside(new),
        (Way::Balancer, true) => Gateway::balancing(&[plane.server("old"), new]),
        (Way::Balancer, false) => Gateway::balancing(&[new]),
    };
    let gateway = start(&plane, gateway).await;
    if pair {
        gateway.serves(NEWER_ONLY).await;
    }
    let replayer = Replayer::new(gateway.address(), plane.pki());
    replayer.run(&recording).await
}

/// Why a step may differ: a part of its name (all of it after `=`), and the reason.
type Reason = (&'static str, &'static str);

const OLD_DISCOVERY: Reason = (
    "v2beta1",
    "a gateway answers aggregated discovery v2beta1, for clients of its time, whatever the servers still do",
);
const BRACKETS: Reason = (
    "label selector [n",
    "a request target with an unescaped < or >, which RFC 3986 does not allow, is 400 at the connection",
);
const CERTIFICATES: Reason = (
    "GET /api/v1/namespaces//configmaps",
    "it shows the certificates of the recorded server",
);
const NEWER_WORDS: Reason = (
    "alice may not impersonate",
    "the newer server says it in its own words",
);

/// Steps that a balancer sends to whichever server: here the newer one says in its own words what nobody has.
const WHICHEVER: [Reason; 3] = [
    ("=version", "each server has one of its own"),
    (
        "unknown resource of the peer's group version",
        "the newer knows the version, and says so",
    ),
    (
        "path with watch prefix",
        "the newer knows the version, and says so",
    ),
];

fn is_named(step: &str, part: &str) -> bool {
    match part.strip_prefix('=') {
        Some(whole) => step == whole,
        None => step.contains(part),
    }
}

/// The one recorded object whose faults kube-apiserver finds in a map (`spec.hard`), which has no order.
const FAULTS_IN_A_MAP: &str = "quota with scopes at odds";

/// Whether nothing differs but which of that object's faults is named first.
fn is_order_of_faults(outcome: &Outcome) -> bool {
    let parts = ["/body/details/causes/", "/body/message"];
    let is_part = |difference: &String| parts.iter().any(|it| difference.trim().starts_with(it));
    outcome.step == FAULTS_IN_A_MAP && outcome.differences.iter().all(is_part)
}

/// Both ways differ from the recording only where there is a reason, and every reason is needed.
async fn agrees_but_for(name: &str, reasons: &[Reason]) {
    for way in [Way::Sidecar, Way::Balancer] {
        // Which server a balancer picks may differ from run to run, so these may be of no need.
        let by_chance: &[Reason] = match (way, name) {
            (Way::Balancer, "mvp") => &WHICHEVER,
            _ => &[],
        };
        let run = through(way, name).await;
        let differing = run.differing().filter(|it| !is_order_of_faults(it));
        let differing: Vec<&str> = differing.map(|o| o.step.as_str()).collect();
        let all = || reasons.iter().chain(by_chance);
        let explained = |step: &&str| all().any(|(part, _)| is_named(step, part));
        let unexplained: Vec<&str> = differing
            .iter()
            .copied()
            .filter(|s| !explained(s))
            .collect();
        assert!(
            unexplained.is_empty(),
            "{unexplained:#?}\n{}",
            run.in_words()
        );
        for (part, why) in reasons {
            assert!(
                differing.iter().any(|step| is_named(step, part)),
                "nothing needs: {why}"
            );
        }
    }
}

#[tokio::test]
async fn verbs_are_as_without_a_gateway() {
    agrees_but_for("verbs", &[]).await;
}

#[tokio::test]
async fn lists_and_watches_are_as_without_a_gateway() {
    agrees_but_for("lists-watches", &[BRACKETS]).await;
}

#[tokio::test]
async fn patches_are_as_without_a_gateway() {
    agrees_but_for("patches", &[]).await;
}

#[tokio::test]
async fn authentication_and_authorization_are_as_without_a_gateway() {
    agrees_but_for("auth", &[]).await;
}

#[tokio::test]
async fn negotiation_is_as_without_a_gateway() {
    agrees_but_for("negotiation", &[OLD_DISCOVERY]).await;
}

#[tokio::test]
async fn paths_without_a_resource_are_as_without_a_gateway() {
    agrees_but_for("nonresource", &[CERTIFICATES]).await;
}

#[tokio::test]
async fn server_side_apply_is_as_without_a_gateway() {
    agrees_but_for("apply", &[]).await;
}

#[tokio::test]
async fn defaults_are_as_without_a_gateway() {
    agrees_but_for("defaults", &[]).await;
}

#[tokio::test]
async fn what_is_invalid_is_as_without_a_gateway() {
    agrees_but_for("validation", &[]).await;
}

#[tokio::test]
async fn subresources_are_as_without_a_gateway() {
    agrees_but_for("subresources", &[]).await;
}

#[tokio::test]
async fn admission_is_as_without_a_gateway() {
    agrees_but_for("admission", &[]).await;
}

#[tokio::test]
async fn custom_resources_are_as_without_a_gateway() {
    agrees_but_for("crds", &[]).await;
}

#[tokio::test]
async fn aggregated_apis_are_as_without_a_gateway() {
    agrees_but_for("aggregation", &[]).await;
}

#[tokio::test]
async fn a_newer_api_is_served_through_the_older_server_better_than_by_its_own_proxy() {
    agrees_but_for("mvp", &[OLD_DISCOVERY, NEWER_WORDS]).await;
}

/// The conversation with a fresh server of the older version.
async fn with_the_older(way: Option<Way>, name: &str) -> Run {
    let older = versions::kube_apiserver(&versions::older()).named("older");
    let plane = ControlPlane::on(Backend::Etcd("3.6")).server(older);
    let plane = plane.start().await;
    let older = plane.server("older");
    let gateway = match way {
        None => None,
        Some(Way::Sidecar) => Some(start(&plane, Gateway::beside(older)).await),
        Some(Way::Balancer) => Some(start(&plane, Gateway::balancing(&[older])).await),
    };
    let address = gateway.as_ref().map_or(older.address(), |it| it.address());
    let replayer = Replayer::new(address, plane.pki());
    replayer.run(&Recording::load(name)).await
}

/// How each step's answer differs from the recording.
fn answers(run: &Run) -> BTreeMap<&str, &[String]> {
    let outcomes = run.outcomes.iter();
    outcomes
        .map(|it| (it.step.as_str(), it.differences.as_slice()))
        .collect()
}

/// What a server of a version that nobody recorded says through a gateway is what it says without one.
#[tokio::test]
async fn an_older_server_is_heard_through_a_gateway_as_directly() {
    for (name, reasons) in [
        ("verbs", [].as_slice()),
        ("lists-watches", &[BRACKETS]),
        ("patches", &[]),
        ("auth", &[]),
        ("negotiation", &[OLD_DISCOVERY]),
        ("nonresource", &[CERTIFICATES]),
    ] {
        let (direct, sidecar, balancer) = tokio::join!(
            with_the_older(None, name),
            with_the_older(Some(Way::Sidecar), name),
            with_the_older(Some(Way::Balancer), name),
        );
        let expected = answers(&direct);
        assert!(expected.len() > 10, "{name}: {} steps", expected.len());
        for (way, run) in [("sidecar", &sidecar), ("balancer", &balancer)] {
            let others: Vec<_> = answers(run)
                .into_iter()
                .filter(|(step, answer)| expected[step] != *answer)
                .filter(|(step, _)| !reasons.iter().any(|(part, _)| is_named(step, part)))
                .map(|(step, answer)| format!("{step}: {answer:#?}, not {:#?}", expected[step]))
                .collect();
            assert!(others.is_empty(), "{name}, {way}: {}", others.join("\n"));
        }
    }
}
