//! Values built from files that follow the files.
//!
//! A [`Reloading`] value keeps the bytes it was built from; [`Reloading::reload`] reads the files again and
//! builds anew only when a byte changed, so mounted secrets that swap by symlink, copies that keep their time
//! stamp and network mounts all work. A change counts when the files stay as they are for a moment, so that a file
//! which is being written is not taken for a short one. Invariant: a value once loaded is never lost; files that cannot
//! be read or built from keep the old value and are reported.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use peerage_core::chain;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::metrics::Registry;

/// What a look at the files led to.
#[derive(Debug)]
pub enum Reloaded {
    /// The files are as they were.
    Unchanged,
    /// The files changed, and the value with them.
    Changed,
    /// The files changed or vanished and the old value is still in use.
    Failed(BoxError),
}

/// For how long files have to stay as they are before a change of them counts.
const SETTLE: Duration = Duration::from_millis(50);

type Build<T> = dyn Fn(&[Vec<u8>]) -> Result<T, BoxError> + Send + Sync;

/// A value that is built from the bytes of some files, and again when they change.
pub struct Reloading<T> {
    name: &'static str,
    files: Vec<PathBuf>,
    build: Box<Build<T>>,
    current: ArcSwap<Loaded<T>>,
    generation: AtomicU64,
}

struct Loaded<T> {
    bytes: Vec<Vec<u8>>,
    value: Arc<T>,
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Reads the files and builds the first value. `name` says in reports what it is.
    ///
    /// # Errors
    /// The file that could not be read, or what `build` made of the bytes.
    pub fn load<E: Into<BoxError>>(
        name: &'static str,
        files: Vec<PathBuf>,
        build: impl Fn(&[Vec<u8>]) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, BoxError> {
        let build = move |bytes: &[Vec<u8>]| build(bytes).map_err(Into::into);
        let bytes = read_all(&files)?;
        let value = Arc::new(build(&bytes)?);
        Ok(Self {
            name,
            files,
            build: Box::new(build),
            current: ArcSwap::from_pointee(Loaded { bytes, value }),
            generation: AtomicU64::new(0),
        })
    }

    /// A value that has no files and never changes.
    #[must_use]
    pub fn fixed(name: &'static str, value: T) -> Self {
        let value = Arc::new(value);
        Self {
            name,
            files: Vec::new(),
            build: Box::new(|_| Err("a fixed value is not built again".into())),
            current: ArcSwap::from_pointee(Loaded {
                bytes: Vec::new(),
                value,
            }),
            generation: AtomicU64::new(0),
        }
    }

    /// The newest good value.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        self.current.load().value.clone()
    }

    /// How often the value has changed. It is read before [`get`](Self::get) by who caches what follows from it.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Looks at the files once. Blocks for as long as reading them takes, and when they have changed for the moment in which
    /// they have to stay as they are.
    pub fn reload(&self) -> Reloaded {
        if self.files.is_empty() {
            return Reloaded::Unchanged;
        }
        match self.try_reload() {
            Ok(true) => Reloaded::Changed,
            Ok(false) => Reloaded::Unchanged,
            Err(error) => Reloaded::Failed(error),
        }
    }

    fn try_reload(&self) -> Result<bool, BoxError> {
        let bytes = read_all(&self.files)?;
        if bytes == self.current.load().bytes {
            return Ok(false);
        }
        if !stay(&self.files, &bytes, || std::thread::sleep(SETTLE))? {
            // Somebody is writing them. The next look is soon.
            return Ok(false);
        }
        let value = Arc::new((self.build)(&bytes)?);
        self.current.store(Arc::new(Loaded { bytes, value }));
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }
}

impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("name", &self.name)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// Something that can look at its files again.
pub trait Reload: Send + Sync {
    /// What it is, for reports.
    fn name(&self) -> &str;
    /// Its files.
    fn files(&self) -> &[PathBuf];
    /// Looks at the files once.
    fn reload(&self) -> Reloaded;
}

impl<T: Send + Sync + 'static> Reload for Reloading<T> {
    fn name(&self) -> &str {
        self.name
    }

    fn files(&self) -> &[PathBuf] {
        &self.files
    }

    fn reload(&self) -> Reloaded {
        Reloading::reload(self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Look {
    what: String,
    result: &'static str,
}

/// Counts of what became of changed certificate, CA and token files.
#[derive(Debug, Clone)]
pub struct ReloadMetrics(Family<Look, Counter>);

impl ReloadMetrics {
    /// Registers the counts.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let metrics = Self(Family::default());
        registry.register(
            "peerage_reloads_total",
            "Looks at certificate, CA and token files that found them changed (success) or of no use (failure)",
            metrics.0.clone(),
        );
        metrics
    }

    /// Counts one look that found something.
    pub fn record(&self, what: &str, outcome: &Reloaded) {
        let result = match outcome {
            Reloaded::Unchanged => return,
            Reloaded::Changed => "success",
            Reloaded::Failed(_) => "failure",
        };
        let what = what.to_owned();
        self.0.get_or_create(&Look { what, result }).inc();
    }
}

/// How long reading files may take: those on a mount that is gone take for ever.
const LOOK: Duration = Duration::from_secs(10);

/// Looks at the files of all `values` every `interval` until `stop`, logs what changed, and calls `report` for
/// each change and failure. One failure is logged once, until it changes or ends; `report` hears of every one. Files
/// that cannot be read in time fail, and hold up nobody else's.
pub async fn watch(
    values: Vec<Arc<dyn Reload>>,
    interval: Duration,
    stop: CancellationToken,
    mut report: impl FnMut(&str, &Reloaded),
) {
    let mut watched: Vec<Watched> = values.into_iter().map(Watched::new).collect();
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let looks = watched.iter_mut().map(Watched::look);
        let outcomes = tokio::select! {
            () = stop.cancelled() => return,
            outcomes = futures::future::join_all(looks) => outcomes,
        };
        for (watched, outcome) in watched.iter_mut().zip(outcomes) {
            // None: the runtime is going away, which says nothing of the files.
            let Some(outcome) = outcome else { return };
            let name = watched.value.name();
            log(name, &outcome, &mut watched.failing);
            if !matches!(outcome, Reloaded::Unchanged) {
                report(name, &outcome);
            }
        }
    }
}

/// A value with the look at its files that is under way, of which there is one at most.
struct Watched {
    value: Arc<dyn Reload>,
    look: Option<JoinHandle<Reloaded>>,
    failing: Option<String>,
}

impl Watched {
    fn new(value: Arc<dyn Reload>) -> Self {
        Self {
            value,
            look: None,
            failing: None,
        }
    }

    async fn look(&mut self) -> Option<Reloaded> {
        let value = self.value.clone();
        let look = self
            .look
            .get_or_insert_with(|| tokio::task::spawn_blocking(move || value.reload()));
        let Ok(looked) = tokio::time::timeout(LOOK, look).await else {
            return Some(Reloaded::Failed(Slow.into()));
        };
        self.look = None;
        match looked {
            Ok(outcome) => Some(outcome),
            Err(error) if error.is_cancelled() => None,
            Err(panic) => Some(Reloaded::Failed(panic.into())),
        }
    }
}

/// Files are not there in time.
#[derive(Debug, thiserror::Error)]
#[error("they could not be read within {LOOK:?}; is what they are on mounted?")]
struct Slow;

fn log(name: &str, outcome: &Reloaded, failing: &mut Option<String>) {
    match outcome {
        Reloaded::Unchanged => {
            if failing.take().is_some() {
                tracing::info!(what = name, "the files are again as loaded");
            }
        }
        Reloaded::Changed => {
            *failing = None;
            tracing::info!(what = name, "the files changed and were loaded");
        }
        Reloaded::Failed(error) => {
            let text = chain(error.as_ref());
            if failing.as_deref() != Some(&text) {
                tracing::error!(
                    what = name,
                    error = text,
                    "the files changed and cannot be used; the old content stays in use"
                );
                *failing = Some(text);
            }
        }
    }
}

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
struct ReadError {
    path: PathBuf,
    source: std::io::Error,
}

/// Whether the files are still `bytes` after a while and nobody wrote them meanwhile.
fn stay(
    files: &[PathBuf],
    bytes: &[Vec<u8>],
    while_passes: impl FnOnce(),
) -> Result<bool, BoxError> {
    let before = stamps(files);
    while_passes();
    Ok(read_all(files)? == bytes && stamps(files) == before)
}

/// When each file was last written, as far as that can be told.
fn stamps(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    let stamp = |file: &PathBuf| std::fs::metadata(file).and_then(|it| it.modified()).ok();
    files.iter().map(stamp).collect()
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, BoxError> {
    let read = |path: &PathBuf| read(path).map_err(Into::into);
    files.iter().map(read).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    std::fs::read(path).map_err(|source| ReadError {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn number(bytes: &[Vec<u8>]) -> Result<u32, BoxError> {
        Ok(std::str::from_utf8(&bytes[0])?.trim().parse()?)
    }

    #[test]
    fn a_value_follows_its_file_and_survives_a_broken_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n");
        std::fs::write(&file, "1").unwrap();
        let value = Reloading::load("number", vec![file.clone()], number).unwrap();
        assert!(matches!(value.reload(), Reloaded::Unchanged));
        std::fs::write(&file, "2").unwrap();
        assert!(matches!(value.reload(), Reloaded::Changed));
        assert_eq!((*value.get(), value.generation()), (2, 1));
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(value.reload(), Reloaded::Failed(_)));
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(value.reload(), Reloaded::Failed(_)));
        assert_eq!((*value.get(), value.generation()), (2, 1));
    }

    #[test]
    fn a_file_that_is_being_written_is_believed_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n");
        // Each half of it is a number as well.
        std::fs::write(&file, "12").unwrap();
        let (files, half) = ([file.clone()], vec![b"12".to_vec()]);
        let stays =
            |bytes: &[Vec<u8>], meanwhile: &dyn Fn()| stay(&files, bytes, meanwhile).unwrap();
        assert!(!stays(&half, &|| std::fs::write(&file, "123").unwrap()));
        // The same bytes, written anew.
        let later = std::time::SystemTime::now() + Duration::from_secs(1);
        let touch = || {
            std::fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(later)
                .unwrap()
        };
        let whole = vec![b"123".to_vec()];
        assert!(!stays(&whole, &touch));
        assert!(stays(&whole, &|| {}));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Reloading::load("n", vec!["/nonexistent/n".into()], number).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/n"));
    }

    #[tokio::test]
    async fn a_watched_value_reports_changes_and_failures() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n");
        std::fs::write(&file, "1").unwrap();
        let value = Arc::new(Reloading::load("number", vec![file.clone()], number).unwrap());
        let stop = CancellationToken::new();
        let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let watched: Vec<Arc<dyn Reload>> = vec![value.clone()];
        let task = tokio::spawn(watch(
            watched,
            Duration::from_millis(10),
            stop.clone(),
            move |_, outcome| {
                let _ = sender.send(matches!(outcome, Reloaded::Changed));
            },
        ));
        std::fs::write(&file, "5").unwrap();
        while !reports.recv().await.unwrap() {}
        assert_eq!(*value.get(), 5);
        std::fs::write(&file, "no").unwrap();
        while reports.recv().await.unwrap() {}
        assert_eq!(*value.get(), 5);
        stop.cancel();
        task.await.unwrap();
    }

    /// Files on a mount that is gone.
    struct Hangs(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

    impl Reload for Hangs {
        fn name(&self) -> &str {
            "hangs"
        }

        fn files(&self) -> &[PathBuf] {
            &[]
        }

        fn reload(&self) -> Reloaded {
            let _ = self.0.lock().unwrap().recv();
            Reloaded::Unchanged
        }
    }

    #[tokio::test]
    async fn files_that_cannot_be_read_hold_up_no_others_and_no_stop() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n");
        std::fs::write(&file, "1").unwrap();
        let value = Arc::new(Reloading::load("number", vec![file.clone()], number).unwrap());
        let (mount, hangs) = std::sync::mpsc::channel();
        let hangs: Arc<dyn Reload> = Arc::new(Hangs(std::sync::Mutex::new(hangs)));
        let stop = CancellationToken::new();
        let watching = watch(
            vec![hangs, value.clone()],
            Duration::from_millis(10),
            stop.clone(),
            |_, _| {},
        );
        std::fs::write(&file, "5").unwrap();
        let task = tokio::spawn(watching);
        let changed = async {
            while *value.get() != 5 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LOOK, changed).await.unwrap();
        stop.cancel();
        tokio::time::timeout(LOOK, task).await.unwrap().unwrap();
        drop(mount);
    }
}
