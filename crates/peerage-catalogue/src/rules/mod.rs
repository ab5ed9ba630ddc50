//! What kube-apiserver does in code and no document shows, as data, by kind.

/// The rules of one kind.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Rules {}
