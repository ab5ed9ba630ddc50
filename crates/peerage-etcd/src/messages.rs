//! The messages of etcd's v3 API, as far as they are used, with etcd's field numbers.
//!
//! Names are etcd's, so that its documentation is theirs too. Fields that are not listed are skipped when
//! they are read.

#![allow(missing_docs)]

mod kv;
mod lease;
mod maintenance;
mod watch;

pub use kv::*;
pub use lease::*;
pub use maintenance::*;
pub use watch::*;

/// What every answer begins with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn fields_are_at_etcds_places_on_the_wire() {
        let compare = Compare {
            result: CompareResult::NotEqual as i32,
            target: CompareTarget::Mod as i32,
            key: "k".into(),
            target_union: Some(TargetUnion::ModRevision(7)),
            range_end: "z".into(),
        };
        let txn = TxnRequest {
            compare: vec![compare],
            success: Vec::new(),
            failure: vec![RequestOp {
                request: Some(Request::RequestDeleteRange(DeleteRangeRequest {
                    key: "d".into(),
                    range_end: Default::default(),
                    prev_kv: true,
                })),
            }],
        };
        let bytes = [
            &[0x0a, 13, 0x08, 3, 0x10, 2, 0x1a, 1, b'k', 0x30, 7][..],
            &[0x82, 0x04, 1, b'z'],
            &[0x1a, 7, 0x1a, 5, 0x0a, 1, b'd', 0x18, 1],
        ]
        .concat();
        assert_eq!(txn.encode_to_vec(), bytes);

        let events = WatchResponse {
            watch_id: 1,
            compact_revision: 2,
            fragment: true,
            events: vec![Event {
                r#type: EventType::Delete as i32,
                ..Event::default()
            }],
            ..WatchResponse::default()
        };
        let bytes = [0x10, 1, 0x28, 2, 0x38, 1, 0x5a, 2, 0x08, 1];
        assert_eq!(events.encode_to_vec(), bytes);
    }
}
