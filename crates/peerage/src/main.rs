//! The `peerage` binary.
fn main() {}
