//! Leases, by the clock. The shortest ones that every store has are of whole seconds.

use std::time::Duration;

use super::Fixture;
use super::watching::{next, take};
use crate::error::StoreError;
use crate::ext::StoreExt;
use crate::types::{EventKind, KeyRange, WatchRequest};

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(100);

/// All keys of a lease or none.
pub async fn the_keys_of_a_lease_that_runs_out_go_in_one_revision(fixture: Fixture) {
    let store = &*fixture.store;
    let lease = store.lease_grant(SHORT, None).await.unwrap();
    assert!(lease.id != 0 && lease.ttl >= SHORT, "{lease:?}");
    for key in ["/l/a", "/l/b", "/l/c", "/l/detached"] {
        store.create(key, "1", lease.id).await.unwrap();
    }
    let detached = store.put("/l/detached", "2", 0).await.unwrap();
    // From there, not from now: a slow machine may take the lease's time to get here.
    let start = detached.mod_revision + 1;
    let request = WatchRequest::new(KeyRange::prefix("/l/"), start).previous();
    let mut watch = store.watch(request).await.unwrap();
    let gone = take(&mut watch, 3).await;
    assert_eq!(gone.len(), 3);
    let revision = detached.mod_revision + 1;
    for (event, key) in gone.iter().zip(["/l/a", "/l/b", "/l/c"]) {
        assert_eq!(
            (event.kind, &event.kv.key[..]),
            (EventKind::Delete, key.as_bytes())
        );
        assert_eq!(event.kv.mod_revision, revision);
        assert_eq!(event.previous.as_ref().map(|kv| kv.lease), Some(lease.id));
    }
    let left = store.list(KeyRange::prefix("/l/")).await.unwrap();
    assert_eq!((left.kvs, left.revision), (vec![detached], revision));
    let unknown = Err(StoreError::LeaseNotFound { id: lease.id });
    assert_eq!(store.lease_keep_alive(lease.id).await, unknown);
    let late = store.create("/l/late", "1", lease.id).await.unwrap_err();
    assert_eq!(late, StoreError::LeaseNotFound { id: lease.id }.into());
}

/// Keeping alive is what keeps alive.
pub async fn a_lease_that_is_kept_alive_outlives_one_that_is_not(fixture: Fixture) {
    let store = &*fixture.store;
    let two = Duration::from_secs(2);
    let kept = store.lease_grant(two, None).await.unwrap();
    let left = store.lease_grant(two, None).await.unwrap();
    assert_ne!(kept.id, left.id);
    store.create("/l/kept", "1", kept.id).await.unwrap();
    store.create("/l/left", "1", left.id).await.unwrap();
    let mut watch = store
        .watch(WatchRequest::new(KeyRange::prefix("/l/"), 0))
        .await
        .unwrap();
    let mut beat = tokio::time::interval(Duration::from_millis(300));
    let batch = loop {
        tokio::select! {
            batch = next(&mut watch) => break batch.unwrap().unwrap(),
            _ = beat.tick() => {
                let alive = store.lease_keep_alive(kept.id).await.unwrap();
                assert_eq!(alive, kept);
            }
        }
    };
    assert_eq!(batch.events.len(), 1);
    assert_eq!(batch.events[0].kv.key, "/l/left");
    assert!(store.get("/l/kept").await.unwrap().is_some());
}

/// Granting, looking, revoking.
pub async fn a_lease_knows_its_keys_and_takes_them_along(fixture: Fixture) {
    let store = &*fixture.store;
    let lease = store.lease_grant(LONG, Some(4711)).await.unwrap();
    assert_eq!((lease.id, lease.ttl), (4711, LONG));
    let again = store.lease_grant(LONG, Some(4711)).await.unwrap_err();
    assert_eq!(again, StoreError::LeaseExists { id: 4711 });
    let none = store.lease_grant(Duration::ZERO, None).await;
    assert!(
        none.is_err() || fixture_grants_the_shortest(&none),
        "{none:?}"
    );
    let other = store.lease_grant(LONG, None).await.unwrap();
    store.create("/l/a", "1", lease.id).await.unwrap();
    store.create("/l/b", "1", lease.id).await.unwrap();
    store.create("/l/c", "1", lease.id).await.unwrap();
    store.put("/l/a", "2", other.id).await.unwrap();
    store.delete("/l/b", None).await.unwrap();
    let status = store.lease_time_to_live(lease.id, true).await.unwrap();
    assert_eq!((status.id, status.granted), (lease.id, LONG));
    assert!(
        status.remaining <= LONG && status.remaining > LONG / 2,
        "{status:?}"
    );
    assert_eq!(status.keys, ["/l/c"]);
    let ids = store.leases().await.unwrap();
    assert!(
        ids.is_sorted() && ids.contains(&lease.id) && ids.contains(&other.id),
        "{ids:?}"
    );

    let before = store.current_revision().await.unwrap();
    assert_eq!(store.lease_revoke(lease.id).await.unwrap(), before + 1);
    assert!(store.get("/l/c").await.unwrap().is_none());
    assert_eq!(store.get("/l/a").await.unwrap().unwrap().lease, other.id);
    let unknown = StoreError::LeaseNotFound { id: lease.id };
    assert_eq!(store.lease_revoke(lease.id).await.unwrap_err(), unknown);
    assert_eq!(store.lease_keep_alive(lease.id).await.unwrap_err(), unknown);
    assert_eq!(
        store.lease_time_to_live(lease.id, false).await.unwrap_err(),
        unknown
    );
    assert!(!store.leases().await.unwrap().contains(&lease.id));
    let revived = store.lease_grant(LONG, Some(lease.id)).await.unwrap();
    let status = store.lease_time_to_live(revived.id, true).await.unwrap();
    assert!(status.keys.is_empty());
}

/// Over etcd's protocol less than the shortest time to live is the shortest.
fn fixture_grants_the_shortest(granted: &Result<crate::types::Lease, StoreError>) -> bool {
    granted
        .as_ref()
        .is_ok_and(|lease| lease.ttl > Duration::ZERO)
}
