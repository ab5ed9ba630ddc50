//! The form of request bodies, by their Content-Type.
//!
//! Objects may come as JSON or YAML, the type in any case and with parameters; patches say which kind of patch they
//! are, in lower case, and are refused by the router when they do not.

use super::{JSON, PROTOBUF, YAML, bare_type, offered};
use crate::status::Status;

/// The form of an object in a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyType {
    /// JSON; also when nothing is said.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf. Resources without protobuf numbers refuse it.
    Protobuf,
}

/// The kind of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchType {
    /// RFC 6902 operations.
    Json,
    /// RFC 7386 merge.
    Merge,
    /// Kubernetes' merge that knows lists.
    StrategicMerge,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    const ALL: [PatchType; 4] = [
        PatchType::Json,
        PatchType::Merge,
        PatchType::StrategicMerge,
        PatchType::Apply,
    ];

    /// The media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The body's media type is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedMediaType {
    /// The router refused the patch.
    #[error("415: Unsupported Media Type")]
    Router,
    /// The handler refused the body; holds what it takes.
    #[error("the media type of the body is none of {}", .0.join(", "))]
    Handler(Vec<&'static str>),
}

impl From<UnsupportedMediaType> for Status {
    fn from(refusal: UnsupportedMediaType) -> Self {
        match &refusal {
            UnsupportedMediaType::Router => Status::generic(415, &refusal.to_string()),
            UnsupportedMediaType::Handler(accepted) => Status::unsupported_media_type(accepted),
        }
    }
}

/// The form of an object's body.
///
/// # Errors
/// The media type is malformed or none of these.
pub fn body_type(content_type: Option<&str>) -> Result<BodyType, UnsupportedMediaType> {
    let Some(header) = content_type.filter(|header| !header.is_empty()) else {
        return Ok(BodyType::Json);
    };
    match parse_media_type(header).as_deref() {
        Some(JSON) => Ok(BodyType::Json),
        Some(YAML) => Ok(BodyType::Yaml),
        Some(PROTOBUF) => Ok(BodyType::Protobuf),
        _ => Err(UnsupportedMediaType::Handler(offered(
            &[JSON, YAML, PROTOBUF],
            header,
        ))),
    }
}

/// The kind of a patch. Custom resources take no strategic merge.
///
/// # Errors
/// No media type, or none of a patch that the resource takes.
pub fn patch_type(
    content_type: Option<&str>,
    has_strategic: bool,
) -> Result<PatchType, UnsupportedMediaType> {
    let header = content_type.unwrap_or_default();
    let passes_router = header.split(',').any(|text| {
        PatchType::ALL
            .iter()
            .any(|patch| bare_type(text) == patch.content_type())
    });
    if !passes_router {
        return Err(UnsupportedMediaType::Router);
    }
    let taken = || {
        PatchType::ALL
            .into_iter()
            .filter(|patch| has_strategic || *patch != PatchType::StrategicMerge)
    };
    let exact = header.split(';').next().unwrap_or_default();
    taken()
        .find(|patch| patch.content_type() == exact)
        .ok_or_else(|| {
            UnsupportedMediaType::Handler(taken().map(PatchType::content_type).collect())
        })
}

/// The media type in lower case without its parameters, which must be well-formed.
fn parse_media_type(header: &str) -> Option<String> {
    let (media_type, mut rest) = header.split_at(header.find(';').unwrap_or(header.len()));
    let media_type = media_type.trim().to_ascii_lowercase();
    let (kind, subtype) = media_type.split_once('/')?;
    if !is_token(kind) || !is_token(subtype) {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    while !rest.trim_start().is_empty() {
        let Some((name, after)) = parameter(rest) else {
            return (rest.trim() == ";").then_some(media_type);
        };
        if names.contains(&name) {
            return None;
        }
        names.push(name);
        rest = after;
    }
    Some(media_type)
}

/// One `;name=value` with its value skipped, and what follows it.
fn parameter(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start().strip_prefix(';')?.trim_start();
    let (name, text) = token(text)?;
    let text = text.trim_start().strip_prefix('=')?.trim_start();
    let rest = match text.strip_prefix('"') {
        Some(quoted) => after_quote(quoted)?,
        None => token(text)?.1,
    };
    Some((name.to_ascii_lowercase(), rest))
}

fn token(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !is_token_char(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// What follows the closing quote; nothing when there is none.
fn after_quote(text: &str) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(&text[at + 1..]),
            '\r' | '\n' => return None,
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_token_char)
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_or_yaml_in_any_case() {
        for (header, expected) in [
            (None, Some(BodyType::Json)),
            (Some(""), Some(BodyType::Json)),
            (Some("application/json"), Some(BodyType::Json)),
            (Some("APPLICATION/JSON"), Some(BodyType::Json)),
            (Some("application/json;charset=utf-8"), Some(BodyType::Json)),
            (
                Some("application/json; charset=\"utf-8;\\\"\" ;"),
                Some(BodyType::Json),
            ),
            (
                Some("application/yaml; charset=utf-8"),
                Some(BodyType::Yaml),
            ),
            (Some("application/json; charset"), None),
            (Some("application/json; a=1; A=2"), None),
            (Some("application/json; a=\"1"), None),
            (
                Some("application/vnd.kubernetes.protobuf"),
                Some(BodyType::Protobuf),
            ),
            (Some("application/merge-patch+json"), None),
            (Some("application/x-www-form-urlencoded"), None),
            (Some("application"), None),
            (Some("a/b;c"), None),
            (Some("*/*"), None),
            (Some("text/json"), None),
        ] {
            assert_eq!(body_type(header).ok(), expected, "{header:?}");
        }
    }

    #[test]
    fn patches_name_their_kind_exactly() {
        for (header, strategic, expected) in [
            (
                Some("application/json-patch+json"),
                true,
                Ok(PatchType::Json),
            ),
            (
                Some("application/json-patch+json;a=b"),
                true,
                Ok(PatchType::Json),
            ),
            (
                Some("application/merge-patch+json; charset=utf-8"),
                true,
                Ok(PatchType::Merge),
            ),
            (
                Some("application/strategic-merge-patch+json"),
                true,
                Ok(PatchType::StrategicMerge),
            ),
            (
                Some("application/apply-patch+yaml"),
                false,
                Ok(PatchType::Apply),
            ),
            (
                Some("APPLICATION/MERGE-PATCH+JSON"),
                true,
                Err(UnsupportedMediaType::Router),
            ),
            (
                Some("application/json"),
                true,
                Err(UnsupportedMediaType::Router),
            ),
            (
                Some("application/apply-patch+cbor"),
                true,
                Err(UnsupportedMediaType::Router),
            ),
            (Some(""), true, Err(UnsupportedMediaType::Router)),
            (None, true, Err(UnsupportedMediaType::Router)),
        ] {
            assert_eq!(patch_type(header, strategic), expected, "{header:?}");
        }
    }

    #[test]
    fn refusals_say_what_is_taken() {
        let status = |refusal: UnsupportedMediaType| Status::from(refusal);
        let lead =
            "the body of the request was in an unknown format - accepted media types include: ";
        let body = |header| body_type(Some(header)).map_or_else(status, |_| Status::default());
        let refused = body("text/plain");
        assert_eq!(refused.code, 415);
        assert_eq!(refused.details, None);
        assert_eq!(
            refused.message,
            format!(
                "{lead}application/json, application/yaml, application/vnd.kubernetes.protobuf"
            )
        );
        let patch = |header, strategic| {
            patch_type(header, strategic).map_or_else(status, |_| Status::default())
        };
        assert_eq!(
            patch(Some("application/strategic-merge-patch+json"), false).message,
            format!(
                "{lead}application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            )
        );
        let routed = patch(None, true);
        assert_eq!(routed.message, "415: Unsupported Media Type");
        assert_eq!(routed.details, Some(crate::StatusDetails::default()));
    }
}
