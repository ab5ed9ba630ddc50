//! Role bindings: the group of a subject.

use super::{Fields, set_default, text};

/// Users and groups belong to RBAC's own API group, service accounts to the core group.
pub(super) fn subject(fields: &mut Fields) {
    if matches!(text(fields, "kind"), "User" | "Group") {
        set_default(fields, "apiGroup", "rbac.authorization.k8s.io");
    }
}
