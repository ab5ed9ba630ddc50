//! The server ID: what names a server's Lease and endpoint key.

use sha2::{Digest as _, Sha256};

/// The component in the hash; what stands in for a kube-apiserver has the same.
const COMPONENT: &str = "kube-apiserver";
/// RFC 4648 base32, in lower case.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Bytes of the hash that are used.
const LENGTH: usize = 16;

/// The ID of the server on that host, as kube-apiserver 1.27 and later makes it: `apiserver-` and 26 base32
/// characters of a hash of host name and component.
///
/// Two servers with one host name share an ID, and each then takes the other for itself: give one of them
/// another name.
pub fn server_id(hostname: &str) -> String {
    let mut hash = Sha256::new();
    for part in [hostname, COMPONENT] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    format!("apiserver-{}", base32(&digest[..LENGTH]))
}

fn base32(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut held) = (String::new(), 0u32, 0u32);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(held >> bits & 31) as usize]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(held << (5 - bits) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_kube_apiserver_computes() {
        for (hostname, id) in [
            ("test-server-a", "apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe"),
            ("test-server-b", "apiserver-scg43bmblmfhqplxpiyqlziyzi"),
            ("kind-control-plane", "apiserver-c7uylvfxlbqccnk6myfkwetzze"),
            ("localhost", "apiserver-l2yubf4cvcl5c7a3wrubrwqdve"),
            ("new", "apiserver-boevjxujufrivtmlmwynqnx2kq"),
            ("old", "apiserver-7m4ksdmwgfyoyspfnlfdou37ci"),
        ] {
            assert_eq!(server_id(hostname), id);
        }
    }
}
