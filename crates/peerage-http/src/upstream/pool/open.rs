//! Opening connections, and running them until nobody wants them any more.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::super::connect::{self, Failure, Http1, Http2, Opened, Tasks};
use super::place::Vitals;
use super::{Closing, Idle, NEXT_ID, Pool, Shared, State};
use crate::io::Traffic;

type H1Connection = hyper::client::conn::http1::Connection<connect::Io, crate::Body>;
type H2Connection = hyper::client::conn::http2::Connection<connect::Io, crate::Body, Tasks>;

/// A connection that runs as long as this is polled.
type Driven = BoxFuture<'static, ()>;

/// How long an HTTP/1.1 connection may need to be ready for its next request.
const GIVE_BACK: Duration = Duration::from_secs(5);

impl Pool {
    fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.opening -= 1;
        state.open -= 1;
        state.failures += 1;
        let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        state.failure = Some((number, Arc::new(failure)));
        state.failed_at = Some(Instant::now());
        drop(state);
        self.freed.notify_waiters();
        self.opened.notify_waiters();
    }

    fn add(self: &Arc<Self>, opened: Opened, generation: u64, traffic: Arc<Traffic>) {
        let mut state = self.state();
        state.opening -= 1;
        state.failed_at = None;
        if state.closed {
            state.open -= 1;
            return;
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let vitals = Arc::new(Vitals::new(id, generation, traffic));
        let (places, driven) = match opened {
            Opened::Http1(sender, connection) => {
                self.add_http1(&mut state, sender, *connection, vitals)
            }
            Opened::Http2(sender, connection, tasks) => {
                self.add_http2(&mut state, (sender, connection, tasks), vitals)
            }
        };
        let places = places.min(state.waiting);
        let need = state.waiting - places;
        let attempts = self.grow(&mut state, need);
        let for_new = state.waiting_for_new > 0;
        drop(state);
        tokio::spawn(driven);
        attempts.into_iter().for_each(Attempt::start);
        if for_new {
            self.opened.notify_one();
            return;
        }
        for _ in 0..places {
            self.freed.notify_one();
        }
    }

    fn add_http1(
        self: &Arc<Self>,
        state: &mut State,
        sender: Http1,
        connection: H1Connection,
        vitals: Arc<Vitals>,
    ) -> (usize, Driven) {
        state.speaks_http2 = Some(false);
        state.http1.push(Idle {
            sender,
            vitals: vitals.clone(),
        });
        let pool = self.clone();
        let driven = async move {
            pool.drive(pin!(connection), &vitals).await;
            pool.close(&vitals, None);
        };
        (1, Box::pin(driven))
    }

    fn add_http2(
        self: &Arc<Self>,
        state: &mut State,
        (sender, mut connection, tasks): (Http2, H2Connection, Tasks),
        vitals: Arc<Vitals>,
    ) -> (usize, Driven) {
        state.speaks_http2 = Some(true);
        let allowed = connection.current_max_send_streams();
        vitals.allow(allowed);
        state.http2.push(Shared {
            sender,
            vitals: vitals.clone(),
        });
        let pool = self.clone();
        let driven = async move {
            let known = vitals.clone();
            let driven = poll_fn(|context| {
                let polled = Pin::new(&mut connection).poll(context);
                known.allow(connection.current_max_send_streams());
                polled
            });
            pool.drive(pin!(driven), &vitals).await;
            // It waits for this to be dropped.
            drop(connection);
            pool.close(&vitals, Some(tasks));
            vitals.gone().await;
            pool.state().closing.retain(|it| it.id != vitals.id);
        };
        let places = match self.options.alone_until_answered {
            true => 1,
            false => allowed.min(self.options.max_streams_per_connection),
        };
        (places, Box::pin(driven))
    }

    /// Runs a connection until it takes no more requests: the server closes it, it has been idle for long, or it is not
    /// wanted any more.
    async fn drive(
        &self,
        mut connection: Pin<&mut impl Future<Output = hyper::Result<()>>>,
        vitals: &Vitals,
    ) {
        let mut ticks =
            tokio::time::interval((self.options.idle_timeout / 4).max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(address = self.options.address, %error, "upstream connection ended");
                    }
                    break;
                }
                _ = ticks.tick() => self.let_go_if_idle(vitals),
            }
        }
        if self.forget(vitals.id) {
            self.ended.notify_one();
        }
    }

    /// Counts a connection as open no more, but as closing if its tasks go on.
    fn close(&self, vitals: &Vitals, tasks: Option<Tasks>) {
        let mut state = self.state();
        state.open -= 1;
        let id = vitals.id;
        state
            .closing
            .extend(tasks.map(|tasks| Closing { id, tasks }));
        let too_many = match state.closing.len() > self.options.max_connections {
            true => state.closing.pop_front(),
            false => None,
        };
        drop(state);
        self.ring();
        self.opened.notify_one();
        if let Some(longest) = too_many {
            tracing::debug!(
                address = self.options.address,
                "an upstream connection that was closing for long was ended"
            );
            longest.tasks.end();
        }
    }

    fn let_go_if_idle(&self, vitals: &Vitals) {
        let stale = !vitals.is_usable(self.options.tls.generation());
        let limit = self.options.idle_timeout;
        // What is on one that may not be used any more goes on without the pool.
        if stale || vitals.idle_for().is_some_and(|idle| idle >= limit) {
            self.forget(vitals.id);
        }
    }

    /// Drops the pool's hold on a connection; it ends with its last request. Returns whether there was one.
    fn forget(&self, id: u64) -> bool {
        let mut state = self.state();
        let before = state.http2.len() + state.http1.len();
        state.http2.retain(|c| c.vitals.id != id);
        state.http1.retain(|c| c.vitals.id != id);
        state.http2.len() + state.http1.len() < before
    }

    pub(super) fn give_back(self: Arc<Self>, mut sender: Http1, vitals: Arc<Vitals>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        self.state().returning += 1;
        runtime.spawn(async move {
            // Ready once the rest of both bodies is through; an error when the connection cannot be used again.
            let ready = tokio::time::timeout(GIVE_BACK, sender.ready()).await;
            let mut state = self.state();
            state.returning -= 1;
            if matches!(ready, Ok(Ok(()))) && !state.closed {
                state.http1.push(Idle { sender, vitals });
            }
            drop(state);
            self.freed.notify_one();
        });
    }
}

/// Takes back the count of an attempt whose task was ended from outside.
pub(super) struct Attempt {
    pool: Arc<Pool>,
    done: bool,
}

impl Attempt {
    /// Counts one; the caller has made sure that there may be one more.
    pub(super) fn begin(pool: &Arc<Pool>, state: &mut State) -> Self {
        state.opening += 1;
        state.open += 1;
        Self {
            pool: pool.clone(),
            done: false,
        }
    }

    /// Opens the connection, in a task of its own.
    pub(super) fn start(self) {
        tokio::spawn(async move {
            let mut attempt = self;
            let pool = attempt.pool.clone();
            let traffic = Traffic::new();
            let generation = pool.options.tls.generation();
            let opened = connect::open(&pool.options, &traffic, false).await;
            attempt.done = true;
            match opened {
                Ok((opened, certificate)) => {
                    pool.note_certificate(certificate);
                    pool.add(opened, generation, traffic);
                }
                Err(failure) => pool.fail(failure),
            }
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.pool.state();
            state.opening -= 1;
            state.open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ClientTls, UpstreamOptions};

    #[test]
    fn an_attempt_that_a_runtime_drops_at_once_is_not_counted_any_more() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _shut_down = handle.enter();
        let options = UpstreamOptions::new("127.0.0.1:1", ClientTls::plain());
        let pool = Pool::new(Arc::new(options), Default::default());
        let attempts = pool.grow(&mut pool.state(), 1);
        assert_eq!((attempts.len(), pool.stats().opening), (1, 1));
        attempts.into_iter().for_each(Attempt::start);
        assert_eq!(pool.stats().opening, 0);
    }
}
