//! Whether what only some serve can be read through every server.

use super::super::report::{Item, some};
use super::super::world::{Problem, ReadThrough, World, good};
use super::NAMED;
use crate::output::counted;

const READ: &str = "read-through";

/// What could not be read through every server, a line for each cause, and all that could in one line.
pub(super) fn judge_reads(world: &World) -> Vec<Item> {
    let mut items = together(world.read.iter().filter_map(|it| judge_read(world, it)));
    let is_read = |it: &&ReadThrough| judge_read(world, it).is_none();
    let read = world.read.iter().filter(is_read);
    let (objects, lists): (Vec<&ReadThrough>, Vec<&ReadThrough>) =
        read.partition(|it| it.object.is_some());
    let paths: Vec<String> = objects
        .iter()
        .filter_map(|it| Some(it.object.as_ref()?.0.clone()))
        .chain(lists.iter().map(|it| it.path.clone()))
        .collect();
    if !paths.is_empty() {
        let says = format!(
            "of APIs that only some serve, {} and {} are read through every server: {}",
            counted(objects.len(), "object"),
            counted(lists.len(), "empty list"),
            some(&paths, NAMED)
        );
        items.push(Item::pass(READ, "", says));
    }
    items
}

/// Items that say the same of several subjects as one.
fn together(items: impl Iterator<Item = Item>) -> Vec<Item> {
    let mut causes: Vec<(Item, Vec<String>)> = Vec::new();
    for item in items {
        let same = |(it, _): &&mut (Item, _)| it.says == item.says && it.fix == item.fix;
        match causes.iter_mut().find(same) {
            Some((_, subjects)) => subjects.push(item.subject),
            None => causes.push((item.clone(), vec![item.subject])),
        }
    }
    let joined = causes.into_iter().map(|(item, subjects)| Item {
        subject: some(&subjects, NAMED),
        ..item
    });
    joined.collect()
}

fn judge_read(world: &World, read: &ReadThrough) -> Option<Item> {
    let (path, answers) = match &read.object {
        Some((path, answers)) => (path, answers),
        None => (&read.path, &read.list),
    };
    let mut failed = Vec::new();
    let mut through_peerage = true;
    let mut forbidden = false;
    for (server, got) in world.servers.iter().zip(answers) {
        if !world.is_reached(server) {
            continue;
        }
        let before = failed.len();
        match good(got) {
            Ok(_) => {}
            Err(Problem::Forbidden) => forbidden = true,
            Err(Problem::Missing) => failed.push(format!(
                "{} answers 404, which clients take for \"removed\"",
                server.name
            )),
            Err(Problem::Unauthorized) => failed.push(format!("{} answers 401", server.name)),
            Err(Problem::Other(text)) => failed.push(format!("{}: {text}", server.name)),
        }
        through_peerage &= failed.len() == before || server.is_behind_peerage();
    }
    if !failed.is_empty() {
        let fix = "see what is said of `proxy`, `peer-port` and `front-proxy`";
        return Some(
            Item::fail(READ, path, failed.join("; ")).fix(world.start_first(through_peerage, fix)),
        );
    }
    let resource = read
        .path
        .trim_start_matches("/apis/")
        .trim_start_matches("/api/");
    forbidden.then(|| {
        Item::warn(READ, path, "may not be read (403)").fix(format!(
            "the right that is missing: get and list {resource}"
        ))
    })
}
