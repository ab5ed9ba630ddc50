//! `peerage up` as a user meets it: what it shows, and that nothing of it is left, however it ends.
//!
//! One test after another in one function: each chooses free ports, and two at once could choose the same.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn up_keeps_its_promises_and_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    demo_is_shown(temp.path(), &[]);
    // The directory is used again: the same certificates, the same store. Servers find everything there.
    demo_is_shown(temp.path(), &[]);
    // What the newer one alone has is in group-versions that the older one has too.
    let other = tempfile::tempdir().unwrap();
    demo_is_shown(other.path(), &["--versions", "1.35,1.36"]);
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGKILL,
    ] {
        nothing_is_left_after(temp.path(), signal);
    }
    what_dies_is_started_again(temp.path());
    a_second_one_is_refused(temp.path());
}

fn up(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerage"));
    command.arg("up").arg("--data-dir").arg(dir).args(words);
    command
}

fn demo_is_shown(dir: &Path, words: &[&str]) {
    let words = [&["--exit-after-demo"], words].concat();
    let output = up(dir, &words).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{shown}{errors}");
    for expected in [
        "profile=nopeer",
        "created and read",
        "watched: MODIFIED",
        "(SIGKILL)",
        "started again",
    ] {
        assert!(
            shown.contains(expected),
            "{expected:?} is missing:\n{shown}"
        );
    }
    assert_all_gone(&pids(&shown));
}

fn nothing_is_left_after(dir: &Path, signal: Signal) {
    let (mut up, shown) = running(dir);
    let pids = pids(&shown);
    assert_eq!(pids.len(), 3, "{shown}");
    kill(Pid::from_raw(i32::try_from(up.id()).unwrap()), signal).unwrap();
    let status = up.wait().unwrap();
    assert_eq!(
        status.success(),
        signal != Signal::SIGKILL,
        "{signal}: {status}"
    );
    assert_all_gone(&pids);
}

fn what_dies_is_started_again(dir: &Path) {
    let (mut up, shown) = running(dir);
    let before = pids(&shown);
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    // The newest server, then the store that all of them need.
    for pid in [before[2], before[0]] {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        assert!(lines.any(|line| line.unwrap().ends_with(" is back")));
    }
    kill(
        Pid::from_raw(i32::try_from(up.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert!(up.wait().unwrap().success());
    assert_all_gone(&before);
}

fn a_second_one_is_refused(dir: &Path) {
    let (mut first, _) = running(dir);
    let second = up(dir, &["--no-demo"]).output().unwrap();
    assert_eq!(second.status.code(), Some(3));
    assert!(
        String::from_utf8(second.stderr)
            .unwrap()
            .contains("--data-dir")
    );
    kill(
        Pid::from_raw(i32::try_from(first.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert!(first.wait().unwrap().success());
}

/// Starts it and reads what it prints until it is ready.
fn running(dir: &Path) -> (Child, String) {
    let mut child = up(dir, &["--no-demo"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("export KUBECONFIG=") {
        let read = stdout.read_line(&mut shown).unwrap();
        assert!(read > 0, "it ended: {shown}");
    }
    child.stdout = Some(stdout.into_inner());
    (child, shown)
}

/// The processes that it says it has started.
fn pids(shown: &str) -> Vec<i32> {
    let pid = |line: &str| {
        line.split(" pid ")
            .nth(1)?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    shown.lines().filter_map(pid).collect()
}

fn assert_all_gone(pids: &[i32]) {
    let begun = Instant::now();
    while pids
        .iter()
        .any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    {
        assert!(begun.elapsed() < LIMIT, "some of {pids:?} are still there");
        std::thread::yield_now();
    }
}
