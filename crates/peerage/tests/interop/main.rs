//! Peerage among real servers: kube-apiserver, etcd and kube-controller-manager as they are released.
//!
//! Not among the ordinary tests, because it builds them from their Go modules (minutes, once) and runs them:
//! `cargo test --package peerage --test interop`. It needs the go command and Linux.
//!
//! | module | what it shows |
//! |---|---|
//! | `check` | what `peerage check` and `peerage diff` find with a real pair, its flags missing or not |
//! | `clients` | that programs over the usual client libraries notice nothing of an upgrade and its rollback |
//! | `controllers` | that a real kube-controller-manager behind the older server deletes what it should and nothing else |
//! | `conversations` | that recorded conversations go on as they were through a gateway |
//! | `data_path` | that what goes through a gateway is what a server sent, as it sent it, whatever happens meanwhile |
//! | `discovery` | that a gateway's discovery and OpenAPI are what the newer server's would be, and whose they are to read |
//! | `etcd_access` | how a real etcd lets in, and how `peerage apiserver` gets in |
//! | `etcd_faults` | that on a real etcd nothing is lost whatever happens to that, and who compacts it |
//! | `etcd_members` | that with several members nothing is lost, and all goes on, whichever of them is away |
//! | `fidelity` | that a real kube-apiserver and `peerage apiserver` on one etcd take each other for peers |
//! | `gateway` | that clients of a gateway get what any server behind it can do |
//! | `identity` | that servers behind a gateway take each client for whom they take it without, whatever it sends |
//! | `known_faults` | that faults which others reported of such software do not happen here |
//! | `kube_on_store` | that a real kube-apiserver on `peerage store` answers as on etcd, and loses nothing |
//! | `kubectl` | that kubectl, old and new, prints through a gateway what it printed without one when it was recorded |
//! | `pair` | that the real servers are what the other suites take them for |
//! | `shared_objects` | that a real kube-apiserver and ours on one etcd read and write each other's objects |
//! | `sources` | that a gateway finds real servers by their Leases, their endpoint keys and a file, and lets nothing fall |
//! | `sessions` | that exec, attach, cp, port-forward and logs reach a node through a gateway, whatever kubectl speaks |
//! | `store_on_etcd` | the store's conformance suite on real etcds |
//! | `table` | each row of the README's table, with kube-apiserver's own proxy beside it |

#![allow(clippy::unwrap_used, missing_docs)]

mod check;
mod clients;
mod controllers;
mod conversations;
mod data_path;
mod discovery;
mod etcd_access;
mod etcd_faults;
mod etcd_members;
mod fidelity;
mod gateway;
mod identity;
mod known_faults;
mod kube_on_store;
mod kubectl;
mod load;
mod ours;
mod pair;
mod sessions;
mod shared_objects;
mod sources;
mod store_on_etcd;
mod table;
mod versions;
