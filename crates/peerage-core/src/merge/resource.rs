//! Merging what several servers list of the same resource.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::discovery::{ApiResourceDiscovery, ApiSubresourceDiscovery, ResponseKind};

/// The resource with something where `responseKind` is missing, for clients that cannot do without.
pub(super) fn filled(resource: &Arc<ApiResourceDiscovery>) -> Arc<ApiResourceDiscovery> {
    let missing = resource.response_kind.is_none()
        || resource
            .subresources
            .iter()
            .any(|it| it.response_kind.is_none());
    if !missing {
        return Arc::clone(resource);
    }
    let mut resource = ApiResourceDiscovery::clone(resource);
    resource.response_kind.get_or_insert_default();
    for subresource in &mut resource.subresources {
        subresource.response_kind.get_or_insert_default();
    }
    Arc::new(resource)
}

/// Merges the variants of one resource; none without variants.
pub(super) fn merge(variants: &[&Arc<ApiResourceDiscovery>]) -> Option<Arc<ApiResourceDiscovery>> {
    let (first, rest) = variants.split_first()?;
    if rest.iter().all(|it| it == first) {
        return Some(filled(first));
    }
    let fullest = variants.iter().min_by_key(|it| fullness(it))?;
    Some(Arc::new(ApiResourceDiscovery {
        resource: fullest.resource.clone(),
        response_kind: Some(fullest.response_kind.clone().unwrap_or_default()),
        scope: fullest.scope.clone(),
        singular_resource: fullest.singular_resource.clone(),
        verbs: sorted_union(variants.iter().map(|it| &it.verbs)),
        short_names: union(variants.iter().map(|it| &it.short_names)),
        categories: union(variants.iter().map(|it| &it.categories)),
        subresources: merge_subresources(variants),
    }))
}

/// What makes an entry the one to believe: it has a kind, more verbs, more subresources; then any fixed order.
fn fullness(
    it: &ApiResourceDiscovery,
) -> (bool, Reverse<usize>, Reverse<usize>, &ApiResourceDiscovery) {
    let kindless = it
        .response_kind
        .as_ref()
        .is_none_or(|kind| kind.kind.is_empty());
    let subresources = Reverse(it.subresources.len());
    (kindless, Reverse(it.verbs.len()), subresources, it)
}

fn merge_subresources(variants: &[&Arc<ApiResourceDiscovery>]) -> Vec<ApiSubresourceDiscovery> {
    let mut by_name: BTreeMap<&str, Vec<&ApiSubresourceDiscovery>> = BTreeMap::new();
    for subresource in variants.iter().flat_map(|it| &it.subresources) {
        let named = by_name.entry(&subresource.subresource).or_default();
        named.push(subresource);
    }
    by_name
        .into_values()
        .filter_map(|variants| merge_subresource(&variants))
        .collect()
}

fn merge_subresource(variants: &[&ApiSubresourceDiscovery]) -> Option<ApiSubresourceDiscovery> {
    let (first, rest) = variants.split_first()?;
    let mut merged = if rest.iter().all(|it| it == first) {
        ApiSubresourceDiscovery::clone(first)
    } else {
        merge_differing(variants)?
    };
    merged.response_kind.get_or_insert_default();
    Some(merged)
}

fn merge_differing(variants: &[&ApiSubresourceDiscovery]) -> Option<ApiSubresourceDiscovery> {
    let kindless = |kind: &Option<ResponseKind>| kind.as_ref().is_none_or(|it| it.kind.is_empty());
    let fullest = variants
        .iter()
        .min_by_key(|it| (kindless(&it.response_kind), Reverse(it.verbs.len()), **it))?;
    let accepted: BTreeSet<&ResponseKind> =
        variants.iter().flat_map(|it| &it.accepted_types).collect();
    Some(ApiSubresourceDiscovery {
        subresource: fullest.subresource.clone(),
        response_kind: fullest.response_kind.clone(),
        accepted_types: accepted.into_iter().cloned().collect(),
        verbs: sorted_union(variants.iter().map(|it| &it.verbs)),
    })
}

fn sorted_union<'a>(lists: impl Iterator<Item = &'a Vec<String>>) -> Vec<String> {
    let words: BTreeSet<&String> = lists.flatten().collect();
    words.into_iter().cloned().collect()
}

/// The union of lists whose order means something to people.
fn union<'a>(lists: impl Iterator<Item = &'a Vec<String>>) -> Vec<String> {
    let lists: Vec<Vec<&str>> = lists
        .map(|list| list.iter().map(String::as_str).collect())
        .collect();
    super::order::consensus(&lists, str::cmp)
        .into_iter()
        .map(str::to_owned)
        .collect()
}
