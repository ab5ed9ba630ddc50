//! A client that knows what it has written, and what it must therefore find.
//!
//! Each writer has objects of its own, which nobody else touches, so after an answered write it knows exactly what
//! every later read has to say. After a write of which nobody knows whether it happened the object is left alone, and
//! at the end it may be in either state. A create that was answered 409 had been done before, and twice is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fleet::{Fleet, Target};
use super::{Kind, NEWEST_ONLY, Shared};
use crate::wire::{Answer, Outgoing};

/// The label by which a writer finds its own.
const OWNER: &str = "peerage.test/owner";
/// The annotation that holds what was written last.
const VALUE: &str = "peerage.test/value";
/// Objects that a writer has at most.
const MOST: usize = 12;
/// How long it waits before it tries again.
const PAUSE: Duration = Duration::from_millis(50);

/// The client.
pub struct Writer {
    fleet: Arc<Fleet>,
    shared: Arc<Shared>,
    random: StdRng,
    count: u64,
    model: Model,
}

/// What has to be there.
pub struct Model {
    kind: Kind,
    owner: String,
    /// Objects as they were answered last.
    objects: BTreeMap<String, Value>,
    /// Names of objects that were deleted.
    gone: BTreeSet<String>,
    /// Names of objects of which it is not known, and what they may be: a value, or nothing.
    uncertain: BTreeMap<String, Vec<Option<String>>>,
}

/// What became of a request.
enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// It was told to come again, or its server was killed: it may have been done.
    Unknown,
}

impl Writer {
    /// Writer `number`, of objects of a kind.
    pub fn new(
        number: usize,
        kind: Kind,
        fleet: Arc<Fleet>,
        shared: Arc<Shared>,
        seed: u64,
    ) -> Self {
        Self {
            fleet,
            shared,
            random: StdRng::seed_from_u64(seed),
            count: 0,
            model: Model {
                kind,
                owner: format!("writer-{number}"),
                objects: BTreeMap::new(),
                gone: BTreeSet::new(),
                uncertain: BTreeMap::new(),
            },
        }
    }

    /// Writes and reads until it is over.
    pub async fn run(mut self) -> Model {
        while !self.shared.over.load(Ordering::Relaxed) {
            let known = self.shared.newest_known.load(Ordering::Relaxed);
            if self.model.kind == NEWEST_ONLY && !known {
                sleep(PAUSE).await;
                continue;
            }
            let pause = self.random.random_range(0..20);
            sleep(Duration::from_millis(pause)).await;
            self.step().await;
        }
        self.model
    }

    async fn step(&mut self) {
        let existing = self.some_object();
        match (self.random.random_range(0..100), existing) {
            (_, None) | (0..20, _) if self.model.objects.len() < MOST => self.create().await,
            (20..35, Some(name)) => self.update(&name).await,
            (35..55, Some(name)) => self.patch(&name).await,
            (55..64, Some(name)) => self.delete(&name).await,
            (64, Some(_)) => self.delete_all().await,
            (65..75, _) => self.list().await,
            (75..80, _) => self.get_what_is_gone().await,
            (_, Some(name)) => self.get(&name).await,
            (_, None) => self.list().await,
        }
    }

    fn some_object(&mut self) -> Option<String> {
        let count = self.model.objects.len();
        let at = self.random.random_range(0..count.max(1));
        self.model.objects.keys().nth(at).cloned()
    }

    fn new_value(&mut self) -> String {
        self.count += 1;
        format!("{}-{}", self.model.owner, self.count)
    }

    async fn create(&mut self) {
        let name = self.new_value();
        let object = self.model.object(&name, &name);
        let request =
            Outgoing::new("POST", self.model.kind.collection).json("application/json", &object);
        match self.send(&request, "create").await {
            Outcome::Answered(answer) => {
                expect(&answer, 201, &request, &name);
                self.model.objects.insert(name, answer.json());
            }
            Outcome::Unknown => self.unknown(&name, vec![None, Some(name.clone())]),
        }
    }

    async fn update(&mut self, name: &str) {
        let value = self.new_value();
        let mut object = self.model.objects[name].clone();
        object["metadata"]["annotations"][VALUE] = value.clone().into();
        let request =
            Outgoing::new("PUT", &self.model.path(name)).json("application/json", &object);
        self.write(name, value, &request).await;
    }

    async fn patch(&mut self, name: &str) {
        let value = self.new_value();
        let merge = json!({"metadata": {"annotations": {VALUE: value}}});
        let pointer = format!("/metadata/annotations/{}", VALUE.replace('/', "~1"));
        let (media_type, body) = match self.random.random_range(0..3) {
            0 => ("application/merge-patch+json", merge),
            1 => ("application/strategic-merge-patch+json", merge),
            _ => (
                "application/json-patch+json",
                json!([{"op": "replace", "path": pointer, "value": value}]),
            ),
        };
        let request = Outgoing::new("PATCH", &self.model.path(name)).json(media_type, &body);
        self.write(name, value, &request).await;
    }

    async fn write(&mut self, name: &str, value: String, request: &Outgoing) {
        let before = self.model.value(name);
        match self.send(request, "write").await {
            Outcome::Answered(answer) => {
                expect(&answer, 200, request, name);
                let object = answer.json();
                assert_eq!(value_of(&object), Some(value), "{name} after a write");
                let old = &self.model.objects[name];
                assert_eq!(object["metadata"]["uid"], old["metadata"]["uid"], "{name}");
                self.model.objects.insert(name.to_owned(), object);
            }
            Outcome::Unknown => self.unknown(name, vec![before, Some(value)]),
        }
    }

    async fn delete(&mut self, name: &str) {
        let before = self.model.value(name);
        let request = Outgoing::new("DELETE", &self.model.path(name));
        match self.send(&request, "delete").await {
            Outcome::Answered(answer) => {
                expect(&answer, 200, &request, name);
                self.model.objects.remove(name);
                self.model.gone.insert(name.to_owned());
            }
            Outcome::Unknown => self.unknown(name, vec![before, None]),
        }
    }

    async fn delete_all(&mut self) {
        let request = Outgoing::new("DELETE", &self.model.own());
        let outcome = self.send(&request, "deletecollection").await;
        let names: Vec<String> = self.model.objects.keys().cloned().collect();
        if let Outcome::Answered(answer) = &outcome {
            expect(answer, 200, &request, "all");
        }
        for name in names {
            match &outcome {
                Outcome::Answered(_) => {
                    self.model.objects.remove(&name);
                    self.model.gone.insert(name);
                }
                Outcome::Unknown => {
                    let before = self.model.value(&name);
                    self.unknown(&name, vec![before, None]);
                }
            }
        }
        // It took those with it of which it was not known whether they were there, too.
        if let Outcome::Answered(_) = outcome {
            for states in self.model.uncertain.values_mut() {
                states.push(None);
            }
        }
    }

    async fn get(&mut self, name: &str) {
        let request = Outgoing::new("GET", &self.model.path(name));
        if let Outcome::Answered(answer) = self.send(&request, "get").await {
            expect(&answer, 200, &request, name);
            assert_eq!(
                answer.json(),
                self.model.objects[name],
                "{name} as it was written"
            );
        }
    }

    async fn get_what_is_gone(&mut self) {
        let Some(name) = self.model.gone.last().cloned() else {
            return;
        };
        let request = Outgoing::new("GET", &self.model.path(&name));
        if let Outcome::Answered(answer) = self.send(&request, "get").await {
            expect(&answer, 404, &request, &name);
            let named = answer.json()["details"]["name"] == name.as_str();
            assert!(named, "the API is not known: {}", answer.in_words());
        }
    }

    async fn list(&mut self) {
        let request = Outgoing::new("GET", &self.model.own());
        if let Outcome::Answered(answer) = self.send(&request, "list").await {
            expect(&answer, 200, &request, "all");
            self.model.check_list(&answer);
        }
    }

    fn unknown(&mut self, name: &str, states: Vec<Option<String>>) {
        self.shared.uncertain.fetch_add(1, Ordering::Relaxed);
        self.model.objects.remove(name);
        self.model.uncertain.insert(name.to_owned(), states);
    }

    async fn send(&mut self, request: &Outgoing, verb: &str) -> Outcome {
        let target = self.fleet.pick(&mut self.random);
        match target.client.send(request).await {
            Ok(answer) if matches!(answer.status(), 429 | 503 | 504) => {
                self.shared.told_to_wait.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
                Outcome::Unknown
            }
            Ok(answer) => {
                self.shared.answered.fetch_add(1, Ordering::Relaxed);
                Outcome::Answered(answer)
            }
            Err(error) => {
                self.excuse(&target, verb, &error);
                sleep(PAUSE).await;
                Outcome::Unknown
            }
        }
    }

    fn excuse(&self, target: &Target, verb: &str, error: &dyn std::fmt::Display) {
        let excused = self.fleet.was_disturbed(target);
        assert!(
            excused,
            "a {verb} was not answered by a healthy server: {error}"
        );
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Model {
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.kind.collection)
    }

    /// The collection of this writer's objects.
    fn own(&self) -> String {
        format!(
            "{}?labelSelector={}%3D{}",
            self.kind.collection,
            OWNER.replace('/', "%2F"),
            self.owner
        )
    }

    fn object(&self, name: &str, value: &str) -> Value {
        let mut object: Value = serde_json::from_str(self.kind.rest).unwrap();
        object["apiVersion"] = self.kind.api_version.into();
        object["kind"] = self.kind.kind.into();
        object["metadata"] = json!({
            "name": name,
            "labels": {OWNER: self.owner},
            "annotations": {VALUE: value},
        });
        object
    }

    fn value(&self, name: &str) -> Option<String> {
        value_of(self.objects.get(name)?)
    }

    /// Panics unless a list of this writer's objects is what has to be there.
    fn check_list(&self, answer: &Answer) {
        let list = answer.json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let mut listed: BTreeMap<String, Option<String>> = BTreeMap::new();
        for item in &items {
            let name = item["metadata"]["name"].as_str().unwrap().to_owned();
            let twice = listed.insert(name.clone(), value_of(item)).is_some();
            assert!(!twice, "{name} is listed twice");
        }
        for name in self.objects.keys() {
            let value = listed.get(name);
            let value = value.unwrap_or_else(|| panic!("{name} is not in the list"));
            assert_eq!(*value, self.value(name), "{name} in a list");
        }
        for (name, value) in &listed {
            let allowed = match self.uncertain.get(name) {
                Some(states) => states.contains(value),
                None => self.objects.contains_key(name),
            };
            assert!(
                allowed,
                "{name} with {value:?} is in the list, and should not be"
            );
        }
    }

    /// Panics unless each server has what has to be there, and nothing twice.
    pub async fn check_at_the_end(&self, fleet: &Fleet) {
        let request = Outgoing::new("GET", &self.own());
        for target in fleet.all() {
            let answer = target.client.send(&request).await.unwrap();
            expect(&answer, 200, &request, "all");
            self.check_list(&answer);
        }
    }
}

fn value_of(object: &Value) -> Option<String> {
    let value = object["metadata"]["annotations"][VALUE].as_str();
    value.map(str::to_owned)
}

fn expect(answer: &Answer, status: u16, request: &Outgoing, name: &str) {
    assert_eq!(
        answer.status(),
        status,
        "{} {} ({name}): {}",
        request.method,
        request.target,
        answer.in_words()
    );
}
