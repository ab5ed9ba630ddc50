//! The graph part of putting names in order: who must come after whom, and what goes in circles.
//!
//! Nodes are numbers from zero, smaller numbers being smaller names; a graph is the list of followers of each
//! node. Depth is chosen by whoever sent the lists, so nothing here recurses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Orders a graph: components after those they follow, the one with the smallest member first among those
/// that may come next; `inside` orders the members, given by size, of a component of several.
pub(super) fn by_components(
    followers: &[Vec<u32>],
    inside: impl Fn(&[u32]) -> Vec<u32>,
) -> Vec<u32> {
    let condensed = Condensed::new(followers);
    let mut waiting_for = vec![0_u32; condensed.components.len()];
    for to in (0..waiting_for.len()).flat_map(|from| condensed.followers(from)) {
        waiting_for[to] += 1;
    }
    let mut ready: BinaryHeap<_> = (0..waiting_for.len())
        .filter(|number| waiting_for[*number] == 0)
        .map(|number| condensed.entry(number))
        .collect();
    let mut order = Vec::with_capacity(followers.len());
    while let Some(Reverse((_, number))) = ready.pop() {
        match condensed.components[number].as_slice() {
            [single] => order.push(*single),
            circle => order.extend(inside(circle)),
        }
        for to in condensed.followers(number) {
            waiting_for[to] -= 1;
            if waiting_for[to] == 0 {
                ready.push(condensed.entry(to));
            }
        }
    }
    order
}

/// A graph with each component as one node.
struct Condensed<'g> {
    graph: &'g [Vec<u32>],
    components: Vec<Vec<u32>>,
    component_of: Vec<usize>,
}

impl<'g> Condensed<'g> {
    fn new(graph: &'g [Vec<u32>]) -> Self {
        let components = components(graph);
        let mut component_of = vec![0; graph.len()];
        for (number, members) in components.iter().enumerate() {
            for member in members {
                component_of[*member as usize] = number;
            }
        }
        Self {
            graph,
            components,
            component_of,
        }
    }

    /// The components that follow this one, once for each pair of nodes that says so.
    fn followers(&self, from: usize) -> impl Iterator<Item = usize> {
        self.components[from]
            .iter()
            .flat_map(|member| &self.graph[*member as usize])
            .map(|to| self.component_of[*to as usize])
            .filter(move |to| *to != from)
    }

    /// What puts components in order that may come next: the smallest member.
    fn entry(&self, number: usize) -> Reverse<(u32, usize)> {
        Reverse((self.components[number][0], number))
    }
}

/// The strongly connected components, the members of each sorted.
fn components(graph: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut search = Search {
        graph,
        index: vec![None; graph.len()],
        low: vec![0; graph.len()],
        is_open: vec![false; graph.len()],
        open: Vec::new(),
        entered: 0,
        found: Vec::new(),
    };
    for root in (0..).take(graph.len()) {
        search.from(root);
    }
    search.found
}

/// Tarjan's depth-first search.
struct Search<'g> {
    graph: &'g [Vec<u32>],
    /// When each node was entered.
    index: Vec<Option<u32>>,
    /// The earliest entered node that each node is known to reach.
    low: Vec<u32>,
    /// Nodes whose component is not complete yet.
    open: Vec<u32>,
    is_open: Vec<bool>,
    entered: u32,
    found: Vec<Vec<u32>>,
}

impl Search<'_> {
    fn from(&mut self, root: u32) {
        if self.index[root as usize].is_some() {
            return;
        }
        let mut path = vec![(self.enter(root), 0)];
        while let Some((node, step)) = path.last_mut() {
            let at = *node as usize;
            let next = self.graph[at].get(*step).copied();
            *step += 1;
            match next {
                Some(next) => match self.index[next as usize] {
                    None => path.push((self.enter(next), 0)),
                    Some(index) if self.is_open[next as usize] => {
                        self.low[at] = self.low[at].min(index);
                    }
                    Some(_) => {}
                },
                None => {
                    let node = *node;
                    path.pop();
                    let parent = path.last().map(|(parent, _)| *parent);
                    self.leave(node, parent);
                }
            }
        }
    }

    fn enter(&mut self, node: u32) -> u32 {
        self.index[node as usize] = Some(self.entered);
        self.low[node as usize] = self.entered;
        self.entered += 1;
        self.open.push(node);
        self.is_open[node as usize] = true;
        node
    }

    /// Closes the component that the node was entered first of, and tells the parent what the node reaches.
    fn leave(&mut self, node: u32, parent: Option<u32>) {
        let low = self.low[node as usize];
        if self.index[node as usize] == Some(low) {
            let start = self.open.iter().rposition(|open| *open == node);
            let mut members = self.open.split_off(start.unwrap_or_default());
            for member in &members {
                self.is_open[*member as usize] = false;
            }
            members.sort_unstable();
            self.found.push(members);
        }
        if let Some(parent) = parent {
            let known = &mut self.low[parent as usize];
            *known = low.min(*known);
        }
    }
}
