//! Being told to stop, or to read everything again.
//!
//! SIGTERM and SIGINT ask for a clean stop; a second one ends the process at once. SIGHUP asks for a refresh, and waits
//! from the first moment on until somebody listens. SIGXFSZ, which ends a process whose file meets the limit of its size,
//! is caught and forgotten, so that the write fails as on a full disk. A process that another started may also be tied to it: when its standard input ends, which the kernel sees to however the
//! other one ended, it stops.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::exit::{EXIT_INTERRUPTED, Failure};

/// How long a process whose starter is gone may take to stop. Nobody is left to end it, so it ends itself.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

/// What the world asks of this process.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Cancelled by the first SIGTERM or SIGINT.
    pub shutdown: CancellationToken,
    /// Notified by each SIGHUP.
    pub refresh: Arc<Notify>,
}

/// Has SIGHUP wait for [`Signals::listen`]: until then it would end the process. To be called before there are threads.
pub fn defer_refresh() {
    // It fails for no signal that there is; without it a signal in the first milliseconds ends the process, as before.
    let _ = refreshing().thread_block();
}

/// Takes [`defer_refresh`] back, for commands that do not listen.
pub fn refuse_refresh() {
    let _ = refreshing().thread_unblock();
}

fn refreshing() -> SigSet {
    SigSet::from_iter([Number::SIGHUP])
}

impl Signals {
    /// Starts listening. Needs a running tokio runtime.
    pub fn listen() -> Result<Self, Failure> {
        let signals = Self::listen_quietly()?;
        let shutdown = signals.shutdown.clone();
        tokio::spawn(async move {
            shutdown.cancelled().await;
            tracing::info!("asked to stop; a second signal stops at once");
        });
        Ok(signals)
    }

    /// Starts listening, and logs nothing. Needs a running tokio runtime.
    pub fn listen_quietly() -> Result<Self, Failure> {
        let register = |kind| {
            signal(kind).map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))
        };
        let terminate = register(SignalKind::terminate())?;
        let interrupt = register(SignalKind::interrupt())?;
        let hangup = register(SignalKind::hangup())?;
        // Whoever is asked once keeps the handler for as long as the process lives.
        drop(register(SignalKind::from_raw(Number::SIGXFSZ as i32))?);
        // Those that came before are heard now.
        refuse_refresh();
        let signals = Self {
            shutdown: CancellationToken::new(),
            refresh: Arc::new(Notify::new()),
        };
        tokio::spawn(stop_on(terminate, interrupt, signals.shutdown.clone()));
        tokio::spawn(refresh_on(hangup, signals.refresh.clone()));
        Ok(signals)
    }

    /// Also stops when standard input ends.
    pub fn stop_with_stdin(&self) {
        let shutdown = self.shutdown.clone();
        // A thread of its own, not a task: it has to work when the runtime does not.
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            let mut stdin = std::io::stdin().lock();
            while matches!(stdin.read(&mut buffer), Ok(count) if count > 0) {}
            shutdown.cancel();
            std::thread::sleep(ORPHAN_GRACE);
            std::process::exit(1);
        });
    }
}

async fn stop_on(mut terminate: Signal, mut interrupt: Signal, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if shutdown.is_cancelled() {
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
        shutdown.cancel();
    }
}

async fn refresh_on(mut hangup: Signal, refresh: Arc<Notify>) {
    while hangup.recv().await.is_some() {
        refresh.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::signal::raise;

    // One test, since signals are the whole process's.
    #[test]
    fn a_refresh_before_anybody_listens_and_a_file_that_is_full_end_no_process() {
        defer_refresh();
        raise(Number::SIGHUP).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let signals = Signals::listen_quietly().unwrap();
            raise(Number::SIGXFSZ).unwrap();
            let refreshed = signals.refresh.notified();
            raise(Number::SIGHUP).unwrap();
            let refreshed = tokio::time::timeout(Duration::from_secs(20), refreshed);
            assert!(refreshed.await.is_ok(), "it is listened to by now");
        });
    }
}
