//! Accept of the pages that tell of the server itself, `/statusz` and `/flagz`: text for people, and for programs an
//! object of `config.k8s.io` when the clause names its kind and version.

use super::accept::Clauses;
use super::{Media, NotAcceptable};

/// How such a page is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageAccept {
    /// As plain text.
    Text,
    /// As an object of that version of `config.k8s.io`.
    Object {
        /// The media type.
        media: Media,
        /// The version.
        version: String,
    },
}

/// Negotiates a page whose object is of this kind, in these versions.
///
/// # Errors
/// Neither text nor an object that there is was accepted.
pub fn negotiate_page(
    accept: Option<&str>,
    kind: &str,
    versions: &[&str],
) -> Result<PageAccept, NotAcceptable> {
    let header = accept.unwrap_or_default();
    let clauses = Clauses::parse(header);
    let object = clauses.find(Media::OFFERED, |clause, _| {
        clause.conversion().is_some_and(|wanted| {
            wanted.group == "config.k8s.io"
                && wanted.kind == kind
                && versions.contains(&wanted.version)
        })
    });
    if let Some((media, clause)) = object
        && let Some(wanted) = clause.conversion()
    {
        let version = wanted.version.to_owned();
        return Ok(PageAccept::Object { media, version });
    }
    let text = header.is_empty()
        || header
            .split(',')
            .map(super::bare_type)
            .any(|bare| matches!(bare, "*/*" | "text/*" | "text/plain"));
    if text {
        return Ok(PageAccept::Text);
    }
    let types = "application/json, application/yaml, text/plain";
    Err(NotAcceptable::Handler(types.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_text_unless_their_object_is_named() {
        let object = |media, version: &str| {
            let version = version.to_owned();
            Some(PageAccept::Object { media, version })
        };
        let rows = [
            (None, Some(PageAccept::Text)),
            (Some(""), Some(PageAccept::Text)),
            (Some("*/*"), Some(PageAccept::Text)),
            (Some("image/png, text/plain"), Some(PageAccept::Text)),
            (Some("application/json"), None),
            (Some("image/png"), None),
            (
                Some("application/json;v=v1beta1;g=config.k8s.io;as=Statusz"),
                object(Media::Json, "v1beta1"),
            ),
            (
                Some("application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz"),
                object(Media::Yaml, "v1alpha1"),
            ),
            (
                Some("text/plain, application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz"),
                object(Media::Yaml, "v1alpha1"),
            ),
            (
                Some("application/json;v=v1;g=config.k8s.io;as=Statusz"),
                None,
            ),
            (
                Some("application/json;v=v1beta1;g=config.k8s.io;as=Flagz"),
                None,
            ),
            (
                Some("application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz"),
                None,
            ),
        ];
        for (accept, expected) in rows {
            let found = negotiate_page(accept, "Statusz", &["v1alpha1", "v1beta1"]);
            assert_eq!(found.ok(), expected, "{accept:?}");
        }
    }
}
