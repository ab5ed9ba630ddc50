//! Forgetting the past of a shared store: of all servers on it, one compacts in each interval.
//!
//! The protocol is kube-apiserver's, so that both kinds of servers may share a store and still only one of them
//! compacts. The version of one key (`compact_rev_key`, outside of every `--etcd-prefix`) counts the compactions; each
//! server remembers the version that it saw last and, once per interval, writes the key if it still has that version.
//! Who succeeds compacts up to the revision at which it looked last, which is an interval ago; who fails learns the
//! version and waits. So history is kept for one interval at least and two at most, also when a server dies.
//!
//! A store that this server has for itself forgets by its own settings.

use std::time::Duration;

use bytes::Bytes;
use peerage_store::{
    Compare, CompareResult, CompareTarget, KeyRange, Op, OpResponse, Revision, Store, StoreError,
    Txn,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The key that servers agree by.
const KEY: &str = "compact_rev_key";

/// What a server knows of the compactions so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// How often the key was written.
    version: i64,
    /// The store's revision at that look; 0 before the first one.
    revision: Revision,
}

/// Takes part, once per `interval`, until `stop`.
pub(crate) async fn keep(store: &dyn Store, interval: Duration, stop: &CancellationToken) {
    let mut seen = Seen::default();
    loop {
        tokio::select! { () = tokio::time::sleep(interval) => {}, () = stop.cancelled() => return }
        if let Err(error) = turn(store, &mut seen).await {
            warn!(%error, "could not compact the store; trying again after {interval:?}");
        }
    }
}

/// One look, and one compaction if nobody else has done it since the last look. The revision up to which this server
/// has compacted, if it did.
async fn turn(store: &dyn Store, seen: &mut Seen) -> Result<Option<Revision>, StoreError> {
    let before = *seen;
    let unchanged = Compare {
        keys: KeyRange::key(KEY),
        result: CompareResult::Equal,
        target: CompareTarget::Version(before.version),
    };
    let value = Bytes::from(before.revision.to_string());
    let txn = Txn::new()
        .when([unchanged])
        .then([Op::put(KEY, value, 0)])
        .otherwise([Op::get(KEY)]);
    let answer = store.txn(txn).await?;
    seen.revision = answer.revision;
    if !answer.succeeded {
        seen.version = version(&answer.responses);
        debug!(version = seen.version, "another server compacts the store");
        return Ok(None);
    }
    seen.version = before.version + 1;
    if before.revision == 0 {
        return Ok(None);
    }
    match store.compact(before.revision).await {
        Ok(()) => {
            debug!(revision = before.revision, "compacted the store");
            Ok(Some(before.revision))
        }
        // The store itself, or an administrator, was faster: what was wanted is done.
        Err(StoreError::Compacted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The version of the key in the answer; 0 if it is not there any more.
fn version(responses: &[OpResponse]) -> i64 {
    match responses.first() {
        Some(OpResponse::Range(found)) => found.kvs.first().map_or(0, |kv| kv.version),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use peerage_store::memory::MemoryStore;
    use peerage_store::{RangeRequest, StoreExt as _};

    use super::*;

    async fn write(store: &dyn Store) -> Revision {
        store.put("/registry/a", "x", 0).await.unwrap().mod_revision
    }

    async fn can_read_at(store: &dyn Store, revision: Revision) -> bool {
        let request = RangeRequest::new(KeyRange::key("/registry/a")).at(revision);
        store.range(request).await.is_ok()
    }

    #[tokio::test]
    async fn of_several_servers_one_compacts_in_each_interval_up_to_the_one_before() {
        let store = MemoryStore::new();
        let (mut first, mut second) = (Seen::default(), Seen::default());
        write(&store).await;
        // Nothing is compacted by servers that have just started.
        assert_eq!(turn(&store, &mut first).await.unwrap(), None);
        assert_eq!(turn(&store, &mut second).await.unwrap(), None);
        let looked = first.revision;
        let kept = write(&store).await;
        assert_eq!(turn(&store, &mut first).await.unwrap(), Some(looked));
        assert_eq!(turn(&store, &mut second).await.unwrap(), None);
        assert!(!can_read_at(&store, looked - 1).await);
        assert!(can_read_at(&store, kept).await);
        // The first one is gone: the second one goes on, an interval later.
        let looked = second.revision;
        write(&store).await;
        assert_eq!(turn(&store, &mut second).await.unwrap(), Some(looked));
        let kv = store.get(KEY).await.unwrap().unwrap();
        assert_eq!(
            (kv.version, &kv.value[..]),
            (3, looked.to_string().as_bytes())
        );
    }

    #[tokio::test]
    async fn a_store_that_has_compacted_itself_is_as_good() {
        let store = MemoryStore::new();
        let mut seen = Seen::default();
        write(&store).await;
        turn(&store, &mut seen).await.unwrap();
        let now = write(&store).await;
        store.compact(now).await.unwrap();
        assert_eq!(turn(&store, &mut seen).await.unwrap(), None);
        assert_eq!(seen.version, 2);
    }

    #[tokio::test]
    async fn a_key_that_was_deleted_is_begun_anew() {
        let store = MemoryStore::new();
        let mut seen = Seen::default();
        turn(&store, &mut seen).await.unwrap();
        store.delete(KEY, None).await.unwrap();
        assert_eq!(turn(&store, &mut seen).await.unwrap(), None);
        assert_eq!(seen.version, 0);
        let looked = seen.revision;
        write(&store).await;
        assert_eq!(turn(&store, &mut seen).await.unwrap(), Some(looked));
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_by_the_clock_until_it_is_stopped() {
        let store = MemoryStore::new();
        let (interval, stop) = (Duration::from_secs(300), CancellationToken::new());
        let rounds = async {
            for _ in 0..3 {
                write(&store).await;
                tokio::time::sleep(interval + Duration::from_secs(1)).await;
            }
            stop.cancel();
        };
        tokio::join!(keep(&store, interval, &stop), rounds);
        assert_eq!(store.get(KEY).await.unwrap().unwrap().version, 3);
        assert!(!can_read_at(&store, 1).await);
    }
}
