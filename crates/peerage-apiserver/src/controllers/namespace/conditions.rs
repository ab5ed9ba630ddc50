//! What the status of a namespace that is being deleted says, in the words of Kubernetes' namespace controller: one
//! condition for each thing that can hold the deletion up, `True` while it does.

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::JSON;
use super::content::Found;
use crate::loopback::{Loopback, LoopbackError};

/// Tries to write the status while somebody else writes the namespace.
const TRIES: usize = 5;

/// Type, reason and message of a condition that holds nothing up.
const GOOD: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// The conditions of one round, in the order of [`GOOD`]; reason and message of those that hold it up.
pub(super) struct Conditions([Option<(&'static str, String)>; 5]);

impl Conditions {
    pub(super) fn of(found: &Found) -> Self {
        let discovery = (!found.undiscovered.is_empty()).then(|| {
            let (count, all) = (found.undiscovered.len(), found.undiscovered.join(", "));
            (
                "DiscoveryFailed",
                format!("Discovery failed for some groups, {count} failing: {all}"),
            )
        });
        let content = (!found.failures.is_empty()).then(|| {
            let (count, all) = (found.failures.len(), found.failures.join(", "));
            (
                "ContentDeletionFailed",
                format!("Failed to delete all resource types, {count} remaining: {all}"),
            )
        });
        let each = |suffix: &'static str| {
            move |(name, count): (&String, &usize)| {
                format!("{name} {suffix} {count} resource instances")
            }
        };
        let remaining = (!found.remaining.is_empty()).then(|| {
            let all: Vec<_> = found.remaining.iter().map(each("has")).collect();
            (
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", all.join(", ")),
            )
        });
        let finalizers = (!found.finalizers.is_empty()).then(|| {
            let all: Vec<_> = found.finalizers.iter().map(each("in")).collect();
            (
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    all.join(", ")
                ),
            )
        });
        Self([discovery, None, content, remaining, finalizers])
    }

    /// Writes them, if anything has changed.
    pub(super) async fn write(&self, client: &Loopback, path: &str) -> Result<(), LoopbackError> {
        let mut tries = TRIES;
        loop {
            let mut namespace = client.send(Method::GET, path, JSON, None).await?;
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            if !self.put(&mut namespace["status"], &now) {
                return Ok(());
            }
            let status = format!("{path}/status");
            match client
                .send(Method::PUT, &status, JSON, Some(namespace))
                .await
            {
                Err(error) if error.is_conflict() && tries > 1 => tries -= 1,
                other => return other.map(drop),
            }
        }
    }

    /// Whether the status is another than before.
    fn put(&self, status: &mut Value, now: &str) -> bool {
        let mut all = match status["conditions"].take() {
            Value::Array(all) => all,
            _ => Vec::new(),
        };
        let before = all.clone();
        for ((kind, reason, message), bad) in GOOD.iter().zip(&self.0) {
            let (state, reason, message) = match bad {
                Some((reason, message)) => ("True", *reason, message.as_str()),
                None => ("False", *reason, *message),
            };
            let known = all.iter_mut().find(|c| c["type"] == **kind);
            let since = known.as_ref().filter(|c| c["status"] == state);
            let since = since.map_or_else(|| json!(now), |c| c["lastTransitionTime"].clone());
            let condition = json!({
                "type": kind, "status": state, "reason": reason, "message": message,
                "lastTransitionTime": since,
            });
            match known {
                Some(known) => *known = condition,
                None => all.push(condition),
            }
        }
        let changed = all != before;
        status["conditions"] = Value::Array(all);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(remaining: &[(&str, usize)], finalizers: &[(&str, usize)]) -> Found {
        let count =
            |list: &[(&str, usize)]| list.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        Found {
            remaining: count(remaining),
            finalizers: count(finalizers),
            ..Found::default()
        }
    }

    #[test]
    fn conditions_say_what_holds_the_deletion_up_and_when_it_no_longer_does() {
        let mut status = json!({"phase": "Terminating"});
        let bad = found(
            &[("pods.", 1), ("deployments.apps", 2)],
            &[("example.com/hold", 3)],
        );
        assert!(Conditions::of(&bad).put(&mut status, "1"));
        let conditions = status["conditions"].clone();
        assert_eq!(
            conditions[3],
            json!({"type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain",
                "message": "Some resources are remaining: deployments.apps has 2 resource instances, pods. has 1 resource instances",
                "lastTransitionTime": "1"})
        );
        assert_eq!(
            conditions[4]["message"],
            "Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances"
        );
        assert!(
            !Conditions::of(&bad).put(&mut status, "2"),
            "nothing has changed"
        );
        assert!(Conditions::of(&found(&[], &[])).put(&mut status, "3"));
        let (content, discovery) = (&status["conditions"][3], &status["conditions"][0]);
        assert_eq!(
            (&content["status"], &content["lastTransitionTime"]),
            (&json!("False"), &json!("3"))
        );
        assert_eq!(
            (&discovery["status"], &discovery["lastTransitionTime"]),
            (&json!("False"), &json!("1"))
        );
    }
}
