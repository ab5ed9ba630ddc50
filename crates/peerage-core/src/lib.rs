//! The pure heart of the Mixed Version Proxy: request parsing, discovery, merging and routing, without I/O.
//!
//! Nothing here opens a socket, reads a file or a clock, draws a random number, logs or awaits: time and
//! tickets are arguments. That is what makes every decision of the proxy a table or property test.
//!
//! | module | answers |
//! |---|---|
//! | [`request_info`] | what does this request ask for |
//! | [`query`] | what are its query parameters |
//! | [`user`] | on whose behalf |
//! | [`media`] | in which form may it be answered |
//! | [`status`] | how is a failure said |
//! | [`version`] | which of two versions comes first |
//! | [`audit`] | what is recorded of it |
//! | [`json`] | how are its bytes written |
//! | [`discovery`] | what does a server say it serves |
//! | [`merge`] | what do several serve together |
//! | [`index`] | how much of what is asked for does a server list |
//! | [`exclusion`] | which APIs the shared store defines, for every server alike |
//! | [`view`] | what is known of all servers now |
//! | [`route`](mod@route) | who answers a request |
//! | [`etag`] | how documents are tagged |
//! | [`duration`] | how long does a text say
//! | [`quote`] | how does Kubernetes quote a string in a message |
//! | [`shown`] | how is a text of others shown to people |

pub mod audit;
mod chain;
pub mod discovery;
pub mod duration;
pub mod etag;
pub mod exclusion;
pub mod index;
pub mod json;
pub mod media;
pub mod merge;
pub mod protobuf;
pub mod query;
pub mod quote;
pub mod request_info;
pub mod route;
pub mod shown;
pub mod status;
pub mod user;
pub mod version;
pub mod view;

pub use chain::chain;
pub use exclusion::{Exclusion, Exclusions};
pub use index::{Depth, Target};
pub use query::Query;
pub use request_info::{RequestInfo, RequestInfoError};
pub use route::{Route, Rules, route};
pub use status::{GroupKind, GroupResource, PlainError, Status, StatusCause, StatusDetails};
pub use user::User;
pub use version::{GroupVersion, compare_versions};
pub use view::{
    DocumentForm, Documents, LocalApis, Lookup, Millis, Peer, PeerState, PeerView, Readiness,
    Rendered, Standing, ViewInputs, ViewScope,
};
