//! How a command reaches servers of etcd's v3 protocol: flags, what they mean together, and the files they name.
//!
//! Differs: kube-apiserver has no flags for a name and a password towards etcd, only certificates.

use std::path::{Path, PathBuf};

use clap::Args;
use peerage_etcd::{EtcdOptions, EtcdUser};
use peerage_http::tls::ClientTlsOptions;
use peerage_http::{ClientTls, Pem};

use crate::common_flags::{KeyPairFiles, pair};
use crate::exit::{Failure, Kind};
use crate::settings_error::SettingsError;

/// The flags.
#[derive(Debug, Clone, Args)]
pub struct EtcdFlags {
    /// Servers of etcd's v3 protocol (etcd, or peerage store), https://host:port
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = "etcd")]
    pub etcd_servers: Vec<String>,
    /// Authorities of their certificates
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate towards them
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_certfile: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Name towards them, where they ask for one; not a flag of kube-apiserver
    #[arg(long, value_name = "NAME", help_heading = "etcd")]
    pub etcd_username: Option<String>,
    /// File with its password, on the first line
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_password_file: Option<PathBuf>,
    /// Start of all keys
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "/registry",
        help_heading = "etcd"
    )]
    pub etcd_prefix: String,
}

/// How to reach them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Their URLs.
    pub servers: Vec<String>,
    /// Authorities of their certificates.
    pub ca: Option<PathBuf>,
    /// Our client pair.
    pub pair: Option<KeyPairFiles>,
    /// Our name, and the file with its password.
    pub user: Option<(String, PathBuf)>,
}

impl EtcdFlags {
    /// Whether any server is named.
    pub fn names_servers(&self) -> bool {
        self.etcd_servers.iter().any(|url| !url.is_empty())
    }

    /// How to reach them, if there are any.
    pub fn settings(&self) -> Result<Option<EtcdSettings>, SettingsError> {
        let names = ("--etcd-certfile", "--etcd-keyfile");
        let pair = pair(names, &self.etcd_certfile, &self.etcd_keyfile)?;
        let user = match (&self.etcd_username, &self.etcd_password_file) {
            (Some(name), Some(file)) => Some((name.clone(), file.clone())),
            (None, None) => None,
            _ => return Err(SettingsError::EtcdUser),
        };
        let servers = self.etcd_servers.iter().filter(|url| !url.is_empty());
        let servers: Vec<String> = servers.cloned().collect();
        if servers.is_empty() {
            let lone = [
                ("--etcd-certfile", pair.is_some()),
                ("--etcd-cafile", self.etcd_cafile.is_some()),
                ("--etcd-username", user.is_some()),
            ];
            return match lone.into_iter().find(|(_, given)| *given) {
                Some((flag, _)) => Err(SettingsError::EtcdFlagAlone { flag }),
                None => Ok(None),
            };
        }
        if let Some(url) = servers.iter().find(|url| is_malformed(url)) {
            return Err(SettingsError::EtcdUrl { url: url.clone() });
        }
        if servers.iter().any(|url| is_secure(url)) && self.etcd_cafile.is_none() {
            return Err(SettingsError::NoEtcdCa);
        }
        Ok(Some(EtcdSettings {
            servers,
            ca: self.etcd_cafile.clone(),
            pair,
            user,
        }))
    }

    /// The start of all keys, with a leading and without a closing slash.
    pub fn prefix(&self) -> Result<String, SettingsError> {
        let bare = self.etcd_prefix.trim_matches('/');
        if bare.is_empty() {
            return Err(SettingsError::StoragePrefix {
                text: self.etcd_prefix.clone(),
            });
        }
        Ok(format!("/{bare}"))
    }
}

impl EtcdSettings {
    /// The files that are named, each with its flag.
    pub fn files(&self) -> Vec<(&'static str, &Path)> {
        let mut files: Vec<(&'static str, &Path)> = Vec::new();
        files.extend(self.ca.iter().map(|ca| ("--etcd-cafile", &**ca)));
        if let Some(pair) = &self.pair {
            files.push(("--etcd-certfile", &pair.certificate));
            files.push(("--etcd-keyfile", &pair.key));
        }
        let password = self.user.iter().map(|(_, file)| file);
        files.extend(password.map(|file| ("--etcd-password-file", &**file)));
        files
    }

    /// What a connection is made of. Reads the files.
    pub fn options(&self) -> Result<EtcdOptions, Failure> {
        let mut options = EtcdOptions::new(self.servers.iter().cloned());
        options.tls = self.tls()?;
        options.user = self.user.as_ref().map(with_password).transpose()?;
        Ok(options)
    }

    fn tls(&self) -> Result<ClientTls, Failure> {
        if !self.servers.iter().any(|url| is_secure(url)) {
            return Ok(ClientTls::plain());
        }
        let ca = self.ca.as_ref().ok_or(SettingsError::NoEtcdCa)?;
        let mut options = ClientTlsOptions::new(Pem::file(ca));
        let pair = self.pair.as_ref();
        options.identity = pair.map(|pair| (Pem::file(&pair.certificate), Pem::file(&pair.key)));
        ClientTls::load(options).map_err(|e| Failure::new(Kind::Unavailable, e))
    }
}

fn is_secure(url: &str) -> bool {
    url.starts_with("https://")
}

fn is_malformed(url: &str) -> bool {
    let host = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    host.is_none_or(|host| host.is_empty() || host.contains('/'))
}

/// The name, with the password that the first line of the file has, now and whenever it changes.
fn with_password((name, file): &(String, PathBuf)) -> Result<EtcdUser, Failure> {
    let failed = |source| SettingsError::ReadFile {
        flag: "--etcd-password-file",
        path: file.clone(),
        source,
    };
    std::fs::read_to_string(file).map_err(failed)?;
    let user = EtcdUser::from_file(name.clone(), file.clone());
    Ok(user.map_err(|error| failed(std::io::Error::other(error)))?)
}
