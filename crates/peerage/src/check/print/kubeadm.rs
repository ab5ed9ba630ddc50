//! What kube-apiservers lack for Kubernetes' own proxy, as kubeadm's ClusterConfiguration.
//!
//! Invariant: a server that is given what is printed passes the checklist's judgement of its flags.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Facts;
use super::gates::Gates;
use crate::check::command_line::{GATE, NEEDED, ON_BY_DEFAULT};
use crate::check::world::CommandLine;

/// The flags that any of the kube-apiservers lacks, with their values, by name.
fn missing(facts: &Facts) -> BTreeMap<&'static str, String> {
    let mut missing = BTreeMap::new();
    if facts.lines.is_empty() {
        // kubeadm itself sets all others.
        missing.insert("feature-gates", format!("{GATE}=true"));
        let peer_ca = NEEDED.iter().filter(|it| it.flag == "peer-ca-file");
        missing.extend(peer_ca.map(|it| (it.flag, it.value.to_owned())));
        return missing;
    }
    for line in &facts.lines {
        let lacks = line.missing();
        missing.extend(lacks.iter().map(|it| (it.flag, it.value.to_owned())));
    }
    if facts.lines.iter().any(CommandLine::has_wrong_gates) {
        missing.insert("feature-gates", Gates::of(&facts.lines).with_proxy());
    }
    missing
}

/// The configuration in one of its versions, or that nothing is missing.
pub(super) fn text(version: &str, facts: &Facts) -> String {
    let missing = missing(facts);
    if missing.is_empty() {
        return format!(
            "# Nothing is missing: {} has all flags that Kubernetes' own proxy needs.",
            facts
                .lines
                .iter()
                .map(|it| it.origin.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let mut text = what_for(facts, missing.contains_key("feature-gates"));
    let _ = writeln!(
        text,
        "apiVersion: kubeadm.k8s.io/{version}\nkind: ClusterConfiguration\napiServer:\n  extraArgs:"
    );
    for (name, value) in missing {
        let _ = match version {
            "v1beta3" => writeln!(text, "    {name}: \"{value}\""),
            _ => writeln!(text, "  - name: {name}\n    value: \"{value}\""),
        };
    }
    text.trim_end().to_owned()
}

/// What to do with the configuration, who lacks what of it, and what in it needs a decision.
fn what_for(facts: &Facts, with_gates: bool) -> String {
    let mut text = "# What kube-apiservers need for Kubernetes' own proxy, beside what kubeadm sets.\n\
         # Merge it into the ClusterConfiguration (kubectl -n kube-system get configmap kubeadm-config -o yaml), then on each\n\
         # control plane node, one after another: kubeadm init phase control-plane apiserver --config FILE\n"
        .to_owned();
    if facts.lines.is_empty() && with_gates {
        let _ = writeln!(
            text,
            "# The gate is on by default since {ON_BY_DEFAULT}; there feature-gates can be left out."
        );
    }
    for line in &facts.lines {
        let mut lacks: Vec<_> = line.missing().iter().map(|it| it.flag).collect();
        if line.has_wrong_gates() {
            lacks.push("feature-gates");
        }
        if !lacks.is_empty() {
            let _ = writeln!(text, "# {} lacks {}", line.origin, lacks.join(", "));
        }
    }
    if with_gates {
        for conflict in Gates::of(&facts.lines).conflicts {
            let _ = writeln!(text, "# {conflict}");
        }
    }
    text
}
