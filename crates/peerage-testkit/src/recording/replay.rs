//! Asks what was asked and compares what is answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::compare::{differences, ignore, missing, without};
use super::mask::{Variables, headers, mask, without_prose};
use super::model::{Document, Recording, Request, Step};
use super::rename::Renaming;
use crate::pki::Pki;
use crate::wire::{Client, Head, Outgoing, WireError};

/// What is not compared: it is written and tested by itself.
const LEFT_OUT: [&str; 1] = ["managedFields"];

/// How one step went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The step.
    pub step: String,
    /// What differs; nothing when the answers agree.
    pub differences: Vec<String>,
    /// What the answer says about itself beside what is compared.
    pub trail: Trail,
}

/// By what an answer can be found in the servers' audit logs.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    /// `Audit-Id`.
    pub audit_id: Option<String>,
    /// `X-Peerage-Peer`: the peer that it came from.
    pub peer: Option<String>,
}

/// How a whole conversation went.
#[derive(Debug, Clone)]
pub struct Run {
    /// The recording's name.
    pub recording: String,
    /// The version of the server that was recorded.
    pub recorded: String,
    /// One for each step, in order.
    pub outcomes: Vec<Outcome>,
}

impl Run {
    /// How many steps agree.
    pub fn agreeing(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|o| o.differences.is_empty())
            .count()
    }

    /// The steps that differ.
    pub fn differing(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|o| !o.differences.is_empty())
    }

    /// How many of a hundred steps agree, rounded down.
    pub fn percent(&self) -> usize {
        self.agreeing() * 100 / self.outcomes.len().max(1)
    }

    /// The steps that differ, with the first differences of each, for a failing test's message.
    pub fn in_words(&self) -> String {
        let mut text = String::new();
        for outcome in self.differing() {
            text.push_str(&format!("{}: {}\n", self.recording, outcome.step));
            for difference in outcome.differences.iter().take(6) {
                text.push_str(&format!("    {difference}\n"));
            }
        }
        text
    }
}

/// A server to ask.
pub struct Replayer {
    address: SocketAddr,
    pki: Pki,
    clients: BTreeMap<String, Client>,
    renaming: Option<Renaming>,
    sent: Variables,
    shown: Variables,
}

impl Replayer {
    /// Asks the server at `address`, as the users of `pki`.
    pub fn new(address: SocketAddr, pki: &Pki) -> Self {
        Self {
            address,
            pki: pki.clone(),
            clients: BTreeMap::new(),
            renaming: None,
            sent: Variables::default(),
            shown: Variables::default(),
        }
    }

    /// With other names than the recorded ones.
    pub fn renamed(mut self, renaming: Renaming) -> Self {
        self.renaming = Some(renaming);
        self
    }

    /// Goes through a recording from its first step to its last.
    pub async fn run(mut self, recording: &Recording) -> Run {
        let mut outcomes = Vec::new();
        for step in &recording.steps {
            sleep(Duration::from_secs_f64(step.sleep_s)).await;
            let (differences, trail) = match self.ask(step).await {
                Ok((got, trail)) => (compare(step, got), trail),
                Err(error) => (vec![error.to_string()], Trail::default()),
            };
            outcomes.push(Outcome {
                step: step.name.clone(),
                differences,
                trail,
            });
        }
        Run {
            recording: recording.name.clone(),
            recorded: recording.recorded.clone(),
            outcomes,
        }
    }

    /// The masked answer to a step.
    async fn ask(&mut self, step: &Step) -> Result<(Value, Trail), WireError> {
        let request = match &self.renaming {
            Some(renaming) => renaming.request(&step.request),
            None => step.request.clone(),
        };
        let outgoing = outgoing(&request, &self.sent);
        let client = self.client(&step.user);
        let everywhere = step.request.path.starts_with("/openapi");
        let (head, content) = answer(&client, &outgoing, step.frames_s).await?;
        let header = |name: &str| head.header(name).map(str::to_owned);
        let trail = Trail {
            audit_id: header("Audit-Id"),
            peer: header("X-Peerage-Peer"),
        };
        let raw = without_prose(content, everywhere, "");
        let shown = self.with_old_names(&raw);
        for (name, pointer) in &step.capture {
            self.sent.set(name, captured(&raw, pointer));
            self.shown.set(name, captured(&shown, pointer));
        }
        Ok((mask(&shown, &self.shown, ""), trail))
    }

    fn client(&mut self, user: &str) -> Client {
        let new = || Client::new(self.address, &self.pki, user);
        self.clients
            .entry(user.to_owned())
            .or_insert_with(new)
            .clone()
    }

    fn with_old_names(&self, value: &Value) -> Value {
        let Some(renaming) = &self.renaming else {
            return value.clone();
        };
        match value {
            Value::String(text) => renaming.undo(text).into(),
            Value::Array(items) => items.iter().map(|i| self.with_old_names(i)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, value)| (renaming.undo(key), self.with_old_names(value)))
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }
}

fn outgoing(request: &Request, variables: &Variables) -> Outgoing {
    let fill = |text: &str| variables.substitute(text);
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| (fill(name), fill(value)))
        .collect();
    let mut default = |name: &str, value: &str| {
        if !request.headers.contains_key(name) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    };
    let body = request
        .body
        .as_ref()
        .map(|body| match body.map_text(&fill) {
            Document::Text(text) => text.into_bytes(),
            document => {
                default("Content-Type", "application/json");
                let mut text = String::new();
                document.write(&mut text);
                text.into_bytes()
            }
        });
    default("Accept", "application/json");
    Outgoing {
        method: request.method.clone(),
        target: fill(&request.path),
        headers,
        body,
    }
}

/// Status, headers, and body or frames.
async fn answer(
    client: &Client,
    outgoing: &Outgoing,
    frames_s: Option<f64>,
) -> Result<(Head, Value), WireError> {
    let (head, member, content) = match frames_s {
        None => {
            let answer = client.send(outgoing).await?;
            let text = || String::from_utf8_lossy(&answer.body).into();
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| text());
            (answer.head, "body", body)
        }
        Some(seconds) => {
            let patience = Duration::from_secs_f64(seconds);
            let (head, frames) = frames(client, outgoing, patience).await?;
            (head, "frames", frames.into())
        }
    };
    let kept = headers(&head.headers);
    let content = json!({"status": head.status, "headers": kept, member: content});
    Ok((head, content))
}

async fn frames(
    client: &Client,
    outgoing: &Outgoing,
    patience: Duration,
) -> Result<(Head, Vec<Value>), WireError> {
    let opened = timeout(patience, client.open(outgoing)).await;
    let (head, mut body) = opened.unwrap_or(Err(WireError::Late))?;
    let end = Instant::now() + patience;
    let mut frames: Vec<Value> = Vec::new();
    while let Ok(Ok(Some(line))) = timeout_at(end, body.line()).await {
        let frame = serde_json::from_slice(&line);
        let text = || String::from_utf8_lossy(&line).into_owned();
        frames.push(frame.map_err(|_| WireError::NotHttp(text()))?);
    }
    Ok((head, frames))
}

/// What a pointer leads to, as a text.
fn captured(answer: &Value, pointer: &str) -> String {
    let document = answer.get("body").or_else(|| answer.get("frames"));
    match document.and_then(|document| document.pointer(pointer)) {
        None => "<missing>".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) => "None".to_owned(),
        Some(other) => other.to_string(),
    }
}

fn compare(step: &Step, mut got: Value) -> Vec<String> {
    let mut want = step.response.clone();
    for pointer in &step.ignore {
        ignore(&mut want, pointer);
        ignore(&mut got, pointer);
    }
    match &step.better_response {
        Some(better) => missing(
            &json!({"status": better.status, "body": better.subset}),
            &got,
            "",
        ),
        None => differences(&without(&want, &LEFT_OUT), &without(&got, &LEFT_OUT), ""),
    }
}
