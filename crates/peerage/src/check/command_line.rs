//! The flags of a kube-apiserver: which of those that the Mixed Version Proxy needs are missing, and which do nothing.
//!
//! They come from the mirror pods that kubelets make of static pods, or from files. What is missing is what
//! `--print kubeadm` writes.

#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::Value;

use super::report::{Item, Verdict};
use super::rights;
use super::world::{CommandLine, Server, Way, World, good};
use crate::diff::lifecycle::Release;
use crate::output::one_line;

const CHECK: &str = "flags";
/// The gate of kube-apiserver's own proxy.
pub(super) const GATE: &str = "UnknownVersionInteroperabilityProxy";
/// The gate of what servers know each other by. It is on by itself since 1.26.
pub(super) const IDENTITY: &str = "APIServerIdentity";
/// The release that has the gate on by itself.
pub(super) const ON_BY_DEFAULT: Release = Release(1, 36);
/// The releases in which `--peer-advertise-ip` and `-port` were seen to do nothing.
const IGNORES_ADVERTISE: [Release; 3] = [Release(1, 35), Release(1, 36), Release(1, 37)];

/// A flag that the proxy needs, with the value that kubeadm's files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needed {
    /// Its name, without dashes.
    pub(super) flag: &'static str,
    /// Its value.
    pub(super) value: &'static str,
    /// What happens without it.
    pub(super) without: &'static str,
}

/// What the proxy needs, beside the gate.
pub(super) const NEEDED: [Needed; 7] = [
    Needed {
        flag: "peer-ca-file",
        value: "/etc/kubernetes/pki/ca.crt",
        without: "nothing is rerouted and no discovery merged, silently",
    },
    Needed {
        flag: "proxy-client-cert-file",
        value: "/etc/kubernetes/pki/front-proxy-client.crt",
        without: "with --peer-ca-file it does not start",
    },
    Needed {
        flag: "proxy-client-key-file",
        value: "/etc/kubernetes/pki/front-proxy-client.key",
        without: "with --peer-ca-file it does not start",
    },
    Needed {
        flag: "requestheader-client-ca-file",
        value: "/etc/kubernetes/pki/front-proxy-ca.crt",
        without: "it believes no peer and answers 401 or 403",
    },
    Needed {
        flag: "requestheader-username-headers",
        value: "X-Remote-User",
        without: "it does not read who the user of a peer's request is",
    },
    Needed {
        flag: "requestheader-group-headers",
        value: "X-Remote-Group",
        without: "it does not read the groups of a peer's request",
    },
    Needed {
        flag: "requestheader-extra-headers-prefix",
        value: "X-Remote-Extra-",
        without: "it does not read the extra fields of a peer's request",
    },
];

/// What one word, or two, of a command line say of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given<'a> {
    /// `--flag` alone: on, if it is a switch; else the server would not start.
    Bare,
    /// `--flag=value` or `--flag value`; the value may be empty, which is as good as none.
    Value(&'a str),
}

impl CommandLine {
    /// What is said of a flag, from the first time to the last.
    fn given(&self, flag: &str) -> impl Iterator<Item = Given<'_>> {
        self.args.iter().enumerate().filter_map(move |(at, arg)| {
            let rest = arg.strip_prefix("--")?;
            let (name, value) = match rest.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (rest, None),
            };
            // Kubernetes' flags may be written with underscores.
            if name.replace('_', "-") != flag {
                return None;
            }
            let next = || self.args.get(at + 1).map(String::as_str);
            let value = value.or_else(|| next().filter(|it| !it.starts_with('-')));
            Some(value.map_or(Given::Bare, Given::Value))
        })
    }

    /// What is said of a flag; the last time counts. None if nothing is.
    pub(super) fn last(&self, flag: &str) -> Option<Given<'_>> {
        self.given(flag).last()
    }

    /// The value of a flag, if it has one.
    pub(super) fn value(&self, flag: &str) -> Option<&str> {
        match self.last(flag) {
            Some(Given::Value(value)) if !value.is_empty() => Some(value),
            _ => None,
        }
    }

    /// All feature gates as they are written, name and value; every `--feature-gates` counts, and of one gate the last.
    pub(super) fn gates(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        let lists: Vec<&str> = self
            .given("feature-gates")
            .filter_map(|given| match given {
                Given::Value(list) => Some(list),
                Given::Bare => None,
            })
            .collect();
        let words = lists.into_iter().flat_map(|list| list.split(','));
        words.filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((gate_name(name), value.trim()))
        })
    }

    /// What it says of a feature gate.
    pub(super) fn gate(&self, gate: &str) -> Option<bool> {
        let (_, value) = self.gates().rev().find(|(name, _)| *name == gate)?;
        Some(value.eq_ignore_ascii_case("true"))
    }

    /// The release whose defaults hold.
    pub(super) fn emulated(&self) -> Option<Release> {
        let emulated = self
            .value("emulated-version")
            .and_then(|text| Release::parse(text.rsplit(':').next().unwrap_or(text)));
        emulated.or(self.release)
    }

    /// Whether the gate has to be turned on; unknown releases count as old ones.
    pub(super) fn lacks_gate(&self) -> bool {
        match self.gate(GATE) {
            Some(on) => !on,
            None => self
                .emulated()
                .is_none_or(|release| release < ON_BY_DEFAULT),
        }
    }

    /// Whether it was taken from the server what its peers know it by.
    pub(super) fn lacks_identity(&self) -> bool {
        self.gate(IDENTITY) == Some(false)
    }

    /// Whether its feature gates have to be others.
    pub(super) fn has_wrong_gates(&self) -> bool {
        self.lacks_gate() || self.lacks_identity()
    }

    /// The flags that the proxy needs and that are not there.
    pub(super) fn missing(&self) -> Vec<Needed> {
        let missing = |needed: &Needed| self.value(needed.flag).is_none();
        NEEDED.into_iter().filter(missing).collect()
    }
}

/// The name of a gate, which may have its component before it: `kube:Gate`.
fn gate_name(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("kube:").unwrap_or(text)
}

/// The command lines of kube-apiservers in a list of pods, or in one pod.
pub(super) fn of_pods(document: &Value) -> Vec<CommandLine> {
    let pods = match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document.clone()],
    };
    let containers = pods.iter().flat_map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap_or("kube-apiserver");
        let containers = pod["spec"]["containers"].as_array().cloned();
        let containers = containers.unwrap_or_default().into_iter();
        containers.filter_map(move |it| of_container(name, &it))
    });
    containers.collect()
}

fn of_container(pod: &str, container: &Value) -> Option<CommandLine> {
    let words = |key: &str| {
        let words = container[key].as_array().cloned().unwrap_or_default();
        words
            .iter()
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let mut args = words("command");
    args.extend(words("args"));
    let program = args.first()?;
    if !program.ends_with("kube-apiserver") {
        return None;
    }
    args.remove(0);
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit_once(':').map(|(_, tag)| tag);
    Some(CommandLine {
        // It gets into comments of what is printed.
        origin: one_line(pod),
        release: tag.and_then(Release::parse),
        args,
    })
}

/// The command lines of a file: a static pod, or a list of pods.
pub(super) fn of_file(file: &Path) -> Result<Vec<CommandLine>, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let document: Value =
        crate::yaml::read(&text).map_err(|e| format!("{}: not YAML: {e}", file.display()))?;
    let mut found = of_pods(&document);
    if found.is_empty() {
        return Err(format!(
            "{}: no kube-apiserver container in it",
            file.display()
        ));
    }
    for it in &mut found {
        it.origin = file.display().to_string();
    }
    Ok(found)
}

/// All command lines that are known.
pub(super) fn all(world: &World) -> Vec<CommandLine> {
    let mut all = world.manifests.clone();
    if let Ok(pods) = good(&world.pods) {
        all.extend(of_pods(&pods.json()));
    }
    all
}

/// Judges the flags of every kube-apiserver that are known.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let lines = all(world);
    if !lines.is_empty() {
        let way = world.way();
        return lines.iter().map(|line| judge_line(line, way)).collect();
    }
    if world.nobody_answers() {
        return Vec::new();
    }
    let only_peerage = world.answering().all(Server::is_peerage);
    match good(&world.pods) {
        Err(problem) if !only_peerage => {
            vec![rights::unread(CHECK, "", rights::PODS, &problem)]
        }
        _ => vec![Item::skip(
            CHECK,
            "",
            "no pod in kube-system is a kube-apiserver (label component=kube-apiserver); --manifest takes its flags from a file",
        )],
    }
}

/// Judges the flags of one kube-apiserver.
pub(super) fn judge_line(line: &CommandLine, way: Way) -> Item {
    if way == Way::Unknown {
        return judge_either_way(line);
    }
    let subject = &line.origin;
    let lacking = lacking(line, way == Way::Gateways);
    let (mut says, fixes): (Vec<String>, Vec<String>) = lacking.into_iter().unzip();
    let ignored = ignored(line);
    says.extend(ignored.as_ref().map(|flags| {
        format!("{flags} do nothing in Kubernetes 1.35 to 1.37: peers are told --advertise-address and --secure-port")
    }));
    let says = says.join("; ");
    let flags = || {
        let flags = fixes.join(" ");
        format!("{flags} (`peerage check --print kubeadm` writes it)")
    };
    match (fixes.is_empty(), ignored) {
        (false, _) => match way {
            Way::NotYet(_) => Item::warn(CHECK, subject, says).fix(format!(
                "before the upgrade begins, unless clients come through a gateway: {}",
                flags()
            )),
            Way::Own | Way::Gateways | Way::Unknown => {
                Item::fail(CHECK, subject, says).fix(flags())
            }
        },
        (true, Some(flags)) => Item::warn(CHECK, subject, says).fix(format!(
            "remove {flags}, and make --advertise-address reachable for the other servers"
        )),
        (true, None) => Item::pass(
            CHECK,
            subject,
            match way {
                Way::Gateways => {
                    "all are there by which it believes a gateway; what its own proxy needs is not needed"
                }
                Way::Own | Way::NotYet(_) | Way::Unknown => "all that the proxy needs are there",
            },
        ),
    }
}

/// The flags of a server of which it is not known whether it stands behind a gateway: what either way takes is judged.
fn judge_either_way(line: &CommandLine) -> Item {
    let [behind, own] = [Way::Gateways, Way::Own].map(|way| judge_line(line, way));
    match (behind.verdict, own.verdict) {
        (Verdict::Fail, _) => behind,
        (_, Verdict::Fail) => {
            let says = format!(
                "not judged while a gateway that was named does not answer; without one it would matter that {}",
                own.says
            );
            Item::skip(CHECK, &line.origin, says)
        }
        _ => own,
    }
}

/// What the proxy needs and the server was not given, each with what to do about it. For a gateway before it the server
/// needs no more than to believe it.
fn lacking(line: &CommandLine, for_gateway: bool) -> Vec<(String, String)> {
    let mut lacking = Vec::new();
    if line.lacks_identity() && !for_gateway {
        lacking.push((
            format!("the gate {IDENTITY} is off, so it has no identity"),
            format!("remove {IDENTITY}=false from --feature-gates"),
        ));
    }
    if line.lacks_gate() && !for_gateway {
        lacking.push((
            format!("the gate {GATE} is off"),
            format!("--feature-gates={GATE}=true"),
        ));
    }
    let missing = line.missing().into_iter();
    let missing = missing.filter(|it| !for_gateway || it.flag.starts_with("requestheader-"));
    lacking.extend(missing.map(|needed| {
        let how = match line.last(needed.flag) {
            None => "no",
            Some(_) => "no value after",
        };
        (
            format!("{how} --{}: {}", needed.flag, needed.without),
            format!("--{}={}", needed.flag, needed.value),
        )
    }));
    lacking
}

/// The flags that were given and do nothing.
fn ignored(line: &CommandLine) -> Option<String> {
    let ignores = line
        .release
        .is_none_or(|release| IGNORES_ADVERTISE.contains(&release));
    let given = ["peer-advertise-ip", "peer-advertise-port"]
        .into_iter()
        .filter(|flag| ignores && line.value(flag).is_some());
    let given: Vec<String> = given.map(|flag| format!("--{flag}")).collect();
    (!given.is_empty()).then(|| given.join(" and "))
}
