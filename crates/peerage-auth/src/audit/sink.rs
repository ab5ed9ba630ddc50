//! The queue between requests and the file, and the thread that empties it: it ends when the last user of the
//! queue is gone and everything in it is written.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peerage_core::audit::Event;
use tokio::sync::{mpsc, oneshot};

use super::rotate::RotatingFile;
use super::{AuditError, AuditMetrics, AuditOptions};

/// Lines written before the file is flushed, when more are waiting.
const BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Sink {
    queue: mpsc::Sender<Item>,
    patience: Duration,
    metrics: AuditMetrics,
    /// Whether the last event found no room: reported when it begins and when it ends.
    overflowing: AtomicBool,
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    Flush(oneshot::Sender<()>),
}

impl Sink {
    pub(super) fn open(options: &AuditOptions) -> Result<Self, AuditError> {
        let path = options.path.as_ref().filter(|path| path.as_os_str() != "-");
        let target: Box<dyn Write + Send> = match path {
            None => Box::new(io::stdout()),
            Some(path) => match RotatingFile::open(path.clone(), options.rotation) {
                Ok(file) => Box::new(file),
                Err(source) => {
                    return Err(AuditError::Open {
                        path: path.clone(),
                        source,
                    });
                }
            },
        };
        let (queue, items) = mpsc::channel(options.queue.max(1));
        let metrics = options.metrics.clone();
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || {
                Writer {
                    target,
                    metrics,
                    outage: Outage::default(),
                }
                .run(items)
            })
            .map_err(AuditError::Start)?;
        Ok(Self {
            queue,
            patience: options.patience,
            metrics: options.metrics.clone(),
            overflowing: AtomicBool::new(false),
        })
    }

    pub(super) async fn ready(&self) {
        // Two places: for the first and the last event of the request that waits.
        if self.queue.capacity() < 2 {
            let _ = tokio::time::timeout(self.patience, self.queue.reserve_many(2)).await;
        }
    }

    pub(super) fn write(&self, event: &Event) {
        self.metrics.events.inc();
        let mut line = match peerage_core::json::to_vec(event) {
            Ok(line) => line,
            Err(error) => {
                self.metrics.lost.inc();
                tracing::error!(%error, "an audit event cannot be written as JSON");
                return;
            }
        };
        line.push(b'\n');
        if self.queue.try_send(Item::Line(line)).is_ok() {
            self.overflowing.store(false, Ordering::Relaxed);
            return;
        }
        self.metrics.lost.inc();
        if !self.overflowing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "audit events are lost: the log cannot be written as fast as requests come"
            );
        }
    }

    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Item::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

struct Writer {
    target: Box<dyn Write + Send>,
    metrics: AuditMetrics,
    outage: Outage,
}

impl Writer {
    fn run(mut self, mut items: mpsc::Receiver<Item>) {
        let mut batch = Vec::new();
        while items.blocking_recv_many(&mut batch, BATCH) > 0 {
            let mut waiting = Vec::new();
            for item in batch.drain(..) {
                match item {
                    Item::Line(line) => self.line(&line),
                    Item::Flush(done) => waiting.push(done),
                }
            }
            let flushed = self.target.flush();
            self.report(&flushed);
            if self.outage.batch_is_over() {
                tracing::info!("the audit log can be written again");
            }
            for done in waiting {
                let _ = done.send(());
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let written = self.target.write_all(line);
        if written.is_err() {
            self.metrics.lost.inc();
        }
        self.report(&written);
    }

    fn report(&mut self, written: &io::Result<()>) {
        if let Err(error) = written
            && self.outage.begins()
        {
            tracing::error!(%error, "the audit log cannot be written; its events are lost");
        }
    }
}

/// Whether the file can be written. A line that was taken says nothing, since it may only have been kept for later:
/// an outage is over after a batch in which everything went well, its flush included.
#[derive(Debug, Default)]
struct Outage {
    lasts: bool,
    /// Whether something failed since the last batch.
    failed: bool,
}

impl Outage {
    /// Something failed. Whether it is the first thing, which is told.
    fn begins(&mut self) -> bool {
        self.failed = true;
        !std::mem::replace(&mut self.lasts, true)
    }

    /// A batch was written and flushed. Whether an outage is over with it, which is told.
    fn batch_is_over(&mut self) -> bool {
        let went_well = !std::mem::take(&mut self.failed);
        went_well && std::mem::take(&mut self.lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_disk_is_full_is_told_once_although_lines_are_taken_in_between() {
        let mut outage = Outage::default();
        assert!(!outage.batch_is_over());
        // Lines go into the buffer, and each flush fails.
        let told = (0..20).filter(|_| {
            let told = outage.begins();
            assert!(!outage.batch_is_over());
            told
        });
        assert_eq!(told.count(), 1);
        // Several lines of one batch fail as well as its flush.
        assert!(!outage.begins() && !outage.begins());
        assert!(!outage.batch_is_over());
        assert!(outage.batch_is_over(), "everything went well");
        assert!(!outage.batch_is_over());
        assert!(outage.begins());
    }
}
