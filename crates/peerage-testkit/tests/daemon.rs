//! Programs that a test runs beside itself: what they print, how they end, and whom signals go to.

#![allow(clippy::unwrap_used, missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use peerage_testkit::cluster::until;
use peerage_testkit::daemon::{Daemon, DaemonSpec, Ready};

/// A shell that says where it would listen and then does as the script says.
fn shell(directory: &Path, script: &str) -> DaemonSpec {
    DaemonSpec {
        name: "shell".to_owned(),
        program: PathBuf::from("sh"),
        args: vec![
            "-c".to_owned(),
            format!(r#"echo "{{\"message\":\"up\",\"process\":$$}}"; {script}"#),
        ],
        hostname: None,
        directory: directory.to_owned(),
        ready: Ready::Logged("up"),
    }
}

#[tokio::test]
async fn what_it_logged_before_it_was_started_again_is_not_taken_for_new() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(shell(directory.path(), "exec sleep 600")).await;
    for _ in 0..2 {
        let said = daemon.logged("up").unwrap();
        assert_eq!(said["process"], daemon.id().unwrap());
        assert!(daemon.logged("down").is_none());
        daemon.kill();
        assert_eq!((daemon.id(), daemon.ended()), (None, None));
        daemon.restart().await;
    }
    assert!(!daemon.stop().await.success());
}

#[tokio::test]
async fn who_signals_what_ended_by_itself_is_told_how_and_nobody_else_is_signalled() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(shell(directory.path(), "echo no more; exit 3")).await;
    until("it has ended", || async { daemon.ended().is_some() }).await;
    assert_eq!(daemon.id(), None);
    let told = catch_unwind(AssertUnwindSafe(|| daemon.pause())).unwrap_err();
    let told = told.downcast::<String>().unwrap();
    assert!(told.contains("exit status: 3"), "{told}");
    assert!(told.contains("no more"), "{told}");
    // It can be asked again and started again.
    assert_eq!(daemon.ended().unwrap().code(), Some(3));
    daemon.restart().await;
}
