//! What goes on for as long as somebody wants: exec, attach, cp, port-forward and logs, from kubectl through a gateway and
//! a real kube-apiserver to a node and back.
//!
//! The old kubectl speaks SPDY/3.1, the new one WebSocket; kube-apiserver's audit log tells them apart by the verb.

use std::path::Path;
use std::time::{Duration, Instant};

use peerage_testkit::cluster::until;
use peerage_testkit::kube::{Apiserver, Kubelet, Lent};
use peerage_testkit::kubectl::{Kubectl, NEWEST, OLDEST, Package};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::gateway::{GATEWAYS, Gateways};

/// kubectl on one way to a pod of its own.
struct Session<'a> {
    kubectl: Kubectl,
    pod: String,
    node: &'a Kubelet,
    servers: [&'a Apiserver; 2],
    /// How kube-apiserver calls what opens a session over this kubectl's protocol.
    verb: &'static str,
}

/// Both kubectls through both gateways.
async fn each<F: AsyncFn(Session<'_>)>(name: &str, test: F) {
    let gateways: Lent<Gateways> = GATEWAYS.get().await;
    let plane = &gateways.plane;
    let (older, newer) = (plane.server("older"), plane.server("newer"));
    let node = Kubelet::start(name, plane.pki(), plane.directory()).await;
    let namespace = format!("sessions-{name}");
    node.register(older, &namespace).await;
    let kubectls: [(Package, &str); 2] = [(OLDEST, "create"), (NEWEST, "get")];
    for (package, verb) in kubectls {
        for (way, gateway) in gateways.each() {
            let pod = format!("{way}-{}", package.version().replace('.', "-"));
            node.run(older, &namespace, &pod).await;
            let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
            let kubectl = plane.kubectl(package, &cache, &gateway.url()).await;
            let within = [
                "config",
                "set-context",
                "--current",
                "--namespace",
                &namespace,
            ];
            kubectl.run(&within).await.ok();
            test(Session {
                kubectl,
                pod,
                node: &node,
                servers: [older, newer],
                verb,
            })
            .await;
        }
    }
}

impl Session<'_> {
    /// Whether one of the servers heard of a session of `admin` with this pod, over this kubectl's protocol.
    fn is_audited(&self, subresource: &str) -> bool {
        let of_pod = format!("/pods/{}/{subresource}", self.pod);
        let mut events = self.servers.iter().flat_map(|it| it.audit_with(&of_pod));
        events.any(|event| event["verb"] == self.verb && event["user"]["username"] == "admin")
    }

    async fn audited(&self, subresource: &str) {
        let what = format!("{}: {subresource} is audited as {}", self.pod, self.verb);
        until(&what, || std::future::ready(self.is_audited(subresource))).await;
    }

    /// Waits until the node says that something has ended, which has to be soon after the client went.
    async fn ended(&self, words: &str) {
        let gone = Instant::now();
        let line = format!("{words} of {}", self.pod);
        let said = || {
            let log = std::fs::read_to_string(self.node.log_file()).unwrap_or_default();
            std::future::ready(log.lines().any(|it| it.contains(&line)))
        };
        until(&line, said).await;
        let took = gone.elapsed();
        assert!(took < Duration::from_secs(5), "{line}: after {took:?}");
    }
}

#[tokio::test]
async fn commands_get_their_input_and_give_their_output_and_their_code() {
    each("exec", async |session| {
        let (kubectl, pod) = (&session.kubectl, session.pod.as_str());
        let script = "echo to the one; echo to the other >&2; exit 7";
        let said = kubectl.run(&["exec", pod, "--", "sh", "-c", script]).await;
        assert_eq!(
            (said.code, said.out.as_str()),
            (7, "to the one\n"),
            "{pod}: {}",
            said.err
        );
        assert!(said.err.contains("to the other\n"), "{pod}: {}", said.err);
        session.audited("exec").await;

        let input = "all that is said\n".repeat(100_000);
        let back = kubectl
            .run_with(&["exec", "-i", pod, "--", "cat"], &input)
            .await;
        assert!(
            back.ok() == input,
            "{pod}: what came back is not what was sent"
        );
    })
    .await;
}

#[tokio::test]
async fn whoever_attaches_talks_with_what_runs() {
    each("attach", async |session| {
        let pod = session.pod.as_str();
        let said = session
            .kubectl
            .run_with(&["attach", "-i", pod], "hello\n")
            .await;
        said.has(&[&format!("this is {pod}\n"), "hello\n"]);
        session.audited("attach").await;
        session.ended("attach").await;
    })
    .await;
}

#[tokio::test]
async fn files_are_copied_there_and_back() {
    each("cp", async |session| {
        let (kubectl, pod) = (&session.kubectl, session.pod.as_str());
        let content = "some bytes\n".repeat(200_000);
        let file = kubectl.file("there", &content);
        kubectl
            .run(&["cp", &file, &format!("{pod}:{pod}-file")])
            .await
            .ok();
        let copied = session.node.files().join(format!("{pod}-file"));
        assert!(std::fs::read_to_string(copied).unwrap() == content, "{pod}");
        let back = format!("{file}-back");
        kubectl
            .run(&["cp", &format!("{pod}:{pod}-file"), &back])
            .await
            .ok();
        assert!(std::fs::read_to_string(back).unwrap() == content, "{pod}");
    })
    .await;
}

#[tokio::test]
async fn a_log_is_followed_line_by_line_until_its_reader_goes() {
    each("logs", async |session| {
        let (kubectl, pod) = (&session.kubectl, session.pod.as_str());
        let whole = kubectl.run(&["logs", pod]).await.ok();
        assert_eq!(whole.lines().count(), 10, "{pod}: {whole}");
        let mut follows = kubectl.follow(&["logs", "-f", pod]);
        for number in [1, 10, 11, 12] {
            follows
                .line_with(&[&format!("line {number} of {pod}")])
                .await;
        }
        drop(follows);
        session.ended("the reader of the log").await;
    })
    .await;
}

/// Answers each connection with what it says, in capitals, once it has said all.
async fn shout(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut said = String::new();
            let _ = stream.read_to_string(&mut said).await;
            let _ = stream.write_all(said.to_uppercase().as_bytes()).await;
        });
    }
}

#[tokio::test]
async fn a_port_is_forwarded_for_as_many_connections_as_come() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shouts = tokio::spawn(shout(listener));
    each("port-forward", async |session| {
        let pod = session.pod.as_str();
        let mut forwards = session
            .kubectl
            .follow(&["port-forward", pod, &format!(":{port}")]);
        let line = forwards.line_with(&["Forwarding from 127.0.0.1:"]).await;
        let local = line.trim_start_matches("Forwarding from ");
        let local = local.split(' ').next().unwrap().to_owned();
        let words = "what is said here is heard there\n".repeat(1000);
        let connections = (0..5).map(async |_| {
            let mut stream = TcpStream::connect(&local).await.unwrap();
            stream.write_all(words.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).await.unwrap();
            assert!(
                heard == words.to_uppercase(),
                "{pod}: {} bytes",
                heard.len()
            );
        });
        futures::future::join_all(connections).await;
        session.audited("portforward").await;
        drop(forwards);
        session.ended("port-forward").await;
    })
    .await;
    shouts.abort();
}
