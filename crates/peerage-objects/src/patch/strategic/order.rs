//! The order of a merged list: the elements of the patch in the patch's order, those that only the server has in
//! theirs, and between the two as the server had them where that can be said.

use serde_json::Value;

/// Whether two elements are the same one: by their merge key, or as scalars.
pub(super) fn same(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    }
}

/// Puts merged elements into order. `wanted` is the patch's order, `server` the order before.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let wanted = Positions::of(wanted, key);
    let server = Positions::of(server, key);
    let (mut patched, mut kept): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| wanted.find(item).is_some());
    patched.sort_by_key(|item| wanted.find(item));
    kept.sort_by_key(|item| server.find(item).unwrap_or(usize::MAX));
    interleave(kept, patched, &server)
}

/// Puts each of `left` before the first of `right` that came after it on the server.
fn interleave(left: Vec<Value>, right: Vec<Value>, server: &Positions<'_>) -> Vec<Value> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let first = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) => match (server.find(l), server.find(r)) {
                (Some(l), Some(r)) => l < r,
                _ => false,
            },
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return out,
        };
        out.extend(if first { left.next() } else { right.next() });
    }
}

/// Where elements are in a list, by what identifies them.
struct Positions<'a> {
    key: Option<&'a str>,
    at: std::collections::HashMap<String, usize>,
}

impl<'a> Positions<'a> {
    fn of(items: &[Value], key: Option<&'a str>) -> Positions<'a> {
        let mut at = std::collections::HashMap::new();
        for (position, item) in items.iter().enumerate() {
            if let Some(identity) = identity(item, key) {
                at.entry(identity).or_insert(position);
            }
        }
        Positions { key, at }
    }

    fn find(&self, item: &Value) -> Option<usize> {
        self.at.get(&identity(item, self.key)?).copied()
    }
}

fn identity(item: &Value, key: Option<&str>) -> Option<String> {
    match key {
        Some(key) => item.get(key).map(Value::to_string),
        None => Some(item.to_string()),
    }
}
