//! Reading YAML that people wrote, without showing it when it is wrong.
//!
//! Invariant: a message has the place and the kind of the mistake and nothing of the text: the files that are read hold
//! tokens and keys, and messages end in logs and tickets.

use serde::de::DeserializeOwned;
use serde_saphyr::Error;

/// Reads a document.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| problem(&error))
}

/// What is wrong and where.
fn problem(error: &Error) -> String {
    let error = error.without_snippet();
    // The reader would name the value that it found.
    let expected = match error {
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            expected
        }
        other => return other.to_string(),
    };
    match error.location() {
        Some(at) => format!(
            "expected {expected} at line {}, column {}",
            at.line(),
            at.column()
        ),
        None => format!("expected {expected}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;

    #[derive(Debug, Deserialize)]
    struct File {
        #[serde(rename = "users")]
        _users: Vec<User>,
    }

    #[derive(Debug, Deserialize)]
    struct User {
        #[serde(rename = "token")]
        _token: Option<u16>,
    }

    #[test]
    fn a_mistake_is_told_without_the_secret_beside_it() {
        for (text, place) in [
            ("users:\n- token: SECRET: x\n", "line 2"),
            ("users:\n- token: \"SECRET\n", "line 2"),
            ("users:\n- token: SECRET\n", "line 2"),
            ("users: SECRET\n", "line 1"),
            ("users:\n- SECRET\n", "line 2"),
            ("users:\n- token: [SECRET]\n", "line 2"),
            ("users:\n- {token: 1, token: SECRET}\n", "line 2"),
        ] {
            let problem = read::<File>(text).unwrap_err();
            assert!(!problem.contains("SECRET"), "{text:?}: {problem}");
            assert!(problem.contains(place), "{text:?}: {problem}");
            assert!(!problem.contains('\n') && !problem.contains("<input>"));
        }
        let problem = read::<Value>("token: SECRET: x\n").unwrap_err();
        assert!(!problem.contains("SECRET"), "{problem}");
    }
}
