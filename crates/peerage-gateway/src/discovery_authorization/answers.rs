//! Who was allowed what, lately; and one question at a time for the same thing.
//!
//! Invariants: a yes counts from when its question was put, not from when it was answered; never more entries than the
//! bound; no lock is held while anybody waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::Verdict;
use super::credential::Hash;

/// Entries: a hundred paths for each of a few hundred clients, in under 2 MB.
const MAX_ENTRIES: usize = 16_384;

/// Answers by who asks for what.
pub(super) struct Remembered {
    ttl: Duration,
    entries: Mutex<HashMap<Hash, Entry>>,
}

/// One question, answered or not.
pub(super) type Cell = Arc<OnceCell<Verdict>>;

struct Entry {
    cell: Cell,
    asked: Instant,
}

/// Where a request finds itself.
pub(super) enum Seat {
    /// The yes is known.
    Known,
    /// The question is to be put, or waited for.
    Ask(Cell),
    /// Nothing is remembered, so each request asks for itself.
    Always,
}

impl Remembered {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            entries: Mutex::default(),
        }
    }

    pub(super) fn seat(&self, key: Hash, now: Instant) -> Seat {
        if self.ttl.is_zero() {
            return Seat::Always;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&key) {
            match entry.cell.get() {
                // Whoever put the question waits for it, or left it to the next one.
                None => return Seat::Ask(entry.cell.clone()),
                Some(Verdict::Yes) if now < entry.asked + self.ttl => return Seat::Known,
                Some(_) => {}
            }
        }
        if entries.len() >= MAX_ENTRIES {
            self.make_room(&mut entries, now);
        }
        let cell = Cell::default();
        let entry = Entry {
            cell: cell.clone(),
            asked: now,
        };
        entries.insert(key, entry);
        Seat::Ask(cell)
    }

    /// Has the next request ask anew.
    pub(super) fn forget(&self, key: &Hash, cell: &Cell) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries
            .get(key)
            .is_some_and(|it| Arc::ptr_eq(&it.cell, cell))
        {
            entries.remove(key);
        }
    }

    /// Drops what has run out and what everybody has left; then, if need be, any half: those will ask again.
    fn make_room(&self, entries: &mut HashMap<Hash, Entry>, now: Instant) {
        entries.retain(|_, entry| {
            let waited_for = Arc::strong_count(&entry.cell) > 1;
            waited_for || (entry.cell.initialized() && now < entry.asked + self.ttl)
        });
        if entries.len() > MAX_ENTRIES / 2 {
            let mut keep = false;
            entries.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Hash {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    }

    fn answer(seat: Seat, verdict: Verdict) -> Cell {
        let Seat::Ask(cell) = seat else {
            panic!("it is known already");
        };
        assert!(cell.set(verdict).is_ok());
        cell
    }

    #[test]
    fn a_yes_counts_from_its_question_on_and_everybody_waits_for_the_same_one() {
        let remembered = Remembered::new(Duration::from_secs(10));
        let start = Instant::now();
        let first = remembered.seat(key(1), start);
        let Seat::Ask(second) = remembered.seat(key(1), start + Duration::from_secs(9)) else {
            panic!("nobody has answered");
        };
        let cell = answer(first, Verdict::Yes);
        assert!(Arc::ptr_eq(&cell, &second));
        let at = |seconds| remembered.seat(key(1), start + Duration::from_secs(seconds));
        assert!(matches!(at(9), Seat::Known));
        assert!(matches!(at(10), Seat::Ask(_)));
    }

    #[test]
    fn what_is_forgotten_is_asked_again_unless_somebody_does_already() {
        let remembered = Remembered::new(Duration::from_secs(10));
        let now = Instant::now();
        let cell = answer(remembered.seat(key(1), now), Verdict::Later);
        let Seat::Ask(next) = remembered.seat(key(1), now) else {
            panic!("a no is not kept");
        };
        remembered.forget(&key(1), &cell);
        let Seat::Ask(same) = remembered.seat(key(1), now) else {
            panic!("nobody has answered");
        };
        assert!(Arc::ptr_eq(&next, &same));
    }

    #[test]
    fn however_many_come_no_more_than_the_bound_are_kept() {
        let remembered = Remembered::new(Duration::from_secs(10));
        let now = Instant::now();
        for n in 0..3 * MAX_ENTRIES {
            answer(remembered.seat(key(n), now), Verdict::Yes);
            let kept = remembered.entries.lock().map(|it| it.len());
            assert!(kept.is_ok_and(|kept| kept <= MAX_ENTRIES));
        }
    }
}
