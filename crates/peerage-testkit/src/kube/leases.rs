//! What servers write down of themselves: identity Leases, and the right of gateways to read them.

use serde_json::{Value, json};

use super::apiserver::Apiserver;

/// Where kube-apiservers' identity Leases are.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";

/// A Lease such as kube-apiservers renew, of a server at an address or of one that does not say where it is.
pub fn lease(name: &str, address: Option<&str>) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
        "spec": {"holderIdentity": format!("{name}_1"), "leaseDurationSeconds": 3600, "renewTime": now.to_string()},
    });
    if let Some(address) = address {
        lease["metadata"]["annotations"] = json!({"kubernetes.io/peer-advertise-address": address});
    }
    lease
}

/// Lets gateways read the Leases of servers, as the message of a refused read says to.
pub async fn let_gateways_read(server: &Apiserver) {
    let rbac = "rbac.authorization.k8s.io";
    let version = format!("{rbac}/v1");
    let named = json!({"name": "peerage-gateway", "namespace": "kube-system"});
    let role = json!({
        "apiVersion": version, "kind": "Role", "metadata": named,
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": version, "kind": "RoleBinding", "metadata": named,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "peerage-gateway"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "peerage-gateway"}],
    });
    server.create(&format!("{ROLES}/roles"), &role).await;
    let bindings = format!("{ROLES}/rolebindings");
    server.create(&bindings, &binding).await;
}
