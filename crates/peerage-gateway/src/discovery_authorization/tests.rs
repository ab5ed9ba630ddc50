#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use peerage_core::User;
use tokio::sync::Semaphore;

use super::*;

/// Method, path, headers, and whether it came with a user.
type Asked = (Method, String, HeaderMap, bool);

/// The servers of a test: let in `Bearer good…` and who has a certificate, and keep what they were asked.
#[derive(Clone, Default)]
struct Servers {
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Answers wait for these, if there are any.
    gate: Option<Arc<Semaphore>>,
    /// Instead of 200.
    yes: Option<StatusCode>,
}

impl Servers {
    async fn answer(self, request: Request) -> Response {
        let token = request.headers().get("authorization");
        let good = token.is_some_and(|token| token.as_bytes().starts_with(b"Bearer good"));
        let known = request.extensions().get::<Arc<User>>().is_some();
        let seen = (
            request.method().clone(),
            request.uri().to_string(),
            request.headers().clone(),
            request.extensions().get::<Question>().is_some(),
        );
        self.asked.lock().unwrap().push(seen);
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        let mut response = Response::new(body::full("from a server"));
        *response.status_mut() = match (good || known, self.yes) {
            (true, status) => status.unwrap_or(StatusCode::OK),
            (false, _) if token.is_some() => StatusCode::UNAUTHORIZED,
            (false, _) => StatusCode::FORBIDDEN,
        };
        let said = http::HeaderValue::from_static("so");
        response.headers_mut().insert("x-said", said);
        response
    }

    fn questions(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|it| it.3).count()
    }
}

/// A layer in front of them.
struct Gateway {
    layer: DiscoveryAuthorization,
    servers: Servers,
    from_memory: Arc<AtomicUsize>,
}

impl Gateway {
    fn new(ttl: u64, servers: Servers) -> Self {
        let from_memory: Arc<AtomicUsize> = Arc::default();
        let counted = from_memory.clone();
        let inner = HttpService::new(tower::service_fn(move |_: Request| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(Response::new(body::full("from memory"))) }
        }));
        let asked = servers.clone();
        let behind = HttpService::new(tower::service_fn(move |request| {
            let asked = asked.clone();
            async move { Ok(asked.answer(request).await) }
        }));
        let who: WhoAnswers = Arc::new(|method, info| match info.path() {
            "/version" => Answers::AsRouted,
            "/apis/nobody" => Answers::Server,
            _ if method != Method::GET && method != Method::HEAD => Answers::Server,
            _ => Answers::FromMemory,
        });
        let ttl = Duration::from_secs(ttl);
        let layer = DiscoveryAuthorization::new(ttl, who, Rendering::default(), inner, behind);
        Self {
            layer,
            servers,
            from_memory,
        }
    }

    async fn send(&self, request: Request) -> (u16, String, HeaderMap) {
        let response = self.layer.clone().answer(request).await;
        let (head, stream) = response.into_parts();
        let bytes = body::collect(stream, 1 << 20, Duration::from_secs(1)).await;
        let text = String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        (head.status.as_u16(), text, head.headers)
    }

    async fn status(&self, request: Request) -> u16 {
        self.send(request).await.0
    }
}

fn request(method: &str, path: &str, token: Option<&str>) -> Request {
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("if-none-match", "\"the merged one\"")
        .body(body::empty())
        .unwrap();
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", value);
    }
    let info = RequestInfo::parse(method, path).unwrap().into_owned();
    request.extensions_mut().insert(Arc::new(info));
    request
}

/// A request that came from another host.
fn from(host: u8, mut request: Request) -> Request {
    let remote = ([10, 0, 0, host], 40_000).into();
    let local = ([10, 0, 0, 1], 6443).into();
    request.extensions_mut().insert(ConnInfo {
        remote,
        local,
        tls: None,
    });
    request
}

fn get(path: &str, token: &str) -> Request {
    request("GET", path, Some(token))
}

#[tokio::test(start_paused = true)]
async fn a_yes_counts_for_its_time_and_costs_nothing_meanwhile() {
    let gateway = Gateway::new(10, Servers::default());
    for round in 1..=3 {
        for _ in 0..100 {
            let (status, text, _) = gateway.send(get("/apis", "good")).await;
            assert_eq!((status, &*text), (200, "from memory"));
        }
        assert_eq!(gateway.servers.questions(), round);
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    let (method, target, headers, _) = gateway.servers.asked.lock().unwrap()[0].clone();
    assert_eq!((method, &*target), (Method::GET, "/apis"));
    assert_eq!(headers["authorization"], "Bearer good");
    assert!(
        !headers.contains_key("if-none-match"),
        "the client's own tag says nothing"
    );
}

#[tokio::test]
async fn without_a_time_each_request_asks() {
    let gateway = Gateway::new(0, Servers::default());
    for _ in 0..7 {
        assert_eq!(gateway.status(get("/apis", "good")).await, 200);
    }
    assert_eq!(gateway.servers.questions(), 7);
}

#[tokio::test]
async fn a_no_is_the_servers_own_and_is_not_remembered() {
    let gateway = Gateway::new(10, Servers::default());
    for (token, expected) in [(Some("bad"), 401), (None, 403)] {
        for times in 1..=3 {
            let (status, text, headers) = gateway.send(request("GET", "/apis", token)).await;
            assert_eq!((status, &*text), (expected, "from a server"));
            assert_eq!(headers["x-said"], "so");
            let asked = gateway.servers.asked.lock().unwrap();
            let same =
                |it: &&(_, _, HeaderMap, _)| it.2.contains_key("authorization") == token.is_some();
            assert_eq!(asked.iter().filter(same).count(), times);
        }
    }
    assert_eq!(gateway.from_memory.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn credentials_paths_and_methods_are_asked_about_one_by_one() {
    let gateway = Gateway::new(10, Servers::default());
    let requests = || {
        let mut impersonating = get("/apis", "good");
        let joe = "joe".parse().unwrap();
        impersonating.headers_mut().insert("impersonate-user", joe);
        let mut certified = request("GET", "/apis", None);
        let jane = Arc::new(User::new("jane", ["system:authenticated"]));
        certified.extensions_mut().insert(jane);
        [
            get("/apis", "good"),
            get("/apis", "good too"),
            get("/apis/", "good"),
            get("/api", "good"),
            request("HEAD", "/apis", Some("good")),
            impersonating,
            certified,
        ]
    };
    let count = requests().len();
    for _ in 0..3 {
        for request in requests() {
            assert_eq!(gateway.status(request).await, 200);
        }
        assert_eq!(gateway.servers.questions(), count);
    }
}

#[tokio::test]
async fn every_answer_that_comes_after_authorization_is_a_yes() {
    let statuses = [
        (200, true),
        (304, true),
        (404, true),
        (405, true),
        (406, true),
        (301, false),
        (400, false),
        (429, false),
        (500, false),
        (503, false),
    ];
    for (status, is_yes) in statuses {
        let servers = Servers {
            yes: StatusCode::from_u16(status).ok(),
            ..Servers::default()
        };
        let gateway = Gateway::new(10, servers);
        let (said, text, _) = gateway.send(get("/apis", "good")).await;
        let expected = if is_yes {
            (200, "from memory")
        } else {
            (status, "from a server")
        };
        assert_eq!((said, &*text), expected);
    }
}

#[tokio::test]
async fn what_is_not_at_hand_goes_where_it_went_before() {
    let gateway = Gateway::new(10, Servers::default());
    let rows = [
        ("GET", "/version", "from memory"),
        ("GET", "/apis/nobody", "from a server"),
        ("POST", "/apis", "from a server"),
        ("OPTIONS", "/api", "from a server"),
        ("DELETE", "/openapi/v2", "from a server"),
    ];
    for (method, path, from) in rows {
        let (_, text, _) = gateway.send(request(method, path, Some("good"))).await;
        assert_eq!(text, from, "{method} {path}");
    }
    assert_eq!(gateway.servers.questions(), 0);
}

#[tokio::test]
async fn many_who_ask_the_same_at_once_ask_once_and_one_who_leaves_takes_nobody_along() {
    let gate = Arc::new(Semaphore::new(0));
    let servers = Servers {
        gate: Some(gate.clone()),
        ..Servers::default()
    };
    let gateway = Arc::new(Gateway::new(10, servers));
    let ask = |token: &'static str| {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.status(get("/apis", token)).await })
    };
    let first = ask("good");
    while gateway.servers.questions() == 0 {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..50).map(|_| ask("good")).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(gateway.servers.questions(), 1);
    first.abort();
    while gateway.servers.questions() < 2 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    for other in others {
        assert_eq!(other.await.unwrap(), 200);
    }
    assert_eq!(gateway.servers.questions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_strangers_costs_a_bounded_rate_and_holds_up_nobody_who_is_known() {
    let gateway = Gateway::new(10, Servers::default());
    assert_eq!(gateway.status(get("/apis", "good")).await, 200);
    let (mut limited, mut refused) = (0, 0);
    for n in 0..2000 {
        let token = format!("bad {n}");
        let stranger = request("GET", "/apis", (n % 2 == 0).then_some(&*token));
        let (status, text, headers) = gateway.send(stranger).await;
        match status {
            429 => {
                limited += 1;
                assert_eq!(headers["retry-after"], "1");
                let status: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(status["reason"], "TooManyRequests");
            }
            401 | 403 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(
        (refused, limited),
        (175, 1825),
        "bursts of 160, less the one who is known, and of 16: the rest is kept for other addresses"
    );
    for path in ["/api", "/apis", "/apis/apps", "/openapi/v3"] {
        assert_eq!(gateway.status(get(path, "good")).await, 200, "{path}");
    }
    let mut certified = request("GET", "/apis", None);
    let jane = Arc::new(User::new("jane", ["system:authenticated"]));
    certified.extensions_mut().insert(jane);
    assert_eq!(
        gateway.status(certified).await,
        200,
        "who was checked here is no stranger"
    );
    assert_eq!(gateway.status(get("/apis", "good too")).await, 429);
    assert_eq!(
        gateway
            .status(from(9, get("/apis", "good elsewhere")))
            .await,
        200,
        "a token that was issued just now, from an address that floods nobody"
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(gateway.status(get("/apis", "good too")).await, 200);
}
