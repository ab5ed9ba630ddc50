//! etcd's v3 protocol over the store: messages, client and server.
