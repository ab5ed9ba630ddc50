//! Why an answer differs where it should: `data/reasons/NAME.txt`.
//!
//! A line is `reason | step | why`; empty lines and lines that begin with `#` are left out. A step that differs
//! without a line is a fault of ours, and a line whose step agrees has to go.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::model::data;
use super::replay::Run;

/// Why a good answer differs from a recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It needs a feature that is still to come.
    Later,
    /// The recorded answer is a fault of Kubernetes.
    Fault,
    /// The recorded answer is about the recorded server's own surroundings.
    Recorder,
    /// The recorded answer names parts inside kube-apiserver that are not here.
    Internal,
}

impl FromStr for Reason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "later" => Ok(Self::Later),
            "fault" => Ok(Self::Fault),
            "recorder" => Ok(Self::Recorder),
            "internal" => Ok(Self::Internal),
            _ => Err(format!(
                "{text:?} is none of later, fault, recorder and internal"
            )),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Later => "later",
            Self::Fault => "fault",
            Self::Recorder => "recorder",
            Self::Internal => "internal",
        })
    }
}

/// The reasons of one recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasons(BTreeMap<String, (Reason, String)>);

impl Reasons {
    /// The reasons of a recording of this crate; none when there is no file.
    pub fn load(recording: &str) -> Self {
        let file = data().join(format!("reasons/{recording}.txt"));
        match std::fs::read_to_string(&file) {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|e| panic!("{}: {e}", file.display())),
            Err(_) => Self::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reason of a step.
    pub fn of(&self, step: &str) -> Option<(Reason, &str)> {
        self.0
            .get(step)
            .map(|(reason, why)| (*reason, why.as_str()))
    }

    /// The steps that differ without a reason.
    pub fn unexplained<'r>(&self, run: &'r Run) -> Vec<&'r str> {
        let steps = run.differing().map(|outcome| outcome.step.as_str());
        steps.filter(|step| !self.0.contains_key(*step)).collect()
    }

    /// The reasons whose step agrees, or does not exist.
    pub fn stale(&self, run: &Run) -> Vec<&str> {
        let differing: Vec<&str> = run.differing().map(|o| o.step.as_str()).collect();
        let steps = self.0.keys().map(String::as_str);
        steps.filter(|step| !differing.contains(step)).collect()
    }
}

impl FromStr for Reasons {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut reasons = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut parts = line.splitn(3, " | ").map(str::trim);
            let (Some(reason), Some(step), Some(why)) = (parts.next(), parts.next(), parts.next())
            else {
                return Err(format!("{line:?} is not `reason | step | why`"));
            };
            let entry = (reason.parse()?, why.to_owned());
            if reasons.insert(step.to_owned(), entry).is_some() {
                return Err(format!("{step:?} has two reasons"));
            }
        }
        Ok(Self(reasons))
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay::Outcome;
    use super::*;

    #[test]
    fn reasons_without_a_difference_and_differences_without_a_reason_are_told() {
        let reasons: Reasons =
            "# a remark\n\nfault | b | it is a 500\nlater | c | apply | not yet\n"
                .parse()
                .unwrap();
        assert_eq!(reasons.of("c"), Some((Reason::Later, "apply | not yet")));
        let outcome = |step: &str, differences: &[&str]| Outcome {
            step: step.to_owned(),
            differences: differences.iter().map(|d| (*d).to_owned()).collect(),
            trail: Default::default(),
        };
        let run = Run {
            recording: "x".to_owned(),
            recorded: "v1".to_owned(),
            outcomes: vec![
                outcome("a", &["x"]),
                outcome("b", &["x"]),
                outcome("c", &[]),
            ],
        };
        assert_eq!(reasons.unexplained(&run), ["a"]);
        assert_eq!(reasons.stale(&run), ["c"]);
    }

    #[test]
    fn lines_that_say_nothing_are_refused() {
        for text in [
            "fault | a",
            "because | a | b",
            "later | a | b\nlater | a | c",
        ] {
            assert!(text.parse::<Reasons>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_file_of_reasons_can_be_read() {
        for name in super::super::NAMES {
            Reasons::load(name);
        }
    }
}
