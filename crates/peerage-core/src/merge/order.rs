//! One order for names that several lists put in order, independent of who asks and of the order of the lists.
//!
//! The rules, the first that decides wins:
//! 1. A list that has every name keeps its order. Where several do and disagree, only they count from here on.
//! 2. A name comes before another when the lists say so directly or through others (as Kubernetes'
//!    `MergePreservingRelativeOrder` does it); among names that may come next the smallest is taken.
//! 3. Names that the lists put in a circle stay together. Among themselves they are ordered by the pairs on which
//!    all lists that have both agree; where those make a circle in turn, by the pairs on which at least two
//!    lists agree and none disagrees, then three, and so on; at last by size.
//!
//! So a pair that all lists have in the same order keeps it, whatever else they say.
//!
//! Differs: Kubernetes takes the first complete list by server ID, and sorts everything when there is a circle
//! anywhere; both make documents change as servers come and go.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::graph::by_components;

/// Above this many names in one circle only size counts: comparing all pairs would take too long.
const MAX_PAIRWISE: usize = 1024;

/// All names of `lists`, each once, in the one order described above; `compare` says which name is smaller.
///
/// A list that has a name twice counts as if only its first mention were there.
#[must_use]
pub fn consensus<'a>(
    lists: &[Vec<&'a str>],
    compare: impl Fn(&str, &str) -> Ordering,
) -> Vec<&'a str> {
    let mut names: Vec<&'a str> = lists.iter().flatten().copied().collect();
    names.sort_unstable_by(|a, b| compare(a, b).then_with(|| a.cmp(b)));
    names.dedup();
    let numbers: HashMap<&str, u32> = (0..).zip(&names).map(|(n, name)| (*name, n)).collect();
    let mut numbered: Vec<Vec<u32>> = lists
        .iter()
        .map(|list| list.iter().filter_map(|name| numbers.get(name).copied()))
        .map(first_mentions)
        .collect();
    let complete = |list: &Vec<u32>| list.len() == names.len();
    if let Some(first) = numbered.iter().find(|list| complete(list)) {
        let rest_agree = numbered.iter().all(|list| !complete(list) || list == first);
        if rest_agree {
            return first.iter().map(|n| names[*n as usize]).collect();
        }
        numbered.retain(complete);
    }
    ordered(names.len(), &numbered)
        .into_iter()
        .map(|n| names[n as usize])
        .collect()
}

fn first_mentions(list: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut seen = HashSet::new();
    list.filter(|n| seen.insert(*n)).collect()
}

/// Orders the numbers below `count`, smaller numbers being smaller names.
fn ordered(count: usize, lists: &[Vec<u32>]) -> Vec<u32> {
    let followers = neighbours(count, lists);
    by_components(&followers, |circle| by_agreement(circle, lists, 1))
}

/// Who directly follows whom in any list.
fn neighbours(count: usize, lists: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut followers = vec![Vec::new(); count];
    for pair in lists.iter().flat_map(|list| list.windows(2)) {
        followers[pair[0] as usize].push(pair[1]);
    }
    for list in &mut followers {
        list.sort_unstable();
        list.dedup();
    }
    followers
}

/// Orders one circle by the pairs on which `enough` lists agree and none disagrees.
fn by_agreement(circle: &[u32], lists: &[Vec<u32>], enough: usize) -> Vec<u32> {
    if circle.len() > MAX_PAIRWISE || enough > lists.len() {
        return circle.to_vec();
    }
    let lists = within(circle, lists);
    let followers = agreements(circle.len(), &lists, enough);
    by_components(&followers, |smaller| {
        by_agreement(smaller, &lists, enough + 1)
    })
    .into_iter()
    .map(|local| circle[local as usize])
    .collect()
}

/// What the lists say of a circle, its members renumbered by their place in it.
fn within(circle: &[u32], lists: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let numbers: HashMap<u32, u32> = (0..).zip(circle).map(|(local, n)| (*n, local)).collect();
    let local = |list: &Vec<u32>| {
        list.iter()
            .filter_map(|n| numbers.get(n).copied())
            .collect()
    };
    lists.iter().map(local).collect()
}

/// Who follows whom by agreement of `enough` lists.
fn agreements(count: usize, lists: &[Vec<u32>], enough: usize) -> Vec<Vec<u32>> {
    let places: Vec<Vec<Option<usize>>> = lists.iter().map(|list| places_in(list, count)).collect();
    let mut followers = vec![Vec::new(); count];
    for a in 0..count {
        for b in a + 1..count {
            match agreement(&places, a, b, enough) {
                Some(Ordering::Less) => followers[a].push(narrow(b)),
                Some(Ordering::Greater) => followers[b].push(narrow(a)),
                _ => {}
            }
        }
    }
    followers
}

/// Where in the list each number stands.
fn places_in(list: &[u32], count: usize) -> Vec<Option<usize>> {
    let mut places = vec![None; count];
    for (place, n) in list.iter().enumerate() {
        places[*n as usize] = Some(place);
    }
    places
}

/// The order of a pair on which every list that has both agrees, when `enough` lists have both.
fn agreement(places: &[Vec<Option<usize>>], a: usize, b: usize, enough: usize) -> Option<Ordering> {
    let mut said = places
        .iter()
        .filter_map(|list| Some(list[a]?.cmp(&list[b]?)));
    let first = said.next()?;
    let mut agreeing = 1;
    for says in said {
        if says != first {
            return None;
        }
        agreeing += 1;
    }
    (agreeing >= enough).then_some(first)
}

/// Counts here are bounded far below 32 bits by the readers of documents; saturating keeps this total.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
