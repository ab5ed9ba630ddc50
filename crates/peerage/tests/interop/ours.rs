//! The program that all of this is about, and gateways of it.

use std::path::Path;

use peerage_testkit::kube::{ControlPlane, GatewaySpec, RunningGateway};

/// `peerage`, as it was built for these tests.
pub(crate) fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_peerage"))
}

/// Starts a gateway in front of servers of a control plane, with its certificates.
pub(crate) async fn start(plane: &ControlPlane, gateway: GatewaySpec) -> RunningGateway {
    let (pki, directory) = (plane.pki(), plane.directory());
    gateway.start(executable(), pki, directory).await
}
