//! Ports for servers that cannot be told to take any free one, or have to come back on the one they had.
//!
//! They are chosen at random below the range that the kernel takes ports of outgoing connections from, so that a port
//! stays free while its server is down.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

use rand::RngExt;

/// Below are ports of well-known services.
const LOWEST: u16 = 10_000;
/// Where outgoing connections' ports begin when the kernel does not say.
const EPHEMERAL: u16 = 32_768;

/// A free port of the loopback address, which this process gives out once.
pub fn free() -> SocketAddr {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let highest = lowest_ephemeral().max(LOWEST + 1000);
    let mut random = rand::rng();
    for _ in 0..1000 {
        let port = random.random_range(LOWEST..highest);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() && GIVEN.lock().unwrap().insert(port) {
            return address;
        }
    }
    panic!("no free port from {LOWEST} to {highest}");
}

fn lowest_ephemeral() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let lowest = range
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok());
    lowest.unwrap_or(EPHEMERAL)
}
