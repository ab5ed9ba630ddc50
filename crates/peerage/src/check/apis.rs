//! Discovery through each server: what only some serve, whether all show the same, what older forms hide, and whether
//! what is shown can be read everywhere. `hidden.rs` looks at the older forms, `reads.rs` at objects.

mod hidden;
mod reads;

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use peerage_core::discovery::{ApiGroupDiscoveryList, read_core, read_groups};

use super::report::{Item, not_known, some};
use super::rights;
use super::world::{Got, Problem, Server, World, good};
use crate::diff::compare::api_version;
use crate::discovery::{Form, form};
use crate::output::counted;

const DISCOVERY: &str = "discovery";
const DIFFERENT: &str = "only-some-serve";
const MERGED: &str = "merged-view";
const SUBRESOURCES: &str = "subresources";
/// How many names a line has.
const NAMED: usize = 5;
const GATEWAY: &str = "put `peerage gateway` before the servers: it merges these as well";

const PEERAGE: &str = "its proxy merges these where it is on (see `proxy`) and can read them: its log says why it cannot, and \
                       peerage_peer_errors_total of its metrics (reason=\"openapi\" for OpenAPI)";

/// A resource of a group-version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Api {
    group: String,
    version: String,
    resource: String,
}

impl Api {
    fn in_words(&self) -> String {
        format!(
            "{} {}",
            api_version(&self.group, &self.version),
            self.resource
        )
    }
}

/// A resource that only some servers have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differing {
    api: Api,
    /// Its plural name.
    pub(super) resource: String,
    /// Whether it can be read and listed.
    pub(super) readable: bool,
}

impl Differing {
    /// The path of its group-version.
    pub(super) fn root(&self) -> String {
        match self.api.group.as_str() {
            "" => format!("/api/{}", self.api.version),
            group => format!("/apis/{group}/{}", self.api.version),
        }
    }
}

type Apis = BTreeMap<Api, Vec<String>>;

/// The resources of documents, with their verbs.
fn apis<'l>(lists: impl IntoIterator<Item = &'l ApiGroupDiscoveryList>) -> Apis {
    let mut apis = Apis::new();
    for group in lists.into_iter().flat_map(|list| &list.items) {
        for version in &group.versions {
            for resource in &version.resources {
                let api = Api {
                    group: group.name().to_owned(),
                    version: version.version.clone(),
                    resource: resource.resource.clone(),
                };
                apis.insert(api, resource.verbs.clone());
            }
        }
    }
    apis
}

fn own(server: &Server) -> Option<Apis> {
    let shown = server.own()?;
    Some(apis([&shown.core, &shown.apis]))
}

/// Everything that any server serves by itself.
fn all(servers: &[Server]) -> Apis {
    servers.iter().filter_map(own).flatten().collect()
}

/// What only some of the servers serve.
pub(super) fn differing(servers: &[Server]) -> Vec<Differing> {
    let each: Vec<Apis> = servers.iter().filter_map(own).collect();
    let different = all(servers)
        .into_iter()
        .filter(|(api, _)| !each.iter().all(|own| own.contains_key(api)));
    different
        .map(|(api, verbs)| Differing {
            resource: api.resource.clone(),
            readable: ["get", "list"]
                .iter()
                .all(|verb| verbs.iter().any(|it| it == verb)),
            api,
        })
        .collect()
}

/// Judges discovery.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let answering: Vec<&Server> = world
        .servers
        .iter()
        .filter(|it| it.answers().is_some())
        .collect();
    let mut items: Vec<Item> = answering.iter().map(|it| judge_own(world, it)).collect();
    let known = answering.iter().filter(|it| it.own().is_some()).count();
    if known < 2 {
        let says =
            "needs the discovery of two servers at least: name each by itself, not a load balancer";
        items.push(Item::skip(MERGED, "", says));
        return items;
    }
    let all = all(&world.servers);
    items.push(only_some(world, &all));
    let reached = answering.iter().copied();
    let reached: Vec<&Server> = reached.filter(|it| world.is_reached(it)).collect();
    if reached.is_empty() {
        let says = match world.silent_gateway() {
            Some(url) => format!("not judged while {url} does not say which servers are behind it"),
            None => "clients come through gateways: name the address that they connect to as well, to see what it shows them".to_owned(),
        };
        items.push(Item::skip(MERGED, "", says));
        return items;
    }
    items.extend(reached.iter().map(|it| judge_merged(world, it, &all)));
    let shown = world.servers.iter();
    let shown: Vec<&Server> = shown.filter(|it| world.behind(it).is_none()).collect();
    items.push(same_everywhere(world, &shown));
    for (at, server) in world.servers.iter().enumerate() {
        if world.is_reached(server) {
            items.push(hidden::judge_legacy(world, at, server, &all));
            items.push(hidden::judge_openapi(world, at, server, &all));
        }
    }
    items.extend(subresources(world, &answering));
    items.extend(reads::judge_reads(world));
    items
}

fn judge_own(world: &World, server: &Server) -> Item {
    let name = &server.name;
    let shown = match server.answers().map(|it| &it.own) {
        Some(Ok(shown)) => shown,
        Some(Err(problem)) => return unread(world, DISCOVERY, server, problem),
        None => return Item::skip(DISCOVERY, name, "it does not answer"),
    };
    let groups = shown.core.items.iter().chain(&shown.apis.items);
    let stale: Vec<String> = groups
        .flat_map(|group| {
            let stale = group.versions.iter().filter(|it| it.freshness.is_stale());
            stale.map(|it| api_version(group.name(), &it.version))
        })
        .collect();
    let count = counted(apis([&shown.core, &shown.apis]).len(), "resource");
    let says = format!("{count} of its own, as {}", shown.form.in_words());
    if stale.is_empty() {
        return Item::pass(DISCOVERY, name, says);
    }
    Item::warn(
        DISCOVERY,
        name,
        format!("{says}; stale: {}", some(&stale, NAMED)),
    )
    .fix(match server.is_behind_peerage() {
        true => world.start_first(true, "a server that serves these is away: see the `peer` items (--gateway has them for a gateway), or /debug/peers"),
        false => "see the APIServices of these: kubectl get apiservices".to_owned(),
    })
}

/// The item for discovery that could not be read; while a server is away, that may be why.
fn unread(world: &World, check: &'static str, server: &Server, problem: &Problem) -> Item {
    let mut item = rights::unread(check, &server.name, rights::DISCOVERY, problem);
    if let (Problem::Other(_), Some(fix)) = (problem, &item.fix) {
        item.fix = Some(world.start_first(false, fix));
    }
    item
}

/// What to do where a server hides what another serves: `otherwise`, unless it is Peerage that hides it, whose proxy merges
/// what it can read.
fn to_be_shown(world: &World, server: &Server, otherwise: &str) -> String {
    let through_peerage = server.is_behind_peerage();
    let fix = match through_peerage {
        true => PEERAGE,
        false => otherwise,
    };
    world.start_first(through_peerage, fix)
}

fn words<'a>(apis: impl IntoIterator<Item = &'a Api>) -> Vec<String> {
    apis.into_iter().map(Api::in_words).collect()
}

fn only_some(world: &World, all: &Apis) -> Item {
    let mut lines = Vec::new();
    for server in &world.servers {
        let Some(own) = own(server) else { continue };
        let lacks = words(all.keys().filter(|api| !own.contains_key(api)));
        if !lacks.is_empty() {
            let count = lacks.len();
            let lacks = some(&lacks, NAMED);
            lines.push(format!("{} lacks {count}: {lacks}", server.name));
        }
    }
    match lines.is_empty() {
        true => Item::pass(DIFFERENT, "", "all serve the same resources"),
        false => Item::pass(DIFFERENT, "", lines.join("; ")),
    }
}

/// What a server shows to clients that ask for the aggregated documents.
fn merged(server: &Server) -> Option<Result<Apis, Problem>> {
    let answers = server.answers()?;
    let document = |got: &Got, core: bool| -> Result<ApiGroupDiscoveryList, Problem> {
        let answer = good(got)?;
        let read = if core { read_core } else { read_groups };
        read(&answer.body).map_err(|e| Problem::Other(crate::client::chain(&e)))
    };
    let both = || {
        let core = document(&answers.merged_core, true)?;
        let groups = document(&answers.merged, false)?;
        Ok(apis([&core, &groups]))
    };
    Some(both())
}

/// Whether the server answers in older forms when it is asked for the aggregated one, or refuses to.
fn has_none(server: &Server) -> bool {
    let answer = server.answers().and_then(|it| it.merged.as_ref().ok());
    answer.is_some_and(|it| match it.status {
        StatusCode::OK => form(&it.body).is_some_and(|form| form != Form::V2),
        status => status == StatusCode::NOT_ACCEPTABLE,
    })
}

fn judge_merged(world: &World, server: &Server, all: &Apis) -> Item {
    let name = &server.name;
    let shown = match merged(server) {
        Some(Ok(shown)) => shown,
        Some(Err(_)) if has_none(server) => {
            let says = "it has no aggregated discovery (v2 is there since 1.30)";
            return Item::warn(MERGED, name, says).fix(GATEWAY);
        }
        Some(Err(problem)) => return unread(world, MERGED, server, &problem),
        None => return Item::skip(MERGED, name, "it does not answer"),
    };
    let hidden = words(all.keys().filter(|api| !shown.contains_key(api)));
    if !hidden.is_empty() {
        let says = format!(
            "it hides {} that another serves: {}; its clients (garbage collection, namespace deletion, kubectl) take them for removed",
            hidden.len(),
            some(&hidden, NAMED)
        );
        let fix = "turn its proxy on (see `proxy`), or put `peerage gateway` before the servers";
        return Item::fail(MERGED, name, says).fix(to_be_shown(world, server, fix));
    }
    let more = words(shown.keys().filter(|api| !all.contains_key(api)));
    if !more.is_empty() {
        let says = format!(
            "it lists {} that none of these servers has: {}",
            more.len(),
            some(&more, NAMED)
        );
        return Item::warn(MERGED, name, says).fix(
            "name all servers; if one is gone for good, restart this one (Kubernetes' proxy lists a last peer's APIs for ever)",
        );
    }
    Item::pass(
        MERGED,
        name,
        format!("it shows all {}", counted(all.len(), "resource")),
    )
}

/// Whether all that tell which document they show show the same.
fn same_everywhere(world: &World, servers: &[&Server]) -> Item {
    let mut views: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for server in servers {
        let answer = server.answers().map(|it| good(&it.merged));
        match answer.and_then(|it| it.ok()?.header("etag")) {
            Some(etag) => views.entry(etag).or_default().push(&server.name),
            None => unknown.push(server.name.clone()),
        }
    }
    let known: usize = views.values().map(Vec::len).sum();
    let unknown = not_known(&unknown).map_or(String::new(), |it| format!("; {it}"));
    if known < 2 {
        let says = format!("too few tell which document they show (by an ETag){unknown}");
        return Item::skip(MERGED, "", says);
    }
    if views.len() == 1 {
        let says = format!("the same document everywhere, by its ETag{unknown}");
        return Item::pass(MERGED, "", says);
    }
    let views: Vec<_> = views.values().map(|names| names.join(", ")).collect();
    let says = format!(
        "not the same everywhere: {} shows another document than {}{unknown}",
        views[0],
        views[1..].join(" and than ")
    );
    let through_peerage = servers.iter().all(|it| it.is_behind_peerage());
    let fix = "wait until every server has heard of every other; clients that change servers read discovery anew meanwhile";
    Item::warn(MERGED, "", says).fix(world.start_first(through_peerage, fix))
}

/// Subresources that only some have: Kubernetes' proxy lists them, and answers 404 where they are not local.
fn subresources(world: &World, servers: &[&Server]) -> Option<Item> {
    let each: Vec<BTreeSet<String>> = servers
        .iter()
        .filter_map(|it| Some(subresources_of(it.own()?)))
        .collect();
    let all: BTreeSet<&String> = each.iter().flatten().collect();
    let common: BTreeMap<&str, bool> = all
        .iter()
        .map(|name| (name.as_str(), each.iter().all(|own| own.contains(*name))))
        .collect();
    let shared = |name: &str| {
        // A resource that is missing altogether is told of elsewhere.
        let resource = name.split('/').take(3).collect::<Vec<_>>().join("/");
        servers.iter().filter_map(|it| own(it)).all(|own| {
            own.keys()
                .any(|api| format!("{}/{}/{}", api.group, api.version, api.resource) == resource)
        })
    };
    let some_have: Vec<String> = common
        .into_iter()
        .filter(|(name, everywhere)| !everywhere && shared(name))
        .map(|(name, _)| name.trim_start_matches('/').to_owned())
        .collect();
    if some_have.is_empty() {
        return None;
    }
    let list = some(&some_have, NAMED);
    let forwards = |it: &&Server| !world.is_reached(it) || it.is_behind_peerage();
    if servers.iter().all(forwards) {
        return Some(Item::pass(
            SUBRESOURCES,
            "",
            format!("only some have {list}; sent on to these"),
        ));
    }
    Some(
        Item::warn(SUBRESOURCES, "", format!(
            "only some have {list}; Kubernetes' proxy lists them everywhere and answers 404 where they are not local"
        ))
        .fix("put `peerage gateway` before the servers: it routes by subresource"),
    )
}

fn subresources_of(shown: &super::world::Shown) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for group in shown.core.items.iter().chain(&shown.apis.items) {
        for version in &group.versions {
            for resource in &version.resources {
                for sub in &resource.subresources {
                    names.insert(format!(
                        "{}/{}/{}/{}",
                        group.name(),
                        version.version,
                        resource.resource,
                        sub.subresource
                    ));
                }
            }
        }
    }
    names
}
