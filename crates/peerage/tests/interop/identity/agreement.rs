//! Whether a server takes a client for the same one through a gateway as without, by the server's own audit log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use peerage_testkit::cluster::until;
use peerage_testkit::kube::Apiserver;
use peerage_testkit::wire::{Head, Outgoing};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cases::{Case, Taken};
use super::{ask, versions_of};

/// How long a gateway may put off who asks it very often.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that every client sends, and whom it is sent to without a gateway.
pub(super) struct Path<'a> {
    pub(super) request: Outgoing,
    pub(super) server: &'a Apiserver,
    pub(super) over: Over,
}

/// How a request is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Over each version of HTTP that its headers can be sent over.
    All,
    /// Over HTTP/2, if its headers can be.
    Http2,
    /// Over HTTP/1.1.
    Http1,
    /// As an upgrade, which ends when it has been switched to.
    Upgrade,
}

/// How servers hear who asks.
#[derive(Clone, Copy)]
pub(super) enum Told {
    /// As if nobody stood between.
    Plainly,
    /// Who shows a certificate is impersonated by this user.
    By(&'static str),
}

impl Over {
    fn versions(self, case: &Case) -> &'static [bool] {
        match (self, versions_of(case)) {
            (Over::All, versions) => versions,
            (Over::Http2, [.., true]) => &[true],
            _ => &[false],
        }
    }
}

impl Path<'_> {
    /// Sends it; again when it is put off, as discovery is for those who ask very often without being known.
    async fn send(&self, way: &Apiserver, case: &Case, http2: bool) -> Head {
        let started = Instant::now();
        loop {
            let head = self.send_once(way, case, http2).await;
            if head.status != 429 || started.elapsed() > PATIENCE {
                return head;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn send_once(&self, way: &Apiserver, case: &Case, http2: bool) -> Head {
        if self.over != Over::Upgrade {
            return ask(way, case, &self.request, http2).await.head;
        }
        // A kube-apiserver that switches does not say under which id it audits.
        static SENT: AtomicUsize = AtomicUsize::new(0);
        let id = format!("upgrade-{}", SENT.fetch_add(1, Ordering::Relaxed));
        let mut request = self.request.clone().header("Audit-ID", &id);
        request.headers.extend(case.headers.iter().cloned());
        let (mut head, _switched) = way.client(&case.user).open(&request).await.unwrap();
        if head.header("audit-id").is_none() {
            head.headers.push(("Audit-Id".to_owned(), id));
        }
        head
    }
}

/// A client's answer without a gateway and through one.
struct Pair {
    what: String,
    /// Whether a gateway would speak for this client.
    is_told: bool,
    direct: String,
    through: String,
}

/// Sends a request as every client to its server and through these gateways, and compares whom the servers say in their
/// audit logs to have heard. Returns how many comparisons that were.
pub(super) async fn audits_agree(
    servers: &[&Apiserver],
    ways: &[(&str, &Apiserver)],
    cases: &[Case],
    path: &Path<'_>,
    told: Told,
) -> usize {
    let mut pairs = Vec::new();
    for case in cases {
        for &http2 in path.over.versions(case) {
            let direct = path.send(path.server, case, http2).await;
            for (name, way) in ways {
                let through = path.send(way, case, http2).await;
                let target = &path.request.target;
                let what = format!(
                    "{}: {target} through the {name}, HTTP/2: {http2}",
                    case.name
                );
                let statuses = [&through, &direct].map(|head| status(case, head));
                assert_eq!(statuses[0], statuses[1], "{what}");
                if matches!(case.taken, Taken::For(_)) {
                    let id = |head: &Head| {
                        let id = head.header("audit-id");
                        id.unwrap_or_else(|| panic!("{what}: {head:?}")).to_owned()
                    };
                    let (direct, through) = (id(&direct), id(&through));
                    pairs.push(Pair {
                        what,
                        is_told: !matches!(&*case.user, "anonymous" | "stranger"),
                        direct,
                        through,
                    });
                }
            }
        }
    }
    let ids = pairs.iter().flat_map(|it| [&it.direct, &it.through]);
    let users = audited(servers, &ids.cloned().collect::<Vec<_>>()).await;
    for pair in &pairs {
        let (direct, through) = (&users[&pair.direct], &users[&pair.through]);
        match told {
            Told::By(gateway) if pair.is_told => {
                let by = &through.0["username"];
                assert_eq!(by, gateway, "{}", pair.what);
                assert_eq!(through.1, direct.0, "{}", pair.what);
            }
            _ => assert_eq!(through, direct, "{}", pair.what),
        }
    }
    pairs.len()
}

/// Before 1.35 a kube-apiserver calls an impersonation without a user its own fault.
fn status(case: &Case, head: &Head) -> u16 {
    match (&case.taken, head.status) {
        (Taken::Refused(400), 500) => 400,
        (_, status) => status,
    }
}

/// The users of these requests in servers' audit logs: who asked, and as whom.
pub(super) async fn audited(
    servers: &[&Apiserver],
    ids: &[String],
) -> BTreeMap<String, (Value, Value)> {
    let mut users = BTreeMap::new();
    until("everything is in an audit log", || {
        for event in servers.iter().flat_map(|server| server.audit()) {
            let id = event["auditID"].as_str().unwrap_or_default().to_owned();
            let whom = (event["user"].clone(), event["impersonatedUser"].clone());
            users.insert(id, whom);
        }
        std::future::ready(ids.iter().all(|id| users.contains_key(id)))
    })
    .await;
    users
}
