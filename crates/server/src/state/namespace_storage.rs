//! Stores the namespaces, either in a file of this service or in a document that all nodes share.

use super::cluster::ClusterStore;
use super::files;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the shared document with the namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";

/// The place where the namespaces are stored.
pub(crate) enum NamespaceStorage {
    /// A file that only this process writes.
    File(PathBuf),
    /// A document that all nodes of a deployment read and write.
    Shared(Arc<dyn ClusterStore>),
}

impl NamespaceStorage {
    /// Returns whether other nodes can change the stored namespaces.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Reads the namespaces and the version of their shared document. The version is 0 if the namespaces are in a file,
    /// or if the document does not exist.
    pub(crate) async fn read<T: DeserializeOwned + Default>(&self) -> io::Result<(u64, T)> {
        match self {
            Self::File(path) => Ok((0, files::read(path)?.unwrap_or_default())),
            Self::Shared(store) => match store.document(NAMESPACES).await.map_err(io::Error::other)? {
                Some(note) => Ok((note.version, serde_json::from_slice(&note.value)?)),
                None => Ok((0, T::default())),
            },
        }
    }

    /// Replaces the namespaces. If they are in a shared document, replaces them only if the document still has the
    /// version `version`. Returns false if another node has changed the document.
    pub(crate) async fn replace<T: Serialize>(&self, version: u64, map: &T) -> io::Result<bool> {
        match self {
            Self::File(path) => files::replace(path, map).map(|()| true),
            Self::Shared(store) => {
                let value = serde_json::to_vec(map)?;
                let replaced = store.replace_document(NAMESPACES, version, Some(&value)).await;
                replaced.map(|version| version.is_some()).map_err(io::Error::other)
            }
        }
    }
}
