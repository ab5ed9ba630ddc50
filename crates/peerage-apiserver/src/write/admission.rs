//! Admission: what the server says about a write beyond the object itself. The built-in stages are a list, in
//! kube-apiserver's order of its plugins; webhooks and policies will be further stages.
//!
//! A stage sees the object in the version of the request. What it looks up comes from the cache, and from the store's
//! current state before it says that something is not there.

mod namespace;
mod priority;
mod service_account;
mod tolerations;

use peerage_core::Status;
use serde_json::Value;

use crate::authz::escalation;
use crate::call::Call;
use crate::error::ApiError;
use crate::write::unreadable_of;

pub(crate) use namespace::{Seen, deletable, seen};

/// A built-in stage, by the name of kube-apiserver's plugin where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A new object needs a namespace that is there and not on its way out.
    NamespaceLifecycle,
    /// A namespace carries its own name as a label.
    NamespaceLabel,
    /// A pod runs as an account, and gets its token.
    ServiceAccount,
    /// A pod's priority comes from its class.
    Priority,
    /// A pod stays a while on a node that has gone away.
    DefaultTolerationSeconds,
    /// A pod names a runtime class that is there.
    RuntimeClass,
}

/// On which writes a stage runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Create,
    Write,
}

/// Which stages there are, for which kind of the core group (`*` for all), and when.
const STAGES: [(Stage, &str, On); 6] = [
    (Stage::NamespaceLifecycle, "*", On::Create),
    (Stage::NamespaceLabel, "Namespace", On::Write),
    (Stage::ServiceAccount, "Pod", On::Create),
    (Stage::Priority, "Pod", On::Write),
    (Stage::DefaultTolerationSeconds, "Pod", On::Write),
    (Stage::RuntimeClass, "Pod", On::Create),
];

/// Runs the stages that may change the object. `old` is the current state, if there is one.
pub(crate) async fn mutate(
    call: &Call,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let resource = call.resource();
    let subresource = !call.info.subresource().is_empty();
    for (stage, kind, on) in STAGES {
        let of_kind = kind == "*" || (resource.group.is_empty() && *resource.kind == *kind);
        if of_kind && !subresource && (on == On::Write || old.is_none()) {
            stage.run(call, new, old).await?;
        }
    }
    // No admission in Kubernetes, but there too it comes after what changes the object and before validation.
    escalation::confirm(call, new, old).await
}

impl Stage {
    async fn run(self, call: &Call, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        match self {
            Self::NamespaceLifecycle => namespace::is_open(call, new).await,
            Self::NamespaceLabel => {
                namespace::label_with_name(new);
                Ok(())
            }
            Self::ServiceAccount => service_account::admit(call, new).await,
            Self::Priority => priority::admit(call, new, old).await,
            Self::DefaultTolerationSeconds => {
                tolerations::admit(new);
                Ok(())
            }
            Self::RuntimeClass => runtime_class(call, new).await,
        }
    }
}

async fn runtime_class(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let Some(name) = pod["spec"]["runtimeClassName"]
        .as_str()
        .filter(|n| !n.is_empty())
    else {
        return Ok(());
    };
    match find(call, ("node.k8s.io", "v1", "runtimeclasses"), name).await? {
        Some(_) => Ok(()),
        None => {
            let why = format!("pod rejected: RuntimeClass \"{name}\" not found");
            Err(forbidden(call, pod, &why))
        }
    }
}

/// Why an object of another kind is not known.
enum FindError {
    /// It is there, in a form that is not read here.
    Unreadable(ApiError),
    /// The store did not say.
    Store(ApiError),
}

impl From<ApiError> for FindError {
    fn from(error: ApiError) -> Self {
        Self::Store(error)
    }
}

impl From<FindError> for ApiError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Unreadable(error) | FindError::Store(error) => error,
        }
    }
}

/// An object of another kind, by its name within the kind (`namespace/name` or `name`).
async fn find(
    call: &Call,
    (group, version, plural): (&str, &str, &str),
    name: &str,
) -> Result<Option<Value>, FindError> {
    let Some(place) = call
        .api()
        .resources
        .get(group, version, plural)
        .and_then(|served| served.place.as_ref())
    else {
        return Ok(None);
    };
    if place.cache.get(name).is_none() {
        call.fresh().await?;
    }
    let Some(object) = place.cache.get(name) else {
        return Ok(None);
    };
    match object.unreadable() {
        // What it says may be a no.
        Some(reason) => {
            let unreadable = unreadable_of(plural, &place.prefix, &object, reason);
            Err(FindError::Unreadable(unreadable))
        }
        None => Ok(object.parse()),
    }
}

/// 403 for the object of the write.
fn forbidden(call: &Call, object: &Value, why: &str) -> ApiError {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Status::forbidden(call.group_resource(), name, why).into()
}
