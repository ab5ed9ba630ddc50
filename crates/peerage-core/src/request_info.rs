//! What a request asks for, read from its method and target alone.
//!
//! The rules are those of kube-apiserver's request info resolver (prefixes `api`, without groups, and `apis`),
//! including its traps: the path is decoded before it is split, so `%2F` separates segments; `watch` and
//! `proxy` in the path win over the method; a field selector can name the object of a list.
//! Authorization, audit, routing and the API handlers all read this one description.
//!
//! Invariants: the raw target is kept byte for byte, since it is what is forwarded; a target without `%` and
//! without a query is parsed without allocating; no input panics.

mod error;
mod selectors;

use std::borrow::Cow;

use crate::query::{Query, percent_decode};

pub use error::RequestInfoError;
pub(crate) use selectors::is_dns_subdomain;

/// A stretch of the decoded path. No target is longer than 32 bits can say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    fn of(self, path: &str) -> &str {
        &path[self.start as usize..self.end as usize]
    }
}

/// A parsed request line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo<'a> {
    target: Cow<'a, str>,
    path_end: usize,
    /// Only when the path holds escapes.
    decoded: Option<String>,
    is_resource_request: bool,
    verb: Cow<'static, str>,
    api_prefix: Span,
    api_group: Span,
    api_version: Span,
    namespace: Span,
    resource: Span,
    subresource: Span,
    name: Span,
    /// The name when it comes from the field selector.
    selected_name: Option<String>,
    parts: Option<Span>,
    field_selector: Option<Cow<'a, str>>,
    label_selector: Option<Cow<'a, str>>,
}

impl<'a> RequestInfo<'a> {
    /// Parses a method and a raw path-and-query (`/api/v1/pods?watch=1`).
    ///
    /// # Errors
    /// A path that cannot be decoded, and a `watch` or `proxy` path that names nothing to watch or proxy.
    pub fn parse(method: &str, target: &'a str) -> Result<Self, RequestInfoError> {
        // Without a short circuit, so that it is done many bytes at a time.
        let has_control = target
            .bytes()
            .fold(false, |found, byte| found | byte.is_ascii_control());
        if has_control || u32::try_from(target.len()).is_err() {
            return Err(RequestInfoError::malformed(target));
        }
        let path_end = target.find('?').unwrap_or(target.len());
        let decoded = match percent_decode(&target[..path_end]) {
            None => return Err(RequestInfoError::malformed(target)),
            Some(Cow::Borrowed(_)) => None,
            Some(Cow::Owned(path)) => Some(path),
        };
        let mut info = RequestInfo {
            target: Cow::Borrowed(target),
            path_end,
            decoded,
            is_resource_request: false,
            verb: lower_case(method),
            api_prefix: Span::default(),
            api_group: Span::default(),
            api_version: Span::default(),
            namespace: Span::default(),
            resource: Span::default(),
            subresource: Span::default(),
            name: Span::default(),
            selected_name: None,
            parts: None,
            field_selector: None,
            label_selector: None,
        };
        if let Some(current) = info.read_prefix() {
            info.read_resource(method, current)?;
        }
        Ok(info)
    }

    /// Reads prefix, group and version; what follows them when this is a resource request.
    fn read_prefix(&mut self) -> Option<Segments> {
        let mut segments = Segments::trimmed(self.path());
        if !segments.has_three(self.path()) {
            return None;
        }
        let prefix = segments.next(self.path())?;
        match self.text(prefix) {
            "api" => self.api_prefix = prefix,
            "apis" => {
                self.api_prefix = prefix;
                if !segments.has_three(self.path()) {
                    return None;
                }
                self.api_group = segments.next(self.path())?;
            }
            _ => return None,
        }
        self.is_resource_request = true;
        self.api_version = segments.next(self.path())?;
        Some(segments)
    }

    fn read_resource(
        &mut self,
        method: &str,
        mut current: Segments,
    ) -> Result<(), RequestInfoError> {
        let mut after = current;
        let verb_by_path = match after.next(self.path()).map(|first| self.text(first)) {
            Some("watch") => Some("watch"),
            Some("proxy") => Some("proxy"),
            _ => None,
        };
        if verb_by_path.is_some() {
            if after.rest.is_none() {
                return Err(RequestInfoError::no_kind(&self.target, self.path_end));
            }
            current = after;
        }
        self.verb = Cow::Borrowed(verb_by_path.unwrap_or_else(|| verb_of(method)));
        self.read_parts(current);
        if verb_by_path.is_none() {
            self.read_query();
        }
        Ok(())
    }

    fn read_parts(&mut self, mut current: Segments) {
        let path = self
            .decoded
            .as_deref()
            .unwrap_or(&self.target[..self.path_end]);
        let mut segments = current;
        let mut at = || segments.next(path);
        if at().is_some_and(|first| first.of(path) == "namespaces")
            && let Some(namespace) = at()
        {
            self.namespace = namespace;
            if at().is_some_and(|third| !matches!(third.of(path), "status" | "finalize")) {
                current.next(path);
                current.next(path);
            }
        }
        self.parts = current.rest;
        self.resource = current.next(path).unwrap_or_default();
        self.name = current.next(path).unwrap_or_default();
        if self.verb != "proxy" {
            self.subresource = current.next(path).unwrap_or_default();
        }
    }

    /// Tells list and watch from get by the query, finds a name in the field selector, keeps the selectors.
    fn read_query(&mut self) {
        let is_collection = self.name().is_empty();
        if !is_collection || !matches!(self.verb.as_ref(), "get" | "delete") {
            return;
        }
        // Borrowing from the target itself, not from `self`, lets the selectors outlive this call.
        let mut query = match &self.target {
            Cow::Borrowed(target) => Query::of_target(target),
            Cow::Owned(_) => return,
        };
        if self.verb == "delete" {
            self.verb = Cow::Borrowed("deletecollection");
        } else {
            self.verb = Cow::Borrowed(if query.flag("watch") { "watch" } else { "list" });
            self.selected_name = selectors::pinned_name(&query);
        }
        self.field_selector = query
            .take_first("fieldSelector")
            .filter(|selector| !selector.is_empty());
        self.label_selector = query
            .take_first("labelSelector")
            .filter(|selector| !selector.is_empty());
    }

    /// The same, independent of the parsed text.
    #[must_use]
    pub fn into_owned(self) -> RequestInfo<'static> {
        let own = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        RequestInfo {
            target: own(self.target),
            path_end: self.path_end,
            decoded: self.decoded,
            is_resource_request: self.is_resource_request,
            verb: self.verb,
            api_prefix: self.api_prefix,
            api_group: self.api_group,
            api_version: self.api_version,
            namespace: self.namespace,
            resource: self.resource,
            subresource: self.subresource,
            name: self.name,
            selected_name: self.selected_name,
            parts: self.parts,
            field_selector: self.field_selector.map(own),
            label_selector: self.label_selector.map(own),
        }
    }

    /// Whether the path addresses a resource; then `verb` is an API verb, otherwise the method in lower case.
    #[must_use]
    pub fn is_resource_request(&self) -> bool {
        self.is_resource_request
    }

    /// Whether it may go on for as long as both ends want: a watch, or a stream to or from a pod, node or service
    /// (kube-apiserver's `BasicLongRunningRequestCheck`).
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        const SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
        matches!(self.verb(), "watch" | "proxy") || SUBRESOURCES.contains(&self.subresource())
    }

    /// The API verb (`get`, `list`, `watch`, `create`, …); empty for a resource request whose method has none.
    #[must_use]
    pub fn verb(&self) -> &str {
        &self.verb
    }

    /// The decoded path, as it came.
    #[must_use]
    pub fn path(&self) -> &str {
        self.decoded
            .as_deref()
            .unwrap_or(&self.target[..self.path_end])
    }

    /// `api`, `apis`, or empty.
    #[must_use]
    pub fn api_prefix(&self) -> &str {
        self.text(self.api_prefix)
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn api_group(&self) -> &str {
        self.text(self.api_group)
    }

    /// The version of the API group.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.text(self.api_version)
    }

    /// The namespace; empty for cluster scope and for requests across namespaces.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text(self.namespace)
    }

    /// The resource, in the plural.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.text(self.resource)
    }

    /// The subresource, or empty.
    #[must_use]
    pub fn subresource(&self) -> &str {
        self.text(self.subresource)
    }

    /// The object's name: from the path, or the one that the field selector of a list or watch pins.
    #[must_use]
    pub fn name(&self) -> &str {
        self.selected_name
            .as_deref()
            .unwrap_or_else(|| self.text(self.name))
    }

    /// The segments from the resource on.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts
            .into_iter()
            .flat_map(|span| self.text(span).split('/'))
    }

    /// The raw field selector of a list, watch or deletecollection, whether or not it parses.
    #[must_use]
    pub fn field_selector(&self) -> Option<&str> {
        self.field_selector.as_deref()
    }

    /// The raw label selector of a list, watch or deletecollection, whether or not it parses.
    #[must_use]
    pub fn label_selector(&self) -> Option<&str> {
        self.label_selector.as_deref()
    }

    /// The path and query exactly as the client sent them.
    #[must_use]
    pub fn raw_target(&self) -> &str {
        &self.target
    }

    /// The query part of the raw target, without the `?`; empty without one.
    #[must_use]
    pub fn raw_query(&self) -> &str {
        self.target.get(self.path_end + 1..).unwrap_or_default()
    }

    /// The parsed query.
    #[must_use]
    pub fn query(&self) -> Query<'_> {
        Query::parse(self.raw_query())
    }

    /// The resource with its subresource as messages and rules name it: `pods`, `pods/log`.
    #[must_use]
    pub fn resource_path(&self) -> Cow<'_, str> {
        if self.subresource().is_empty() {
            Cow::Borrowed(self.resource())
        } else {
            Cow::Owned(format!("{}/{}", self.resource(), self.subresource()))
        }
    }

    fn text(&self, span: Span) -> &str {
        span.of(self.path())
    }
}

/// The segments of a path that have not been read yet.
#[derive(Clone, Copy)]
struct Segments {
    rest: Option<Span>,
}

impl Segments {
    /// All segments between the leading and trailing slashes.
    fn trimmed(path: &str) -> Self {
        let start = path.len() - path.trim_start_matches('/').len();
        let end = start + path[start..].trim_end_matches('/').len();
        Segments {
            rest: (start < end).then_some(Span::new(start, end)),
        }
    }

    fn has_three(mut self, path: &str) -> bool {
        self.next(path);
        self.next(path);
        self.rest.is_some()
    }

    fn next(&mut self, path: &str) -> Option<Span> {
        let Span { start, end } = self.rest?;
        // A loop over few bytes beats a search made for long texts.
        let slash = self
            .rest?
            .of(path)
            .bytes()
            .zip(start..)
            .find(|(byte, _)| *byte == b'/')
            .map(|(_, at)| at);
        self.rest = slash.map(|slash| Span {
            start: slash + 1,
            end,
        });
        Some(Span {
            start,
            end: slash.unwrap_or(end),
        })
    }
}

/// The API verb of a method on a resource; empty for methods that have none.
fn verb_of(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

fn lower_case(method: &str) -> Cow<'static, str> {
    Cow::Borrowed(match method {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        "CONNECT" => "connect",
        "TRACE" => "trace",
        other => return Cow::Owned(other.to_lowercase()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_escapes_and_query_is_borrowed_throughout() {
        for (method, target) in [
            ("GET", "/api/v1/namespaces/default/pods/p/log"),
            ("GET", "/apis/apps/v1/deployments"),
            ("DELETE", "/api/v1/namespaces/default/pods"),
            ("OPTIONS", "/healthz"),
        ] {
            let info = RequestInfo::parse(method, target).unwrap();
            assert!(
                matches!(info.target, Cow::Borrowed(_)) && matches!(info.verb, Cow::Borrowed(_))
            );
            assert_eq!((&info.decoded, &info.selected_name), (&None, &None));
            assert_eq!((&info.field_selector, &info.label_selector), (&None, &None));
        }
    }
}
