//! Who was noted lately, in a table of fixed size without locks.
//!
//! Two keys that meet in one slot push each other out, so a key may be forgotten early; one that was never noted is taken
//! for another with a chance of one in four thousand million.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The part of a slot that counts seconds; the rest is of the key.
const SECONDS: u64 = u32::MAX as u64;

/// Keys that were noted within some time.
pub struct Recent {
    started: Instant,
    keep: Duration,
    /// The upper half of the key, and the second in which it was noted; 0 for nobody.
    slots: Box<[AtomicU64]>,
}

impl Recent {
    /// A table of `size` slots (at least one) that remembers for `keep`.
    #[must_use]
    pub fn new(size: usize, keep: Duration, now: Instant) -> Recent {
        Recent {
            started: now,
            keep,
            slots: (0..size.max(1)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Notes a key, all of whose bits have to be mixed well.
    pub fn note(&self, key: u64, now: Instant) {
        let noted = (key & !SECONDS) | self.second(now);
        self.slot(key).store(noted, Ordering::Relaxed);
    }

    /// Forgets the key.
    pub fn forget(&self, key: u64) {
        let slot = self.slot(key);
        let noted = slot.load(Ordering::Relaxed);
        if noted & !SECONDS == key & !SECONDS {
            // If somebody has noted one meanwhile, that stands.
            let _ = slot.compare_exchange(noted, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether the key was noted lately.
    #[must_use]
    pub fn has(&self, key: u64, now: Instant) -> bool {
        let noted = self.slot(key).load(Ordering::Relaxed);
        let age = self.second(now).saturating_sub(noted & SECONDS);
        noted != 0 && noted & !SECONDS == key & !SECONDS && age < self.keep.as_secs()
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        // The remainder is smaller than a length, so it fits.
        &self.slots[(key % self.slots.len() as u64) as usize]
    }

    /// Never 0, which is nobody's.
    fn second(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.started).as_secs() + 1) & SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_for_its_time_and_no_other_is_taken_for_it() {
        let start = Instant::now();
        let recent = Recent::new(8, Duration::from_secs(60), start);
        let key = 0xabcd_ef01_2345_6780;
        assert!(!recent.has(key, start) && !recent.has(0, start));
        recent.note(key, start);
        let within = start + Duration::from_secs(59);
        assert!(recent.has(key, within));
        assert!(!recent.has(key ^ (1 << 40), within), "the same slot");
        assert!(!recent.has(key, start + Duration::from_secs(60)));
        recent.note(key ^ (1 << 40), within);
        assert!(!recent.has(key, within), "pushed out");
        recent.forget(key);
        assert!(recent.has(key ^ (1 << 40), within), "another");
        recent.forget(key ^ (1 << 40));
        assert!(!recent.has(key ^ (1 << 40), within));
    }
}
