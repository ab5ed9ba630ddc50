//! What the older forms hide of what a server shows in the aggregated one: legacy discovery and OpenAPI.

use std::collections::BTreeSet;

use peerage_core::discovery::{read_api_resources, read_legacy_groups};

use super::super::report::{Item, some};
use super::super::world::{Problem, Server, World, good};
use super::{Api, Apis, GATEWAY, NAMED, to_be_shown, unread, words};
use crate::diff::compare::api_version;

const LEGACY: &str = "legacy-discovery";
const OPENAPI: &str = "openapi";
const UNREADABLE: &str =
    "see what stands between: a proxy or a load balancer may answer in its place";

/// What of a group-version a server should show, as resource names.
fn expected<'a>(all: &'a Apis, of: &'a str) -> impl Iterator<Item = &'a Api> {
    all.keys()
        .filter(move |api| api_version(&api.group, &api.version) == of)
}

pub(super) fn judge_legacy(world: &World, at: usize, server: &Server, all: &Apis) -> Item {
    let name = &server.name;
    let got = server.answers().map(|it| &it.legacy);
    let groups = match got.map(good) {
        Some(Ok(answer)) => match read_legacy_groups(&answer.body) {
            Ok(groups) => groups.groups,
            Err(e) => {
                return Item::fail(LEGACY, name, crate::client::chain(&e)).fix(UNREADABLE);
            }
        },
        Some(Err(problem)) => return unread(world, LEGACY, server, &problem),
        None => return Item::skip(LEGACY, name, "it does not answer"),
    };
    let known: BTreeSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    let names = all.keys().map(|api| api.group.as_str());
    let mut hidden: Vec<String> = names
        .filter(|group| !group.is_empty() && !known.contains(group))
        .map(|group| format!("the group {group}"))
        .collect();
    hidden.dedup();
    for asked in &world.asked {
        let Some(got) = asked.legacy.get(at) else {
            continue;
        };
        let listed: BTreeSet<String> = match good(got).map(|it| read_api_resources(&it.body)) {
            Ok(Ok(list)) => list.resources.into_iter().map(|it| it.name).collect(),
            Err(Problem::Missing) => BTreeSet::new(),
            _ => continue,
        };
        let missing =
            expected(all, &asked.api_version).filter(|api| !listed.contains(&api.resource));
        hidden.extend(words(missing));
    }
    judge_hidden(
        world,
        LEGACY,
        server,
        &hidden,
        "kubectl and client-go of before 1.26 do not see them",
    )
}

pub(super) fn judge_openapi(world: &World, at: usize, server: &Server, all: &Apis) -> Item {
    let name = &server.name;
    let got = server.answers().map(|it| &it.openapi);
    let index = match got.map(good) {
        Some(Ok(answer)) => answer.json(),
        Some(Err(problem)) => return unread(world, OPENAPI, server, &problem),
        None => return Item::skip(OPENAPI, name, "it does not answer"),
    };
    let mut hidden = Vec::new();
    for asked in &world.asked {
        let root = match asked.api_version.contains('/') {
            true => format!("apis/{}", asked.api_version),
            false => format!("api/{}", asked.api_version),
        };
        if index["paths"].get(&root).is_none() {
            hidden.extend(words(expected(all, &asked.api_version)));
            continue;
        }
        let Some(Ok(document)) = asked.openapi.get(at).map(good) else {
            continue;
        };
        let document = String::from_utf8_lossy(&document.body);
        let has = |api: &&Api| {
            let path = format!("/{}", api.resource);
            let ends = [format!("{path}\""), format!("{path}/")];
            ends.iter().any(|end| document.contains(end.as_str()))
        };
        hidden.extend(words(
            expected(all, &asked.api_version).filter(|api| !has(api)),
        ));
    }
    judge_hidden(
        world,
        OPENAPI,
        server,
        &hidden,
        "`kubectl explain` and server-side validation on the client fail for them",
    )
}

fn judge_hidden(
    world: &World,
    check: &'static str,
    server: &Server,
    hidden: &[String],
    so: &str,
) -> Item {
    let name = &server.name;
    if hidden.is_empty() {
        return Item::pass(check, name, "hides nothing");
    }
    let says = format!("hides {}: {}; {so}", hidden.len(), some(hidden, NAMED));
    Item::warn(check, name, says).fix(to_be_shown(world, server, GATEWAY))
}
