//! Which address this machine has towards others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address that connections to `target` come from; none where no way leads there.
#[must_use]
pub fn own_address(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing: it only chooses the way.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_machine_is_reached_from_itself_over_loopback() {
        let target: SocketAddr = "127.0.0.1:9".parse().unwrap();
        assert_eq!(own_address(target), Some(target.ip()));
    }
}
