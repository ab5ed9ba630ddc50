//! What to say when something could not be read: which right is missing, or what was answered instead.

use super::report::Item;
use super::world::Problem;

/// Something to read, and who may.
#[derive(Debug, Clone, Copy)]
pub(super) struct Right {
    /// What it is.
    pub(super) what: &'static str,
    /// The RBAC rule that allows it.
    pub(super) rule: &'static str,
}

/// `/metrics`.
pub(super) const METRICS: Right = Right {
    what: "/metrics",
    rule: "nonResourceURLs [/metrics], verbs [get] (the ClusterRole system:monitoring has it)",
};
/// Discovery.
pub(super) const DISCOVERY: Right = Right {
    what: "discovery",
    rule: "nonResourceURLs [/api, /api/*, /apis, /apis/*, /openapi, /openapi/*], verbs [get] (the ClusterRole system:discovery has it)",
};
/// `/readyz` and `/version`.
pub(super) const HEALTH: Right = Right {
    what: "/readyz and /version",
    rule: "nonResourceURLs [/readyz, /version], verbs [get] (the ClusterRole system:public-info-viewer has it)",
};
/// Identity Leases.
pub(super) const LEASES: Right = Right {
    what: "the identity Leases",
    rule: "list leases.coordination.k8s.io in the namespace kube-system",
};
/// The endpoints of the `kubernetes` Service.
pub(super) const ENDPOINTS: Right = Right {
    what: "the endpoints of the kubernetes Service",
    rule: "list endpointslices.discovery.k8s.io in the namespace default",
};
/// What authenticating proxies are told.
pub(super) const CONFIG: Right = Right {
    what: "the ConfigMap extension-apiserver-authentication",
    rule: "get configmaps in the namespace kube-system (the Role extension-apiserver-authentication-reader has it)",
};
/// The kube-apiservers' pods.
pub(super) const PODS: Right = Right {
    what: "the kube-apiservers' pods",
    rule: "list pods in the namespace kube-system",
};

/// Why something could not be read, in words.
pub(super) fn in_words(problem: &Problem) -> String {
    let words = match problem {
        Problem::Forbidden => "may not be read (403)",
        Problem::Unauthorized => "the server does not know these credentials (401)",
        Problem::Missing => "there is none (404)",
        Problem::Other(text) => text,
    };
    words.to_owned()
}

/// The item for something that could not be read.
pub(super) fn unread(check: &'static str, subject: &str, right: Right, problem: &Problem) -> Item {
    let says = format!("{}: {}", right.what, in_words(problem));
    match problem {
        Problem::Forbidden => Item::warn(check, subject, says)
            .fix(format!("the right that is missing: {}", right.rule)),
        Problem::Unauthorized => Item::fail(check, subject, says)
            .fix("give a kubeconfig, a client certificate or a token that the server knows"),
        Problem::Missing => Item::skip(check, subject, says),
        Problem::Other(_) => Item::warn(check, subject, says)
            .fix("ask again; if it stays, see the server's log, or give --timeout more time")
            .blind(),
    }
}
