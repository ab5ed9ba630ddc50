//! Where an API server keeps its objects: `--storage`, or etcd if its flags are given.

use std::path::{Path, PathBuf};

use super::flags::ApiserverFlags;
use crate::etcd::EtcdSettings;
use crate::settings_error::SettingsError;

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory: gone with the process.
    Memory,
    /// In one SQLite file.
    Sqlite(PathBuf),
    /// Behind etcd's v3 protocol.
    Etcd(EtcdSettings),
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
    let storage = flags.storage.as_deref();
    if let Some(other) = storage.filter(|it| *it != "etcd" && flags.etcd.names_servers()) {
        return Err(SettingsError::TwoStores {
            storage: other.to_owned(),
        });
    }
    match (storage, flags.etcd.settings()?) {
        (_, Some(etcd)) => Ok(Storage::Etcd(etcd)),
        (Some("etcd"), None) => Err(SettingsError::NoEtcdServers),
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
