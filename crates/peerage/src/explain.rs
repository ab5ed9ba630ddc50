//! `peerage explain`: who would answer a request, and why.
//!
//! The decision is `peerage-core`'s `route`, the same function that the servers call. What it decides by comes from a
//! running server, which is asked for its own view and answers for itself; from the discovery of several servers of a
//! kubeconfig, when the one asked does not know the question (a kube-apiserver); or from saved documents.

mod sources;

use std::path::PathBuf;

use clap::Args;
use peerage_core::PeerView;
use peerage_core::route::Explanation;
use peerage_core::route::explanation::check_question;
use serde::Serialize;

use crate::exit::Failure;
use crate::output::{Output, plain, print_json};
use crate::pki::kubeconfig;

/// What `--help` says after the flags.
pub const AFTER_HELP: &str = "\
Examples:
  # as the server of the current context sees it
  peerage explain GET /apis/resource.k8s.io/v1/deviceclasses

  # as a gateway sees it
  peerage explain GET /apis/resource.k8s.io/v1/deviceclasses \\
    --gateway http://127.0.0.1:10440

  # by saved documents: of /apis and /api, asked for with Accept:
  #   application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;
  #   profile=nopeer (in one line)
  peerage explain POST /api/v1/namespaces/x/pods \\
    --local old-apis.json,old-api.json --peer new=new-apis.json";

/// The flags of `peerage explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainFlags {
    /// The request's method, GET if it is left out, and its path, with the query if it has one
    #[arg(value_name = "[METHOD] PATH", num_args = 1..=2, required = true)]
    pub request: Vec<String>,
    /// Kubeconfig of the servers [default: ./kubeconfig, else ~/.kube/config]
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        value_parser = kubeconfig::first_file,
        default_value_os_t = kubeconfig::default_file(),
        hide_default_value = true,
        help_heading = "A running server"
    )]
    pub kubeconfig: PathBuf,
    /// Context of the server that would get the request [default: the current one]
    #[arg(long, value_name = "NAME", help_heading = "A running server")]
    pub context: Option<String>,
    /// Contexts of its peers, for servers that do not answer for themselves [default: all others of the kubeconfig]
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "A running server"
    )]
    pub peer_context: Vec<String>,
    /// A gateway that would get the request, by its --admin-bind-address
    #[arg(
        long,
        value_name = "URL",
        conflicts_with_all = ["context", "peer_context", "local"],
        help_heading = "A running server"
    )]
    pub gateway: Option<String>,
    /// Aggregated discovery of the server that would get the request (of /apis, and of /api after a comma)
    #[arg(long, value_name = "FILE[,FILE]", help_heading = "Saved documents")]
    pub local: Option<String>,
    /// Aggregated discovery of a peer (repeat)
    #[arg(
        long,
        value_name = "[NAME=]FILE[,FILE]",
        requires = "local",
        help_heading = "Saved documents"
    )]
    pub peer: Vec<String>,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Runs `peerage explain`.
pub fn run(flags: &ExplainFlags) -> Result<(), Failure> {
    let request = Request::of(&flags.request)?;
    let (mut explanation, asked) = match &flags.local {
        Some(local) => {
            let view = sources::saved(local, &flags.peer)?;
            (request.explained(&view)?, None)
        }
        None => crate::runtime()?.block_on(running(flags, &request))?,
    };
    if let Some(asked) = &asked {
        asked.reword(&mut explanation);
    }
    let note = asked.and_then(|it| it.note(&explanation));
    if flags.output == Output::Json {
        return print_json(&Shown { explanation, note });
    }
    if let Some(note) = note {
        say!("{}\n", plain(&note));
    }
    say!("{}", plain(&in_words(&explanation)));
    Ok(())
}

/// The request that is asked about.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    target: String,
}

impl Request {
    /// A path, or a method and a path.
    fn of(words: &[String]) -> Result<Self, Failure> {
        let (method, target) = match words {
            [method, target] => (method.to_ascii_uppercase(), target.clone()),
            words => ("GET".to_owned(), words.concat()),
        };
        check_question(&method, &target).map_err(Failure::usage)?;
        Ok(Self { method, target })
    }

    fn explained(&self, view: &PeerView) -> Result<Explanation, Failure> {
        Explanation::of(&self.method, &self.target, view).map_err(Failure::usage)
    }
}

/// The answer as JSON.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    explanation: Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A server that does not say itself what it would do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Silent {
    /// Its context.
    name: String,
    /// Its URL.
    url: String,
    /// Whether it is a gateway, so that others answered for it.
    is_gateway: bool,
}

impl Silent {
    /// A gateway answers nothing itself that its servers are asked for; and of a server that may have no proxy it is known
    /// what it answers without one.
    fn reword(&self, explanation: &mut Explanation) {
        let url = &self.url;
        let is_local = explanation.answer == "local";
        if self.depends(explanation) {
            let says = &explanation.explanation;
            explanation.explanation = match self.is_gateway {
                true => format!(
                    "not served by the server that answered at {url}; a gateway with these servers behind it decides: {says}"
                ),
                false => format!(
                    "404 there, if nothing forwards it; with a gateway before these servers, or their own proxies, {says}"
                ),
            };
        }
        if !self.is_gateway || !is_local {
            return;
        }
        explanation.explanation = match explanation.request.resource.is_empty() {
            true => format!(
                "passed on by {url} to a server behind it: it is not a request for a resource"
            ),
            false => format!("passed on by {url} to a server behind it that serves it"),
        };
    }

    /// Whether the answer depends on whether there is a proxy, and on what it knows.
    fn depends(&self, explanation: &Explanation) -> bool {
        matches!(explanation.answer.as_str(), "peer" | "unsure")
    }

    /// What an explanation that is not its own presumes of it.
    fn note(&self, explanation: &Explanation) -> Option<String> {
        let name = &self.name;
        if self.is_gateway {
            return Some(format!(
                "{name} is a gateway that cannot be asked at this address: what follows is by the discovery of whichever \
                 server answered there. What it does itself it says with --gateway=http://HOST:PORT, its --admin-bind-address"
            ));
        }
        self.depends(explanation).then(|| {
            format!(
                "{name} does not say itself what it would do, so this is by the discovery of the kubeconfig's servers. If a \
                 gateway is before it, ask that: --gateway=http://HOST:PORT, its --admin-bind-address"
            )
        })
    }
}

/// The explanation, and whom it is about if that server did not give it.
async fn running(
    flags: &ExplainFlags,
    request: &Request,
) -> Result<(Explanation, Option<Silent>), Failure> {
    if let Some(explanation) = sources::ask(flags, request).await? {
        return Ok((explanation, None));
    }
    let (view, asked) = sources::fetched(flags).await?;
    Ok((request.explained(&view)?, Some(asked)))
}

fn in_words(explanation: &Explanation) -> String {
    let asked = &explanation.request;
    let mut text = format!("{} {}\n", asked.method, asked.target);
    if !asked.resource.is_empty() {
        let dot = |part: &str| {
            if part.is_empty() {
                String::new()
            } else {
                format!(".{part}")
            }
        };
        let slash = |part: &str| {
            if part.is_empty() {
                String::new()
            } else {
                format!("/{part}")
            }
        };
        text.push_str(&format!(
            "  asks to {} {}{}{}{}",
            asked.verb,
            asked.resource,
            slash(&asked.subresource),
            dot(&asked.version),
            dot(&asked.group)
        ));
        for (word, value) in [("named", &asked.name), ("in namespace", &asked.namespace)] {
            if !value.is_empty() {
                text.push_str(&format!(" {word} {value}"));
            }
        }
        text.push('\n');
    }
    text.push_str(&format!("  is {}", explanation.explanation));
    for candidate in &explanation.candidates {
        if !candidate.address.is_empty() && candidate.address != candidate.id {
            text.push_str(&format!(
                "\n    {} is at {}",
                candidate.id, candidate.address
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    const OLD: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
        {"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[
            {"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},
             "scope":"Namespaced","singularResource":"deployment","verbs":["get","list"]}]}]}]}"#;
    const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
        {"metadata":{"name":""},"versions":[{"version":"v1","freshness":"Current","resources":[
            {"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},
             "scope":"Namespaced","singularResource":"pod","verbs":["get","list"]}]}]}]}"#;

    fn write(dir: &Path, name: &str, text: &str) -> String {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    #[test]
    fn what_is_no_request_is_refused_with_how_to_write_one() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            Request::of(&words).map_err(|failure| failure.to_string())
        };
        for (words, method, target) in [
            (&["/api/v1/pods"][..], "GET", "/api/v1/pods"),
            (&["get", "/healthz"], "GET", "/healthz"),
            (&["PATCH", "/x?y=z"], "PATCH", "/x?y=z"),
        ] {
            let request = of(words).unwrap();
            assert_eq!((&*request.method, &*request.target), (method, target));
        }
        for (words, says) in [
            (
                &["FOO"][..],
                "\"FOO\" is not a path; write a path, such as /apis/",
            ),
            (&["GET"], "\"GET\" is not a path; "),
            (&["GET", "pods"], "\"pods\" is not a path; "),
            (&["FOO", "/x"], "\"FOO\" is no method; write one of GET, "),
            (
                &["list", "/api/v1/pods"],
                "a list is a GET of the collection",
            ),
        ] {
            let refused = of(words).unwrap_err();
            assert!(refused.contains(says), "{words:?}: {refused}");
        }
    }

    #[test]
    fn saved_documents_decide() {
        let temp = tempfile::tempdir().unwrap();
        let old = write(temp.path(), "old.json", OLD);
        let core = write(temp.path(), "core.json", CORE);
        let new = write(
            temp.path(),
            "new.json",
            &OLD.replace("apps", "new.example.com"),
        );
        let view = sources::saved(&format!("{old},{core}"), &[format!("v9={new}")]).unwrap();
        for (method, target, answer, peers) in [
            ("GET", "/apis/apps/v1/deployments", "local", &[][..]),
            ("GET", "/api/v1/pods", "local", &[]),
            ("GET", "/healthz", "local", &[]),
            (
                "GET",
                "/apis/new.example.com/v1/deployments",
                "peer",
                &["v9"],
            ),
            ("GET", "/apis/no.example.com/v1/deployments", "unknown", &[]),
        ] {
            let explanation = Explanation::of(method, target, &view).unwrap();
            assert_eq!(
                explanation.answer, answer,
                "{method} {target}: {explanation:?}"
            );
            let ids: Vec<_> = explanation
                .candidates
                .iter()
                .map(|peer| peer.id.as_str())
                .collect();
            assert_eq!(ids, peers, "{target}");
        }
    }

    #[test]
    fn a_server_that_may_have_no_proxy_is_not_said_to_send_a_request_on() {
        let temp = tempfile::tempdir().unwrap();
        let old = write(temp.path(), "old.json", OLD);
        let new = write(
            temp.path(),
            "new.json",
            &OLD.replace("apps", "new.example.com"),
        );
        let view = sources::saved(&old, &[new]).unwrap();
        let silent = |is_gateway| Silent {
            name: "old".to_owned(),
            url: "https://old:6443".to_owned(),
            is_gateway,
        };
        for (target, is_gateway, is, says) in [
            (
                "/apis/new.example.com/v1/deployments",
                false,
                "404 there, if nothing forwards it; with a gateway before these servers, or their own proxies, sent to ",
                Some("ask that: --gateway"),
            ),
            ("/apis/apps/v1/deployments", false, "answered here: ", None),
            (
                "/apis/apps/v1/deployments",
                true,
                "passed on by https://old:6443 to a server behind it that serves it",
                Some("old is a gateway"),
            ),
            (
                "/apis/new.example.com/v1/deployments",
                true,
                "not served by the server that answered at https://old:6443; a gateway with these servers behind it decides: ",
                Some("old is a gateway"),
            ),
            (
                "/healthz",
                true,
                "passed on by https://old:6443 to a server behind it: it is not a request for a resource",
                Some("old is a gateway"),
            ),
        ] {
            let mut explanation = Explanation::of("GET", target, &view).unwrap();
            silent(is_gateway).reword(&mut explanation);
            assert!(explanation.explanation.starts_with(is), "{explanation:?}");
            let note = silent(is_gateway).note(&explanation);
            assert_eq!(note.is_some(), says.is_some(), "{target}: {note:?}");
            assert!(note.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }

    #[test]
    fn an_explanation_names_what_is_asked_for_in_words() {
        let temp = tempfile::tempdir().unwrap();
        let old = write(temp.path(), "old.json", OLD);
        let view = sources::saved(&old, &[]).unwrap();
        let explanation = Explanation::of(
            "GET",
            "/apis/apps/v1/namespaces/x/deployments/y/scale",
            &view,
        )
        .unwrap();
        let words = in_words(&explanation);
        assert!(
            words.contains("asks to get deployments/scale.v1.apps named y in namespace x"),
            "{words}"
        );
    }

    #[test]
    fn a_file_that_is_no_document_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let bad = write(temp.path(), "bad.json", "{}");
        let message = sources::saved(&bad, &[]).unwrap_err().to_string();
        assert!(message.contains("bad.json"), "{message}");
        let message = sources::saved("/there/is/none", &[])
            .unwrap_err()
            .to_string();
        assert!(message.contains("/there/is/none"), "{message}");
    }
}
