//! The demonstration: what the Mixed Version Proxy promises, done with two of the servers and checked step by step.
//!
//! The oldest server is asked, the newest one has what it has not. Each step prints one line when its result is as
//! promised; the first that is not ends the command, with what was seen instead.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::Cluster;
use super::difference::{self, Resources};
use super::layout::and;
use super::sample::{self, Sample};
use crate::client::{Answer, ApiClient, LOCAL, MERGED, Watch};
use crate::exit::Failure;

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
    /// Position of the server that has what others have not.
    newest: usize,
    newest_name: String,
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
    let Some(demo) = Demo::prepare(cluster).await? else {
        return Ok(());
    };
    demo.discovery().await?;
    let watch = demo.create_read_watch().await?;
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
        let others: Vec<&Resources> = documents[..newest].iter().collect();
        let only = difference::only_in(&documents[newest], &others);
        let versions: Vec<_> = members[..newest]
            .iter()
            .map(|member| member.version.as_str())
            .collect();
        let newest_version = &members[newest].version;
        let Some(sample) = sample::choose(&only) else {
            say!(
                "{newest_version} has no API that {} lacks; choose other --versions.",
                and(&versions)
            );
            return Ok(None);
        };
        let words = difference::in_words(&only);
        say!(
            "Only {newest_version} has, of all APIs, these {} resources:",
            only.len()
        );
        for line in words.iter().take(LISTED) {
            say!("  {line}");
        }
        if words.len() > LISTED {
            say!("  and {} more groups of them", words.len() - LISTED);
        }
        say!(
            "Seen through {}, which does not have them:",
            members[0].name
        );
        let demo = Self {
            older: cluster.client(&members[0])?,
            older_name: members[0].name.clone(),
            newest,
            newest_name: members[newest].name.clone(),
            sample,
        };
        Ok(Some(demo))
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
            "discovery lists {} resources; {} of its own (profile=nopeer)",
            merged.len(),
            local.len()
        ));
        Ok(())
    }

    /// An object is created, read, and its change watched.
    async fn create_read_watch(&self) -> Result<Watch, Failure> {
        self.remove_leftover().await?;
        let (collection, path) = (self.sample.collection(), self.sample.path());
        let created = self
            .older
            .create(&collection, &self.sample.object)
            .await
            .map_err(unanswered)?;
        expect(&created, StatusCode::CREATED, "create", &collection)?;
        let by = created.header("x-peerage-peer").unwrap_or_default();
        if by != peerage_apiserver::server_id(&self.newest_name) {
            return Err(broken(format!(
                "X-Peerage-Peer has to name the server ID of {}, not {by:?}",
                self.newest_name
            )));
        }
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
            self.newest_name
        ));

        let version = created["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
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

    /// While the newer server is gone, every answer is 503 with Retry-After.
    async fn newest_gone(&self, cluster: &mut Cluster, mut watch: Watch) -> Result<(), Failure> {
        cluster.kill_member(self.newest).await;
        let begun = Instant::now();
        let mut seen = Seen::default();
        let mut stale = false;
        while begun.elapsed() < GONE_FOR {
            seen.add(
                &self
                    .older
                    .get(&self.sample.path())
                    .await
                    .map_err(unanswered)?,
            )?;
            let merged = resources(&self.older, MERGED).await?;
            match merged.get(&self.sample.name) {
                Some(facts) => stale = facts.stale,
                None => {
                    return Err(broken(format!(
                        "{} no longer lists what is only away",
                        self.older_name
                    )));
                }
            }
            sleep(PAUSE).await;
        }
        if !stale {
            return Err(broken(format!(
                "{} still lists as Current what nobody serves",
                self.older_name
            )));
        }
        if !watch.ends(PATIENCE).await {
            return Err(broken("a watch hangs whose server is gone".to_owned()));
        }
        kept(format!(
            "{} killed (SIGKILL): {}; listed as Stale; the watch ended",
            self.newest_name,
            seen.in_words()
        ));
        Ok(())
    }

    /// The newer server returns, and with it its APIs.
    async fn newest_back(&self, cluster: &mut Cluster) -> Result<(), Failure> {
        cluster.relaunch_member(self.newest)?;
        let begun = Instant::now();
        let mut seen = Seen::default();
        loop {
            let answer = self
                .older
                .get(&self.sample.path())
                .await
                .map_err(unanswered)?;
            if answer.status == StatusCode::OK {
                break;
            }
            seen.add(&answer)?;
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

/// Answers while a server is away. Only 503 with Retry-After is right.
#[derive(Default)]
struct Seen {
    answers: BTreeMap<(u16, String), usize>,
}

impl Seen {
    fn add(&mut self, answer: &Answer) -> Result<(), Failure> {
        let retry = answer.header("retry-after").map(str::to_owned);
        match (answer.status, retry) {
            (StatusCode::SERVICE_UNAVAILABLE, Some(retry)) => {
                *self.answers.entry((503, retry)).or_default() += 1;
                Ok(())
            }
            (_, retry) => Err(broken(format!(
                "an API whose server is away has to answer 503 with Retry-After, not {} (Retry-After: {})",
                answer.in_words(),
                retry.as_deref().unwrap_or("none")
            ))),
        }
    }

    fn in_words(&self) -> String {
        if self.answers.is_empty() {
            return "no request failed".to_owned();
        }
        let words = self.answers.iter().map(|((status, retry), count)| {
            let times = if *count == 1 {
                "once".to_owned()
            } else {
                format!("{count} times")
            };
            format!("{times} {status} with Retry-After: {retry}")
        });
        words.collect::<Vec<_>>().join(", ")
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>) -> Answer {
        let mut headers = http::HeaderMap::new();
        if let Some(retry) = retry_after {
            headers.insert("retry-after", retry.parse().unwrap());
        }
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: "404 page not found\n".into(),
        }
    }

    #[test]
    fn while_a_server_is_away_only_503_with_retry_after_is_right() {
        let mut seen = Seen::default();
        assert_eq!(seen.in_words(), "no request failed");
        for retry in ["1", "1", "5"] {
            seen.add(&answer(503, Some(retry))).unwrap();
        }
        assert_eq!(
            seen.in_words(),
            "2 times 503 with Retry-After: 1, once 503 with Retry-After: 5"
        );
        let wrong = seen.add(&answer(404, None)).unwrap_err().to_string();
        assert!(wrong.contains("not 404 404 page not found"), "{wrong}");
        assert!(seen.add(&answer(503, None)).is_err());
        assert!(seen.add(&answer(200, Some("1"))).is_err());
    }
}
