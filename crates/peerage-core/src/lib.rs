//! The pure heart of the Mixed Version Proxy: request parsing, discovery, merging and routing, without I/O.
