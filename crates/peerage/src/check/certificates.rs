//! Certificates: what each server shows, what clients show it, and whom it believes as a peer.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use super::gather::PEER_NAME;
use super::handshake::{self, Wrong};
use super::report::Item;
use super::rights;
use super::world::{Problem, Server, World, good};
use crate::output::counted;
use crate::pki::Facts;
use crate::pki::inspect::signed_by;

const SERVING: &str = "certificate";
const CLIENT: &str = "client-certificate";
const AUTHORITY: &str = "authority";
const FRONT_PROXY: &str = "front-proxy";
/// Certificates are to be renewed when they have no more days than this.
const SOON: i64 = 30;
/// Authorities take longer to replace.
const SOON_FOR_AUTHORITIES: i64 = 180;

/// Judges all certificates.
pub(super) fn judge(world: &World) -> Vec<Item> {
    let mut items: Vec<Item> = world
        .servers
        .iter()
        .filter_map(|server| serving(server, world.now))
        .collect();
    let mut seen: Vec<&str> = Vec::new();
    for server in &world.servers {
        let connection = &server.connection;
        let pems = [
            (CLIENT, connection.certificate.as_deref(), SOON),
            (
                AUTHORITY,
                connection.authority.as_deref(),
                SOON_FOR_AUTHORITIES,
            ),
        ];
        for (check, pem, soon) in pems {
            let Some(pem) = pem.filter(|pem| !seen.contains(pem)) else {
                continue;
            };
            seen.push(pem);
            items.extend(dates(check, pem, soon, world.now));
        }
    }
    if !world.nobody_answers() {
        items.extend(front_proxy(world));
    }
    items.extend(world.servers.iter().filter_map(believed));
    items
}

fn serving(server: &Server, now: Timestamp) -> Option<Item> {
    let seen = server.handshake.as_ref().ok()?;
    let authority = server.connection.authority.as_deref()?;
    let own_name = server
        .connection
        .server_name
        .as_deref()
        .unwrap_or(server.host());
    for name in [own_name, PEER_NAME] {
        if let Err(error) = handshake::verify(authority, &seen.certificates, name, now) {
            let doubt = Doubt {
                error: &error,
                authority_from: &server.connection.authority_from,
                chain: &seen.certificates,
                name,
            };
            return Some(doubt.item(SERVING, &server.name));
        }
    }
    let facts = facts(&seen.certificates)?;
    let left = facts.days_left(now);
    let says = format!(
        "of {}, for {own_name} and {PEER_NAME}, {} left",
        facts.issuer,
        counted(left, "day")
    );
    Some(match left < SOON {
        true => Item::warn(SERVING, &server.name, says).fix(
            "renew it: `kubeadm certs renew apiserver`, or `peerage pki renew`; then restart the server if it does not re-read it",
        ),
        false => Item::pass(SERVING, &server.name, says),
    })
}

fn facts(chain: &[CertificateDer<'static>]) -> Option<Facts> {
    Facts::from_der(chain.first()?).ok()
}

/// A certificate that does not prove a name.
pub(super) struct Doubt<'d> {
    /// What is wrong with it.
    pub(super) error: &'d Wrong,
    /// Where the authorities are from by which it was checked.
    pub(super) authority_from: &'d str,
    /// The certificate, and what was sent to prove it.
    pub(super) chain: &'d [CertificateDer<'static>],
    /// The name.
    pub(super) name: &'d str,
}

impl Doubt<'_> {
    /// The item for it.
    pub(super) fn item(&self, check: &'static str, subject: &str) -> Item {
        Item::fail(check, subject, self.what_is_wrong()).fix(self.how_to_mend())
    }

    fn what_is_wrong(&self) -> String {
        let (facts, name) = (facts(self.chain), self.name);
        let facts = facts.as_ref();
        match self.error {
            Wrong::Expired => facts.map_or_else(
                || "it has ended".to_owned(),
                |it| format!("it {}", it.ended()),
            ),
            Wrong::NotYet => facts.map_or_else(
                || "it has not begun".to_owned(),
                |it| format!("it {}", it.begins()),
            ),
            Wrong::Issuer => format!(
                "signed by {:?}, which is not in {}",
                facts.map(|it| it.issuer.as_str()).unwrap_or_default(),
                self.authority_from
            ),
            Wrong::Usage => "its usages do not allow a server to show it".to_owned(),
            Wrong::Name => {
                let names = facts.map(|it| it.alt_names.join(", "));
                format!(
                    "{name} is not among its names: {}",
                    names.unwrap_or_default()
                )
            }
            Wrong::Other(text) => text.clone(),
        }
    }

    fn how_to_mend(&self) -> String {
        let name = self.name;
        match self.error {
            Wrong::Expired | Wrong::Other(_) => {
                "renew it: `kubeadm certs renew apiserver`, or `peerage pki renew`".to_owned()
            }
            Wrong::NotYet => "set the clocks right (NTP), or make it anew".to_owned(),
            Wrong::Issuer => format!(
                "look first whether {} is this cluster's; if it is, have the server's certificate signed by the cluster's authority",
                self.authority_from
            ),
            Wrong::Usage => "make it anew with the extended key usage serverAuth".to_owned(),
            Wrong::Name if name == PEER_NAME => {
                format!(
                    "make it anew with {PEER_NAME} among its names, which peers ask for whatever the address"
                )
            }
            Wrong::Name => format!(
                "make it anew with {name}, or give --tls-server-name with a name that it has"
            ),
        }
    }
}

/// How long the certificates of a PEM text are valid.
fn dates(check: &'static str, pem: &str, soon: i64, now: Timestamp) -> Vec<Item> {
    let Ok(chain) = peerage_http::tls::certificates(pem.as_bytes(), check) else {
        return vec![
            Item::fail(check, "", "not a certificate in PEM").fix("put a certificate in PEM there"),
        ];
    };
    // Of a client's chain the leaf alone counts; of a bundle every authority.
    let most = if check == CLIENT { 1 } else { chain.len() };
    chain
        .iter()
        .take(most)
        .filter_map(|der| Facts::from_der(der).ok())
        .map(|facts| {
            let left = facts.days_left(now);
            let subject = &facts.common_name;
            if left < 0 {
                return Item::fail(
                    check,
                    subject,
                    format!("it ended {} ago", counted(-left, "day")),
                )
                .fix("renew it");
            }
            let says = format!("{} left", counted(left, "day"));
            if left < soon {
                return Item::warn(check, subject, says).fix("renew it before it ends");
            }
            Item::pass(check, subject, says)
        })
        .collect()
}

/// Whom the servers believe when they are told who a user is.
fn front_proxy(world: &World) -> Vec<Item> {
    let config = match good(&world.config) {
        Ok(answer) => answer.json(),
        Err(problem) => return vec![rights::unread(FRONT_PROXY, "", rights::CONFIG, &problem)],
    };
    let data = &config["data"];
    let list = |key: &str| -> Vec<String> {
        let text = data[key].as_str().unwrap_or("[]");
        serde_json::from_str(text).unwrap_or_default()
    };
    let Some(authority) = data["requestheader-client-ca-file"].as_str() else {
        let says = "no server has --requestheader-client-ca-file: none believes a peer";
        return vec![Item::fail(FRONT_PROXY, "", says).fix(
            "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt and the other --requestheader flags",
        )];
    };
    let mut items = dates(AUTHORITY, authority, SOON_FOR_AUTHORITIES, world.now);
    let allowed = list("requestheader-allowed-names");
    if list("requestheader-username-headers").is_empty() {
        let says = "no server reads who a peer's user is (requestheader-username-headers is empty)";
        items.push(
            Item::fail(FRONT_PROXY, "", says).fix("--requestheader-username-headers=X-Remote-User"),
        );
    }
    items.push(match &world.front_proxy {
        Some(certificate) => pair(certificate, authority, &allowed, world.now),
        None => Item::pass(FRONT_PROXY, "", described(&allowed, data)),
    });
    items
}

fn described(allowed: &[String], data: &Value) -> String {
    let names = match allowed {
        [] => "any name".to_owned(),
        names => names.join(", "),
    };
    let uid = data["requestheader-uid-headers"].as_str().unwrap_or("[]");
    let uid = match uid {
        "[]" => "; a user's UID is lost at the peer (--requestheader-uid-headers is empty)",
        _ => "",
    };
    format!(
        "servers believe {names}{uid}; --proxy-client-cert-file has a certificate checked as well"
    )
}

/// Whether a certificate would be believed.
fn pair(certificate: &str, authority: &str, allowed: &[String], now: Timestamp) -> Item {
    let Ok(facts) = Facts::from_pem(certificate) else {
        return Item::fail(
            FRONT_PROXY,
            "",
            "--proxy-client-cert-file holds no certificate",
        )
        .fix("give the certificate in PEM, and its key with --proxy-client-key-file");
    };
    let name = &facts.common_name;
    let signed = signed_by(certificate, authority).unwrap_or(false);
    if !signed {
        let says = format!(
            "{name} is signed by {}, not by the authority of --requestheader-client-ca-file",
            facts.issuer
        );
        return Item::fail(FRONT_PROXY, name, says)
            .fix("use the pair that the front-proxy authority signed");
    }
    if !allowed.is_empty() && !allowed.contains(name) {
        let says = format!(
            "{name} is not among the names that are allowed: {}",
            allowed.join(", ")
        );
        return Item::fail(FRONT_PROXY, name, says).fix(format!(
            "add {name} to --requestheader-allowed-names of every server"
        ));
    }
    let left = facts.days_left(now);
    if left < 0 {
        return Item::fail(
            FRONT_PROXY,
            name,
            format!("it ended {} ago", counted(-left, "day")),
        )
        .fix("renew it: `kubeadm certs renew front-proxy-client`, or `peerage pki renew`");
    }
    let says = format!("allowed, {} left", counted(left, "day"));
    match left < SOON {
        true => Item::warn(FRONT_PROXY, name, says)
            .fix("renew it: `kubeadm certs renew front-proxy-client`, or `peerage pki renew`"),
        false => Item::pass(FRONT_PROXY, name, says),
    }
}

/// Whether a server answered to the front-proxy certificate as it answers its peers.
fn believed(server: &Server) -> Option<Item> {
    let got = server.as_peer.as_ref()?;
    let name = &server.name;
    Some(match good(got) {
        Ok(_) => Item::pass(FRONT_PROXY, name, "answers its discovery to a peer"),
        Err(Problem::Unauthorized) if server.is_gateway() => {
            let says = "a gateway, which believes nobody who names users unless it has --requestheader-client-ca-file: only \
                        other gateways and kube-apiservers' own proxies that come to it need that";
            Item::skip(FRONT_PROXY, name, says)
        }
        Err(Problem::Unauthorized) => Item::fail(
            FRONT_PROXY,
            name,
            "does not believe the front-proxy certificate (401)",
        )
        .fix(
            "check its --requestheader-client-ca-file, --requestheader-allowed-names and the certificate's usage clientAuth",
        ),
        Err(Problem::Forbidden) => Item::fail(
            FRONT_PROXY,
            name,
            "may not show its discovery to system:apiserver (403)",
        )
        .fix("bind the ClusterRole system:discovery to the group system:authenticated again, as by default"),
        Err(Problem::Missing) => Item::fail(FRONT_PROXY, name, "has no discovery (404)")
            .fix("correct its address: what answers there is no API server"),
        Err(Problem::Other(text)) => Item::fail(FRONT_PROXY, name, text)
            .fix("see its log; its peers and a gateway get the same answer"),
    })
}
