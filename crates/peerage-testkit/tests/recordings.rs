//! Conversations with a real kube-apiserver under other names: as many answers agree as under the recorded ones, so
//! that none of them can be one that was learnt by heart.

#![allow(clippy::unwrap_used, missing_docs)]

use peerage_testkit::recording::{Recording, Renaming, Replayer, Run};
use peerage_testkit::seed;
use peerage_testkit::server::{TestServer, TestServerOptions};

async fn run(recording: &Recording, renaming: Option<Renaming>) -> Run {
    let server = TestServer::start(TestServerOptions::new("1.37")).await;
    let mut replayer = Replayer::new(server.address(), server.pki());
    if let Some(renaming) = renaming {
        replayer = replayer.renamed(renaming);
    }
    replayer.run(recording).await
}

async fn names_do_not_matter(name: &str) {
    let recording = Recording::load(name);
    let seed = seed();
    let renaming = Renaming::new(&recording, seed);
    let (plain, renamed) = tokio::join!(run(&recording, None), run(&recording, Some(renaming)));
    let fell: Vec<String> = plain
        .outcomes
        .iter()
        .zip(&renamed.outcomes)
        .filter(|(plain, renamed)| plain.differences.is_empty() && !renamed.differences.is_empty())
        .map(|(_, renamed)| {
            format!(
                "{}\n    {}",
                renamed.step,
                renamed.differences.join("\n    ")
            )
        })
        .collect();
    assert!(
        fell.is_empty(),
        "{name}: {} steps agree only under the recorded names (PEERAGE_SEED={seed})\n{}",
        fell.len(),
        fell.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_answer_the_same_under_other_names() {
    names_do_not_matter("verbs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_watches_answer_the_same_under_other_names() {
    names_do_not_matter("lists-watches").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_answer_the_same_under_other_names() {
    names_do_not_matter("patches").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negotiation_answers_the_same_under_other_names() {
    names_do_not_matter("negotiation").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorization_answers_the_same_under_other_names() {
    names_do_not_matter("auth").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_without_a_resource_answer_the_same_under_other_names() {
    names_do_not_matter("nonresource").await;
}
