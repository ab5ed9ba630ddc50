//! Who is asking: the identity that authentication established, possibly changed by impersonation.
//!
//! How it is established and how it travels between servers is `peerage-auth`'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The group whose members may do everything.
pub const SYSTEM_MASTERS: &str = "system:masters";
/// The group of everybody who presented a credential.
pub const SYSTEM_AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who presented none.
pub const SYSTEM_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user name of everybody who presented no credential.
pub const SYSTEM_ANONYMOUS: &str = "system:anonymous";
/// The user name under which API servers fetch each other's discovery documents.
pub const SYSTEM_APISERVER: &str = "system:apiserver";

/// A user. Its JSON is `authentication.k8s.io/v1` UserInfo, the form that audit events and reviews carry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name that uniquely identifies the user.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Tells apart users that had the same name at different times.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups that the user is in, in the order in which they were asserted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else the authenticator asserted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of this name in these groups.
    pub fn new<G: Into<String>>(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        User {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..User::default()
        }
    }

    /// The user of a request without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        User::new(SYSTEM_ANONYMOUS, [SYSTEM_UNAUTHENTICATED])
    }

    /// Whether the user is in the group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether this is the user of a request without credentials.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.name == SYSTEM_ANONYMOUS
    }

    /// Adds `system:authenticated`, as authentication does for everybody who is neither anonymous nor marked yet.
    pub fn mark_authenticated(&mut self) {
        let marked = self.is_in(SYSTEM_AUTHENTICATED) || self.is_in(SYSTEM_UNAUTHENTICATED);
        if !marked && !self.is_anonymous() {
            self.groups.push(SYSTEM_AUTHENTICATED.to_owned());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn json_leaves_out_what_is_empty() {
        let user = User::new("alice", ["devs"]);
        assert_eq!(
            serde_json::to_string(&user).unwrap(),
            r#"{"username":"alice","groups":["devs"]}"#
        );
        assert_eq!(serde_json::to_string(&User::default()).unwrap(), "{}");
        assert_eq!(
            serde_json::from_str::<User>(r#"{"username":"alice","groups":["devs"]}"#).unwrap(),
            user
        );
    }

    #[test]
    fn only_named_unmarked_users_are_marked_authenticated() {
        let marked = |mut user: User| {
            user.mark_authenticated();
            user.groups
        };
        assert_eq!(
            marked(User::new("alice", ["devs"])),
            ["devs", SYSTEM_AUTHENTICATED]
        );
        assert_eq!(
            marked(User::new("alice", [SYSTEM_AUTHENTICATED])),
            [SYSTEM_AUTHENTICATED]
        );
        assert_eq!(
            marked(User::new("x", [SYSTEM_UNAUTHENTICATED])),
            [SYSTEM_UNAUTHENTICATED]
        );
        assert_eq!(marked(User::new(SYSTEM_ANONYMOUS, ["a"])), ["a"]);
    }
}
