//! Reading the text form of metrics: the samples of one name, with their labels.
//!
//! What is not as the format says is passed over: another server's metrics are looked at, not checked.

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Label names and values.
    pub(super) labels: Vec<(String, String)>,
    /// Its value.
    pub(super) value: f64,
}

impl Sample {
    /// The value of a label; empty when there is none.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(n, _)| n == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The samples of a metric.
pub(super) fn samples<'t>(text: &'t str, name: &str) -> Vec<Sample> {
    let own = |line: &'t str| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then_some(rest)
    };
    text.lines().filter_map(own).filter_map(sample).collect()
}

/// The sum of a metric's samples that `wanted` takes; `None` when there is no sample at all.
pub(super) fn sum(text: &str, name: &str, wanted: impl Fn(&Sample) -> bool) -> Option<f64> {
    let samples = samples(text, name);
    let taken = samples.iter().filter(|s| wanted(s)).map(|s| s.value);
    // Not `sum`, which is -0 for nothing.
    (!samples.is_empty()).then(|| taken.fold(0.0, |sum, value| sum + value))
}

fn sample(rest: &str) -> Option<Sample> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquoted(quoted)?;
        labels.push((name.to_owned(), value));
        rest = after;
    }
}

/// A label's value up to its closing quote, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a x\n# TYPE a counter\na{code=\"200\",g=\"x,}\\\"y\\n\"} 3\na{code=\"503\"} 2 1700\nab 9\nb 1.5\na{broken\n";

    #[test]
    fn samples_are_read_with_their_labels() {
        let found = samples(TEXT, "a");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].label("g"), "x,}\"y\n");
        assert_eq!(found[1].label("g"), "");
        assert_eq!(
            sum(TEXT, "a", |s| s.label("code").starts_with('5')),
            Some(2.0)
        );
        assert_eq!(sum(TEXT, "b", |_| true), Some(1.5));
        assert_eq!(sum(TEXT, "c", |_| true), None);
        let none = sum(TEXT, "a", |_| false).map(|it| it.to_string());
        assert_eq!(none.as_deref(), Some("0"));
    }
}
