//! Kubeconfig files: several servers, one user, with certificates inside so that the file works wherever it is moved.
//!
//! Written here, and read for `peerage check`, `diff` and `explain`: certificates and tokens. What a user is known by
//! otherwise (a program, a password) is an error that says so, never an anonymous request.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::directory::{CLUSTER_CA, PkiDirectory};
use super::{PkiError, files};
use crate::credentials;

/// One server of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Name of its cluster and context.
    pub name: String,
    /// Its URL, `https://host:port`.
    pub url: String,
}

/// What to write: every server gets a cluster and a context of its name, all with the same user.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// Servers; the first is the current context.
    pub servers: Vec<Server>,
    /// Authorities of the servers' certificates, PEM.
    pub authority: String,
    /// Name of the user.
    pub user: String,
    /// The user's certificate, PEM.
    pub certificate: String,
    /// The user's private key, PEM.
    pub key: String,
}

impl Kubeconfig {
    /// For these servers, with a client pair of a directory.
    pub fn of_directory(
        pki: &PkiDirectory,
        servers: Vec<Server>,
        client: &str,
    ) -> Result<Self, PkiError> {
        Ok(Self {
            servers,
            authority: files::read(&pki.certificate(CLUSTER_CA))?,
            user: client.to_owned(),
            certificate: files::read(&pki.certificate(client))?,
            key: files::read(&pki.key(client))?,
        })
    }

    /// Writes it for its owner alone. Refuses when the file is there, unless `replace` is set.
    pub fn write(&self, path: &Path, replace: bool) -> Result<(), PkiError> {
        if path.exists() && !replace {
            return Err(PkiError::Exists {
                path: path.to_owned(),
            });
        }
        files::write(path, self.to_yaml()?.as_bytes(), files::SECRET)
    }

    /// The file's text.
    pub fn to_yaml(&self) -> Result<String, PkiError> {
        let file = File {
            api_version: "v1".to_owned(),
            kind: "Config".to_owned(),
            clusters: self
                .servers
                .iter()
                .map(|server| self.cluster(server))
                .collect(),
            users: vec![NamedUser {
                name: self.user.clone(),
                user: User {
                    client_certificate_data: Some(BASE64.encode(&self.certificate)),
                    client_key_data: Some(BASE64.encode(&self.key)),
                    ..User::default()
                },
            }],
            contexts: self
                .servers
                .iter()
                .map(|server| self.context(server))
                .collect(),
            current_context: self
                .servers
                .first()
                .map(|s| s.name.clone())
                .unwrap_or_default(),
        };
        // Long texts on one line each, not folded: some readers keep the folds' blanks in the base64.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        serde_saphyr::to_string_with_options(&file, options).map_err(|e| PkiError::Yaml {
            text: e.to_string(),
        })
    }

    fn cluster(&self, server: &Server) -> NamedCluster {
        NamedCluster {
            name: server.name.clone(),
            cluster: Cluster {
                server: server.url.clone(),
                certificate_authority_data: Some(BASE64.encode(&self.authority)),
                ..Cluster::default()
            },
        }
    }

    fn context(&self, server: &Server) -> NamedContext {
        NamedContext {
            name: server.name.clone(),
            context: Context {
                cluster: server.name.clone(),
                user: self.user.clone(),
            },
        }
    }
}

impl Connection {
    /// To a server, with a client pair of a directory.
    pub fn of_directory(pki: &PkiDirectory, url: String, client: &str) -> Result<Self, PkiError> {
        Ok(Self {
            url,
            server_name: None,
            authority: Some(files::read(&pki.certificate(CLUSTER_CA))?),
            authority_from: pki.certificate(CLUSTER_CA).display().to_string(),
            certificate: Some(files::read(&pki.certificate(client))?),
            key: Some(files::read(&pki.key(client))?),
            token: None,
        })
    }
}

/// One context of a kubeconfig, resolved: where to go, whom to trust, who one is. PEM texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connection {
    /// The server's URL.
    pub url: String,
    /// Name that the server's certificate must have, when it is not that of the URL.
    pub server_name: Option<String>,
    /// Authorities of the server's certificate.
    pub authority: Option<String>,
    /// Where these are from, in words: the first place to look at when they do not vouch for the server.
    pub authority_from: String,
    /// The client's certificate.
    pub certificate: Option<String>,
    /// The client's private key.
    pub key: Option<String>,
    /// Bearer token.
    pub token: Option<String>,
}

/// The contexts of a kubeconfig file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    /// The current one.
    pub current: String,
    /// All of them.
    pub names: Vec<String>,
}

/// Reads the names of a kubeconfig file's contexts.
pub fn contexts(path: &Path) -> Result<Contexts, PkiError> {
    let file = read_file(path)?;
    Ok(Contexts {
        current: file.current_context,
        names: file
            .contexts
            .into_iter()
            .map(|context| context.name)
            .collect(),
    })
}

fn read_file(path: &Path) -> Result<File, PkiError> {
    let text = std::fs::read_to_string(path).map_err(|source| PkiError::NoKubeconfig {
        path: path.to_owned(),
        source,
    })?;
    crate::yaml::read(&text).map_err(|problem| PkiError::Kubeconfig {
        path: path.to_owned(),
        problem,
    })
}

/// Reads one context (the current one by default) of a kubeconfig file.
pub fn read(path: &Path, context: Option<&str>) -> Result<Connection, PkiError> {
    let file = read_file(path)?;
    let problem = |problem: String| PkiError::Kubeconfig {
        path: path.to_owned(),
        problem,
    };
    let wanted = context.unwrap_or(&file.current_context);
    let context = file
        .contexts
        .iter()
        .find(|c| c.name == wanted)
        .map(|c| &c.context)
        .ok_or_else(|| {
            let names: Vec<_> = file.contexts.iter().map(|c| c.name.as_str()).collect();
            problem(format!(
                "no context {wanted:?}; it has {}",
                names.join(", ")
            ))
        })?;
    let cluster = file.clusters.iter().find(|c| c.name == context.cluster);
    let cluster = &cluster
        .ok_or_else(|| problem(format!("no cluster {:?}", context.cluster)))?
        .cluster;
    let user = user_of(&file, wanted, &context.user).map_err(problem)?;
    let base = path.parent().unwrap_or(Path::new("."));
    Ok(Connection {
        url: cluster.server.clone(),
        authority_from: format!(
            "the certificate-authority of context {wanted:?} in {}",
            path.display()
        ),
        server_name: cluster.tls_server_name.clone(),
        authority: pem(
            base,
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )?,
        certificate: pem(
            base,
            &user.client_certificate_data,
            &user.client_certificate,
        )?,
        key: pem(base, &user.client_key_data, &user.client_key)?,
        token: match (user.token, user.token_file) {
            // As client-go does it: what is read from the file is newer.
            (_, Some(file)) => {
                let file = base.join(file);
                let token = credentials::token(&files::read(&file)?);
                Some(token.map_err(|why| problem(format!("tokenFile: {} {why}", file.display())))?)
            }
            (Some(token), None) if token.is_empty() => None,
            (Some(token), None) => Some(credentials::token(&token).map_err(|_| {
                problem(format!(
                    "the token of user {:?} has blanks or lines in it",
                    context.user
                ))
            })?),
            (None, None) => None,
        },
    })
}

/// The user of a context, who has to be one that can be used here; a context may have none.
fn user_of(file: &File, context: &str, name: &str) -> Result<User, String> {
    let user = match file.users.iter().find(|it| it.name == name) {
        Some(named) => named.user.clone(),
        None if name.is_empty() => User::default(),
        None => return Err(format!("no user {name:?}")),
    };
    match user.unknown_way() {
        None => Ok(user),
        Some(way) => Err(format!(
            "the user {name:?} of context {context:?} has {way}, which is not run here; give --token-file (see kubectl create token) \
             or --client-certificate and --client-key with a URL, or a context whose user has a certificate or a token"
        )),
    }
}

/// A PEM text from its base64 form or from its file, the former first, as kubectl does.
fn pem(
    base: &Path,
    data: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, PkiError> {
    match (data, file) {
        (Some(data), _) => {
            let bytes = BASE64.decode(data.trim()).map_err(|_| PkiError::Encoding)?;
            String::from_utf8(bytes)
                .map(Some)
                .map_err(|_| PkiError::Encoding)
        }
        (None, Some(file)) => files::read(&base.join(file)).map(Some),
        (None, None) => Ok(None),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default, rename = "current-context")]
    current_context: String,
}

#[derive(Serialize, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_authority: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_certificate: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_key: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, rename = "tokenFile", skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(default, skip_serializing)]
    exec: Option<IgnoredAny>,
    #[serde(default, skip_serializing)]
    auth_provider: Option<IgnoredAny>,
    #[serde(default, skip_serializing)]
    username: Option<IgnoredAny>,
}

impl User {
    /// How it is to be known, if that is no way that is known here and there is no other.
    fn unknown_way(&self) -> Option<&'static str> {
        let has_pair = self.client_certificate.is_some() || self.client_certificate_data.is_some();
        if has_pair || self.token.is_some() || self.token_file.is_some() {
            return None;
        }
        let ways = [
            (&self.exec, "a credential program (exec)"),
            (&self.auth_provider, "an auth-provider"),
            (&self.username, "a name and a password"),
        ];
        ways.into_iter()
            .find_map(|(it, way)| it.as_ref().map(|_| way))
    }
}

/// The kubeconfig that is used where none is named: that of this directory, as `peerage up` and `peerage pki` write it,
/// else kubectl's.
#[must_use]
pub fn default_file() -> PathBuf {
    let here = PathBuf::from("kubeconfig");
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
    match home.filter(|it| !here.exists() && it.exists()) {
        Some(kubectls) => kubectls,
        None => here,
    }
}

/// Reads `KUBECONFIG`, which may name several files: the first one that is there. Empty names count for nothing, as in
/// kubectl, and where there are only such it is as if it were not set.
///
/// # Errors
/// Never; the signature is that of a flag's reader.
pub fn first_file(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    let named = std::env::split_paths(text).filter(|it| !it.as_os_str().is_empty());
    let files: Vec<PathBuf> = named.collect();
    let there = files.iter().find(|it| it.is_file());
    Ok(there
        .or(files.first())
        .cloned()
        .unwrap_or_else(default_file))
}

#[derive(Serialize, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Serialize, Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}
