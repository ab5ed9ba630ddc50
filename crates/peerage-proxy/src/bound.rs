//! Clients that are bound to a version: a kubelet must not be newer than the API server that it talks to (Kubernetes' version
//! skew policy), since it may ask in ways that an older one refuses.
//!
//! A client says what it is at the beginning of `User-Agent`: `kubelet/v1.37.2 (linux/amd64) kubernetes/0123456`. It is
//! believed, because all that it can gain by a lie is a newer server.

use std::sync::Arc;

use http::HeaderValue;

use crate::version::ApiVersion;

/// Names of clients that are sent to servers of their own minor version and newer ones only.
#[derive(Clone, Debug, Default)]
pub struct BoundClients(Arc<[Box<str>]>);

impl BoundClients {
    /// Clients by what stands before the first `/` of their `User-Agent`, such as `kubelet`.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(Box::from).collect())
    }

    /// The oldest version that this client may be sent to; none if any will do.
    pub(crate) fn oldest_for(&self, agent: Option<&HeaderValue>) -> Option<ApiVersion> {
        if self.0.is_empty() {
            return None;
        }
        let (name, version) = agent?.to_str().ok()?.split_once("/v")?;
        if !self.0.iter().any(|bound| **bound == *name) {
            return None;
        }
        let (major, rest) = version.split_once('.')?;
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        ApiVersion::of(major, minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_the_beginning_of_its_user_agent() {
        let bound = BoundClients::new(["kubelet".to_owned()]);
        let minor = |agent: &'static str| {
            let agent = HeaderValue::from_static(agent);
            bound
                .oldest_for(Some(&agent))
                .map(|it| (it.major, it.minor))
        };
        for (agent, expected) in [
            (
                "kubelet/v1.37.2 (linux/amd64) kubernetes/0123456",
                Some((1, 37)),
            ),
            ("kubelet/v1.37.0-rc.1 (linux/arm64)", Some((1, 37))),
            ("kubelet/v1.37+", Some((1, 37))),
            ("kubelet/v1.37", Some((1, 37))),
            ("kubelet/v0.0.0 (linux/amd64)", Some((0, 0))),
            ("kubelet/v1", None),
            ("kubelet/v1.", None),
            ("kubelet/v1.99999999999999", None),
            ("kubelet/1.37.2", None),
            ("kubelet", None),
            ("Kubelet/v1.37.2", None),
            ("kubelet-serving/v1.37.2", None),
            ("curl/7.88 kubelet/v1.37.2", None),
            ("", None),
        ] {
            assert_eq!(minor(agent), expected, "{agent}");
        }
        assert_eq!(bound.oldest_for(None), None);
        let kubelet = HeaderValue::from_static("kubelet/v1.37.2");
        assert_eq!(BoundClients::default().oldest_for(Some(&kubelet)), None);
    }
}
