//! The settings of one gateway: plain values, checked against each other. Nothing is opened or started but to see that
//! the files are there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Authority;
use peerage_auth::identity_headers::{HeaderNameError, HeaderNames};
use peerage_gateway::sources;

use super::addresses::{name, server};
use super::flags::{GatewayFlags, IdentityFlag, WritesFlag};
use crate::common_flags::{Audit, FrontProxy, FrontProxyFlags, KeyPairFiles, check_readable, pair};
use crate::etcd::EtcdSettings;
use crate::settings_error::SettingsError;

/// A server behind the gateway, or several under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host and port.
    pub authority: Authority,
    /// The failure domain that it is in.
    pub zone: Option<String>,
    /// Its server ID.
    pub id: Option<String>,
}

impl ServerAddress {
    /// As it is written, with the port in force.
    fn in_full(&self) -> String {
        let mut text = format!("https://{}", self.authority);
        for (name, value) in [("zone", &self.zone), ("id", &self.id)] {
            if let Some(value) = value {
                text.push_str(&format!(";{name}={value}"));
            }
        }
        text
    }
}

/// One gateway.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Where clients connect.
    pub bind: SocketAddr,
    /// Where its own health and metrics are.
    pub admin: Option<SocketAddr>,
    /// The serving pair.
    pub pair: KeyPairFiles,
    /// The server that the gateway stands beside.
    pub upstream: Option<ServerAddress>,
    /// The other servers.
    pub peers: Vec<ServerAddress>,
    /// A file with more.
    pub peers_file: Option<PathBuf>,
    /// Names each of whose addresses is one.
    pub names: Vec<ServerAddress>,
    /// The user who finds more by identity Leases.
    pub leases_user: Option<String>,
    /// The etcd whose endpoint keys name more.
    pub etcd: Option<EtcdSettings>,
    /// The start of all keys there.
    pub etcd_prefix: String,
    /// The failure domain that the gateway is in.
    pub zone: Option<String>,
    /// Which servers may write what several of them serve.
    pub writes: WritesFlag,
    /// Clients that no server may be older than, by name.
    pub bound: Vec<String>,
    /// Authorities of the servers' certificates.
    pub server_ca: PathBuf,
    /// The name that these must have.
    pub server_name: String,
    /// The client pair towards the servers.
    pub client_pair: KeyPairFiles,
    /// How users are told to the servers.
    pub identity: IdentityFlag,
    /// What front proxies call their headers, where they have other names.
    pub header_names: Option<HeaderNames>,
    /// How long a server that is gone is still expected.
    pub hold: Duration,
    /// How long a server's yes to reading discovery counts.
    pub discovery_authorization_ttl: Duration,
    /// Whether everyone is told which server answered.
    pub header_for_all: bool,
    /// Requests at one time on one HTTP/2 connection of a client.
    pub max_streams: u32,
    /// Between no longer being ready and the end of serving.
    pub shutdown_delay: Duration,
    /// How long open requests may go on after the delay.
    pub drain: Duration,
    /// Authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Clients that may speak for others.
    pub front_proxy: Option<FrontProxy>,
    /// Audit, if it is kept.
    pub audit: Option<Audit>,
    /// What the reader of the log should mend.
    pub warnings: Vec<String>,
    /// What the reader of the log should know.
    pub notes: Vec<String>,
}

/// What a missing flag is for.
const SERVING: &str = "clients are answered over TLS";
const CA: &str = "nothing is sent to a server whose certificate cannot be checked";
const CLIENT: &str = "discovery is read and users are vouched for over connections that show it (`peerage pki init` makes \
                      front-proxy-client.crt and .key; kubeadm keeps them in /etc/kubernetes/pki)";

/// What a gateway's user has to be allowed to tell servers in `Impersonate-*` who the client is, as RBAC has it.
pub const IMPERSONATION_RULES: [&str; 2] = [
    r#"{apiGroups: [""], resources: [users, groups, serviceaccounts], verbs: [impersonate]}"#,
    r#"{apiGroups: [authentication.k8s.io], resources: ["*"], verbs: [impersonate]}"#,
];

impl GatewaySettings {
    /// Checks the flags against each other.
    pub fn new(flags: &GatewayFlags) -> Result<Self, SettingsError> {
        let servers = Servers::new(flags)?;
        let writes = flags.writes.unwrap_or(match servers.upstream {
            Some(_) => WritesFlag::Local,
            None => WritesFlag::Newest,
        });
        let settings = Self {
            bind: flags.serving.bind(),
            admin: flags.admin_bind_address.0,
            pair: serving_pair(flags)?,
            writes,
            warnings: warnings(flags, &servers),
            notes: notes(&servers, writes),
            upstream: servers.upstream,
            peers: servers.peers,
            peers_file: flags.peers_file.clone(),
            names: servers.names,
            leases_user: (flags.peers_from_leases).then(|| flags.peers_from_leases_user.clone()),
            etcd: servers.etcd,
            etcd_prefix: flags.etcd.prefix()?,
            zone: flags.zone.clone(),
            bound: flags.version_bound_clients.clone(),
            server_ca: (flags.peer_ca_file.clone()).ok_or_else(|| missing("--peer-ca-file", CA))?,
            server_name: flags.peer_server_name.clone(),
            client_pair: client_pair(flags)?,
            identity: flags.identity,
            header_names: header_names(&flags.front_proxy)?,
            hold: flags.peer_hold,
            discovery_authorization_ttl: flags.discovery_authorization_ttl,
            header_for_all: flags.peer_header_for_all,
            max_streams: flags.http2_max_streams_per_connection,
            shutdown_delay: flags.serving.shutdown_delay_duration,
            drain: flags.drain_timeout,
            client_ca: flags.client_ca_file.clone(),
            front_proxy: flags.front_proxy.settings(),
            audit: flags.audit.settings()?,
        };
        settings.check_addresses()?;
        settings.check_files()?;
        Ok(settings)
    }

    /// What was decided where a flag was not given: flag, value, why.
    pub fn derived(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let writes = match self.writes {
            WritesFlag::Newest => "newest",
            WritesFlag::Local => "local",
        };
        let why = match self.upstream {
            Some(_) => "default beside a server",
            None => "default of a balancer",
        };
        vec![("writes", writes, why)]
    }

    /// The servers that flags name, with the ports in force: flag, values.
    pub fn servers(&self) -> [(&'static str, Vec<String>); 2] {
        let upstream = self.upstream.iter().map(ServerAddress::in_full);
        let peers = self.peers.iter().map(ServerAddress::in_full);
        [("upstream", upstream.collect()), ("peer", peers.collect())]
    }

    /// Clients and those who run the gateway come to different addresses.
    fn check_addresses(&self) -> Result<(), SettingsError> {
        let one = |admin: &SocketAddr| {
            let (a, b) = (admin.ip(), self.bind.ip());
            let overlap = a == b || a.is_unspecified() || b.is_unspecified();
            overlap && admin.port() == self.bind.port() && admin.port() != 0
        };
        match self.admin.filter(one) {
            Some(address) => Err(SettingsError::OneAddress { address }),
            None => Ok(()),
        }
    }

    /// Each file that was named has to be there.
    fn check_files(&self) -> Result<(), SettingsError> {
        let mut files = self.files().into_iter();
        files.try_for_each(|(flag, file)| check_readable(flag, file))
    }

    /// Every file that was named, with its flag.
    pub(super) fn files(&self) -> Vec<(&'static str, &Path)> {
        let mut files: Vec<(&'static str, &Path)> = vec![
            ("--tls-cert-file", &self.pair.certificate),
            ("--tls-private-key-file", &self.pair.key),
            ("--peer-ca-file", &self.server_ca),
            ("--proxy-client-cert-file", &self.client_pair.certificate),
            ("--proxy-client-key-file", &self.client_pair.key),
        ];
        files.extend(
            self.client_ca
                .iter()
                .map(|file| ("--client-ca-file", &**file)),
        );
        files.extend(self.peers_file.iter().map(|file| ("--peers-file", &**file)));
        files.extend(self.etcd.iter().flat_map(EtcdSettings::files));
        let front = self.front_proxy.iter();
        files.extend(front.map(|front| ("--requestheader-client-ca-file", &*front.ca)));
        let audit = self.audit.iter();
        files.extend(audit.map(|audit| ("--audit-policy-file", &*audit.policy)));
        files
    }
}

/// Where servers are, as far as the flags say it themselves.
struct Servers {
    upstream: Option<ServerAddress>,
    peers: Vec<ServerAddress>,
    names: Vec<ServerAddress>,
    etcd: Option<EtcdSettings>,
}

impl Servers {
    /// Some server has to be there to begin with: identity Leases are read through one.
    fn new(flags: &GatewayFlags) -> Result<Self, SettingsError> {
        let upstream = flags.upstream.as_deref();
        let peers = flags.peer.iter().map(|url| server("--peer", url));
        let names = flags.peer_dns.iter().map(|text| name("--peer-dns", text));
        let servers = Self {
            upstream: upstream.map(|url| server("--upstream", url)).transpose()?,
            peers: peers.collect::<Result<_, _>>()?,
            names: names.collect::<Result<_, _>>()?,
            etcd: flags.etcd.settings()?,
        };
        let lists = [&servers.peers, &servers.names];
        let named = servers.upstream.is_some() || lists.iter().any(|list| !list.is_empty());
        match named || flags.peers_file.is_some() || servers.etcd.is_some() {
            true => Ok(servers),
            false => Err(SettingsError::NoServers),
        }
    }

    /// What follows if there is no server but the one that the gateway stands beside.
    fn nothing_to_send_on_to(&self, flags: &GatewayFlags) -> Option<String> {
        let own = self.upstream.as_ref().map(|it| &it.authority);
        let listed = flags.peers_file.as_deref().map(sources::listed);
        // One that cannot be read says what it says later.
        let by_file = listed.is_some_and(|it| !matches!(it, Ok(0)));
        let by_flags = self.peers.iter().any(|it| Some(&it.authority) != own);
        let by_name = !self.names.is_empty() || flags.peers_from_leases || self.etcd.is_some();
        if by_file || by_flags || by_name {
            return None;
        }
        let what = "nothing to send on to: no other server is named (--peer, --peers-file, --peer-dns, --peers-from-leases, \
                    --etcd-servers), ";
        Some(match &self.upstream {
            Some(own) => format!("{what}so clients get what {} alone serves", own.in_full()),
            None => format!("{what}so all requests are answered 503"),
        })
    }
}

fn serving_pair(flags: &GatewayFlags) -> Result<KeyPairFiles, SettingsError> {
    let serving = flags.serving.pair()?;
    serving.ok_or_else(|| missing("--tls-cert-file", SERVING))
}

fn client_pair(flags: &GatewayFlags) -> Result<KeyPairFiles, SettingsError> {
    let names = ("--proxy-client-cert-file", "--proxy-client-key-file");
    let (certificate, key) = (&flags.proxy_client_cert_file, &flags.proxy_client_key_file);
    let client = pair(names, certificate, key)?;
    client.ok_or_else(|| missing("--proxy-client-cert-file", CLIENT))
}

/// The names of identity headers, if they are not the usual ones. They count without `--requestheader-client-ca-file` too: the servers
/// have one.
fn header_names(flags: &FrontProxyFlags) -> Result<Option<HeaderNames>, SettingsError> {
    let (users, uids, groups, extras) = (
        &flags.requestheader_username_headers,
        &flags.requestheader_uid_headers,
        &flags.requestheader_group_headers,
        &flags.requestheader_extra_headers_prefix,
    );
    if flags.has_usual_names() {
        return Ok(None);
    }
    HeaderNames::new(users, uids, groups, extras)
        .map(Some)
        .map_err(|HeaderNameError(name)| SettingsError::HeaderName { name })
}

fn missing(flag: &'static str, why: &'static str) -> SettingsError {
    SettingsError::Missing { flag, why }
}

fn warnings(flags: &GatewayFlags, servers: &Servers) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(servers.nothing_to_send_on_to(flags));
    if flags.client_ca_file.is_none() {
        warnings.push(
            "no --client-ca-file: clients that show a certificate are passed on without it, so the servers take them for \
             anonymous; give the servers' own --client-ca-file"
                .to_owned(),
        );
    }
    if flags.identity == IdentityFlag::Impersonate {
        warnings.push(
            format!("--identity=impersonate: the servers' audit logs name the gateway's user and, as impersonated, the client; a \
             client with a certificate cannot impersonate others itself; its UID needs servers from 1.22 on; whoever has the \
             gateway's key may be anybody; and the gateway's user needs the rules {}", IMPERSONATION_RULES.join(" and ")),
        );
    }
    warnings
}

fn notes(servers: &Servers, writes: WritesFlag) -> Vec<String> {
    let (kind, which) = match &servers.upstream {
        Some(upstream) => (format!("beside {}", upstream.in_full()), "other servers"),
        None => ("as a balancer".to_owned(), "servers"),
    };
    let peers: Vec<String> = servers.peers.iter().map(ServerAddress::in_full).collect();
    let named = match peers.is_empty() {
        true => String::new(),
        false => format!("; {which} that flags name: {}", peers.join(", ")),
    };
    let consequence = match writes {
        WritesFlag::Newest => {
            "--writes=newest: what several servers serve is written through the newest that answers, so that no older \
             one erases fields that only the newest knows; the newest carries all writes"
        }
        WritesFlag::Local => {
            "--writes=local: a write goes to the server that any request would go to; an older server erases fields of \
             the object that only a newer one knows"
        }
    };
    vec![format!("running {kind}{named}"), consequence.to_owned()]
}
