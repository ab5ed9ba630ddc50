//! Servers that are reached through a gateway.

#![allow(clippy::unwrap_used)]

use super::fixture::*;

use peerage_core::discovery::Freshness;
use serde_json::json;

use crate::check::judge::judge;
use crate::check::report::Verdict;
use crate::check::world::World;

#[test]
fn a_gateway_has_no_version_of_its_own_and_what_it_lists_comes_from_servers() {
    let pki = Pki::new("ca");
    let of = |world: &World, check: &str| {
        let found = judge(world).items.into_iter().find(|it| it.check == check);
        found.unwrap()
    };
    let mut world = world(&pki);
    world.servers.truncate(1);
    world.read.clear();
    through_a_gateway(&mut world, 0);
    let item = of(&world, "version-skew");
    assert_eq!(item.verdict, Verdict::Skip, "{item:?}");
    assert!(item.says.contains("name the servers"), "{item:?}");

    let peer = |id: &str, version: &str| json!({"id": id, "state": "serving", "why": "", "version": version});
    world.gateways = vec![gateway(json!([peer("a", "v1.34.1"), peer("b", "v1.37.0")]))];
    let item = of(&world, "version-skew");
    assert!(
        item.says.starts_with("1.34 (a), 1.37 (b): 3 minor"),
        "{item:?}"
    );

    let own = answers(&mut world, 0).own.as_mut().unwrap();
    std::sync::Arc::make_mut(&mut own.apis.items[0]).versions[0].freshness = Freshness::Stale;
    let item = of(&world, "discovery");
    assert_eq!(item.verdict, Verdict::Warn);
    assert!(
        item.fix.as_ref().unwrap().contains("/debug/peers"),
        "{item:?}"
    );
}
