//! Feature gates, by kube-apiserver's names.
//!
//! Differs: `UnknownVersionInteroperabilityProxy` is on for every version served, where kube-apiserver has it off before
//! 1.36: a server that cannot proxy is not what one starts Peerage for.

use crate::settings_error::SettingsError;

/// The proxy's gate.
pub const PROXY: &str = "UnknownVersionInteroperabilityProxy";
/// The gate of the identity Leases that the proxy finds peers by.
pub const IDENTITY: &str = "APIServerIdentity";

/// Which gates are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// Proxy to peers, and publish an endpoint for them.
    pub proxy: bool,
    /// Keep an identity Lease.
    pub identity: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            proxy: true,
            identity: true,
        }
    }
}

impl FeatureGates {
    /// Reads `Name=true` pairs; a later one counts.
    pub fn parse(pairs: &[String]) -> Result<Self, SettingsError> {
        let mut gates = Self::default();
        for pair in pairs.iter().filter(|pair| !pair.is_empty()) {
            let wrong = || SettingsError::FeatureGate { pair: pair.clone() };
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            // Components of Kubernetes take `kube:Name=true` too.
            let name = name.trim().trim_start_matches("kube:");
            let on = crate::common_flags::parse_bool(value.trim()).map_err(|_| wrong())?;
            match name {
                PROXY => gates.proxy = on,
                IDENTITY => gates.identity = on,
                _ => {
                    return Err(SettingsError::UnknownFeatureGate {
                        name: name.to_owned(),
                    });
                }
            }
        }
        if gates.proxy && !gates.identity {
            return Err(SettingsError::IdentityOff);
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(pairs: &[&str]) -> Result<FeatureGates, String> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        FeatureGates::parse(&pairs).map_err(|e| e.to_string())
    }

    #[test]
    fn gates_are_on_unless_turned_off() {
        assert_eq!(parse(&[]), Ok(FeatureGates::default()));
        let off = FeatureGates {
            proxy: false,
            identity: true,
        };
        assert_eq!(
            parse(&["UnknownVersionInteroperabilityProxy=false"]),
            Ok(off)
        );
        assert_eq!(
            parse(&[
                "kube:UnknownVersionInteroperabilityProxy=false",
                "UnknownVersionInteroperabilityProxy=T"
            ]),
            Ok(FeatureGates::default())
        );
    }

    #[test]
    fn unknown_gates_are_refused_with_the_list_of_known_ones() {
        let message = parse(&["Nope=true"]).unwrap_err();
        assert!(
            message.contains("Nope") && message.contains(PROXY) && message.contains(IDENTITY),
            "{message}"
        );
        assert!(parse(&["APIServerIdentity"]).is_err());
        assert!(parse(&["APIServerIdentity=maybe"]).is_err());
    }

    #[test]
    fn the_proxy_needs_an_identity() {
        assert!(
            parse(&["APIServerIdentity=false"])
                .unwrap_err()
                .contains(PROXY)
        );
        assert!(
            parse(&["APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false"]).is_err()
        );
        assert!(
            parse(&[
                "APIServerIdentity=false",
                "UnknownVersionInteroperabilityProxy=false"
            ])
            .is_ok()
        );
    }
}
