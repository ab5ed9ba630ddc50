//! Transcripts: what kubectl printed, command after command, and what it prints now.
//!
//! `data/kubectl/README.md` says how they were made. A transcript needs a server of its own that nobody has used.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;

use super::mask::mask;
use super::{Kubectl, Said};

/// Commands in order, and what came of each.
#[derive(Debug, Clone)]
pub struct Transcript {
    commands: Vec<Command>,
    recorded: Vec<Printed>,
}

/// A command.
#[derive(Debug, Clone)]
struct Command {
    /// Its words; the second of the same words has ` (2)` behind them.
    name: String,
    args: Vec<String>,
    stdin: Option<String>,
    /// Why only its exit code is compared.
    unstable: Option<String>,
}

/// What came of a command, masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    code: i32,
    out: String,
    err: String,
}

/// A command of which something else came.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The command's words; the second of the same words has ` (2)` behind them.
    pub command: String,
    /// What was recorded (`-`) and what came (`+`), line by line.
    pub how: String,
}

/// A command in the file.
#[derive(Deserialize)]
struct Entry {
    args: Vec<String>,
    stdin: Option<String>,
    exit_code: i32,
    stdout: String,
    stderr: String,
    unstable: Option<String>,
}

impl Transcript {
    /// The transcript of a kubectl version such as `1.37`.
    pub fn load(version: &str) -> Self {
        let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/kubectl");
        let file = data.join(format!("{version}.json.gz"));
        let packed = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut text = String::new();
        let mut unpacked = flate2::read::GzDecoder::new(packed.as_slice());
        unpacked.read_to_string(&mut text).unwrap();
        let entries: Vec<Entry> = serde_json::from_str(&text).unwrap();
        let mut transcript = Self {
            commands: Vec::new(),
            recorded: Vec::new(),
        };
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for entry in entries {
            let words = entry.args.join(" ");
            let count = seen.entry(words.clone()).or_default();
            *count += 1;
            let name = match count {
                1 => words,
                _ => format!("{words} ({count})"),
            };
            transcript.recorded.push(Printed {
                code: entry.exit_code,
                out: entry.stdout,
                err: entry.stderr,
            });
            transcript.commands.push(Command {
                name,
                args: entry.args,
                stdin: entry.stdin,
                unstable: entry.unstable,
            });
        }
        transcript
    }

    /// How many commands it has.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Runs every command, in order.
    pub async fn run(&self, kubectl: &Kubectl) -> Vec<Printed> {
        let mut printed = Vec::new();
        for command in &self.commands {
            let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
            let stdin = command.stdin.as_deref().unwrap_or_default();
            let said = kubectl.run_with(&args, stdin).await;
            printed.push(Printed::of(said, &command.args));
        }
        printed
    }

    /// The commands of which something else came than when they were recorded.
    pub fn differences(&self, seen: &[Printed]) -> Vec<Difference> {
        let pairs = self.recorded.iter().zip(seen);
        let all = self.commands.iter().zip(pairs);
        let differing = all.filter(|(command, (expected, seen))| match command.unstable {
            Some(_) => expected.code != seen.code,
            None => expected != seen,
        });
        let difference =
            |(command, (expected, seen)): (&Command, (&Printed, &Printed))| Difference {
                command: command.name.clone(),
                how: expected.against(seen),
            };
        differing.map(difference).collect()
    }
}

impl Printed {
    fn of(said: Said, args: &[String]) -> Self {
        Self {
            code: said.code,
            out: mask(&said.out, args),
            err: mask(&said.err, args),
        }
    }

    /// The lines that only one of the two has.
    fn against(&self, seen: &Self) -> String {
        let mut words = String::new();
        if self.code != seen.code {
            words += &format!("    exit code {}, not {}\n", seen.code, self.code);
        }
        for (expected, seen) in [(&self.out, &seen.out), (&self.err, &seen.err)] {
            let lines = |text: &str, other: &str, mark: &str| -> String {
                let only = text.lines().filter(|l| !other.lines().any(|o| o == *l));
                only.map(|line| format!("    {mark} {line}\n")).collect()
            };
            words += &lines(expected, seen, "-");
            words += &lines(seen, expected, "+");
        }
        if words.is_empty() {
            words += "    the same lines in another order or number\n";
        }
        words
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "  kubectl {}\n{}", self.command, self.how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_does_not_differ_from_itself_and_names_each_command_once() {
        for version in ["1.28", "1.37"] {
            let transcript = Transcript::load(version);
            assert_eq!(transcript.len(), 215);
            assert!(transcript.differences(&transcript.recorded).is_empty());
            let names = transcript.commands.iter().map(|command| &command.name);
            let names: std::collections::BTreeSet<_> = names.collect();
            assert_eq!(names.len(), transcript.len());
        }
    }

    #[test]
    fn a_difference_shows_the_lines_that_differ() {
        let transcript = Transcript::load("1.37");
        let mut seen = transcript.recorded.clone();
        let entry = &mut seen[0];
        entry.code = 1;
        entry.out = entry
            .out
            .replace("Server Version: v1.37.2", "Server Version: v1.34.4");
        let differences = transcript.differences(&seen);
        assert_eq!(differences.len(), 1);
        assert_eq!(
            differences[0].to_string(),
            "  kubectl version\n    exit code 1, not 0\n    - Server Version: v1.37.2\n    + Server Version: v1.34.4\n"
        );
    }
}
