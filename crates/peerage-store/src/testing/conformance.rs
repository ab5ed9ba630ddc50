//! What every store does, as tests.
//!
//! A store's test file has one line, [`conformance!`](crate::conformance), with a function that makes
//! a new, empty store. Tests that need another bound than a store's own are in the store's file.

mod basics;
mod watching;

use std::any::Any;
use std::sync::Arc;

use crate::store::Store;

pub use basics::*;
pub use watching::*;

/// A store under test, and what has to live as long as it.
pub struct Fixture {
    /// The store, new and empty.
    pub store: Arc<dyn Store>,
    /// Kept until the test ends.
    pub guard: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// A store that needs nothing else.
    pub fn new(store: impl Store) -> Self {
        Fixture {
            store: Arc::new(store),
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
