//! Accept headers as the library that Kubernetes uses for them reads them.
//!
//! It is lenient where RFC 9110 is strict: types are compared with their case, `q=0` only comes last, a malformed
//! clause or parameter is left out silently.

use smallvec::SmallVec;

use super::Media;

/// One clause of an Accept header.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: SmallVec<[(&'a str, &'a str); 4]>,
}

/// The type that a client wants its answer converted to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Conversion<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (range, parameters) = text.split_once(';').unwrap_or((text, ""));
        let (kind, rest) = range.split_once('/').unwrap_or((range, ""));
        let (subtype, more) = rest.split_once('/').unwrap_or((rest, ""));
        let (kind, subtype) = match (trim(kind), rest) {
            ("*", "") => ("*", "*"),
            (_, "") => return None,
            _ if !more.is_empty() => return None,
            (kind, _) => (kind, trim(subtype)),
        };
        let mut clause = Clause {
            kind,
            subtype,
            quality: 1.0,
            parameters: SmallVec::new(),
        };
        for parameter in parameters.split(';') {
            clause.read_parameter(parameter);
        }
        Some(clause)
    }

    fn read_parameter(&mut self, text: &'a str) {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        let (value, more) = rest.split_once('=').unwrap_or((rest, ""));
        if rest.is_empty() || !more.is_empty() {
            return;
        }
        match trim(name) {
            "q" => self.quality = value.parse().unwrap_or(0.0),
            name => self.parameters.push((name, trim(value))),
        }
    }

    /// The value of a parameter; of a repeated one the last.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.parameters
            .iter()
            .rfind(|parameter| parameter.0 == name)
            .map(|parameter| parameter.1)
    }

    /// The conversion, if any of its three parameters is given.
    pub(super) fn conversion(&self) -> Option<Conversion<'a>> {
        let (group, version, kind) = (self.get("g"), self.get("v"), self.get("as"));
        if group.is_none() && version.is_none() && kind.is_none() {
            return None;
        }
        Some(Conversion {
            group: group.unwrap_or_default(),
            version: version.unwrap_or_default(),
            kind: kind.unwrap_or_default(),
        })
    }

    fn matches(&self, media: Media) -> bool {
        match (self.kind, self.subtype) {
            ("*", "*") | ("application", "*") => true,
            (kind, subtype) => kind == "application" && subtype == media.subtype(),
        }
    }

    /// Kubernetes' order. It is not a consistent one: a concrete type comes before a wildcard even against the
    /// quality, and the quality before that.
    fn comes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// The clauses of an Accept header, in the order in which they are tried.
pub(super) struct Clauses<'a>(SmallVec<[Clause<'a>; 4]>);

impl<'a> Clauses<'a> {
    /// Up to so many clauses the order is Kubernetes'. What it does beyond depends on its sorting library.
    const EXACT: usize = 12;

    pub(super) fn parse(header: &'a str) -> Self {
        let mut clauses: SmallVec<[Clause<'a>; 4]> = header
            .split(',')
            .filter_map(|text| Clause::parse(trim(text)))
            .collect();
        if clauses.len() <= Self::EXACT {
            insertion_sort(&mut clauses);
        } else {
            clauses.sort_by(|a, b| {
                b.quality
                    .total_cmp(&a.quality)
                    .then_with(|| (a.kind == "*").cmp(&(b.kind == "*")))
            });
        }
        Clauses(clauses)
    }

    /// The first clause and offered media type that fit each other and the condition.
    pub(super) fn find(
        &self,
        offered: &[Media],
        fits: impl Fn(&Clause<'a>, Media) -> bool,
    ) -> Option<(Media, &Clause<'a>)> {
        self.0.iter().find_map(|clause| {
            let mut offered = offered.iter().copied();
            let media = offered.find(|media| clause.matches(*media) && fits(clause, *media))?;
            Some((media, clause))
        })
    }
}

/// The only sort whose outcome is defined for an inconsistent order.
fn insertion_sort(clauses: &mut [Clause<'_>]) {
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].comes_before(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Only spaces count as white space here.
fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(header: &str) -> Vec<String> {
        Clauses::parse(header)
            .0
            .iter()
            .map(|clause| format!("{}/{}", clause.kind, clause.subtype))
            .collect()
    }

    #[test]
    fn clauses_are_read_leniently() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            ("*", &["*/*"]),
            ("*/", &["*/*"]),
            (" a/b , c/d ", &["a/b", "c/d"]),
            ("a / b", &["a/b"]),
            ("a,a/,/b,a/b/c,a//b,a/b/", &["/b", "a/b"]),
            (";;;,,", &[]),
        ];
        for (header, expected) in table {
            assert_eq!(order(header), *expected, "{header:?}");
        }
    }

    #[test]
    fn clauses_are_tried_by_quality_and_the_concrete_before_wildcards() {
        let table: &[(&str, &[&str])] = &[
            ("a/b,c/d", &["a/b", "c/d"]),
            ("a/b;q=0.1,c/d", &["c/d", "a/b"]),
            ("*/*,a/*,a/b", &["a/b", "a/*", "*/*"]),
            ("*/*,a/b;q=0.1", &["a/b", "*/*"]),
            ("a/b;q=0,c/d;q=x,e/f", &["e/f", "a/b", "c/d"]),
            ("a/b;q= 0.5,c/d;q=0.1", &["c/d", "a/b"]),
        ];
        for (header, expected) in table {
            assert_eq!(order(header), *expected, "{header:?}");
        }
        let many = (0..20)
            .map(|at| format!("a/{at};q=0.{at:02}"))
            .collect::<Vec<_>>()
            .join(",");
        assert_eq!(order(&many).first().map(String::as_str), Some("a/19"));
    }

    #[test]
    fn parameters_keep_their_case_and_the_last_wins() {
        let clause = |text| {
            Clause::parse(text).unwrap_or(Clause {
                kind: "",
                subtype: "",
                quality: 0.0,
                parameters: SmallVec::new(),
            })
        };
        let read = clause("a/b; g = x ;g=y;AS=z;v=;h=1=2;i=\"q\";as");
        assert_eq!(read.get("g"), Some("y"));
        assert_eq!(
            (read.get("as"), read.get("v"), read.get("h")),
            (None, None, None)
        );
        assert_eq!(read.get("i"), Some("\"q\""));
        assert_eq!(
            read.conversion(),
            Some(Conversion {
                group: "y",
                ..Conversion::default()
            })
        );
        assert_eq!(clause("a/b;x=1").conversion(), None);
    }
}
