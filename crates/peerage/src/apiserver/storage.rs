//! Where an API server keeps its objects: `--storage` and the `--etcd-*` flags.
//!
//! Differs: kube-apiserver has no flags for a name and a password towards etcd, only certificates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SettingsError;
use super::flags::ApiserverFlags;
use super::settings::{KeyPairFiles, pair};

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory: gone with the process.
    Memory,
    /// In one SQLite file.
    Sqlite(PathBuf),
    /// Behind etcd's v3 protocol.
    Etcd(Etcd),
}

/// How to reach servers of etcd's v3 protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// Their URLs.
    pub servers: Vec<String>,
    /// Authorities of their certificates.
    pub ca: Option<PathBuf>,
    /// Our client pair.
    pub pair: Option<KeyPairFiles>,
    /// Our name, and the file with its password.
    pub user: Option<(String, PathBuf)>,
    /// How often one of the API servers compacts.
    pub compaction_interval: Option<Duration>,
}

pub(super) fn read(flags: &ApiserverFlags, data_dir: &Path) -> Result<Storage, SettingsError> {
    if flags.storage_backend != "etcd3" {
        return Err(SettingsError::StorageBackend {
            name: flags.storage_backend.clone(),
        });
    }
    // kube-apiserver's default is protobuf: whoever asks for it by name would get something else.
    if let Some(media_type) = flags
        .storage_media_type
        .as_deref()
        .filter(|t| *t != "application/json")
    {
        return Err(SettingsError::StorageMediaType {
            name: media_type.to_owned(),
        });
    }
    let etcd = etcd(flags)?;
    match (flags.storage.as_deref(), etcd) {
        (None | Some("etcd"), Some(etcd)) => Ok(Storage::Etcd(etcd)),
        (Some("etcd"), None) => Err(SettingsError::NoEtcdServers),
        (Some(storage), Some(_)) => Err(SettingsError::TwoStores {
            storage: storage.to_owned(),
        }),
        (None | Some("sqlite"), None) => Ok(Storage::Sqlite(data_dir.join("store.db"))),
        (Some("memory"), None) => Ok(Storage::Memory),
        (Some(other), None) => match other.strip_prefix("sqlite:") {
            Some(file) if !file.is_empty() => Ok(Storage::Sqlite(file.into())),
            _ => Err(SettingsError::Storage {
                text: other.to_owned(),
            }),
        },
    }
}

fn etcd(flags: &ApiserverFlags) -> Result<Option<Etcd>, SettingsError> {
    let names = ("--etcd-certfile", "--etcd-keyfile");
    let pair = pair(names, &flags.etcd_certfile, &flags.etcd_keyfile)?;
    let user = match (&flags.etcd_username, &flags.etcd_password_file) {
        (Some(name), Some(file)) => Some((name.clone(), file.clone())),
        (None, None) => None,
        _ => return Err(SettingsError::EtcdUser),
    };
    let servers: Vec<String> = flags
        .etcd_servers
        .iter()
        .filter(|s| !s.is_empty())
        .cloned()
        .collect();
    if servers.is_empty() {
        let lone = [
            ("--etcd-certfile", pair.is_some()),
            ("--etcd-cafile", flags.etcd_cafile.is_some()),
            ("--etcd-username", user.is_some()),
        ];
        return match lone.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(SettingsError::EtcdFlagAlone { flag }),
            None => Ok(None),
        };
    }
    let malformed = |url: &&String| {
        let host = url
            .strip_prefix("https://")
            .or_else(|| url.strip_prefix("http://"));
        host.is_none_or(|host| host.is_empty() || host.contains('/'))
    };
    if let Some(url) = servers.iter().find(malformed) {
        return Err(SettingsError::EtcdUrl { url: url.clone() });
    }
    Ok(Some(Etcd {
        servers,
        ca: flags.etcd_cafile.clone(),
        pair,
        user,
        compaction_interval: Some(flags.etcd_compaction_interval).filter(|i| !i.is_zero()),
    }))
}

/// A prefix with a leading and without a closing slash.
pub(super) fn prefix(text: &str) -> Result<String, SettingsError> {
    let bare = text.trim_matches('/');
    if bare.is_empty() {
        return Err(SettingsError::StoragePrefix {
            text: text.to_owned(),
        });
    }
    Ok(format!("/{bare}"))
}
