//! Clients of a Kubernetes API server as users of kube-rs write them, which print what they see.
//!
//! ```text
//! kube-rs-clients watcher|reflector KUBECONFIG NAMESPACE
//! ```
//!
//! One JSON line for each event of a ConfigMap that has a sequence number, `{"type":"APPLIED","name":"item-1",
//! "sequence":7}`, and `{"type":"READY"}` for each list. It ends with code 0 on SIGTERM. An error that the library hands
//! to its user is a line on standard error.

use std::pin::pin;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher as watch};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

type Failure = Box<dyn std::error::Error>;
type Events<'a> = futures::stream::BoxStream<'a, Result<Event<ConfigMap>, watcher::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, kubeconfig, namespace] = args.as_slice() else {
        return Err("kube-rs-clients watcher|reflector KUBECONFIG NAMESPACE".into());
    };
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let events = watch(
        Api::namespaced(client, namespace),
        watcher::Config::default(),
    );
    let events = events.default_backoff();
    let mut stop = signal(SignalKind::terminate())?;
    tokio::select! {
        () = follow(mode, events.boxed()) => Err("the watcher ended".into()),
        _ = stop.recv() => Ok(()),
    }
}

async fn follow(mode: &str, events: Events<'_>) {
    match mode {
        "reflector" => {
            let (reader, writer) = reflector::store();
            let stored = reflector(writer, events).inspect_ok(|event| match event {
                Event::InitDone => print("READY", None),
                Event::Delete(object) => print("DELETED", Some(object)),
                Event::Apply(object) | Event::InitApply(object) => {
                    // What the store says, not the event: it is what users of a reflector read.
                    let key = reflector::ObjectRef::from_obj(object);
                    print("STORED", reader.get(&key).as_deref());
                }
                Event::Init => {}
            });
            complain(stored).await;
        }
        _ => {
            complain(events.inspect_ok(|event| match event {
                Event::Init => {}
                Event::InitApply(object) => print("LISTED", Some(object)),
                Event::InitDone => print("READY", None),
                Event::Apply(object) => print("APPLIED", Some(object)),
                Event::Delete(object) => print("DELETED", Some(object)),
            }))
            .await;
        }
    }
}

async fn complain(events: impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>>) {
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        if let Err(error) = event {
            eprintln!("E {error:?}");
        }
    }
}

fn print(kind: &str, object: Option<&ConfigMap>) {
    let Some(object) = object else {
        if kind == "READY" {
            println!("{}", json!({"type": kind}));
        }
        return;
    };
    let sequence = object
        .data
        .as_ref()
        .and_then(|data| data.get("sequence")?.parse::<u64>().ok());
    if let Some(sequence) = sequence {
        println!(
            "{}",
            json!({"type": kind, "name": object.metadata.name, "sequence": sequence})
        );
    }
}
