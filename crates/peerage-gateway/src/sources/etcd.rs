//! Servers from etcd: the endpoint keys that kube-apiservers with their own proxy keep for each other
//! (`peerserverleases`, KEP-4020), which live for fifteen seconds.
//!
//! The keys are few and small, so they are read whole: at once when the watch says that one changed, and every few
//! seconds anyway, which shows whether etcd answers at all. What the watch says is looked at for one thing more: of two
//! servers with one key, the later of two writes hides the earlier from whoever reads after both.
//!
//! Invariants: what cannot be read as an endpoint costs its own key; an etcd that does not answer takes nothing away.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use peerage_etcd::EtcdStore;
use peerage_proxy::record::registered::{self, ENDPOINTS};
use peerage_store::{
    KeyRange, KeyValue, RangeRequest, RangeResponse, Store, StoreError, WatchRequest, WatchStream,
};
use rand::RngExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::moves::{ANEW, Moves};
use super::publish::Publisher;
use super::{EtcdSource, Found};

/// How often the keys are read although nothing is said to have changed.
const EVERY: Duration = Duration::from_secs(10);
/// How long one read may take.
const WAIT: Duration = Duration::from_secs(5);
/// Changes that come together are read together.
const GATHER: Duration = Duration::from_millis(50);
/// Between reads that fail.
const RETRY: Duration = Duration::from_secs(2);
/// More keys than servers are a mistake.
const MOST: usize = 500;

/// Follows the keys for ever.
pub(super) async fn follow(source: EtcdSource, mut publisher: Publisher) {
    let store = loop {
        match EtcdStore::lazy(source.options.clone()) {
            Ok(store) => break store,
            Err(error) => publisher.failed("options", error.to_string()),
        }
        tokio::time::sleep(EVERY).await;
    };
    let keys = format!("{}/{ENDPOINTS}/", source.prefix.trim_end_matches('/'));
    follow_keys(&store, &keys, publisher).await;
}

async fn follow_keys(store: &dyn Store, prefix: &str, mut publisher: Publisher) {
    let keys = KeyRange::prefix(prefix.to_owned());
    let mut endpoints = Endpoints::default();
    let mut watch = None;
    let mut unwatched = None;
    let mut written = Vec::new();
    loop {
        match read(store, &keys).await {
            Ok(response) => {
                let now = Instant::now();
                endpoints.pass(&written, now);
                let (servers, skipped) = endpoints.take(&response.kvs, &publisher, now);
                let too_many = response.more.then(|| Trouble::TooMany(prefix.to_owned()));
                match too_many.as_ref().or(unwatched.as_ref()) {
                    None => publisher.found(servers, skipped),
                    Some(it) => publisher.found_but(servers, skipped, it.reason(), it.to_string()),
                }
                if watch.is_none() {
                    let request = WatchRequest::new(keys.clone(), response.revision + 1);
                    (watch, unwatched) = match open(store, request).await {
                        Ok(opened) => (Some(opened), None),
                        Err(trouble) => (None, Some(trouble)),
                    };
                    if let Some(it) = &unwatched {
                        publisher.lacks(it.reason(), it.to_string());
                    }
                }
                written = changed(&mut watch).await;
            }
            Err(trouble) => {
                publisher.failed(trouble.reason(), trouble.to_string());
                watch = None;
                let jitter = rand::rng().random_range(0.8..1.2);
                tokio::time::sleep(RETRY.mul_f64(jitter)).await;
            }
        }
    }
}

/// Why the keys are not followed as they should be.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Read(#[from] StoreError),
    #[error("no answer within {WAIT:?}")]
    Late,
    #[error("the keys can be read but not watched, so changes are seen {EVERY:?} late: {0}")]
    Unwatched(StoreError),
    #[error(
        "the watch of the keys was not opened within {WAIT:?}, so changes are seen {EVERY:?} late"
    )]
    UnwatchedLate,
    #[error(
        "more than {MOST} keys are under {0}, more than any cluster has servers, and only the first ones count: find out \
         who writes them"
    )]
    TooMany(String),
}

impl Trouble {
    /// The metric label.
    fn reason(&self) -> &'static str {
        match self {
            Trouble::Read(StoreError::Denied { .. }) => "refused",
            Trouble::Read(_) => "unavailable",
            Trouble::Late => "deadline",
            Trouble::Unwatched(_) | Trouble::UnwatchedLate => "unwatched",
            Trouble::TooMany(_) => "too_many",
        }
    }
}

async fn read(store: &dyn Store, keys: &KeyRange) -> Result<RangeResponse, Trouble> {
    let read = store.range(RangeRequest::new(keys.clone()).limit(MOST));
    Ok(timeout(WAIT, read).await.map_err(|_| Trouble::Late)??)
}

async fn open(store: &dyn Store, request: WatchRequest) -> Result<WatchStream, Trouble> {
    let opened = timeout(WAIT, store.watch(request)).await;
    let opened = opened.map_err(|_| Trouble::UnwatchedLate)?;
    opened.map_err(Trouble::Unwatched)
}

/// Returns when the keys should be read again, with what was written to them since they were.
async fn changed(watch: &mut Option<WatchStream>) -> Vec<KeyValue> {
    let Some(stream) = watch else {
        tokio::time::sleep(EVERY).await;
        return Vec::new();
    };
    let mut written = Vec::new();
    let mut until = Instant::now() + EVERY;
    loop {
        match timeout_at(until, stream.next()).await {
            Ok(Some(Ok(response))) if !response.is_progress() => {
                if written.is_empty() {
                    until = until.min(Instant::now() + GATHER);
                }
                let room = MOST.saturating_sub(written.len());
                written.extend(response.events.into_iter().map(|it| it.kv).take(room));
            }
            Ok(Some(Ok(_))) => {}
            // It may have been compacted away, or be another store's.
            Ok(_) => {
                *watch = None;
                tokio::time::sleep(RETRY).await;
                return written;
            }
            Err(_) => return written,
        }
    }
}

/// What is remembered from read to read.
#[derive(Default)]
struct Endpoints {
    moves: Moves,
    /// What was registered when the keys were last read.
    registered: Vec<Found>,
    /// Of IDs that two servers have: what one of them took down, and when.
    gone: HashMap<Arc<str>, (Found, Instant)>,
    /// Keys whose fault was told.
    told: HashSet<Vec<u8>>,
}

impl Endpoints {
    /// Notes where servers were between two reads.
    fn pass(&mut self, written: &[KeyValue], now: Instant) {
        for found in written.iter().filter_map(|kv| endpoint(kv).ok()) {
            if let Some(id) = found.id.filter(|id| self.moves.knows(id)) {
                self.moves.note(&id, &found.address, now);
            }
        }
    }

    fn take(
        &mut self,
        kvs: &[KeyValue],
        publisher: &Publisher,
        now: Instant,
    ) -> (Vec<Found>, usize) {
        let mut servers: Vec<Found> = Vec::new();
        let mut skipped = 0;
        self.told.retain(|key| kvs.iter().any(|kv| kv.key == *key));
        for kv in kvs {
            match endpoint(kv) {
                Ok(found) => servers.push(found),
                Err(why) => {
                    skipped += 1;
                    if self.told.insert(kv.key.to_vec()) {
                        publisher.skipped(&String::from_utf8_lossy(&kv.key), why);
                    }
                }
            }
        }
        (self.tell(servers, now), skipped)
    }

    /// The servers that follow from what is registered now and was before.
    fn tell(&mut self, mut servers: Vec<Found>, now: Instant) -> Vec<Found> {
        self.miss(&servers, now);
        self.registered.clone_from(&servers);
        servers.extend(self.gone.values().map(|(found, _)| found.clone()));
        let ids: HashSet<Arc<str>> = servers.iter().filter_map(|it| it.id.clone()).collect();
        self.moves.keep(|id| ids.contains(id));
        let servers = servers.into_iter();
        servers
            .flat_map(|found| self.moves.servers(found, now))
            .collect()
    }

    /// Notes what is registered no more although another server may be there that has the same ID.
    fn miss(&mut self, servers: &[Found], now: Instant) {
        let is_there = |id: &Arc<str>| servers.iter().any(|it| it.id.as_ref() == Some(id));
        for found in std::mem::take(&mut self.registered) {
            if let Some(id) = found.id.clone()
                && !is_there(&id)
                && self.moves.are_two(&id, now)
            {
                self.gone.insert(id, (found, now));
            }
        }
        self.gone
            .retain(|id, (_, since)| !is_there(id) && now.saturating_duration_since(*since) < ANEW);
    }
}

fn endpoint(kv: &KeyValue) -> Result<Found, &'static str> {
    let (id, address) =
        registered::read_endpoint(&kv.value).ok_or("it is no endpoint of a kube-apiserver")?;
    if id.is_empty() {
        return Err("it names no server");
    }
    let address = address.ok_or("it has no address with a port")?;
    Ok(Found {
        id: Some(id),
        ..Found::at(address)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::publish::State;
    use super::*;
    use peerage_store::StoreExt as _;
    use peerage_store::memory::{MemoryOptions, MemoryStore};
    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    fn at(id: &str, address: &str) -> Found {
        Found {
            id: Some(id.into()),
            ..Found::at(address.parse().unwrap())
        }
    }

    #[test]
    fn of_two_servers_with_one_key_none_is_forgotten_when_the_other_takes_it_down() {
        let start = Instant::now();
        let mut endpoints = Endpoints::default();
        let mut shown = |second: u64, servers: &[Found]| {
            let now = start + Duration::from_secs(second);
            let told = endpoints.tell(servers.to_vec(), now);
            let address = |it: &Found| it.address.to_string();
            told.iter().map(address).collect::<Vec<_>>()
        };
        let (one, two, alone) = (at("a", "a:1"), at("a", "b:1"), at("c", "c:1"));
        shown(0, &[one.clone(), alone.clone()]);
        shown(5, &[two.clone(), alone.clone()]);
        assert_eq!(shown(10, &[one, alone]), ["a:1", "b:1", "c:1"]);
        // The one that leaves takes down what is the other's too; what is one server's alone goes at once.
        assert_eq!(shown(11, &[]), ["a:1", "b:1"]);
        assert_eq!(shown(20, &[two]), ["a:1", "b:1"]);
        assert_eq!(shown(21, &[]), ["a:1", "b:1"]);
        assert_eq!(shown(50, &[]), [""; 0], "nobody has registered anew");
    }

    fn written(address: &str) -> KeyValue {
        let (ip, port) = address.split_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        let value = serde_json::json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"labels": {"apiserverIdentity": "a"}},
            "subsets": [{"addresses": [{"ip": ip}], "ports": [{"port": port}]}],
        });
        KeyValue {
            key: "/a".into(),
            value: value.to_string().into(),
            create_revision: 1,
            mod_revision: 1,
            version: 1,
            lease: 0,
        }
    }

    #[test]
    fn two_servers_that_renew_in_the_same_moment_are_two() {
        let (start, mut endpoints) = (Instant::now(), Endpoints::default());
        let [one, two] = ["10.0.0.1:6443", "10.0.0.2:6443"].map(written);
        let found = |kv: &KeyValue| endpoint(kv).unwrap();
        assert_eq!(endpoints.tell(vec![found(&two)], start).len(), 1);
        for second in [10, 20] {
            let now = start + Duration::from_secs(second);
            endpoints.pass(&[one.clone(), two.clone()], now);
            assert_eq!(endpoints.tell(vec![found(&two)], now).len(), 2, "{second}");
        }
    }

    fn follow_store(store: MemoryStore) -> (watch::Receiver<State>, JoinHandle<()>) {
        let (publisher, said) = Publisher::new("etcd", Arc::default(), Default::default());
        let follow = async move { follow_keys(&store, "/registry/x/", publisher).await };
        (said, tokio::spawn(follow))
    }

    #[tokio::test(start_paused = true)]
    async fn that_changes_are_seen_late_is_told_with_the_reason() {
        let mut options = MemoryOptions::default();
        options.watch.max_watchers = 0;
        let (mut said, following) = follow_store(MemoryStore::with_options(options));
        said.wait_for(|it| it.trouble.is_some()).await.unwrap();
        tokio::time::sleep(EVERY * 3).await;
        let state = said.borrow().clone();
        let trouble = state.trouble.unwrap();
        assert!(trouble.contains("not watched"), "{trouble}");
        assert!(
            state.heard.unwrap().elapsed() <= EVERY,
            "what is read counts all the same"
        );
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn keys_beyond_the_limit_are_not_left_out_in_silence() {
        let store = MemoryStore::new();
        for n in 0..=MOST {
            let key = format!("/registry/x/{n:04}");
            store.create(key, "no endpoint", 0).await.unwrap();
        }
        let (mut said, following) = follow_store(store);
        said.wait_for(|it| it.heard.is_some()).await.unwrap();
        let state = said.borrow().clone();
        assert_eq!(state.skipped, MOST);
        assert!(state.trouble.unwrap().contains("more than 500 keys"));
        following.abort();
    }
}
