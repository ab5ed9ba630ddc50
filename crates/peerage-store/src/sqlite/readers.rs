//! A few connections that only read.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::guard::Guard;
use super::schema;
use crate::error::StoreError;
use crate::sync::lock;

/// Connections for reads, opened when they are first needed.
#[derive(Debug)]
pub(super) struct Readers {
    guard: Arc<Guard>,
    idle: Mutex<Vec<Connection>>,
    free: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(guard: Arc<Guard>, limit: usize) -> Self {
        Readers {
            guard,
            idle: Mutex::default(),
            free: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Runs `read` on a thread that may block, with a connection of its own.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = |_| StoreError::unavailable("the store is closed");
        let permit = self.free.clone().acquire_owned().await.map_err(ended)?;
        let readers = self.clone();
        let work = move || {
            // Whoever stops waiting for a read does not thereby make room for another one.
            let _permit = permit;
            let mut connection = readers.connection()?;
            let result = read(&mut connection);
            lock(&readers.idle).push(connection);
            result
        };
        let failed = |_| StoreError::unavailable("a read was given up");
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    }

    fn connection(&self) -> Result<Connection, StoreError> {
        let idle = lock(&self.idle).pop();
        match idle {
            Some(connection) => Ok(connection),
            None => schema::open_reader(self.guard.path()).map_err(schema::error),
        }
    }
}
