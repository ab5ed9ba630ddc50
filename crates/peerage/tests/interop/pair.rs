//! A pair of real servers of different versions, with kube-apiserver's own proxy between them: what the other suites
//! are measured against.

use peerage_testkit::kube::{Backend, ControlPlane, Shared};
use peerage_testkit::wire::Outgoing;

use crate::versions::{self, NEWER_ONLY};

static PAIR: Shared = Shared::new(|| {
    Box::pin(async {
        let older = versions::kube_apiserver(&versions::older()).named("older");
        let newer = versions::kube_apiserver(&versions::newer()).named("newer");
        let pair = ControlPlane::on(Backend::Etcd("3.6"))
            .server(older.own_proxy())
            .server(newer.own_proxy())
            .start()
            .await;
        versions::acquaint(pair.server("older")).await;
        pair
    })
});

#[tokio::test]
async fn the_newer_of_two_real_servers_serves_what_the_older_does_not() {
    let pair = PAIR.get().await;
    let request = Outgoing::new("GET", NEWER_ONLY);
    let newer = pair.server("newer").client("admin");
    let answer = newer.send(&request).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.in_words());

    // Asked as a peer asks, the older one does not send it on.
    let older = pair.server("older").client("admin");
    let guarded = request.clone().header("X-Kubernetes-Peer-Proxied", "true");
    let answer = older.send(&guarded).await.unwrap();
    assert_eq!(answer.status(), 404, "{}", answer.in_words());
}

#[tokio::test]
async fn the_older_of_two_real_servers_asks_the_newer_for_what_it_lacks() {
    let pair = PAIR.get().await;
    let request = Outgoing::new("GET", NEWER_ONLY);
    let older = pair.server("older").multiplexed("admin").await;
    let answer = older.send(&request).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.in_words());
    let id = answer.head.header("audit-id").unwrap().to_owned();
    let seen = pair.server("newer").audit();
    assert!(
        seen.iter().any(|event| event["auditID"] == id.as_str()),
        "the newer one was not asked"
    );
}

#[tokio::test]
async fn a_user_without_rights_is_known_and_refused() {
    let pair = PAIR.get().await;
    let alice = pair.server("newer").client("alice");
    let answer = alice.send(&Outgoing::new("GET", NEWER_ONLY)).await.unwrap();
    assert_eq!(answer.status(), 403, "{}", answer.in_words());
    assert!(answer.in_words().contains("User \\\"alice\\\" cannot list"));
}
