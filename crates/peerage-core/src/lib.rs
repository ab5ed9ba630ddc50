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
//! | [`quote`] | how does Kubernetes quote a string in a message |

pub mod json;
pub mod query;
pub mod quote;
pub mod request_info;
pub mod status;
pub mod user;
pub mod version;

pub use query::Query;
pub use request_info::{RequestInfo, RequestInfoError};
pub use status::{GroupKind, GroupResource, PlainError, Status, StatusCause, StatusDetails};
pub use user::User;
pub use version::{GroupVersion, compare_versions};
