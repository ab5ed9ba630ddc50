//! Keeps a fault that repeats from filling the log.
//!
//! A gate lets one line through per interval and counts what it held back, so that the next line can say how
//! much was left out. `now` is an argument.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Lets one line through per interval.
#[derive(Debug)]
pub struct LogGate {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl LogGate {
    /// A gate that lets one line through in each interval of this length.
    #[must_use]
    pub fn new(every: Duration) -> LogGate {
        LogGate {
            every,
            state: Mutex::default(),
        }
    }

    /// `Some(how many lines were held back)` when a line may be written now.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let Ok(mut state) = self.state.lock() else {
            return None;
        };
        if state.last.is_some_and(|last| now < last + self.every) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_per_interval_and_says_how_many_did_not() {
        let gate = LogGate::new(Duration::from_secs(10));
        let start = Instant::now();
        assert_eq!(gate.pass(start), Some(0));
        for _ in 0..5 {
            assert_eq!(gate.pass(start + Duration::from_secs(9)), None);
        }
        assert_eq!(gate.pass(start + Duration::from_secs(10)), Some(5));
    }
}
