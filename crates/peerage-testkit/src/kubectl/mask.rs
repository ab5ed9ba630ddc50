//! What differs from run to run in what kubectl prints is made the same; the transcripts were masked in the same way.

use std::sync::LazyLock;

use regex::Regex;

/// What is looked for anywhere in the text and what stands in its place, one after the other.
const ANYWHERE: [(&str, &str); 20] = [
    ("\x1b\\[[0-9;]*m", ""),
    (r"https?://(127\.0\.0\.1|localhost|\[::1\]):\d+", "<server>"),
    (r"\b(127\.0\.0\.1|localhost):\d+", "<server>"),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
    (r"X509SHA256=[0-9a-f]+", "X509SHA256=<hash>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
    (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
        "<time>",
    ),
    (
        r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}",
        "<time>",
    ),
    (
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}",
        "<time>",
    ),
    (
        r"\b[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ (\S+?):\d+\]",
        "<log $1>",
    ),
    (r#"(resourceVersion"?: ?)"?\d+"?"#, "$1<rv>"),
    (r"(?m)^(Resource Version: +)\d+", "$1<rv>"),
    (r"\b10\.0\.0\.\d+\b", "<ip>"),
    (r"\S*/(LIVE|MERGED)-\d+", "$1"),
    (r"\S*kubectl-(edit|diff|\w+)-\d+(\.\w+)?", "<file $1>"),
    (r"kube-api-access-\w{5}", "kube-api-access-<suffix>"),
    (r"\bnode-debugger-\S+|debugger-\w{5}", "<debugger>"),
    (r"<invalid>", "<age>"),
    (r"<unknown>( *\n?)$", "<age>$1"),
    (r"(?m)[ \t]+$", ""),
];

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled = ANYWHERE.map(|(pattern, by)| (Regex::new(pattern).unwrap(), by));
    compiled.into()
});

/// What separates two columns.
static GAP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[ \t]{2,}").unwrap());

/// A column that is an age, maybe with `(x2 over 3s)` behind it.
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smhdy]){1,2}( \(|$)").unwrap());

/// The lines of an explanation that are not prose.
static STRUCTURE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^([A-Z]+:|\s+\S+\s+<|error|the server)").unwrap());

/// What kubectl 1.37 logs now and then when its own time for waiting is over: which it sees first, that the wait has ended or
/// that the watch has, is by chance (at a kube-apiserver, without anything between: 2 of 60 on two busy cores).
static ENDED_WATCH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?m)^<log reflector\.go> "Warning: watch ended with error".*very short watch.*\n"#,
    )
    .unwrap()
});

/// What a command printed, without what differs from run to run.
pub(super) fn mask(text: &str, args: &[String]) -> String {
    let mut text = text.to_owned();
    for (pattern, by) in PATTERNS.iter() {
        text = pattern.replace_all(&text, *by).into_owned();
    }
    if args.iter().any(|arg| arg.starts_with("--timeout=")) {
        text = ENDED_WATCH.replace_all(&text, "").into_owned();
    }
    let mut lines: Vec<String> = text.split('\n').map(columns).collect();
    if args.iter().any(|arg| arg == "explain") {
        lines.retain(|line| STRUCTURE.is_match(line));
    }
    lines.join("\n")
}

/// A line with two spaces between its columns, and without ages.
fn columns(line: &str) -> String {
    let text = line.trim_start_matches([' ', '\t']);
    let indent = &line[..line.len() - text.len()];
    let mut columns: Vec<String> = GAP.split(text).map(str::to_owned).collect();
    // What stands at the very beginning is a name, whatever it looks like.
    let first = usize::from(!indent.ends_with("  "));
    for column in columns.iter_mut().skip(first) {
        *column = AGE.replace(column, "<age>$2").into_owned();
    }
    format!("{indent}{}", columns.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        mask(text, &["get".to_owned()])
    }

    #[test]
    fn ages_in_columns_are_masked_and_names_are_not() {
        assert_eq!(
            masked("NAME   AGE\n5s     1m30s\n"),
            "NAME  AGE\n5s  <age>\n"
        );
        assert_eq!(
            masked("  Normal  Pulled  5s (x2 over 3m)  kubelet"),
            "  Normal  Pulled  <age> (x2 over 3m)  kubelet"
        );
        assert_eq!(masked("for 300s\n"), "for 300s\n");
        assert_eq!(
            masked("a   <unknown>\nb   <unknown>\n"),
            "a  <unknown>\nb  <age>\n"
        );
    }

    #[test]
    fn addresses_times_and_versions_are_masked() {
        assert_eq!(masked("at https://127.0.0.1:6443"), "at <server>");
        assert_eq!(
            masked("\"resourceVersion\": \"12\""),
            "\"resourceVersion\": <rv>"
        );
        assert_eq!(masked("2026-11-29T10:00:00Z"), "<time>");
        assert_eq!(
            masked("W1130 02:42:46.123456   12345 warnings.go:70] old"),
            "<log warnings.go> old"
        );
    }

    #[test]
    fn of_a_wait_that_is_over_its_ended_watch_is_left_out() {
        let text = "W1130 02:42:46.123456   12345 reflector.go:664] \"Warning: watch ended with error\" \
                    reflector=\"a.go:1\" err=\"very short watch: a.go:1: Unexpected watch close\"\n\
                    error: timed out waiting for the condition on configmaps/a\n";
        let waits = ["wait", "--timeout=1s"].map(str::to_owned);
        assert_eq!(
            mask(text, &waits),
            "error: timed out waiting for the condition on configmaps/a\n"
        );
        assert!(mask(text, &waits[..1]).contains("very short watch"));
    }

    #[test]
    fn of_an_explanation_the_structure_is_kept() {
        let text = "KIND:  Pod\n\nDESCRIPTION:\n  Prose.\n\nFIELDS:\n  a\t<string>\n    More.\n";
        let seen = mask(text, &["explain".to_owned(), "pods".to_owned()]);
        assert_eq!(seen, "KIND:  Pod\nDESCRIPTION:\nFIELDS:\n  a\t<string>");
    }
}
