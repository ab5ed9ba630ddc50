//! Reads resources from their text form.
//!
//! ```text
//! groupversion apps/v1 17800 15
//! resource apps/v1/deployments Deployment namespaced default singular=deployment short=deploy categories=all verbs=create,get stored=apps/v1 key=deployments
//!   sub scale autoscaling/v1/Scale get,patch,update
//!   sub status Deployment get,patch,update
//!   column string name 0 Name
//! ```
//!
//! Making the text is left to `cargo xtask catalogue`; which resources are on, to the catalogue.

use std::sync::Arc;

use crate::resource::{Column, GroupVersionKind, Resource, Storage, Subresource};
use crate::rules::Rules;
use crate::storage_version_hash;
use crate::type_text::TypeTable;

/// What is wrong with a resource's text.
#[derive(Debug, thiserror::Error)]
#[error("resource {name}: `{line}` {fault}")]
pub struct ResourceTextError {
    /// The resource.
    pub name: String,
    /// The word or line that could not be read.
    pub line: String,
    /// What is wrong with it.
    pub fault: &'static str,
}

/// A resource as read, and whether it is on by default.
pub(crate) struct Read {
    pub(crate) resource: Resource,
    pub(crate) default: bool,
}

/// A group-version and its priorities, as read.
#[derive(Clone, Debug)]
pub(crate) struct Priorities {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i32,
    pub(crate) version_priority: i32,
}

type Fault = (String, &'static str);

fn fault(line: &str, fault: &'static str) -> Fault {
    (line.to_owned(), fault)
}

/// Reads a `groupversion` record.
pub(crate) fn read_priorities(name: &str, text: &str) -> Result<Priorities, ResourceTextError> {
    let numbers: Vec<i32> = text
        .split(' ')
        .skip(2)
        .filter_map(|w| w.parse().ok())
        .collect();
    let [group_priority, version_priority] = numbers[..] else {
        return Err(ResourceTextError {
            name: name.to_owned(),
            line: text.to_owned(),
            fault: "needs two priorities",
        });
    };
    let (group, version) = name.rsplit_once('/').unwrap_or(("", name));
    Ok(Priorities {
        group: group.to_owned(),
        version: version.to_owned(),
        group_priority,
        version_priority,
    })
}

/// Reads a `resource` record.
pub(crate) fn read(name: &str, text: &str, types: &TypeTable) -> Result<Read, ResourceTextError> {
    resource(name, text, types).map_err(|(line, fault)| ResourceTextError {
        name: name.to_owned(),
        line,
        fault,
    })
}

fn resource(name: &str, text: &str, types: &TypeTable) -> Result<Read, Fault> {
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ').skip(2);
    let mut word = |what| words.next().ok_or(fault(name, what));
    let kind = word("has no kind")?;
    let scope = word("has no scope")?;
    let set = word("is in no set")?;
    let mut resource = named(name, kind, types)?;
    resource.namespaced = one_of(scope, "namespaced", "cluster")?;
    header(&mut resource, words)?;
    for line in lines {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("sub ") {
            let sub = subresource(&resource, rest, types)?;
            resource.subresources.push(sub);
        } else if let Some(rest) = line.strip_prefix("column ") {
            resource.columns.push(column(rest)?);
        } else {
            return Err(fault(line, "is no line of a resource"));
        }
    }
    let default = one_of(set, "default", "optional")?;
    Ok(Read { resource, default })
}

/// A resource of which no more is known than its name and kind.
fn named(name: &str, kind: &str, types: &TypeTable) -> Result<Resource, Fault> {
    let (gv, plural) = name
        .rsplit_once('/')
        .ok_or(fault(name, "has no group-version"))?;
    let (group, version) = gv.rsplit_once('/').unwrap_or(("", gv));
    let type_of = |kind: &str| {
        let kind = GroupVersionKind::new(group, version, kind);
        types.kinds.get(&kind).copied()
    };
    let list_kind = format!("{kind}List");
    Ok(Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: "".into(),
        kind: kind.into(),
        namespaced: false,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
        storage: None,
        storage_version_hash: None,
        type_id: type_of(kind),
        list_type_id: type_of(&list_kind),
        list_kind: list_kind.into(),
        columns: Vec::new(),
        rules: Arc::new(Rules::default()),
    })
}

fn header<'a>(resource: &mut Resource, words: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    let mut stored = None;
    for word in words {
        let (key, value) = word.split_once('=').ok_or(fault(word, "has no value"))?;
        match key {
            "singular" => resource.singular = value.into(),
            "short" => resource.short_names = list(value),
            "categories" => resource.categories = list(value),
            "verbs" => resource.verbs = list(value),
            "stored" => stored = Some(value),
            "key" => {
                let stored = stored.ok_or(fault(word, "comes before `stored=`"))?;
                resource.storage = Some(storage(stored, value, &resource.kind)?);
            }
            _ => return Err(fault(word, "is no word of a resource")),
        }
    }
    let hash = |s: &Storage| storage_version_hash(&s.kind.group, &s.kind.version, &s.kind.kind);
    resource.storage_version_hash = resource.storage.as_ref().map(hash);
    Ok(())
}

fn storage(api_version: &str, key: &str, kind: &str) -> Result<Storage, Fault> {
    let kind = GroupVersionKind::read(&format!("{api_version}/{kind}"));
    Ok(Storage {
        key: key.into(),
        kind: kind.ok_or(fault(api_version, "is no stored version"))?,
    })
}

fn subresource(resource: &Resource, text: &str, types: &TypeTable) -> Result<Subresource, Fault> {
    let words: Vec<&str> = text.split(' ').collect();
    let [name, kind, verbs] = words[..] else {
        return Err(fault(text, "needs a name, a kind and verbs"));
    };
    let shown = GroupVersionKind::read(kind);
    let shows_group_version = shown.is_some();
    let kind = shown.unwrap_or_else(|| GroupVersionKind {
        kind: kind.into(),
        ..resource.gvk()
    });
    Ok(Subresource {
        name: name.into(),
        type_id: types.kinds.get(&kind).copied(),
        kind,
        shows_group_version,
        verbs: list(verbs),
        accepted_types: Vec::new(),
    })
}

fn column(text: &str) -> Result<Column, Fault> {
    let words: Vec<&str> = text.splitn(4, ' ').collect();
    let [kind, format, priority, name] = words[..] else {
        return Err(fault(text, "needs a type, a format, a priority and a name"));
    };
    Ok(Column {
        name: name.into(),
        kind: kind.into(),
        format: if format == "-" { "" } else { format }.into(),
        priority: priority
            .parse()
            .map_err(|_| fault(text, "has no priority"))?,
        path: None,
    })
}

fn one_of(word: &str, yes: &str, no: &str) -> Result<bool, Fault> {
    if word == yes {
        Ok(true)
    } else if word == no {
        Ok(false)
    } else {
        Err(fault(word, "is not one of the two words that can be here"))
    }
}

fn list(text: &str) -> Vec<Arc<str>> {
    text.split(',')
        .filter(|w| !w.is_empty())
        .map(Arc::from)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_resource_reads_with_its_subresources_and_columns() {
        let text = "resource apps/v1/deployments Deployment namespaced default singular=deployment short=deploy,dp \
            verbs=create,get stored=apps/v1 key=deployments\n  sub scale autoscaling/v1/Scale get\n  \
            sub status Deployment get,update\n  column string - 1 Up to date";
        let read = read("apps/v1/deployments", text, &TypeTable::default()).unwrap();
        let r = read.resource;
        assert!(read.default && r.namespaced && r.has_verb("create") && !r.has_verb("list"));
        assert_eq!(r.storage_version_hash.as_deref(), Some("8aSe+NMegvE="));
        assert_eq!(
            r.subresource("scale").unwrap().kind.api_version(),
            "autoscaling/v1"
        );
        assert_eq!(
            r.subresource("status").unwrap().kind.api_version(),
            "apps/v1"
        );
        assert_eq!(&*r.columns[0].name, "Up to date");
    }

    #[test]
    fn faults_name_the_resource_and_the_line() {
        for (text, message) in [
            (
                "resource v1/a A far default",
                "resource v1/a: `far` is not one of the two words that can be here",
            ),
            (
                "resource v1/a A cluster default x=1",
                "resource v1/a: `x=1` is no word of a resource",
            ),
            (
                "resource v1/a A cluster default\n  sub b",
                "resource v1/a: `b` needs a name, a kind and verbs",
            ),
        ] {
            let error = read("v1/a", text, &TypeTable::default()).err().unwrap();
            assert_eq!(error.to_string(), message);
        }
    }
}
