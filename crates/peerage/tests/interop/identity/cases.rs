//! The clients: who they are and what they pretend.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use peerage_testkit::kube::Apiserver;
use peerage_testkit::pki::Pki;
use peerage_testkit::wire::Outgoing;
use serde_json::json;

/// A client and what it sends.
pub(super) struct Case {
    pub(super) name: String,
    /// Whose certificate it shows; `anonymous` for none.
    pub(super) user: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) taken: Taken,
}

/// What a server makes of a client.
pub(super) enum Taken {
    For(&'static str),
    Refused(u16),
}

impl Case {
    pub(super) fn new(name: &str, user: &str, taken: Taken) -> Case {
        Case {
            name: name.to_owned(),
            user: user.to_owned(),
            headers: Vec::new(),
            taken,
        }
    }

    fn with(mut self, headers: &[(&str, &str)]) -> Case {
        let headers = headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        self.headers.extend(headers);
        self
    }

    pub(super) fn impersonates(&self) -> bool {
        let impersonation =
            |(name, _): &(String, String)| name.to_lowercase().starts_with("impersonate-");
        self.headers.iter().any(impersonation)
    }

    pub(super) fn taken_for(&self) -> &'static str {
        match self.taken {
            Taken::For(name) => name,
            Taken::Refused(_) => "nobody",
        }
    }
}

/// The certificates that the control plane does not have anyway.
pub(super) fn certificates(pki: &Pki) {
    let groups: Vec<String> = (0..40)
        .map(|n| format!("CN=team {n}, OU=dev,O=acme"))
        .collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    pki.client("many", "mary in many", &groups);
    pki.client("namesake", "front-proxy-client", &[]);
    pki.client("gateway", "gateway", &[]);
    pki.stranger("stranger", "admin", &["system:masters"]);
}

/// Every name and spelling in which a client could say that it is somebody else.
fn spoofs() -> Vec<Vec<(&'static str, &'static str)>> {
    vec![
        vec![
            ("X-Kubernetes-Peer-Proxied", "true"),
            ("x-kubernetes-peer-proxied", "false"),
        ],
        vec![
            ("X-Remote-User", "root"),
            ("X-Remote-Group", "system:masters"),
        ],
        vec![
            ("x-remote-user", "root"),
            ("X-REMOTE-GROUP", "system:masters"),
            ("X-Remote-Uid", "0"),
        ],
        vec![
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Group", "devs"),
        ],
        vec![
            ("X-Remote-Extra-Scopes", "all"),
            ("x-remote-extra-acme.com%2fa", "b"),
            ("X-Remote-Extra-", "c"),
        ],
        vec![
            ("X_Remote_User", "root"),
            ("X_Remote_Group", "system:masters"),
            ("X-Remote_Extra-a", "b"),
        ],
        vec![
            (
                "Connection",
                "X-Remote-User, X-Remote-Group, Authorization, keep-alive",
            ),
            ("X-Remote-User", "root"),
        ],
        vec![(
            "Connection",
            "X-Kubernetes-Peer-Proxied, Audit-Id, X-Forwarded-For, Via",
        )],
        vec![
            ("X-Remote-User", "  root  "),
            ("X-Remote-Group", "\tsystem:masters"),
        ],
        vec![("X-Remote-User", ""), ("X-Remote-Group", "")],
        vec![
            ("Via", "1.1 gateway-1-00000000, 2 somebody"),
            ("X-Peerage-Peer", "me"),
            ("X-Peerage-Reason", "no"),
            ("X-Peerage-Stale-View", "true"),
        ],
        vec![
            ("Forwarded", "for=127.0.0.1"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Forwarded-Host", "evil"),
        ],
    ]
}

/// The ways to be somebody, each by itself and with every spoof.
pub(super) fn of_clients(robots_token: &str) -> Vec<Case> {
    let robot = "system:serviceaccount:default:robot";
    let bearer = |token: &str| format!("Bearer {token}");
    let with_token = |name: &str, user: &str, token: &str, taken| {
        Case::new(name, user, taken).with(&[("Authorization", &bearer(token))])
    };
    let mut cases = vec![
        Case::new("a certificate", "alice", Taken::For("alice")),
        Case::new(
            "a certificate with forty groups with commas",
            "many",
            Taken::For("mary in many"),
        ),
        Case::new(
            "a client's certificate with a front proxy's name",
            "namesake",
            Taken::For("front-proxy-client"),
        ),
        Case::new("a certificate of nobody's", "stranger", Taken::Refused(401)),
        Case::new("nothing", "anonymous", Taken::For("system:anonymous")),
        with_token(
            "a certificate and a token",
            "alice",
            "bobs-token",
            Taken::For("alice"),
        ),
        with_token(
            "a certificate and a wrong token",
            "alice",
            "nobodys",
            Taken::For("alice"),
        ),
        with_token(
            "a wrong certificate and a token",
            "stranger",
            "bobs-token",
            Taken::For("bob"),
        ),
        with_token(
            "a wrong certificate and a wrong token",
            "stranger",
            "nobodys",
            Taken::Refused(401),
        ),
        with_token("a token", "anonymous", "bobs-token", Taken::For("bob")),
        with_token("a wrong token", "anonymous", "nobodys", Taken::Refused(401)),
        with_token(
            "a service account's token",
            "anonymous",
            robots_token,
            Taken::For(robot),
        ),
        Case::new(
            "another scheme",
            "anonymous",
            Taken::For("system:anonymous"),
        )
        .with(&[("Authorization", "Basic cm9vdDpyb290")]),
    ];
    cases.extend(of_odd_tokens());
    for spoof in spoofs() {
        let name = format!("{spoof:?}");
        cases.push(Case::new(&name, "alice", Taken::For("alice")).with(&spoof));
        cases.push(Case::new(&name, "anonymous", Taken::For("system:anonymous")).with(&spoof));
        cases.push(with_token(&name, "anonymous", "bobs-token", Taken::For("bob")).with(&spoof));
    }
    let guard = [
        ("X-Remote-User", "root"),
        ("X-Kubernetes-Peer-Proxied", "false"),
    ];
    cases.push(Case::new("a guard that says no", "alice", Taken::For("alice")).with(&guard));
    let spaced = [
        ("X-Remote-User ", "root"),
        ("X-Remote-Group", "system:masters"),
    ];
    cases.push(Case::new("a blank before the colon", "alice", Taken::Refused(400)).with(&spaced));
    cases.extend(of_impersonators());
    cases
}

/// Lines that name a token in a way that few would write, or that two readers could read differently.
fn of_odd_tokens() -> Vec<Case> {
    let bob = || Taken::For("bob");
    let nobody = || Taken::For("system:anonymous");
    let refused = || Taken::Refused(401);
    let rows = [
        (vec!["bEARER bobs-token"], bob()),
        (vec!["Bearer bobs-token and more"], bob()),
        (vec!["Bearer bobs-token Bearer nobodys"], bob()),
        (vec!["Bearer nobodys bobs-token"], refused()),
        (vec!["Bearer bobs-token,"], refused()),
        (vec!["\u{a0}Bearer bobs-token\u{2003}"], bob()),
        (vec!["Bearer bobs-token\u{e4}"], refused()),
        (vec!["Bearer  bobs-token"], nobody()),
        (vec!["Bearer\tbobs-token"], nobody()),
        (vec!["Bearer bobs-token", "Bearer nobodys"], bob()),
        (vec!["Bearer nobodys", "Bearer bobs-token"], refused()),
    ];
    let case = |(lines, taken): (Vec<&'static str>, Taken)| {
        let headers: Vec<_> = lines.iter().map(|it| ("Authorization", *it)).collect();
        Case::new(&format!("{lines:?}"), "anonymous", taken).with(&headers)
    };
    let trimmed = [("Authorization", "\u{a0}Bearer bobs-token")];
    let trimmed = Case::new("a wrong certificate and a blank", "stranger", bob()).with(&trimmed);
    rows.into_iter().map(case).chain([trimmed]).collect()
}

/// An administrator who pretends, in every way: what is allowed anyway shows whether the pretence counted.
pub(super) fn of_administrators() -> Vec<Case> {
    let case = |spoof: Vec<(&'static str, &'static str)>| {
        Case::new(&format!("{spoof:?}"), "admin", Taken::For("admin")).with(&spoof)
    };
    spoofs().into_iter().map(case).collect()
}

fn of_impersonators() -> Vec<Case> {
    let whole = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "uid 77"),
        ("Impersonate-Group", "b,c \"q\""),
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Extra-Acme.com%2Fproject%20Name", "one"),
        ("Impersonate-Extra-Acme.com%2Fproject%20Name", "two, three"),
        ("Impersonate-Extra-a%25b", "pct"),
    ];
    let user = [("Impersonate-User", "jane")];
    let token = |token: &str| [("Authorization", format!("Bearer {token}"))];
    let [root, bob] = ["roots-token", "bobs-token"].map(token);
    let (root, bob) = (
        [(root[0].0, root[0].1.as_str())],
        [(bob[0].0, bob[0].1.as_str())],
    );
    vec![
        Case::new("an administrator as another", "admin", Taken::For("jane")).with(&whole),
        Case::new(
            "an administrator's token as another",
            "anonymous",
            Taken::For("jane"),
        )
        .with(&root)
        .with(&whole),
        Case::new(
            "somebody without the right as another",
            "alice",
            Taken::For("alice"),
        )
        .with(&user),
        Case::new(
            "a token without the right as another",
            "anonymous",
            Taken::For("bob"),
        )
        .with(&bob)
        .with(&whole),
        Case::new(
            "nobody as another",
            "anonymous",
            Taken::For("system:anonymous"),
        )
        .with(&user),
        Case::new(
            "a connection of its own for the headers",
            "admin",
            Taken::For("jane"),
        )
        .with(&whole)
        .with(&[(
            "Connection",
            "Impersonate-User, Impersonate-Group, keep-alive",
        )]),
        Case::new("groups without a user", "admin", Taken::Refused(400))
            .with(&[("Impersonate-Group", "system:masters")]),
    ]
}

/// Clients with a front-proxy certificate.
pub(super) fn of_front_proxies() -> Vec<Case> {
    let proxy = |name: &str, taken| Case::new(name, "front-proxy-client", taken);
    let groups: Vec<String> = (0..1000)
        .map(|n| format!("group {n}, which has a name of sixty bytes: {n:0>18}"))
        .collect();
    let mut many = proxy("60 KB of groups", Taken::For("jane")).with(&[("X-Remote-User", "jane")]);
    many.headers.extend(
        groups
            .iter()
            .map(|group| ("X-Remote-Group".to_owned(), group.clone())),
    );
    let whole = [
        ("X-Remote-User", "jürgen k"),
        ("X-Remote-Uid", "uid 77"),
        ("X-Remote-Group", "b,c \"q\""),
        ("x-remote-group", "devs"),
        ("X-Remote-Extra-Acme.com%2Fproject%20Name", "one"),
        ("X-Remote-Extra-Acme.com%2Fproject%20Name", "two, three"),
        ("X-Remote-Extra-scopes", "é"),
        ("X-Remote-Extra-a%25b", "pct"),
    ];
    vec![
        proxy("all of a user", Taken::For("jürgen k")).with(&whole),
        proxy("two users", Taken::For("jane"))
            .with(&[("X-Remote-User", "jane"), ("X-Remote-User", "root")]),
        many,
        proxy("no user", Taken::Refused(401)),
        proxy("an empty user", Taken::Refused(401))
            .with(&[("X-Remote-User", ""), ("X-Remote-Group", "system:masters")]),
    ]
}

/// Clients of servers and gateways with other names for identity headers.
pub(super) fn of_other_names() -> Vec<Case> {
    let spoof = [
        ("X-Acme-User", "root"),
        ("x-acme-group", "system:masters"),
        ("X-Remote-Group", "system:masters"),
        ("X-Acme-Uid", "0"),
        ("X-Acme-Extra-a", "b"),
    ];
    let whole = [
        ("X-Acme-User", "jane"),
        ("X-Acme-Uid", "7"),
        ("X-Acme-Group", "devs"),
        ("X-Remote-Group", "more"),
        ("X-Acme-Extra-Scopes", "all"),
    ];
    vec![
        Case::new("a certificate", "alice", Taken::For("alice")),
        Case::new(
            "a certificate with forty groups",
            "many",
            Taken::For("mary in many"),
        ),
        Case::new("a certificate and the names", "alice", Taken::For("alice")).with(&spoof),
        Case::new("a token and the names", "anonymous", Taken::Refused(401))
            .with(&[("Authorization", "Bearer nobodys")])
            .with(&spoof),
        Case::new(
            "nothing and the names",
            "anonymous",
            Taken::For("system:anonymous"),
        )
        .with(&spoof),
        Case::new("a front proxy", "front-proxy-client", Taken::For("jane")).with(&whole),
        Case::new(
            "a front proxy with the usual names",
            "front-proxy-client",
            Taken::Refused(401),
        )
        .with(&[("X-Remote-User", "root")]),
    ]
}

/// Clients that ask for upgrades.
pub(super) fn of_upgrades(robots_token: &str) -> Vec<Case> {
    let spoof = [
        ("X-Remote-User", "root"),
        ("X-Remote-Group", "system:masters"),
    ];
    let bearer = |token: &str| format!("Bearer {token}");
    let encoded = BASE64_URL_SAFE_NO_PAD.encode("roots-token");
    let protocol = format!("base64url.bearer.authorization.k8s.io.{encoded}, base64.binary.k8s.io");
    vec![
        Case::new("a certificate with rights", "admin", Taken::For("admin")).with(&spoof),
        Case::new("a certificate without", "alice", Taken::For("alice")).with(&spoof),
        Case::new(
            "a token",
            "anonymous",
            Taken::For("system:serviceaccount:default:robot"),
        )
        .with(&[("Authorization", &bearer(robots_token))])
        .with(&spoof),
        Case::new("a token with rights", "anonymous", Taken::For("root"))
            .with(&[("Authorization", &bearer("roots-token"))])
            .with(&spoof),
        Case::new(
            "a token among the subprotocols",
            "anonymous",
            Taken::For("root"),
        )
        .with(&[("Sec-WebSocket-Protocol", &protocol)]),
        Case::new("an administrator as another", "admin", Taken::For("jane"))
            .with(&[("Impersonate-User", "jane")]),
        Case::new("nothing", "anonymous", Taken::For("system:anonymous")).with(&spoof),
    ]
}

/// Requests for upgrades: a watch that is local to each server, one that only the newer has, and what needs a kubelet.
pub(super) fn upgrades(newer_only: &str) -> Vec<Outgoing> {
    let websocket =
        |target: &str| Outgoing::websocket(target).instead("Connection", "keep-alive, Upgrade");
    let pod = "/api/v1/namespaces/default/pods/nopod";
    vec![
        websocket("/api/v1/namespaces?watch=true"),
        websocket(&format!("{newer_only}?watch=true")),
        websocket(&format!("{pod}/exec?command=true&stdout=true")),
        websocket(&format!("{pod}/attach?stdout=true")),
        websocket(&format!("{pod}/portforward?ports=80")),
    ]
}

/// A request of an old kubectl for a session.
pub(super) fn spdy() -> Outgoing {
    let target = "/api/v1/namespaces/default/pods/nopod/exec?command=true&stdout=true";
    Outgoing::new("POST", target)
        .header("Connection", "Upgrade")
        .header("Upgrade", "SPDY/3.1")
        .header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
}

/// Lets a user impersonate anybody with anything.
pub(super) async fn let_impersonate(server: &Apiserver, user: &str) {
    let rbac = "rbac.authorization.k8s.io";
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["impersonate"]});
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "impersonator"},
        "rules": [rule("", &["users", "groups", "serviceaccounts"]), rule("authentication.k8s.io", &["*"])],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "impersonator"},
        "subjects": [{"kind": "User", "apiGroup": rbac, "name": user}],
        "roleRef": {"kind": "ClusterRole", "apiGroup": rbac, "name": "impersonator"},
    });
    let admin = server.client("admin");
    for (resource, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let target = format!("/apis/{rbac}/v1/{resource}");
        let create = Outgoing::new("POST", &target).json("application/json", &object);
        let created = admin.send(&create).await.unwrap();
        assert_eq!(created.status(), 201, "{}", created.in_words());
    }
}
