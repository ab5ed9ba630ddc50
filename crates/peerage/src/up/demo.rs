//! The demonstration: what the Mixed Version Proxy promises, done with two of the servers and checked step by step.
//!
//! The oldest server is asked, the newest one has what it has not. Each step prints one line when its result is as
//! promised; the first that is not ends the command, with what was seen instead.

mod seen;

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::Cluster;
use super::difference::{self, Resources};
use super::layout::Member;
use super::sample::{self, Sample};
use crate::client::{Answer, ApiClient, LOCAL, MERGED, Watch};
use crate::exit::Failure;
use crate::output::counted;
use seen::Seen;

/// How long a server may take to show or answer what another one has.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long requests are sent while the newest server is gone.
const GONE_FOR: Duration = Duration::from_secs(3);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Names listed before the rest is only counted.
const LISTED: usize = 6;

/// What the steps work with.
struct Demo {
    /// The server that is asked.
    older: ApiClient,
    older_name: String,
    /// Position of a server that has what others have not.
    newest: usize,
    newest_name: String,
    /// How many servers have it.
    copies: usize,
    /// Whether nobody else has its group-version either.
    alone: bool,
    sample: Sample,
}

/// Runs the demonstration; an error is a promise not kept.
pub(super) async fn run(cluster: &mut Cluster) -> Result<(), Failure> {
    let outcome = steps(cluster).await;
    outcome.map_err(|failure| {
        // A process that died is the likelier cause, so it is named too.
        let mut text = failure.to_string();
        for obituary in cluster.obituaries() {
            text.push_str(&format!("\n{obituary}"));
        }
        Failure::failed(text)
    })
}

async fn steps(cluster: &mut Cluster) -> Result<(), Failure> {
    let Some(mut demo) = Demo::prepare(cluster).await? else {
        return Ok(());
    };
    demo.discovery().await?;
    let (created, answered_by) = demo.create_and_read(cluster).await?;
    demo.newest = answered_by;
    demo.newest_name = cluster.layout().members()[answered_by].name.clone();
    let watch = demo.watch_change(&created).await?;
    demo.newest_gone(cluster, watch).await?;
    demo.newest_back(cluster).await?;
    demo.clean_up().await
}

impl Demo {
    /// Finds out what only the newest server has; `None` when there is nothing to show.
    async fn prepare(cluster: &Cluster) -> Result<Option<Self>, Failure> {
        let members = cluster.layout().members();
        let newest = members.len() - 1;
        if newest == 0 {
            say!("One server alone proxies nothing; give several --versions.");
            return Ok(None);
        }
        let mut documents = Vec::new();
        for member in members {
            documents.push(resources(&cluster.client(member)?, LOCAL).await?);
        }
        let version = &members[newest].version;
        let others = members.iter().zip(&documents);
        let others = others.filter(|(member, _)| member.version != *version);
        let others: Vec<&Resources> = others.map(|(_, document)| document).collect();
        let only = difference::only_in(&documents[newest], &others);
        let sample = sample::choose(&only).filter(|_| !others.is_empty());
        let Some(sample) = sample else {
            say!("{version} has no API that the others lack; choose other --versions.");
            return Ok(None);
        };
        say_what_differs(version, &only, &members[0].name);
        Self::with(cluster, &others, sample).map(Some)
    }

    /// With an object of what only the last member has, and those of its version; the others are these.
    fn with(cluster: &Cluster, others: &[&Resources], sample: Sample) -> Result<Self, Failure> {
        let members = cluster.layout().members();
        let newest = members.len() - 1;
        Ok(Self {
            older: cluster.client(&members[0])?,
            older_name: members[0].name.clone(),
            newest,
            newest_name: members[newest].name.clone(),
            copies: members.len() - others.len(),
            alone: !others
                .iter()
                .flat_map(|other| other.keys())
                .any(|name| name.api_version() == sample.name.api_version()),
            sample,
        })
    }

    /// The older server lists what the newer has, and not when it is asked for its own.
    async fn discovery(&self) -> Result<(), Failure> {
        let name = &self.sample.name;
        let begun = Instant::now();
        let merged = loop {
            let merged = resources(&self.older, MERGED).await?;
            if merged.get(name).is_some_and(|facts| !facts.stale) {
                break merged;
            }
            if begun.elapsed() > PATIENCE {
                return Err(broken(format!(
                    "{} does not list {} as Current after {} s",
                    self.older_name,
                    name.api_version(),
                    PATIENCE.as_secs()
                )));
            }
            sleep(PAUSE).await;
        };
        let local = resources(&self.older, LOCAL).await?;
        if local.contains_key(name) {
            return Err(broken(format!(
                "profile=nopeer of {} lists {}",
                self.older_name,
                name.api_version()
            )));
        }
        kept(format!(
            "discovery lists {}; {} of its own (profile=nopeer)",
            counted(merged.len(), "resource"),
            local.len()
        ));
        Ok(())
    }

    /// An object is created and read; returns it, and which server answered.
    async fn create_and_read(&self, cluster: &Cluster) -> Result<(Value, usize), Failure> {
        self.remove_leftover().await?;
        let (collection, path) = (self.sample.collection(), self.sample.path());
        let created = self
            .older
            .create(&collection, &self.sample.object)
            .await
            .map_err(unanswered)?;
        expect(&created, StatusCode::CREATED, "create", &collection)?;
        let by = created.header("x-peerage-peer").unwrap_or_default();
        let members = cluster.layout().members();
        let answered = |member: &Member| peerage_apiserver::server_id(&member.name) == by;
        let index = members
            .iter()
            .position(answered)
            .ok_or_else(|| broken(format!("X-Peerage-Peer has to name a server, not {by:?}")))?;
        let created = created.json();

        let read = self.older.get(&path).await.map_err(unanswered)?;
        expect(&read, StatusCode::OK, "get", &path)?;
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        if uid(&read.json()) != uid(&created) || uid(&created).is_null() {
            return Err(broken(format!(
                "{path} read is not the one created: {}",
                read.in_words()
            )));
        }
        kept(format!(
            "{} {} created and read (answered by {})",
            created["kind"].as_str().unwrap_or_default(),
            sample::NAME,
            members[index].name
        ));
        Ok((created, index))
    }

    /// The object's change is watched.
    async fn watch_change(&self, created: &Value) -> Result<Watch, Failure> {
        let (collection, path) = (self.sample.collection(), self.sample.path());
        let version = &created["metadata"]["resourceVersion"];
        let version = version.as_str().unwrap_or_default();
        let target = format!("{collection}?watch=true&resourceVersion={version}");
        let mut watch = self.older.watch(&target).await.map_err(unanswered)?;
        let patch = json!({"metadata": {"labels": {"shown": "second"}}});
        let patched = self.older.merge(&path, &patch).await.map_err(unanswered)?;
        expect(&patched, StatusCode::OK, "patch", &path)?;
        loop {
            let event = watch.next(PATIENCE).await;
            let event = event.ok_or_else(|| {
                broken(format!("a watch of {collection} does not show the change"))
            })?;
            let object = &event["object"]["metadata"];
            if object["name"] == sample::NAME && object["labels"]["shown"] == "second" {
                kept(format!(
                    "watched: {} when its label changed",
                    event["type"].as_str().unwrap_or_default()
                ));
                return Ok(watch);
            }
        }
    }

    /// While the newest server is gone, another one with the same APIs answers; without one, every answer is 503 with
    /// Retry-After.
    async fn newest_gone(&self, cluster: &mut Cluster, watch: Watch) -> Result<(), Failure> {
        cluster.kill_member(self.newest).await;
        let begun = Instant::now();
        let mut seen = Seen::default();
        let mut stale = false;
        while begun.elapsed() < GONE_FOR {
            let answer = self.older.get(&self.sample.path()).await;
            self.judge(&answer.map_err(unanswered)?, &mut seen)?;
            let merged = resources(&self.older, MERGED).await?;
            let listed = merged.get(&self.sample.name);
            let listed = listed.ok_or_else(|| {
                broken(format!(
                    "{} no longer lists what is only away",
                    self.older_name
                ))
            })?;
            stale = listed.stale;
            sleep(PAUSE).await;
        }
        let rest = if self.copies > 1 {
            "another server has the same APIs".to_owned()
        } else {
            self.ended(watch, stale).await?
        };
        kept(format!(
            "{} killed (SIGKILL): {}; {rest}",
            self.newest_name,
            seen.in_words()
        ));
        Ok(())
    }

    /// Whether an answer is right while the newest server is gone.
    fn judge(&self, answer: &Answer, seen: &mut Seen) -> Result<(), Failure> {
        if self.copies == 1 {
            return seen.add_away(answer);
        }
        expect(answer, StatusCode::OK, "get", &self.sample.path())?;
        seen.add(answer);
        Ok(())
    }

    /// What nobody serves stays listed, as stale where all of its group-version is away, and its watches have ended.
    async fn ended(&self, mut watch: Watch, stale: bool) -> Result<String, Failure> {
        if stale != self.alone {
            return Err(broken(format!(
                "{} lists {} as {}",
                self.older_name,
                self.sample.name.api_version(),
                if stale {
                    "Stale, which others serve"
                } else {
                    "Current, which nobody serves"
                }
            )));
        }
        if !watch.ends(PATIENCE).await {
            return Err(broken("a watch hangs whose server is gone".to_owned()));
        }
        let listed = if stale {
            "listed as Stale"
        } else {
            "still listed"
        };
        Ok(format!("{listed}; the watch ended"))
    }

    /// The newest server returns, and with it its APIs.
    async fn newest_back(&self, cluster: &mut Cluster) -> Result<(), Failure> {
        cluster.relaunch_member(self.newest)?;
        let begun = Instant::now();
        if self.copies > 1 {
            cluster.wait_member(self.newest).await?;
            kept(format!("{} started again", self.newest_name));
            return Ok(());
        }
        let mut seen = Seen::default();
        loop {
            let answer = self.older.get(&self.sample.path()).await;
            let answer = answer.map_err(unanswered)?;
            if answer.status == StatusCode::OK {
                break;
            }
            seen.add_away(&answer)?;
            if begun.elapsed() > PATIENCE {
                return Err(broken(format!(
                    "{} is not reached again after {} s: {}",
                    self.newest_name,
                    PATIENCE.as_secs(),
                    answer.in_words()
                )));
            }
            sleep(PAUSE).await;
        }
        kept(format!(
            "{} started again: answers as before after {:.1} s ({} until then)",
            self.newest_name,
            begun.elapsed().as_secs_f64(),
            seen.in_words()
        ));
        Ok(())
    }

    /// Leaves nothing behind. An object that is gone is a 404 that names it: its API is there.
    async fn clean_up(&self) -> Result<(), Failure> {
        let path = self.sample.path();
        let deleted = self.older.delete(&path).await.map_err(unanswered)?;
        expect(&deleted, StatusCode::OK, "delete", &path)?;
        self.wait_gone().await?;
        kept("deleted; now it is 404, and its API is still there".to_owned());
        Ok(())
    }

    /// What an earlier run that was ended in the middle has left.
    async fn remove_leftover(&self) -> Result<(), Failure> {
        let path = self.sample.path();
        let begun = Instant::now();
        loop {
            let answer = self.older.delete(&path).await.map_err(unanswered)?;
            match answer.status {
                StatusCode::OK => return self.wait_gone().await,
                StatusCode::NOT_FOUND => return Ok(()),
                StatusCode::SERVICE_UNAVAILABLE if begun.elapsed() < PATIENCE => sleep(PAUSE).await,
                _ => return Err(broken(format!("delete {path}: {}", answer.in_words()))),
            }
        }
    }

    async fn wait_gone(&self) -> Result<(), Failure> {
        let path = self.sample.path();
        let begun = Instant::now();
        loop {
            let answer = self.older.get(&path).await.map_err(unanswered)?;
            let named = answer.json()["details"]["name"] == sample::NAME;
            match answer.status {
                StatusCode::NOT_FOUND if named => return Ok(()),
                StatusCode::OK if begun.elapsed() < PATIENCE => sleep(PAUSE).await,
                _ => {
                    return Err(broken(format!(
                        "get {path} after it was deleted: {}",
                        answer.in_words()
                    )));
                }
            }
        }
    }
}

/// What only the newest version has, in some lines.
fn say_what_differs(version: &str, only: &Resources, through: &str) {
    let these = if only.len() == 1 { "this" } else { "these" };
    let count = counted(only.len(), "resource");
    say!("Only {version} has, of all APIs, {these} {count}:");
    let words = difference::in_words(only);
    for line in words.iter().take(LISTED) {
        say!("  {line}");
    }
    if let Some(more @ 1..) = words.len().checked_sub(LISTED) {
        say!("  and {} of them", counted(more, "more group"));
    }
    say!("Seen through {through}, which does not have them:");
}

/// The resources that a server lists.
async fn resources(client: &ApiClient, accept: &str) -> Result<Resources, Failure> {
    let mut all = Resources::new();
    for path in ["/api", "/apis"] {
        let answer = client.get_as(path, accept).await.map_err(unanswered)?;
        expect(&answer, StatusCode::OK, "get", path)?;
        all.extend(difference::resources(&answer.json()));
    }
    if all.is_empty() {
        return Err(broken("a server lists no resource at all".to_owned()));
    }
    Ok(all)
}

fn expect(answer: &Answer, status: StatusCode, verb: &str, path: &str) -> Result<(), Failure> {
    if answer.status == status {
        return Ok(());
    }
    let text = answer.in_words();
    Err(broken(format!(
        "{verb} {path} has to answer {}, not {text}",
        status.as_u16()
    )))
}

fn unanswered(error: crate::client::ClientError) -> Failure {
    broken(error.to_string())
}

/// A promise that was kept.
fn kept(what: String) {
    say!("  ok  {what}");
}

/// A promise that was not.
fn broken(what: String) -> Failure {
    Failure::failed(format!("the demonstration failed: {what}"))
}
