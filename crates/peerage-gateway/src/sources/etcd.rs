//! Servers from etcd: the endpoint keys that kube-apiservers with their own proxy keep for each other
//! (`peerserverleases`, KEP-4020), which live for fifteen seconds.
//!
//! The keys are few and small, so they are read whole: at once when the watch says that one changed, and every few
//! seconds anyway, which shows whether etcd answers at all. What the watch says is looked at for one thing more: of two
//! servers with one key, the later of two writes hides the earlier from whoever reads after both.
//!
//! Where they are many all the same, they are read a part at a time; of the keys outside of that part those count whose
//! servers have answered lately. A value that no endpoint is as large as is not read.
//!
//! Invariants: what cannot be read as an endpoint costs its own key; an etcd that does not answer takes nothing away;
//! what is read at a time is bounded in keys, in bytes and in requests.

mod endpoints;
mod parts;

use std::time::Duration;

use futures::StreamExt as _;
use peerage_etcd::EtcdStore;
use peerage_proxy::record::registered::ENDPOINTS;
use peerage_store::{KeyRange, KeyValue, Store, StoreError, WatchRequest, WatchStream};
use rand::RngExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::EtcdSource;
use super::proven::Proven;
use super::publish::Publisher;
use endpoints::Endpoints;
use parts::{MOST, PAGE, Parts, read};

/// How often the keys are read although nothing is said to have changed.
const EVERY: Duration = Duration::from_secs(10);
/// How long one request may take.
const WAIT: Duration = Duration::from_secs(5);
/// When etcd's client gives up, which says why.
const GIVE_UP: Duration = Duration::from_millis(4500);
/// Changes that come together are read together.
const GATHER: Duration = Duration::from_millis(50);
/// Between reads that fail.
const RETRY: Duration = Duration::from_secs(2);
/// The largest answer that is taken. An endpoint has less than a kilobyte.
const LARGEST: usize = 2 << 20;

/// Follows the keys for ever.
pub(super) async fn follow(source: EtcdSource, proven: Proven, mut publisher: Publisher) {
    let mut options = source.options;
    options.request_timeout = GIVE_UP;
    options.max_answer = LARGEST;
    let store = loop {
        match EtcdStore::lazy(options.clone()) {
            Ok(store) => break store,
            Err(error) => publisher.failed("options", error.to_string()),
        }
        tokio::time::sleep(EVERY).await;
    };
    let keys = format!("{}/{ENDPOINTS}/", source.prefix.trim_end_matches('/'));
    follow_keys(&store, &keys, &proven, publisher).await;
}

async fn follow_keys(store: &dyn Store, prefix: &str, proven: &Proven, mut publisher: Publisher) {
    let keys = KeyRange::prefix(prefix.to_owned());
    let mut endpoints = Endpoints::default();
    let mut parts = Parts::new(keys.start().clone());
    let mut watch = None;
    let mut unwatched = None;
    let mut written = Vec::new();
    loop {
        match read(store, &keys, parts.from(Instant::now())).await {
            Ok(part) => {
                let now = Instant::now();
                endpoints.pass(&written, now);
                let (mut servers, skipped) =
                    endpoints.take(&part, &proven.lately(now), &mut publisher, now);
                if endpoints.known.is_empty() {
                    // Who is remembered of two servers is no longer to be told from who is gone; those that answer stay.
                    servers.clear();
                }
                let too_many = part.is_one_of_several(&keys);
                let too_many = too_many.then(|| Trouble::TooMany(prefix.to_owned()));
                match too_many.as_ref().or(unwatched.as_ref()) {
                    None => publisher.found(servers, skipped),
                    Some(it) => publisher.found_but(servers, skipped, it.reason(), it.to_string()),
                }
                if watch.is_none() {
                    let request = WatchRequest::new(keys.clone(), part.revision + 1);
                    (watch, unwatched) = match open(store, request).await {
                        Ok(opened) => (Some(opened), None),
                        Err(trouble) => (None, Some(trouble)),
                    };
                    if let Some(it) = &unwatched {
                        publisher.lacks(it.reason(), it.to_string());
                    }
                }
                // The more there is to read, the less often.
                let gather = GATHER.saturating_mul(1 + (part.count() / 100) as u32);
                parts.was_read(part);
                written = changed(&mut watch, gather).await;
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
        "more than {MOST} keys are under {0}, or some that are larger than any endpoint, and no cluster has so many \
         servers; those count whose servers have answered lately, the others a part at a time: find out who writes them"
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

async fn open(store: &dyn Store, request: WatchRequest) -> Result<WatchStream, Trouble> {
    let opened = timeout(WAIT, store.watch(request)).await;
    let opened = opened.map_err(|_| Trouble::UnwatchedLate)?;
    opened.map_err(Trouble::Unwatched)
}

/// Returns when the keys should be read again, with what was written to them since they were.
async fn changed(watch: &mut Option<WatchStream>, gather: Duration) -> Vec<KeyValue> {
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
                    until = until.min(Instant::now() + gather);
                }
                let room = PAGE.saturating_sub(written.len());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::super::proven::normal;
    use super::super::publish::State;
    use super::super::{Found, LONGEST_ID, SourceName};
    use super::endpoints::endpoint;
    use super::parts::PART;
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
        let (publisher, said) =
            Publisher::new(SourceName::Etcd, Arc::default(), Default::default());
        let proven = Proven::default();
        let follow = async move { follow_keys(&store, "/registry/x/", &proven, publisher).await };
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
        assert!(state.trouble.unwrap().contains("more than 5000 keys"));
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn of_keys_that_are_gone_all_at_once_the_servers_that_answer_stay() {
        let store = MemoryStore::new();
        let two = [1, 2].map(server);
        for found in &two {
            let key = format!("/registry/x/{}", found.record_id());
            store.create(key, registered(found), 0).await.unwrap();
        }
        // One of them has had two addresses in turns, as two servers with one host name have.
        for address in ["10.0.9.9:1", "10.0.0.1:1", "10.0.9.9:1"] {
            let other = at("s1", address);
            store
                .put("/registry/x/s1", registered(&other), 0)
                .await
                .unwrap();
        }
        let store = Arc::new(store);
        let (publisher, mut said) =
            Publisher::new(SourceName::Etcd, Arc::default(), Default::default());
        let proven = Proven::default();
        let answers = vec![two[0].address.clone(), two[1].address.clone()];
        proven.judge_by(move || answers.clone());
        let publisher = publisher.keeps_who_answers(proven.clone());
        let follows = store.clone();
        let following = tokio::spawn(async move {
            follow_keys(&*follows, "/registry/x/", &proven, publisher).await;
        });
        said.wait_for(|it| it.servers.len() >= 2).await.unwrap();
        for address in ["10.0.0.1:1", "10.0.9.9:1", "10.0.0.1:1"] {
            let other = at("s1", address);
            store
                .put("/registry/x/s1", registered(&other), 0)
                .await
                .unwrap();
            tokio::time::sleep(EVERY / 10).await;
        }
        said.wait_for(|it| it.servers.len() == 3).await.unwrap();
        store.delete("/registry/x/s1", None).await.unwrap();
        store.delete("/registry/x/s2", None).await.unwrap();
        let is_told = |it: &State| it.trouble.as_ref().is_some_and(|it| it.contains("at once"));
        said.wait_for(is_told).await.unwrap();
        tokio::time::sleep(EVERY * 5).await;
        let mut kept: Vec<_> = said
            .borrow()
            .servers
            .iter()
            .map(|it| it.address.to_string())
            .collect();
        kept.sort();
        assert_eq!(kept, ["10.0.0.1:1", "10.0.0.2:1"]);
        following.abort();
    }

    fn server(n: usize) -> Found {
        at(&format!("s{n}"), &format!("10.0.{}.{}:1", n / 250, n % 250))
    }

    fn registered(found: &Found) -> String {
        let value = serde_json::json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"labels": {"apiserverIdentity": found.id.as_deref().unwrap()}},
            "subsets": [{
                "addresses": [{"ip": found.address.host()}],
                "ports": [{"port": found.address.port_u16().unwrap()}],
            }],
        });
        value.to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn many_keys_hide_no_server_that_answers_and_a_new_one_is_found() {
        let store = MemoryStore::new();
        for n in 0..600 {
            let key = format!("/registry/x/0{n:04}");
            store.create(key, registered(&server(n)), 0).await.unwrap();
        }
        let last = server(1000);
        store
            .create("/registry/x/z", registered(&last), 0)
            .await
            .unwrap();
        let (mut said, following) = follow_store(store);
        said.wait_for(|it| it.heard.is_some()).await.unwrap();
        let state = said.borrow().clone();
        assert_eq!((state.servers.len(), &state.trouble), (601, &None));
        assert_eq!(state.servers.last(), Some(&last));
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn of_more_keys_than_are_read_those_of_servers_that_answer_stay_known() {
        let keys = KeyRange::prefix("/registry/x/");
        let store = MemoryStore::new();
        let (mut publisher, _said) =
            Publisher::new(SourceName::Etcd, Arc::default(), Default::default());
        for n in 0..MOST + PAGE {
            let key = format!("/registry/x/{n:05}");
            store.create(key, registered(&server(n)), 0).await.unwrap();
        }
        let (first, late) = (server(7), server(MOST + 9));
        let mut parts = Parts::new(keys.start().clone());
        let mut endpoints = Endpoints::default();
        let nobody = HashSet::new();
        let proven = HashSet::from([normal(&first.address)]);
        let mut seen = Vec::new();
        for proven in [&nobody, &proven, &proven, &proven] {
            let now = Instant::now();
            let part = read(&store, &keys, parts.from(now)).await.unwrap();
            assert!(part.is_one_of_several(&keys));
            let (servers, _) = endpoints.take(&part, proven, &mut publisher, now);
            seen.push((
                servers.len(),
                servers.contains(&first),
                servers.contains(&late),
            ));
            parts.was_read(part);
            tokio::time::advance(PART / 2).await;
        }
        let expected = [
            (MOST, true, false),
            (MOST, true, false),
            (PAGE + 1, true, true),
            (PAGE + 1, true, true),
        ];
        assert_eq!(seen, expected);
        // One that says goodbye goes, wherever its key is, when that part is read.
        store.delete("/registry/x/00007", None).await.unwrap();
        let part = read(&store, &keys, parts.from(Instant::now()))
            .await
            .unwrap();
        let now = Instant::now();
        let (servers, _) = endpoints.take(&part, &proven, &mut publisher, now);
        assert!(!servers.contains(&first) && servers.len() == MOST);
    }

    #[tokio::test]
    async fn values_too_large_to_be_read_cost_their_own_keys() {
        let store = MemoryStore::new();
        for n in [0, 1, 4] {
            let key = format!("/registry/x/{n}");
            store.create(key, vec![b'x'; 50_000], 0).await.unwrap();
        }
        let good = [2, 3, 5, 6].map(server);
        for (n, found) in [2, 3, 5, 6].iter().zip(&good) {
            let key = format!("/registry/x/{n}");
            store.create(key, registered(found), 0).await.unwrap();
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options =
            peerage_etcd::EtcdOptions::new([listener.local_addr().unwrap().to_string()]);
        options.max_answer = 10_000;
        let stop = tokio_util::sync::CancellationToken::new();
        let serve =
            peerage_etcd::serve(Arc::new(store), listener, Default::default(), stop.clone());
        let serving = tokio::spawn(serve);
        let store = EtcdStore::lazy(options).unwrap();
        let keys = KeyRange::prefix("/registry/x/");
        let part = read(&store, &keys, keys.start().clone()).await.unwrap();
        assert!(!part.is_one_of_several(&keys));
        let oversize = ["/registry/x/0", "/registry/x/1", "/registry/x/4"];
        assert_eq!(part.oversize, oversize);
        let (mut publisher, _said) =
            Publisher::new(SourceName::Etcd, Arc::default(), Default::default());
        let mut endpoints = Endpoints::default();
        let (servers, skipped) =
            endpoints.take(&part, &HashSet::new(), &mut publisher, Instant::now());
        assert_eq!((servers.as_slice(), skipped), (&good[..], 3));
        stop.cancel();
        serving.await.unwrap().unwrap();
    }

    #[test]
    fn an_id_that_is_longer_than_any_name_costs_its_key() {
        let named = |length: usize| {
            let found = at(&"x".repeat(length), "10.0.0.1:1");
            let kv = KeyValue {
                value: registered(&found).into(),
                ..written("10.0.0.1:1")
            };
            endpoint(&kv).is_ok()
        };
        assert!(named(LONGEST_ID) && !named(LONGEST_ID + 1));
    }
}
