//! The storage of the namespaces: a file of the service, or a shared document of the deployment.

use super::files;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tourbillon_redis::RedisStore;

/// The name of the shared document with the namespaces.
const NAMESPACES: &str = "namespaces";

/// The storage of the namespaces.
pub(crate) enum NamespaceStorage {
    /// A file, of which this process alone is the writer.
    File(PathBuf),
    /// A document of the deployment, for all its nodes.
    Shared(Arc<RedisStore>),
}

impl NamespaceStorage {
    /// Whether other processes change the namespaces.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// The namespaces with the number of their version, which is always 0 in a file.
    pub(crate) async fn read<T: DeserializeOwned + Default>(&self) -> io::Result<(u64, T)> {
        match self {
            Self::File(path) => Ok((0, files::read(path)?.unwrap_or_default())),
            Self::Shared(store) => match store.document(NAMESPACES).await.map_err(io::Error::other)? {
                Some(note) => Ok((note.version, serde_json::from_slice(&note.value)?)),
                None => Ok((0, T::default())),
            },
        }
    }

    /// Replaces the namespaces that have this version. Returns false if another process was quicker.
    pub(crate) async fn replace<T: Serialize>(&self, version: u64, map: &T) -> io::Result<bool> {
        match self {
            Self::File(path) => files::replace(path, map).map(|()| true),
            Self::Shared(store) => {
                let value = serde_json::to_vec(map)?;
                store.replace_document(NAMESPACES, version, Some(&value)).await.map_err(io::Error::other)
            }
        }
    }
}
