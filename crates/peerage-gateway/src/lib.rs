//! The Mixed Version Proxy in front of kube-apiservers that already exist, of any version, with nothing changed on them.
//!
//! Beside one server ([`GatewayOptions::beside`]) it is a sidecar: that server is asked first, the others where it cannot
//! answer. Without one it is a balancer that knows versions. Either way the work is the proxy's (`peerage-proxy`, as a
//! front); here is what lies around it:
//!
//! | module | holds |
//! |---|---|
//! | `chain` | who is asking, as far as certificates tell; audit; what never gets through |
//! | `discovery_authorization` | whether a client may read the documents that are at hand |
//! | [`options`] | everything that may be decided about a gateway |
//! | [`sources`] | where the servers behind come from |
//! | `server` | start, readiness, drain |
//! | `readiness` | whether the gateway is ready, and why not |
//! | [`yaml`] | files that people wrote, and what is wrong with them in words |
//! | `admin` | health, metrics and state of the gateway itself, on an address of its own |
//!
//! Left to the servers behind: who a bearer token belongs to, and what anyone may do.

mod admin;
mod chain;
mod discovery_authorization;
pub mod options;
mod page;
mod readiness;
mod server;
pub mod sources;
pub mod yaml;

pub use options::GatewayOptions;
pub use server::{GatewayError, Running, start};
