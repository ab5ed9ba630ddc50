//! Real control planes: etcd, kube-apiserver and kube-controller-manager as they are released, of several versions.
//!
//! | module | what it is |
//! |---|---|
//! | [`program`] | the executables, built once and kept |
//! | [`ports`] | ports that servers can be started on again |
//! | [`etcd`] | a real etcd |
//! | [`apiserver`] | a real kube-apiserver |
//! | [`ours`] | `peerage store` and `peerage apiserver` beside them, in the same form |
//! | [`gateway`] | `peerage gateway` in front of them |
//! | [`leases`] | what servers write down of themselves, and who may read it |
//! | [`controllers`] | a real kube-controller-manager |
//! | [`kubelet`] | a node with pods that can be attached to |
//! | [`clients`] | programs over the usual client libraries, and Helm |
//! | [`plane`] | a store and several servers with one set of certificates |
//!
//! A control plane of two servers, the older started first, as an upgrade has them:
//!
//! ```no_run
//! # async fn example() {
//! use peerage_testkit::kube::{Backend, ControlPlane, KubeApiserver};
//! use peerage_testkit::wire::Outgoing;
//!
//! let plane = ControlPlane::on(Backend::Etcd("3.6"))
//!     .server(KubeApiserver::of("1.37").named("older").emulating("1.34").own_proxy())
//!     .server(KubeApiserver::of("1.37").named("newer").own_proxy())
//!     .start()
//!     .await;
//! let admin = plane.server("older").client("admin");
//! let answer = admin.send(&Outgoing::new("GET", "/version")).await.unwrap();
//! assert_eq!(answer.status(), 200);
//! plane.server("newer").kill();
//! plane.server("newer").restart().await;
//! # }
//! ```
//!
//! Starting one takes seconds and hundreds of megabytes: tests that leave each other alone share one ([`Shared`]).

pub mod apiserver;
pub mod clients;
pub mod controllers;
pub mod etcd;
pub mod gateway;
pub mod kubelet;
pub mod leases;
pub mod ours;
pub mod plane;
pub mod ports;
pub mod program;

pub use apiserver::{Apiserver, ApiserverSpec, KubeApiserver};
pub use clients::{Follower, LIBRARIES, Library};
pub use controllers::ControllerManager;
pub use etcd::{Etcd, EtcdCluster, EtcdSpec};
pub use gateway::{Gateway, GatewaySpec, RunningGateway};
pub use kubelet::Kubelet;
pub use ours::{PeerageApiserver, PeerageStore};
pub use plane::{Backend, ControlPlane, Lent, Logs, Shared};
