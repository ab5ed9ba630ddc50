//! The feature gates of several kube-apiservers as one list: kubeadm's ClusterConfiguration has one for all of them, and
//! what is not in it is off, or on, by default.
//!
//! Invariant: no gate that any server has is left out, but for those that the proxy decides on.

use crate::check::command_line::{GATE, IDENTITY};
use crate::check::world::CommandLine;

/// Gates in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Gates {
    gates: Vec<Gate>,
    /// What a person has to decide.
    pub(super) conflicts: Vec<String>,
}

#[derive(Debug)]
struct Gate {
    name: String,
    /// Each value, and on which servers it is.
    values: Vec<(String, Vec<String>)>,
}

impl Gates {
    /// Those of all servers, but for the proxy's, which has to be on, and that of their identity, which is on by itself.
    pub(super) fn of(lines: &[CommandLine]) -> Gates {
        let mut gates = Gates::default();
        for line in lines {
            for (name, _) in line
                .gates()
                .filter(|(name, _)| ![GATE, IDENTITY].contains(name))
            {
                // Of one server the last word counts.
                let value = if line.gate(name) == Some(true) {
                    "true"
                } else {
                    "false"
                };
                gates.note(name, value, &line.origin);
            }
        }
        gates.conflicts = gates.gates.iter().filter_map(Gate::conflict).collect();
        gates
    }

    fn note(&mut self, name: &str, value: &str, origin: &str) {
        let at = self.gates.iter().position(|gate| gate.name == name);
        let at = at.unwrap_or_else(|| {
            self.gates.push(Gate {
                name: name.to_owned(),
                values: Vec::new(),
            });
            self.gates.len() - 1
        });
        let values = &mut self.gates[at].values;
        match values.iter_mut().find(|(known, _)| known == value) {
            Some((_, origins)) if origins.iter().any(|it| it == origin) => {}
            Some((_, origins)) => origins.push(origin.to_owned()),
            None => values.push((value.to_owned(), vec![origin.to_owned()])),
        }
    }

    /// The value of `--feature-gates` for all servers, with the gate of the proxy on. Of a conflict it has the value that
    /// was found first.
    pub(super) fn with_proxy(&self) -> String {
        let word = |gate: &Gate| Some(format!("{}={}", gate.name, gate.values.first()?.0));
        let mut words: Vec<String> = self.gates.iter().filter_map(word).collect();
        words.push(format!("{GATE}=true"));
        words.join(",")
    }
}

impl Gate {
    fn conflict(&self) -> Option<String> {
        let values = self.values.iter();
        let values = values.map(|(value, origins)| format!("{value} on {}", origins.join(", ")));
        let values: Vec<String> = values.collect();
        (values.len() > 1).then(|| {
            let (name, values) = (&self.name, values.join(", "));
            format!("Decide on the gate {name}: {values}; here it is for all as on the first")
        })
    }
}
