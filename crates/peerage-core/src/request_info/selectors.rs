//! What a list's selectors say about the request: the one name that a field selector pins.
//!
//! Kubernetes decodes all list options before it looks at the selector, so one that fails to decode hides the
//! name. Matching objects against selectors is `peerage-objects`' work.

use crate::query::Query;

/// The name that the field selector requires, when all list options decode and it is a name that a path
/// could hold.
pub(super) fn pinned_name(query: &Query<'_>) -> Option<String> {
    let field_selector = query.first("fieldSelector")?;
    let decodes = ["limit", "timeoutSeconds"].into_iter().all(|key| {
        query
            .first(key)
            .is_none_or(|value| value.parse::<i64>().is_ok())
    }) && query.first("labelSelector").is_none_or(is_label_selector);
    if !decodes {
        return None;
    }
    required_name(field_selector)?
        .filter(|name| !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']))
}

/// The value that the selector requires of `metadata.name`, if any; nothing at all if it does not parse.
fn required_name(selector: &str) -> Option<Option<String>> {
    let mut terms = split_terms(selector);
    // Kubernetes sorts the terms before it reads them, which decides between several names.
    terms.sort_unstable();
    let mut name = None;
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let at = term
            .char_indices()
            .find(|(at, c)| *c == '=' || term[*at..].starts_with("!="))?
            .0;
        let (field, rest) = term.split_at(at);
        let value = ["!=", "==", "="]
            .iter()
            .find_map(|operator| rest.strip_prefix(operator))?;
        let value = unescape(value)?;
        if field == "metadata.name" && !rest.starts_with('!') && name.is_none() {
            name = Some(value);
        }
    }
    Some(name)
}

/// Splits on commas that no backslash precedes.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut escaped = false;
    selector
        .split(|c| {
            let splits = c == ',' && !escaped;
            escaped = c == '\\' && !escaped;
            splits
        })
        .collect()
}

/// Removes the backslashes before `\`, `,` and `=`; nothing for any other escape and for a bare `,` or `=`.
fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(
                chars
                    .next()
                    .filter(|escaped| matches!(escaped, '\\' | ',' | '='))?,
            ),
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// Whether Kubernetes' label selector parser accepts the text.
fn is_label_selector(text: &str) -> bool {
    tokens(text).is_some_and(|tokens| Parser { tokens, at: 0 }.selector().is_some())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'static str),
}

/// Longest first, since the lexer takes the longest symbol.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

fn tokens(mut text: &str) -> Option<Vec<Token<'_>>> {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start_matches(is_space);
        if text.is_empty() {
            return Some(tokens);
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| text.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            text = &text[symbol.len()..];
        } else {
            let ends_word = |c: char| is_space(c) || "=!(),<>".contains(c);
            let end = text.find(ends_word).unwrap_or(text.len());
            tokens.push(Token::Word(&text[..end]));
            text = &text[end..];
        }
    }
}

/// Recursive descent over the tokens; `None` is a text that does not parse.
struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn take(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Symbol(next)) if next == symbol);
        self.at += usize::from(is_next);
        is_next
    }

    fn word(&mut self) -> Option<&'a str> {
        match self.take() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn selector(&mut self) -> Option<()> {
        if self.peek().is_none() {
            return Some(());
        }
        loop {
            self.requirement()?;
            if self.peek().is_none() {
                return Some(());
            }
            if !self.takes(",") {
                return None;
            }
        }
    }

    fn requirement(&mut self) -> Option<()> {
        let is_absence = self.takes("!");
        let key = self.word()?;
        if !is_label_key(key) {
            return None;
        }
        if is_absence || matches!(self.peek(), None | Some(Token::Symbol(","))) {
            return Some(());
        }
        match self.take()? {
            Token::Word("in" | "notin") => self.values(),
            Token::Symbol("=" | "==" | "!=") => self
                .exact_value()
                .filter(|value| is_label_value(value))
                .map(drop),
            Token::Symbol(">" | "<") => {
                let value = self.exact_value().filter(|value| is_label_value(value))?;
                value.parse::<i64>().ok().map(drop)
            }
            _ => None,
        }
    }

    fn exact_value(&mut self) -> Option<&'a str> {
        match self.peek() {
            None | Some(Token::Symbol(",")) => Some(""),
            _ => self.word(),
        }
    }

    /// `(a,b)`, also with empty elements, but not `()`.
    fn values(&mut self) -> Option<()> {
        if !self.takes("(") || self.takes(")") {
            return None;
        }
        loop {
            if let Some(Token::Word(value)) = self.peek() {
                self.at += 1;
                if !is_label_value(value) {
                    return None;
                }
            }
            if self.takes(")") {
                return Some(());
            }
            if !self.takes(",") {
                return None;
            }
        }
    }
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Whether the text is a lower-case DNS subdomain.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text
            .split('.')
            .all(|label| is_enclosed(label, is_alphanumeric, b"-") && !label.is_empty())
}

fn is_label_value(text: &str) -> bool {
    text.len() <= 63 && is_enclosed(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// Empty, or starting and ending with an outer byte and made of outer and inner ones.
fn is_enclosed(text: &str, is_outer: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.into_iter().flatten().all(|byte| is_outer(*byte))
        && bytes
            .iter()
            .all(|byte| is_outer(*byte) || inner.contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_pin_a_name_as_kubernetes_reads_them() {
        for (selector, expected) in [
            ("", Some(None)),
            (",,", Some(None)),
            ("metadata.name=a", Some(Some("a"))),
            ("metadata.name==a", Some(Some("a"))),
            ("metadata.name!=a", Some(None)),
            ("metadata.name=", Some(Some(""))),
            ("status.phase=Running,metadata.name=a", Some(Some("a"))),
            // Sorted first, hence not in the order of the text.
            ("metadata.name=b,metadata.name=a", Some(Some("a"))),
            ("metadata.name=a,metadata.name==z", Some(Some("z"))),
            (r"metadata.name=a\,b", Some(Some("a,b"))),
            (r"metadata.name=a\=b\\", Some(Some(r"a=b\"))),
            (r"metadata.name=a\b", None),
            (r"metadata.name=a\", None),
            ("metadata.name=a=b", None),
            ("metadata.name=a,bogus", None),
            (" metadata.name=a", Some(None)),
            ("a!b=c", Some(None)),
        ] {
            let expected = expected.map(|name: Option<&str>| name.map(str::to_owned));
            assert_eq!(required_name(selector), expected, "{selector:?}");
        }
    }

    #[test]
    fn label_selectors_are_accepted_as_kubernetes_accepts_them() {
        let long = format!("a={}", "v".repeat(64));
        for (selector, accepted) in [
            ("", true),
            (" ", true),
            ("a", true),
            ("!a", true),
            ("! a", true),
            ("a=b", true),
            ("a==b", true),
            ("a!=b", true),
            ("a=", true),
            ("a=,b", true),
            ("a in (b,c)", true),
            ("a notin (b)", true),
            ("a in ()", false),
            ("a in (,)", true),
            ("a in (b,)", true),
            ("a in (,,b)", true),
            ("a in b", false),
            ("in=notin", true),
            ("in in (in)", true),
            ("a>1", true),
            ("a<-1", false),
            ("a>x", false),
            ("a>", false),
            ("a,b", true),
            ("a,", false),
            (",a", false),
            ("a b", false),
            ("!a=b", false),
            ("!!", false),
            ("a=b=c", false),
            ("example.com/a=b", true),
            ("Example.com/a=b", false),
            ("/a", false),
            ("a/b/c", false),
            ("a/", false),
            ("-a", false),
            ("a=-b", false),
            ("a_b.c-d=E", true),
            ("a=é", false),
            (&long, false),
            ("a in (b", false),
            ("a in (b c)", false),
            ("x..y/a", false),
            ("a=b\0,", false),
        ] {
            assert_eq!(is_label_selector(selector), accepted, "{selector:?}");
        }
    }
}
