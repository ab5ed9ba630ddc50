//! Replays recordings against a server in this process and prints what differs:
//! `cargo run -p peerage-testkit --example replay -- verbs patches [--seed=7] [--only=TEXT]`.

use peerage_testkit::recording::{Reasons, Recording, Renaming, Replayer};
use peerage_testkit::server::{TestServer, TestServerOptions};

#[tokio::main]
async fn main() {
    let (flags, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let flag = |name: &str| flags.iter().find_map(|f| f.strip_prefix(name));
    let only = flag("--only=").unwrap_or_default();
    for name in names {
        let recording = Recording::load(&name);
        let server = TestServer::start(TestServerOptions::new("1.37")).await;
        let mut replayer = Replayer::new(server.address(), server.pki());
        if let Some(seed) = flag("--seed=").and_then(|seed| seed.parse().ok()) {
            replayer = replayer.renamed(Renaming::new(&recording, seed));
        }
        let run = replayer.run(&recording).await;
        let reasons = Reasons::load(&name);
        for outcome in run.differing().filter(|o| o.step.contains(only)) {
            let reason = reasons
                .of(&outcome.step)
                .map_or("open".to_owned(), |(reason, _)| reason.to_string());
            println!("{reason} | {}", outcome.step);
            for difference in &outcome.differences {
                println!("    {difference}");
            }
        }
        for step in reasons.stale(&run) {
            println!("stale reason: {step}");
        }
        println!(
            "{name}: {} of {} agree ({} of 100)",
            run.agreeing(),
            run.outcomes.len(),
            run.percent()
        );
    }
}
