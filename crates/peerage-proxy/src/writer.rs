//! The one writer of the view: folds records, documents, the local APIs and exclusions into a new snapshot.
//!
//! It also owns the pollers: one per peer, started when its record is first seen and ended when it is forgotten.
//! Requests are never woken by it and never wait for it.
//!
//! Invariants: a snapshot is complete or not published; a peer's documents survive everything but the end of its
//! hold time, but for those that have to make room when more than [`MAX_PEERS`] are registered; a record of this server itself, or one more of an ID already seen, counts for nothing.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use peerage_core::{Exclusions, LocalApis, Millis, PeerState, PeerView, Readiness, ViewInputs};
use peerage_http::{ClientTls, Upstream, UpstreamOptions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::identity::{self, Aside};
use crate::log_gate::LogGate;
use crate::peer::{Link, Passing, Peer};
use crate::poll;
use crate::record::{Memory, PeerRecord, Standing};
use crate::shared::{Known, Shared, Snapshot};

/// More servers than any control plane has; a registry that lists more is broken.
pub const MAX_PEERS: usize = 200;

/// Changes that come together make one view.
const GATHER: Duration = Duration::from_millis(5);

/// Connections of a poller: over HTTP/1.1 it may ask for several lists at a time, over HTTP/2 one carries everything.
const PROBE_CONNECTIONS: usize = 4;

/// Connections to one server for requests that it may not accept, each of which has one to itself until it is answered;
/// and how many may wait for one. These are anybody's.
const DOUBTFUL_CONNECTIONS: usize = 64;
const DOUBTFUL_WAITING: usize = 1000;

/// By how much a deadline further down is later than the one that should strike.
const MARGIN: Duration = Duration::from_secs(5);

/// How often it is said that there are too many peers.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What the writer reads.
pub(crate) struct Sources {
    pub(crate) records: watch::Receiver<Arc<[PeerRecord]>>,
    pub(crate) local: watch::Receiver<Arc<LocalApis>>,
    pub(crate) exclusions: watch::Receiver<Arc<Exclusions>>,
}

/// The writer.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    sources: Sources,
    peers: HashMap<Arc<str>, Remembered>,
    started: Instant,
    /// Whether everybody who was there at the start has been heard once, or was waited for long enough.
    synced: bool,
    /// For the warning that there are too many.
    log_gate: LogGate,
}

struct Remembered {
    peer: Arc<Peer>,
    memory: Memory,
    holder: Option<Arc<str>>,
    standing: Standing,
    /// Whether the log has not been told of it.
    new: bool,
    /// Its place in the registry's list.
    place: usize,
    /// Why it is not counted as a server.
    aside: Option<Aside>,
    poller: CancellationToken,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, sources: Sources) -> Writer {
        Writer {
            shared,
            sources,
            peers: HashMap::new(),
            started: Instant::now(),
            synced: false,
            log_gate: LogGate::new(LOG_INTERVAL),
        }
    }

    /// Publishes a view whenever something changes, until the proxy ends.
    pub(crate) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            self.publish();
            let wait = self.next_change();
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed(&mut self.sources.records) => {}
                () = changed(&mut self.sources.local) => {}
                () = changed(&mut self.sources.exclusions) => {}
                () = self.shared.changed.notified() => {}
                () = sleep(wait) => {}
            }
            sleep(GATHER).await;
        }
    }

    /// Makes a snapshot of what is known now. Also called once before the first request.
    pub(crate) fn publish(&mut self) {
        let now = self.shared.options.clock.now();
        self.take_records(now);
        if self.shared.front.is_some() {
            self.set_aside();
        }
        self.synced = self.synced || self.has_heard_all();
        let inputs = self.inputs(now);
        let previous = self.shared.snapshot.load();
        let view = Arc::new(PeerView::rebuild(&previous.view, inputs));
        let known = |(id, it): (&Arc<str>, &Remembered)| {
            let in_view = view.peer(id)?;
            let known = Known {
                peer: it.peer.clone(),
                standing: it.standing,
                heard: in_view.documents.is_some(),
                answers: in_view.state != PeerState::Gone,
            };
            Some((id.clone(), known))
        };
        let peers = self.peers.iter().filter_map(known).collect();
        let aside = self.peers.values();
        let aside = aside.filter_map(|it| Some((it.peer.clone(), it.aside.clone()?)));
        let mut snapshot = Snapshot::new(view, peers);
        snapshot.aside = aside.collect();
        snapshot.remembered = self.peers.values().map(|it| it.peer.clone()).collect();
        snapshot.remembered.sort_by(|a, b| a.id.cmp(&b.id));
        self.shared.snapshot.store(Arc::new(snapshot));
        self.shared.views.send_modify(|count| *count += 1);
    }

    fn take_records(&mut self, now: SystemTime) {
        let records = self.sources.records.borrow_and_update().clone();
        let own = self.sources.local.borrow_and_update().id.clone();
        let tls = self.shared.options.tls.clone();
        let mut by_id: HashMap<&str, &PeerRecord> = HashMap::new();
        let mut listed: Vec<(usize, &PeerRecord)> = Vec::new();
        for (place, record) in records.iter().enumerate() {
            let counts = tls.is_some() && !record.id.is_empty() && record.id != own;
            if counts && !by_id.contains_key(&*record.id) {
                by_id.insert(&record.id, record);
                listed.push((place, record));
            }
        }
        self.meet_all(&listed, &by_id);
        let times = self.shared.options.hold_times();
        for (id, it) in &mut self.peers {
            let record = by_id.get(&**id).copied();
            let restarted = it.note_holder(record);
            let standing = it.memory.observe(record, times, now);
            it.take(&self.shared, record, standing, restarted, tls.as_ref());
        }
        self.peers.retain(|id, it| {
            let keep = it.standing != Standing::Gone || by_id.contains_key(&**id);
            if !keep {
                it.poller.cancel();
            }
            keep
        });
    }

    /// Makes the acquaintance of whoever is new, in the order of the list, so that who is passed over when there are too
    /// many is no accident.
    fn meet_all(&mut self, listed: &[(usize, &PeerRecord)], records: &HashMap<&str, &PeerRecord>) {
        let mut passed_over = Vec::new();
        for (place, record) in listed {
            if let Some(known) = self.peers.get_mut(&record.id) {
                known.place = *place;
            } else if self.peers.len() < MAX_PEERS || self.evict(records) {
                self.meet(record, *place);
            } else {
                passed_over.push(&*record.id);
            }
        }
        if let Some(first) = passed_over.first()
            && let Some(held_back) = self.log_gate.pass(Instant::now())
        {
            tracing::warn!(
                peer = first,
                passed_over = passed_over.len(),
                held_back,
                "more than {MAX_PEERS} peers are registered, so this one and those after it are passed over"
            );
        }
    }

    /// Makes room by forgetting a peer that is not registered any more: one that was never heard before others, then the
    /// one that would be forgotten first anyway.
    fn evict(&mut self, records: &HashMap<&str, &PeerRecord>) -> bool {
        let gone = self.peers.iter();
        let gone = gone.filter(|(id, _)| !records.contains_key(&***id));
        let first = gone.min_by_key(|(id, it)| {
            let was_heard = it.peer.documents().is_some();
            (was_heard, it.standing.until(), (*id).clone())
        });
        let Some(id) = first.map(|(id, _)| id.clone()) else {
            return false;
        };
        if let Some(evicted) = self.peers.remove(&id) {
            evicted.poller.cancel();
        }
        true
    }

    fn meet(&mut self, record: &PeerRecord, place: usize) {
        let peer = Arc::new(Peer::new(record.id.clone()));
        let poller = self.shared.stop.child_token();
        tokio::spawn(poll::run(self.shared.clone(), peer.clone(), poller.clone()));
        let remembered = Remembered {
            peer,
            memory: Memory::default(),
            holder: None,
            standing: Standing::Gone,
            new: true,
            place,
            aside: None,
            poller,
        };
        self.peers.insert(record.id.clone(), remembered);
    }

    /// Finds out which addresses are no servers, or no other ones.
    fn set_aside(&mut self) {
        let beside = self.shared.front.as_ref();
        let beside = beside.and_then(|front| front.options.beside.clone());
        let mut order: Vec<Arc<str>> = self.peers.keys().cloned().collect();
        order.sort_by_key(|id| (Some(id) != beside.as_ref(), self.peers[id].place));
        let hold = self.shared.options.hold;
        let mut found: HashMap<Arc<str>, Aside> = HashMap::new();
        let mut counted: Vec<Arc<Peer>> = Vec::new();
        for id in order {
            let peer = &self.peers[&id].peer;
            let aside = identity::judge(peer, hold).or_else(|| {
                let answers = |it: &&Arc<Peer>| it.is_proven() && !it.health.is_open();
                let mut first = counted.iter().filter(answers);
                let twins = &self.shared.twins;
                let first = first.find(|it| twins.are_one(&self.shared, it, peer))?;
                Some(Aside::Twin(first.id.clone()))
            });
            match aside {
                Some(aside) => drop(found.insert(id, aside)),
                None => counted.push(peer.clone()),
            }
        }
        for (id, it) in &mut self.peers {
            it.put_aside(found.remove(id));
        }
        let peers = &self.peers;
        self.shared.twins.keep(|id| peers.contains_key(id));
    }

    fn inputs(&mut self, now: SystemTime) -> ViewInputs {
        let hold = Millis::from(self.shared.options.hold);
        let peers = self.peers.values();
        let peers = peers.flat_map(|it| {
            it.for_view(hold)
                .into_iter()
                .flat_map(|now| [it.before(&now), Some(now)])
        });
        ViewInputs {
            peers: peers.flatten().map(Arc::new).collect(),
            local: self.local(),
            exclusions: self.sources.exclusions.borrow_and_update().clone(),
            now: millis(now),
            synced: self.synced,
            hold,
        }
    }

    /// What this server serves; of a front, the documents of the server that it stands beside.
    fn local(&self) -> LocalApis {
        let local = (**self.sources.local.borrow()).clone();
        let Some(front) = &self.shared.front else {
            return local;
        };
        let beside = front.options.beside.as_ref();
        let beside = beside.and_then(|id| self.peers.get(id));
        let heard = beside.and_then(|it| it.peer.documents());
        LocalApis {
            documents: Some(heard.map(|heard| heard.served.clone()).unwrap_or_default()),
            is_front: true,
            ..local
        }
    }

    fn has_heard_all(&self) -> bool {
        let waited = self.started.elapsed() >= self.shared.options.start_wait;
        // One server that answers nonsense is no reason for a front to keep all others' clients waiting.
        let is_front = self.shared.front.is_some();
        let unheard = |it: &Remembered| {
            it.standing == Standing::Live
                && !(is_front && it.peer.is_given_up())
                && it.aside.is_none()
                && !it.peer.health.is_open()
                && it.peer.documents().is_none()
        };
        waited || !self.peers.values().any(unheard)
    }

    /// How long nothing can change by time alone.
    fn next_change(&self) -> Duration {
        // A clock that is set may move every end, so they are looked at again now and then.
        const AT_MOST: Duration = Duration::from_secs(30);
        let now = self.shared.options.clock.now();
        let hold = self.shared.options.hold;
        let ends = self.peers.values().filter_map(|it| it.standing.until());
        let ends = ends.map(|until| until.duration_since(now).unwrap_or_default());
        let waited_for = self.peers.values().filter(|_| self.shared.front.is_some());
        let waited_for = waited_for.filter_map(|it| identity::patience(&it.peer, hold));
        let next = ends.chain(waited_for).min().unwrap_or(AT_MOST);
        next.min(AT_MOST).max(GATHER)
    }
}

impl Remembered {
    /// Whether the record is that of a new process.
    fn note_holder(&mut self, record: Option<&PeerRecord>) -> bool {
        let lease = record.and_then(|r| r.identity_lease.as_ref());
        let Some(lease) = lease.filter(|lease| Some(&lease.holder) != self.holder.as_ref()) else {
            return false;
        };
        self.holder = Some(lease.holder.clone());
        if self.standing == Standing::Gone {
            // Nothing of the one before is remembered, so this one starts like any other.
            self.memory = Memory::default();
        }
        true
    }

    /// Takes in the record and what it makes of the peer.
    fn take(
        &mut self,
        shared: &Shared,
        record: Option<&PeerRecord>,
        standing: Standing,
        restarted: bool,
        tls: Option<&ClientTls>,
    ) {
        self.peer.set_zone(record.and_then(|r| r.zone.clone()));
        self.relink(shared, record, standing, tls);
        if restarted || (standing == Standing::Live && self.standing != Standing::Live) {
            self.peer.poke.notify_one();
        }
        if record.is_some_and(|r| r.endpoint_live && r.address.is_none()) {
            shared.metrics.no_address();
        }
        let (peer, state) = (&*self.peer.id, standing.word());
        if state == self.standing.word() {
            // Nothing to tell.
        } else if std::mem::take(&mut self.new) {
            // That it is there is not known yet.
            let state = (standing != Standing::Live).then_some(state);
            tracing::info!(peer, state, "a peer is listed that was not known before");
        } else {
            tracing::info!(
                peer,
                from = self.standing.word(),
                to = state,
                "a peer changed state"
            );
        }
        if standing == Standing::Gone && self.standing != Standing::Gone {
            self.peer.forget();
        }
        self.standing = standing;
    }

    fn put_aside(&mut self, aside: Option<Aside>) {
        if self.aside == aside {
            return;
        }
        match &aside {
            Some(aside) => {
                let link = self.peer.link();
                let address = link.map(|it| it.address.to_string()).unwrap_or_default();
                let (peer, message) = (&*self.peer.id, aside.message(&address));
                match aside {
                    // What it showed was warned of when it was asked.
                    Aside::Stranger => tracing::info!(peer, "{message}"),
                    _ => tracing::warn!(peer, "{message}"),
                }
                self.peer.counts.error(aside.kind());
            }
            None => tracing::info!(peer = &*self.peer.id, "an address counts as a server again"),
        }
        self.peer.set_resting(matches!(aside, Some(Aside::Twin(_))));
        self.aside = aside;
    }

    /// Connections belong to one address; a peer without an endpoint key has none.
    fn relink(
        &self,
        shared: &Shared,
        record: Option<&PeerRecord>,
        standing: Standing,
        tls: Option<&ClientTls>,
    ) {
        let address = record
            .filter(|_| standing == Standing::Live)
            .and_then(|r| r.address.clone());
        let old = self.peer.link();
        if old.as_ref().map(|link| &link.address) == address.as_ref() {
            return;
        }
        let link = address.zip(tls).map(|(address, tls)| {
            let options = |tls: &ClientTls| {
                let mut options = UpstreamOptions::new(address.as_str(), tls.clone());
                // The forwarder's own deadline comes first, since it knows what to answer.
                options.first_byte_timeout = shared.options.forward.first_byte + MARGIN;
                options
            };
            let passing = |tls: &ClientTls| Passing {
                accepted: Upstream::new(options(tls)),
                doubtful: Upstream::new(UpstreamOptions {
                    max_connections: DOUBTFUL_CONNECTIONS,
                    max_waiting: DOUBTFUL_WAITING,
                    alone_until_answered: true,
                    ..options(tls)
                }),
            };
            let front = shared.front.as_ref();
            let clients = Upstream::new(options(tls));
            Link {
                probes: clients.apart(PROBE_CONNECTIONS, shared.options.poll.probe_deadline / 4),
                upstream: clients,
                passing: front.map(|front| passing(&front.options.passing)),
                proven: AtomicBool::new(false),
                asked: Mutex::default(),
                address,
            }
        });
        // What is there may be another process, of another version.
        self.peer.forget_version();
        self.peer.set_link(link);
        self.peer.poke.notify_one();
    }

    /// What a peer that starts had before, as that of one that is away: its APIs are stale, and asked of others or of nobody.
    fn before(&self, now: &peerage_core::Peer) -> Option<peerage_core::Peer> {
        let heard = self.peer.documents()?;
        let before = heard.before.as_ref()?;
        Some(peerage_core::Peer {
            id: format!("{} before it started", now.id).into(),
            state: PeerState::Starting,
            readiness: Readiness::NotReady,
            documents: Some(before.served.clone()),
            ..now.clone()
        })
    }

    /// What the view should know of this peer; nothing once it is forgotten.
    fn for_view(&self, hold: Millis) -> Option<peerage_core::Peer> {
        if self.aside.is_some() {
            return None;
        }
        let peer = &self.peer;
        let gone_since = self.standing.until().map(|until| millis(until) - hold);
        let (state, gone_since) = match self.standing {
            Standing::Gone => return None,
            Standing::Starting { .. } => (PeerState::Starting, None),
            Standing::Crashed { .. } | Standing::Left { .. } => (PeerState::Gone, gone_since),
            // Registered but silent: what it serves is stale for as long as it stays registered.
            Standing::Live if peer.health.is_open() => (PeerState::Gone, None),
            Standing::Live if peer.health.consecutive_failures() > 0 => (PeerState::Failing, None),
            Standing::Live => (PeerState::Live, None),
        };
        let address = peer
            .link()
            .map(|link| link.address.to_string())
            .unwrap_or_default();
        Some(peerage_core::Peer {
            state,
            gone_since,
            readiness: if peer.health.is_ready() {
                Readiness::Ready
            } else {
                Readiness::NotReady
            },
            latency: None,
            documents: peer.documents().map(|heard| heard.served.clone()),
            ..peerage_core::Peer::new(peer.id.clone(), address)
        })
    }
}

/// Returns when the value changes; never, once nobody can change it.
async fn changed<T>(source: &mut watch::Receiver<T>) {
    if source.changed().await.is_err() {
        std::future::pending().await
    }
}

fn millis(at: SystemTime) -> Millis {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .map(Millis::from)
        .unwrap_or_default()
}
