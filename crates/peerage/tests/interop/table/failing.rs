//! Rows while servers are killed, paused, stopped and started.

use std::time::{Duration, Instant};

use peerage_testkit::cluster::until;
use peerage_testkit::wire::{AGGREGATED, Outgoing};
use tokio::time::sleep;

use super::{Row, Seen, World, later, refused_for_now};
use crate::versions::NEWER_ONLY;

/// What makes an API part of the legacy `/apis` of kube-apiservers.
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.storagemigration.k8s.io";

pub(super) async fn while_servers_fail(world: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    let read = Outgoing::new("GET", NEWER_ONLY);
    let [a, b] = ["newer-a", "newer-b"].map(|name| world.server(name));

    b.kill();
    let good = world
        .good_of(40, &read)
        .await
        .map(|good| format!("{good} of 40"));
    let row = Row::of(3, "reads with one of two newer servers just killed", good);
    rows.push(row.expect(|words| words == "40 of 40"));

    a.kill();
    let row = world
        .ask(
            7,
            "a read right after the last newer server was killed",
            &read,
        )
        .await;
    rows.push(row.expect(refused_for_now));
    later(Duration::from_secs(16)).await;
    let row = world
        .ask(
            5,
            "a read 16 s after the last newer server was killed",
            &read,
        )
        .await;
    rows.push(row.expect(refused_for_now));
    let listed = world
        .each(&Outgoing::get_as("/apis", AGGREGATED))
        .await
        .map(|it| freshness(&it));
    let row = Row::of(5, "its API in discovery then", listed);
    rows.push(row.expect(|words| words == "Stale"));

    tokio::join!(a.restart(), b.restart());
    world.recover().await;

    a.pause();
    b.pause();
    let row = world
        .ask(6, "a read with both newer servers paused", &read)
        .await;
    rows.push(row.expect(refused_for_now));
    let watch = Outgoing::new("GET", &format!("{NEWER_ONLY}?watch=true"));
    let row = world
        .ask(20, "a watch with both newer servers paused", &watch)
        .await;
    rows.push(row.expect(refused_for_now));
    a.resume();
    b.resume();
    world.recover().await;

    rows.extend(while_newer_ones_restart_cleanly(world).await);
    rows
}

/// Rows 18 and 19: every newer server stops in good order and comes back.
async fn while_newer_ones_restart_cleanly(world: &World) -> Vec<Row> {
    let read = Outgoing::new("GET", NEWER_ONLY);
    let [a, b] = ["newer-a", "newer-b"].map(|name| world.server(name));
    tokio::join!(a.stop(), b.stop());
    tokio::join!(world.missed(a), world.missed(b));
    later(Duration::from_secs(5)).await;
    let row = world
        .ask(19, "a read while all newer servers restart cleanly", &read)
        .await;
    let stopped = row.expect(refused_for_now);
    let listed = world
        .each(&Outgoing::get_as("/apis", AGGREGATED))
        .await
        .map(|it| freshness(&it));
    let row = Row::of(
        18,
        "the newer servers' API in discovery while they restart cleanly",
        listed,
    );
    let listed = row.expect(|words| words == "Stale");
    a.spawn();
    b.spawn();
    let mut wrong = [0; 3];
    let mut asked = 0;
    let back = Instant::now();
    while back.elapsed() < Duration::from_secs(60) {
        asked += 1;
        let seen = world.each(&read).await;
        for (wrong, seen) in wrong.iter_mut().zip(&seen) {
            *wrong += usize::from(seen.status() == Some(404));
        }
        if seen.iter().all(|seen| seen.status() == Some(200)) {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    let words = wrong.map(|wrong| format!("{wrong} of {asked} are 404"));
    let row = Row::of(19, "reads from their start until they answer", words);
    let restarted = row.expect(|words| words.starts_with("0 of"));
    world.recover().await;
    vec![stopped, listed, restarted]
}

/// Row 17: the older server takes the newer ones' APIServices away when it starts.
pub(super) async fn after_a_restart_of_the_older(world: &World) -> Vec<Row> {
    let older = world.server("older");
    older.stop().await;
    older.restart().await;
    let taken = Outgoing::new("GET", SERVICE);
    until(
        "the older server has taken the newer ones' away",
        || async {
            let answer = older.client("admin").send(&taken).await;
            answer.is_ok_and(|answer| answer.status() == 404)
        },
    )
    .await;
    let legacy = Outgoing::new("GET", "/apis");
    let has_group = |seen: &Seen| {
        let groups = seen
            .answer
            .as_ref()
            .map(|answer| answer.json()["groups"].clone());
        let groups = groups.unwrap_or_default();
        let groups = groups.as_array().cloned().unwrap_or_default();
        let there = groups
            .iter()
            .any(|group| group["name"] == "storagemigration.k8s.io");
        if there { "listed" } else { "missing" }.to_owned()
    };
    let seen = world.each(&legacy).await.map(|seen| has_group(&seen));
    let row = Row::of(
        17,
        "a newer-only group in legacy /apis after the older restarted",
        seen,
    );
    vec![row.expect(|words| words == "listed")]
}

/// How the newer-only version is listed.
pub(super) fn freshness(seen: &Seen) -> String {
    let Some(answer) = &seen.answer else {
        return "no answer".to_owned();
    };
    let document = answer.json();
    let groups = document["items"].as_array().cloned().unwrap_or_default();
    let group = groups
        .iter()
        .find(|group| group["metadata"]["name"] == "storagemigration.k8s.io");
    match group {
        None => "not listed".to_owned(),
        Some(group) => group["versions"][0]["freshness"]
            .as_str()
            .unwrap_or("?")
            .to_owned(),
    }
}
