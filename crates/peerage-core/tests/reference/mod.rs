//! The rules of request parsing again, slowly, on owned lists of segments: what the fast parser must agree with.
//!
//! Shared by the property tests and the fuzz target. Its selectors cover what the tests generate: no backslashes,
//! and of the label selectors that do not parse only `!!` and `a=b=c`.

use peerage_core::RequestInfo;

/// Everything that a request info says, in comparable form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) is_resource: bool,
    pub(crate) verb: String,
    pub(crate) prefix: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
    pub(crate) parts: Option<String>,
    pub(crate) field_selector: Option<String>,
    pub(crate) label_selector: Option<String>,
}

pub(crate) fn said(info: &RequestInfo<'_>) -> Said {
    let parts: Vec<&str> = info.parts().collect();
    Said {
        is_resource: info.is_resource_request(),
        verb: info.verb().to_owned(),
        prefix: info.api_prefix().to_owned(),
        group: info.api_group().to_owned(),
        version: info.api_version().to_owned(),
        namespace: info.namespace().to_owned(),
        resource: info.resource().to_owned(),
        subresource: info.subresource().to_owned(),
        name: info.name().to_owned(),
        parts: (!parts.is_empty()).then(|| parts.join("/")),
        field_selector: info.field_selector().map(str::to_owned),
        label_selector: info.label_selector().map(str::to_owned),
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let raw = text.as_bytes();
    let mut at = 0;
    while at < raw.len() {
        if raw[at] == b'%' {
            let digits = raw.get(at + 1..at + 3)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            at += 3;
        } else {
            bytes.push(raw[at]);
            at += 1;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn query(raw: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for pair in raw.split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let mut halves = pair.splitn(2, '=');
        let key = decode(&halves.next().unwrap_or("").replace('+', " "));
        let value = decode(&halves.next().unwrap_or("").replace('+', " "));
        if let (Some(key), Some(value)) = (key, value) {
            pairs.push((key, value));
        }
    }
    pairs
}

/// `Err` where the request has no kind.
pub(crate) fn parse(method: &str, target: &str) -> Option<Result<Said, ()>> {
    let (raw_path, raw_query) = target.split_once('?').unwrap_or((target, ""));
    let path = decode(raw_path)?;
    let mut said = Said {
        verb: method.to_lowercase(),
        ..Said::default()
    };
    let trimmed = path.trim_matches('/');
    let mut segments: Vec<String> = trimmed.split('/').map(str::to_owned).collect();
    if trimmed.is_empty() || segments.len() < 3 || (segments[0] != "api" && segments[0] != "apis") {
        return Some(Ok(said));
    }
    said.prefix = segments.remove(0);
    if said.prefix == "apis" {
        if segments.len() < 3 {
            return Some(Ok(said));
        }
        said.group = segments.remove(0);
    }
    said.is_resource = true;
    said.version = segments.remove(0);
    let by_path = segments[0] == "watch" || segments[0] == "proxy";
    if by_path {
        if segments.len() == 1 {
            return Some(Err(()));
        }
        said.verb = segments.remove(0);
    } else {
        said.verb = match method {
            "POST" => "create",
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "",
        }
        .to_owned();
    }
    if segments[0] == "namespaces" && segments.len() > 1 {
        said.namespace = segments[1].clone();
        if segments.len() > 2 && segments[2] != "status" && segments[2] != "finalize" {
            segments.drain(..2);
        }
    }
    said.parts = Some(segments.join("/"));
    said.resource = segments[0].clone();
    said.name = segments.get(1).cloned().unwrap_or_default();
    if said.verb != "proxy" {
        said.subresource = segments.get(2).cloned().unwrap_or_default();
    }
    collection(&mut said, &query(raw_query), by_path);
    Some(Ok(said))
}

fn collection(said: &mut Said, query: &[(String, String)], by_path: bool) {
    let first = |key: &str| {
        query
            .iter()
            .find(|pair| pair.0 == key)
            .map(|pair| pair.1.clone())
    };
    if said.name.is_empty() && said.verb == "get" {
        let watches =
            first("watch").is_some_and(|value| value != "0" && value.to_lowercase() != "false");
        said.verb = if watches { "watch" } else { "list" }.to_owned();
        let number = |key: &str| first(key).is_none_or(|value| value.parse::<i64>().is_ok());
        let labels = first("labelSelector").is_none_or(|value| value != "!!" && value != "a=b=c");
        if number("limit") && number("timeoutSeconds") && labels {
            said.name = name(&first("fieldSelector").unwrap_or_default());
        }
    } else if said.name.is_empty() && said.verb == "delete" {
        said.verb = "deletecollection".to_owned();
    }
    if !by_path && ["list", "watch", "deletecollection"].contains(&said.verb.as_str()) {
        said.field_selector = first("fieldSelector").filter(|value| !value.is_empty());
        said.label_selector = first("labelSelector").filter(|value| !value.is_empty());
    }
}

/// For selectors without backslashes.
fn name(selector: &str) -> String {
    let mut terms: Vec<&str> = selector
        .split(',')
        .filter(|term| !term.is_empty())
        .collect();
    terms.sort_unstable();
    let mut names = Vec::new();
    for term in terms {
        let Some(equals) = term.find('=') else {
            return String::new();
        };
        let value = term[equals + 1..]
            .strip_prefix('=')
            .unwrap_or(&term[equals + 1..]);
        let differs = term[..equals].ends_with('!');
        let value = if differs { &term[equals + 1..] } else { value };
        if value.contains('=') {
            return String::new();
        }
        if &term[..equals] == "metadata.name" {
            names.push(value.to_owned());
        }
    }
    let name = names.into_iter().next().unwrap_or_default();
    if name == "." || name == ".." || name.contains('/') || name.contains('%') {
        String::new()
    } else {
        name
    }
}
