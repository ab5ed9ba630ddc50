//! Which servers to ask, and with which credentials: contexts of a kubeconfig, or URLs with kubectl's flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::client::ApiClient;
use crate::credentials;
use crate::exit::{Failure, Kind};
use crate::pki::kubeconfig::{self, Connection};

/// Reads a wait in Go's notation; none may be without end.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    match peerage_core::duration::parse(text) {
        Ok(Some(wait)) if wait > Duration::ZERO => Ok(wait),
        Ok(_) => Err("it has to be more than 0".to_owned()),
        Err(e) => Err(format!("{e}; write it like 10s")),
    }
}

/// What a context is written with among other words.
const CONTEXT: &str = "context:";

/// How servers are reached; the names are kubectl's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Servers")]
pub struct ServerFlags {
    /// Kubeconfig of the contexts [default: ./kubeconfig, else ~/.kube/config]
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        value_parser = kubeconfig::first_file,
        default_value_os_t = kubeconfig::default_file(),
        hide_default_value = true
    )]
    pub kubeconfig: PathBuf,
    /// CA bundle to check servers by [default: the context's; for URLs that of the current one]
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Client certificate [default: the kubeconfig's]
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// File with a bearer token [default: the kubeconfig's]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name that servers have in their certificates, when it is not the URL's
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

/// A server to ask.
#[derive(Debug, Clone)]
pub struct Target {
    /// What to call it: the context's name, or host and port.
    pub name: String,
    /// How to reach it.
    pub connection: Connection,
    /// Other contexts that lead there as well, with credentials that are not used.
    pub also: Vec<String>,
}

impl Target {
    fn new(name: impl Into<String>, connection: Connection) -> Self {
        Self {
            name: name.into(),
            connection,
            also: Vec::new(),
        }
    }

    /// Whether it is the same server: its URL, and by what it is told from another one that answers there.
    fn is_same(&self, other: &Self) -> bool {
        let server = |it: &Self| {
            let Connection {
                url,
                authority,
                server_name,
                ..
            } = &it.connection;
            let authority = authority.as_deref().map(|it| it.trim().to_owned());
            (
                url.trim_end_matches('/').to_owned(),
                authority,
                server_name.clone(),
            )
        };
        server(self) == server(other)
    }

    /// A client of it, which waits that long.
    pub fn client(&self, wait: Duration) -> Result<ApiClient, Failure> {
        ApiClient::new(&self.connection, wait).map_err(|e| Failure::new(Kind::Unavailable, e))
    }
}

/// Whether a word names a server: a URL or `context:NAME`.
pub fn is_server(word: &str) -> bool {
    word.starts_with("https://") || word.starts_with(CONTEXT)
}

/// The server that a word names.
pub fn target(flags: &ServerFlags, word: &str) -> Result<Target, Failure> {
    match word.strip_prefix(CONTEXT) {
        Some(name) => of_context(flags, name),
        None => of_url(flags, word),
    }
}

/// The server that a word names, which may be a context's bare name.
pub fn named(flags: &ServerFlags, word: &str) -> Result<Target, Failure> {
    if is_server(word) {
        return target(flags, word);
    }
    match bare_address(word).filter(|_| !is_context(flags, word)) {
        Some(mistake) => Err(mistake),
        None => of_context(flags, word),
    }
}

/// Whether the kubeconfig, if it can be read, has a context of this name.
pub fn is_context(flags: &ServerFlags, word: &str) -> bool {
    let contexts = kubeconfig::contexts(&flags.kubeconfig);
    contexts.is_ok_and(|it| it.names.iter().any(|name| name == word))
}

/// What to write instead of an address without `https://`, if a word is one.
pub fn bare_address(word: &str) -> Option<Failure> {
    if let Some(rest) = word.strip_prefix("http://") {
        return Some(Failure::usage(format!(
            "{word}: API servers are reached with TLS: write https://{rest} (a gateway's --admin-bind-address is what \
             peerage check takes with --gateway)"
        )));
    }
    let (host, port) = word.trim_end_matches('/').rsplit_once(':')?;
    let is_address = !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok();
    is_address.then(|| {
        Failure::usage(format!(
            "{word}: write https://{host}:{port}; a context of that name is context:{word}"
        ))
    })
}

/// The server of a context.
pub fn of_context(flags: &ServerFlags, name: &str) -> Result<Target, Failure> {
    let connection = kubeconfig::read(&flags.kubeconfig, Some(name))?;
    Ok(Target::new(name, with_flags(flags, connection)?))
}

/// A context that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The context.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Each server once, as it is named first: as whom it is asked is decided by that.
pub fn each_once(targets: impl IntoIterator<Item = Target>) -> Vec<Target> {
    let mut servers: Vec<Target> = Vec::new();
    for target in targets {
        match servers.iter_mut().find(|it| it.is_same(&target)) {
            Some(known) if known.name == target.name => {}
            Some(known) => known.also.push(target.name),
            None => servers.push(target),
        }
    }
    servers
}

/// All contexts' servers, each once. Those contexts that cannot be used, as with a user who runs a program, do not keep
/// the others from it; only if none can they do.
pub fn of_all_contexts(flags: &ServerFlags) -> Result<(Vec<Target>, Vec<Unusable>), Failure> {
    let mut targets: Vec<Target> = Vec::new();
    let mut unusable = Vec::new();
    let mut first = None;
    for name in kubeconfig::contexts(&flags.kubeconfig)?.names {
        match of_context(flags, &name) {
            Ok(target) => targets.push(target),
            Err(failure) => {
                let why = failure.to_string();
                unusable.push(Unusable { name, why });
                first = first.or(Some(failure));
            }
        }
    }
    match first {
        Some(failure) if targets.is_empty() => Err(failure),
        _ => Ok((each_once(targets), unusable)),
    }
}

fn of_url(flags: &ServerFlags, url: &str) -> Result<Target, Failure> {
    // What the flags leave open is the kubeconfig's, if there is one; but its name is another server's.
    let base = match flags.kubeconfig.exists() {
        true => kubeconfig::read(&flags.kubeconfig, None)?,
        false => Connection::default(),
    };
    let url = url.trim_end_matches('/');
    let base = Connection {
        url: url.to_owned(),
        server_name: None,
        ..base
    };
    let connection = with_flags(flags, base)?;
    if connection.authority.is_none() {
        return Err(Failure::usage(format!(
            "{url}: give --certificate-authority, or a kubeconfig with one"
        )));
    }
    Ok(Target::new(url.trim_start_matches("https://"), connection))
}

/// A connection with what the flags say instead, as kubectl does it: credentials come all from one place.
fn with_flags(flags: &ServerFlags, mut connection: Connection) -> Result<Connection, Failure> {
    if let Some(file) = &flags.certificate_authority {
        connection.authority = Some(credentials::read(("--certificate-authority", file))?);
        connection.authority_from = format!("--certificate-authority {}", file.display());
    }
    if let Some(name) = &flags.tls_server_name {
        connection.server_name = Some(name.clone());
    }
    if flags.client_certificate.is_some() || flags.token_file.is_some() {
        let pair = match (&flags.client_certificate, &flags.client_key) {
            (Some(certificate), Some(key)) => Some(credentials::read_pair(
                ("--client-certificate", certificate),
                ("--client-key", key),
            )?),
            _ => None,
        };
        (connection.certificate, connection.key) = pair.unzip();
        let token = flags.token_file.as_deref();
        let token = token.map(|file| credentials::read_token(("--token-file", file)));
        connection.token = token.transpose()?;
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    const KUBECONFIG: &str = r"
current-context: old
contexts:
- {name: old, context: {cluster: old, user: admin}}
- {name: again, context: {cluster: old, user: admin}}
- {name: new, context: {cluster: new, user: admin}}
- {name: as-bob, context: {cluster: old, user: bob}}
clusters:
- {name: old, cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: Y2E=}}
- {name: new, cluster: {server: 'https://10.0.0.2:6443', certificate-authority-data: Y2E=}}
users:
- {name: admin, user: {token: abc}}
- {name: bob, user: {token: bobs}}
";

    fn flags(directory: &Path) -> ServerFlags {
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
        ServerFlags {
            kubeconfig,
            ..ServerFlags::default()
        }
    }

    #[test]
    fn flags_count_for_contexts_as_they_do_for_urls() {
        let temp = tempfile::tempdir().unwrap();
        let mut flags = flags(temp.path());
        let file = |name: &str| {
            let path = temp.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        };
        (flags.certificate_authority, flags.token_file) = (Some(file("ca")), Some(file("token")));
        flags.tls_server_name = Some("kubernetes".to_owned());
        for word in ["old", "context:new", "https://10.0.0.9:6443"] {
            let connection = named(&flags, word).unwrap().connection;
            assert_eq!(connection.authority.as_deref(), Some("ca"), "{word}");
            assert!(
                connection
                    .authority_from
                    .starts_with("--certificate-authority ")
            );
            assert_eq!(connection.token.as_deref(), Some("token"), "{word}");
            assert_eq!(connection.server_name.as_deref(), Some("kubernetes"));
        }
        flags.certificate_authority = Some("/there/is/none".into());
        for failure in [
            named(&flags, "old").unwrap_err(),
            of_all_contexts(&flags).unwrap_err(),
        ] {
            assert!(failure.to_string().contains("/there/is/none"), "{failure}");
        }
    }

    #[test]
    fn contexts_that_lead_to_the_same_server_are_asked_once() {
        let temp = tempfile::tempdir().unwrap();
        let (all, unusable) = of_all_contexts(&flags(temp.path())).unwrap();
        let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["old", "new"]);
        assert_eq!(unusable, []);
        // Whoever comes first is who asks, and the others are named.
        assert_eq!(all[0].also, ["again", "as-bob"]);
        assert_eq!(all[0].connection.token.as_deref(), Some("abc"));
        assert_eq!(all[1].also, [""; 0]);
    }

    #[test]
    fn where_there_is_no_kubeconfig_it_is_said_which_one_and_what_to_do_instead() {
        let flags = ServerFlags {
            kubeconfig: "kubeconfig-that-is-not-there".into(),
            ..ServerFlags::default()
        };
        for failure in [
            named(&flags, "old").unwrap_err(),
            of_all_contexts(&flags).unwrap_err(),
        ] {
            assert_eq!(failure.kind(), Kind::Unavailable);
            for says in [
                "kubeconfig-that-is-not-there",
                "--kubeconfig",
                "KUBECONFIG",
                "https://HOST:PORT",
            ] {
                assert!(failure.to_string().contains(says), "{failure}");
            }
        }
    }

    #[test]
    fn a_url_with_another_authority_or_name_is_another_server() {
        let temp = tempfile::tempdir().unwrap();
        let flags = flags(temp.path());
        let old = of_context(&flags, "old").unwrap();
        let of = |change: fn(&mut Connection)| {
            let mut other = old.clone();
            other.name = "other".to_owned();
            change(&mut other.connection);
            each_once([old.clone(), other]).len()
        };
        assert_eq!(of(|it| it.url.push('/')), 1);
        assert_eq!(of(|it| it.token = None), 1);
        assert_eq!(of(|it| it.url = "https://10.0.0.3:6443".to_owned()), 2);
        assert_eq!(of(|it| it.authority = Some("another".to_owned())), 2);
        assert_eq!(of(|it| it.server_name = Some("another".to_owned())), 2);
        let twice = each_once([old.clone(), old.clone()]);
        assert_eq!((twice.len(), twice[0].also.len()), (1, 0));
    }

    #[test]
    fn a_context_that_cannot_be_used_does_not_keep_others_from_it() {
        let temp = tempfile::tempdir().unwrap();
        let flags = flags(temp.path());
        let cloud = "- {name: cloud, context: {cluster: old, user: cloud}}\n";
        let user = "- {name: cloud, user: {exec: {command: login}}}\n";
        let with_cloud = KUBECONFIG.replace("contexts:\n", &format!("contexts:\n{cloud}"));
        let with_cloud = with_cloud.replace("users:\n", &format!("users:\n{user}"));
        std::fs::write(&flags.kubeconfig, &with_cloud).unwrap();
        let (all, unusable) = of_all_contexts(&flags).unwrap();
        let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["old", "new"]);
        assert_eq!(unusable.len(), 1);
        assert_eq!(unusable[0].name, "cloud");

        let none = with_cloud.replace("user: admin", "user: cloud");
        let none = none.replace("user: bob", "user: cloud");
        std::fs::write(&flags.kubeconfig, none).unwrap();
        let failure = of_all_contexts(&flags).unwrap_err();
        assert_eq!(failure.to_string(), unusable[0].why);
    }

    #[test]
    fn an_address_without_a_scheme_is_told_how_to_be_written() {
        let temp = tempfile::tempdir().unwrap();
        let flags = flags(temp.path());
        for (word, says) in [
            ("127.0.0.1:21000", "write https://127.0.0.1:21000;"),
            ("[::1]:6443/", "write https://[::1]:6443;"),
            ("http://10.0.0.1:6443", "write https://10.0.0.1:6443 "),
            ("nobody", "no context \"nobody\"; it has old"),
        ] {
            let failure = named(&flags, word).unwrap_err();
            assert!(failure.to_string().contains(says), "{failure}");
        }
        assert_eq!(named(&flags, "old").unwrap().name, "old");
        assert_eq!(named(&flags, "context:new").unwrap().name, "new");
    }

    #[test]
    fn a_url_takes_from_the_kubeconfig_what_the_flags_leave_open() {
        let temp = tempfile::tempdir().unwrap();
        let mut flags = flags(temp.path());
        let found = target(&flags, "https://10.0.0.9:6443/").unwrap();
        assert_eq!(found.name, "10.0.0.9:6443");
        assert_eq!(found.connection.authority.as_deref(), Some("ca"));
        assert_eq!(found.connection.token.as_deref(), Some("abc"));

        let token = temp.path().join("token");
        std::fs::write(&token, "other\n").unwrap();
        flags.token_file = Some(token);
        let found = target(&flags, "https://10.0.0.9:6443").unwrap();
        assert_eq!(found.connection.token.as_deref(), Some("other"));

        flags.kubeconfig = temp.path().join("none");
        let failure = target(&flags, "https://10.0.0.9:6443").unwrap_err();
        assert!(failure.to_string().contains("--certificate-authority"));
    }
}
