//! What every store does, as tests.
//!
//! A store's test file has one line, [`conformance!`](crate::conformance), with a function that makes
//! a new, empty store. Tests that need another bound than a store's own are in the store's file.

mod basics;
mod concurrent;
mod leases;
mod linear;
mod watching;

use std::any::Any;
use std::sync::Arc;

use crate::store::Store;

pub use basics::*;
pub use concurrent::*;
pub use leases::*;
pub use linear::*;
pub use watching::*;

/// A store under test, and what has to live as long as it.
pub struct Fixture {
    /// The store, new and empty.
    pub store: Arc<dyn Store>,
    /// Whether a watcher that does not read is cut off. If not, it must go on by itself.
    pub cuts_off: bool,
    /// Kept until the test ends.
    pub guard: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// A store that needs nothing else.
    pub fn new(store: impl Store) -> Self {
        Fixture {
            store: Arc::new(store),
            cuts_off: true,
            guard: Box::new(()),
        }
    }
}

impl std::fmt::Debug for Fixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").finish_non_exhaustive()
    }
}

/// Makes a test of each case of the suite. `$fixture` is an async function that returns a
/// [`Fixture`].
#[macro_export]
macro_rules! conformance {
    ($fixture:path) => {
        $crate::conformance!($fixture:
            a_new_key_has_its_revision_everywhere_and_version_one,
            a_key_counts_its_versions_and_starts_anew_after_a_deletion,
            create_update_and_delete_conflicts_carry_the_current_key,
            ranges_are_ordered_limited_counted_and_read_old_revisions,
            listing_reads_every_page_at_one_revision,
            compares_decide_between_success_and_failure,
            a_transaction_is_one_revision_and_sees_its_own_writes,
            a_transaction_that_changes_nothing_makes_no_revision,
            what_cannot_be_done_is_refused_and_changes_nothing,
            compaction_forgets_the_past_and_keeps_the_present,
            a_watch_from_any_kept_revision_sees_every_event_once,
            a_watch_from_now_sees_only_what_comes,
            a_watch_shows_previous_values_and_filters_kinds,
            a_watch_from_a_compacted_revision_ends_with_that_error,
            progress_is_told_when_asked_for,
            ten_writers_and_ten_watchers_agree_on_one_order,
            a_watcher_that_does_not_read_costs_little_and_misses_nothing,
            every_answer_fits_one_order_that_respects_real_time,
            the_keys_of_a_lease_that_runs_out_go_in_one_revision,
            a_lease_that_is_kept_alive_outlives_one_that_is_not,
            a_lease_knows_its_keys_and_takes_them_along,
        );
    };
    ($fixture:path: $($case:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::testing::conformance::$case($fixture().await).await;
            }
        )*
    };
}
