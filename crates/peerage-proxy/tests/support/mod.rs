//! Fake peers, a throw-away PKI, and a proxy around a local service that says what reached it.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used
)]

pub mod documents;
pub mod fake_peer;
pub mod front;
pub mod pki;
pub mod raw_peer;
pub mod world;

pub use documents::{api, apis, group, resource};
pub use fake_peer::{Document, FakePeer, PeerBody, PeerRequest, Seen, response, text};
pub use front::Front;
pub use pki::{PEER_NAME, Pki};
pub use raw_peer::RawPeer;
pub use world::{Answer, World, WorldBuilder, lease, live, pair};
