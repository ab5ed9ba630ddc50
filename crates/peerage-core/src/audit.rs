//! What is recorded of a request: `audit.k8s.io/v1` events, and the policy that says how much.
//!
//! Pure data: times are strings that the caller formats, events are written to a sink that is `peerage-auth`'s.
//! The order of an event's fields is Kubernetes', since people read and diff these lines.

mod policy;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::request_info::RequestInfo;
use crate::status::{Status, StatusBody};
use crate::user::User;

pub use policy::{Decision, Policy, PolicyError};

/// How much of a request is recorded. Each level includes those before it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what, when and the outcome.
    Metadata,
    /// The object in the request too.
    Request,
    /// The object in the answer too.
    RequestResponse,
}

impl Level {
    /// All levels, the least first.
    pub const ALL: [Level; 4] = [
        Level::None,
        Level::Metadata,
        Level::Request,
        Level::RequestResponse,
    ];

    /// Its name in policies and events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// When in the life of a request an event is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// The audit handler has seen it.
    #[default]
    RequestReceived,
    /// The head of a long-running answer is sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// Handling it panicked.
    Panic,
}

impl Stage {
    /// All stages, in their order.
    pub const ALL: [Stage; 4] = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];

    /// Its name in policies and events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Stages(u8);

impl Stages {
    /// Whether the stage is in the set.
    #[must_use]
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & Self::bit(stage) != 0
    }

    /// The stages of both sets.
    #[must_use]
    pub fn union(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }

    fn bit(stage: Stage) -> u8 {
        1 << stage as u8
    }
}

impl FromIterator<Stage> for Stages {
    fn from_iter<I: IntoIterator<Item = Stage>>(stages: I) -> Self {
        Stages(
            stages
                .into_iter()
                .fold(0, |bits, stage| bits | Self::bit(stage)),
        )
    }
}

/// One line of the audit log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Always `Event`.
    pub kind: String,
    /// Always `audit.k8s.io/v1`.
    pub api_version: String,
    /// How much is recorded.
    pub level: Level,
    /// The same on every server that the request passes.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// When the event was written.
    pub stage: Stage,
    /// The raw request target.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The API verb, or the method in lower case.
    pub verb: String,
    /// Who authenticated.
    pub user: User,
    /// On whose behalf it was done, when that is somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<User>,
    /// The client, after what proxies say, and the last proxy.
    #[serde(rename = "sourceIPs", default, skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    /// What the client calls itself; not to be trusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// The object that the request is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    /// The outcome; for success only the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_status: Option<Status>,
    /// The object in the request, from level Request on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_object: Option<Box<RawValue>>,
    /// The object in the answer, at level RequestResponse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_object: Option<Box<RawValue>>,
    /// When the request arrived: RFC 3339, microseconds, UTC.
    pub request_received_timestamp: String,
    /// When this stage was reached, in the same form.
    pub stage_timestamp: String,
    /// What the parts of the chain noted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The object that a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectReference {
    /// The resource, in the plural.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The version of the API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The resource version that the request names.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl Event {
    /// The event of a request that has just arrived.
    #[must_use]
    pub fn received(
        level: Level,
        audit_id: &str,
        user: &User,
        info: &RequestInfo<'_>,
        now: &str,
    ) -> Self {
        Event {
            kind: "Event".to_owned(),
            api_version: "audit.k8s.io/v1".to_owned(),
            level,
            audit_id: audit_id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri: info.raw_target().to_owned(),
            verb: info.verb().to_owned(),
            user: user.clone(),
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: info
                .is_resource_request()
                .then(|| ObjectReference::of(info)),
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: now.to_owned(),
            stage_timestamp: now.to_owned(),
            annotations: BTreeMap::new(),
        }
    }

    /// Moves the event on to a later stage.
    pub fn reach(&mut self, stage: Stage, now: &str) {
        self.stage = stage;
        now.clone_into(&mut self.stage_timestamp);
    }

    /// Records the outcome. Of a Status only what is bounded is kept, and never its kind.
    pub fn set_response(&mut self, code: u16, status: Option<&Status>) {
        let mut recorded = StatusBody {
            code,
            ..StatusBody::default()
        };
        if let Some(status) = status {
            recorded.status.clone_from(&status.status);
            recorded.message.clone_from(&status.message);
            recorded.reason.clone_from(&status.reason);
            recorded.details.clone_from(&status.details);
        }
        self.response_status = Some(recorded.into());
    }
}

impl ObjectReference {
    /// What the request line says of the object.
    #[must_use]
    pub fn of(info: &RequestInfo<'_>) -> Self {
        ObjectReference {
            resource: info.resource().to_owned(),
            namespace: info.namespace().to_owned(),
            name: info.name().to_owned(),
            api_group: info.api_group().to_owned(),
            api_version: info.api_version().to_owned(),
            subresource: info.subresource().to_owned(),
            ..ObjectReference::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::GroupResource;

    #[test]
    fn events_are_written_in_kubernetes_order() {
        let info = RequestInfo::parse(
            "GET",
            "/apis/apps/v1/namespaces/ns/deployments/d/scale?x=<1>",
        )
        .unwrap();
        let user = User::new("admin", ["system:masters", "system:authenticated"]);
        let mut event = Event::received(
            Level::Request,
            "id-1",
            &user,
            &info,
            "2026-01-02T03:04:05.000006Z",
        );
        event.source_ips = vec!["127.0.0.1".to_owned()];
        event.user_agent = "kubectl".to_owned();
        event.annotations.insert(
            "authorization.k8s.io/decision".to_owned(),
            "allow".to_owned(),
        );
        event.request_object =
            Some(RawValue::from_string(r#"{"kind":"Scale"}"#.to_owned()).unwrap());
        event.reach(Stage::ResponseComplete, "2026-01-02T03:04:06.000000Z");
        event.set_response(
            404,
            Some(&Status::not_found(
                GroupResource::new("apps", "deployments"),
                "d",
            )),
        );
        let line = String::from_utf8(crate::json::to_vec(&event).unwrap()).unwrap();
        assert_eq!(
            line,
            concat!(
                r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"id-1","#,
                r#""stage":"ResponseComplete","#,
                r#""requestURI":"/apis/apps/v1/namespaces/ns/deployments/d/scale?x=\u003c1\u003e","verb":"get","#,
                r#""user":{"username":"admin","groups":["system:masters","system:authenticated"]},"#,
                r#""sourceIPs":["127.0.0.1"],"userAgent":"kubectl","objectRef":{"resource":"deployments","#,
                r#""namespace":"ns","name":"d","apiGroup":"apps","apiVersion":"v1","subresource":"scale"},"#,
                r#""responseStatus":{"metadata":{},"status":"Failure","message":"deployments.apps \"d\" not found","#,
                r#""reason":"NotFound","details":{"name":"d","group":"apps","kind":"deployments"},"code":404},"#,
                r#""requestObject":{"kind":"Scale"},"#,
                r#""requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","#,
                r#""stageTimestamp":"2026-01-02T03:04:06.000000Z","#,
                r#""annotations":{"authorization.k8s.io/decision":"allow"}}"#,
            )
        );
        let read: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(crate::json::to_vec(&read).unwrap(), line.as_bytes());
    }

    #[test]
    fn successes_and_non_resource_requests_say_little() {
        let info = RequestInfo::parse("GET", "/healthz").unwrap();
        let mut event = Event::received(Level::Metadata, "id", &User::anonymous(), &info, "t");
        event.set_response(200, None);
        assert_eq!(event.object_ref, None);
        let status = event.response_status.unwrap();
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"metadata":{},"code":200}"#
        );
    }

    #[test]
    fn levels_grow_and_stages_form_sets() {
        assert!(Level::ALL.is_sorted());
        let stages: Stages = [Stage::RequestReceived, Stage::Panic].into_iter().collect();
        let held: Vec<Stage> = Stage::ALL
            .into_iter()
            .filter(|stage| stages.contains(*stage))
            .collect();
        assert_eq!(held, [Stage::RequestReceived, Stage::Panic]);
        let all = stages.union(
            [Stage::ResponseStarted, Stage::ResponseComplete]
                .into_iter()
                .collect(),
        );
        assert!(Stage::ALL.into_iter().all(|stage| all.contains(stage)));
    }
}
