//! Which sources there are, and what can be wrong between them.

use serde::Serialize;

/// Where servers are named, in the order in which it is believed: what a person wrote, then what lives for seconds, then
/// the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceName {
    /// `--upstream` and `--peer`.
    Flags,
    /// `--peers-file`.
    File,
    /// The endpoint records that kube-apiservers keep in etcd.
    Etcd,
    /// Their identity Leases.
    Leases,
    /// `--peer-dns`.
    Dns,
}

impl SourceName {
    /// As logs, metrics and `/debug/peers` have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SourceName::Flags => "flags",
            SourceName::File => "file",
            SourceName::Etcd => "etcd",
            SourceName::Leases => "leases",
            SourceName::Dns => "dns",
        }
    }
}

/// What cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Two servers are said to be at one address.
    OneAddressTwoIds,
    /// One server is said to be at two.
    OneIdTwoAddresses,
    /// More servers than are asked.
    TooMany,
    /// More findings than are told.
    More,
}

impl FindingKind {
    /// As logs, metrics and `/debug/peers` have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::OneAddressTwoIds => "one_address_two_ids",
            FindingKind::OneIdTwoAddresses => "one_id_two_addresses",
            FindingKind::TooMany => "too_many",
            FindingKind::More => "more",
        }
    }

    /// Whether it says how many there are, which may change from moment to moment.
    pub(super) fn is_count(self) -> bool {
        matches!(self, FindingKind::TooMany | FindingKind::More)
    }
}

/// Something that sources say of servers and that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Whom it is about.
    pub servers: Vec<String>,
    /// What it is, and what to do about it.
    pub message: String,
}
