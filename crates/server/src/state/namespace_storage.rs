//! Stores the namespaces, either in a file of this service or in a document that all nodes share.

use super::cluster::ClusterStore;
use super::files;
use super::namespace::DEFAULT;
use super::stored_namespaces::StoredNamespaces;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the shared document with the namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";

/// The place where the namespaces are stored.
pub(crate) enum NamespaceStorage {
    /// A file that only this process writes. It has no marks of removals, which end with the process.
    File(PathBuf),
    /// A document that all nodes of a deployment read and write.
    Shared(Arc<dyn ClusterStore>),
}

impl NamespaceStorage {
    /// Returns whether other nodes can change the stored namespaces.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Returns the time by the clock of the store, in milliseconds. A file has no clock.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::File(_) => 0,
            Self::Shared(store) => store.now().as_millis(),
        }
    }

    /// Reads the namespaces and the version of their shared document. The version is 0 if the namespaces are in a file,
    /// or if the document does not exist.
    pub(crate) async fn read(&self) -> io::Result<(u64, StoredNamespaces)> {
        let (version, mut stored) = match self {
            Self::File(path) => {
                let namespaces = files::read(path)?.unwrap_or_default();
                (0, StoredNamespaces { namespaces, ..StoredNamespaces::default() })
            }
            Self::Shared(store) => match store.document(NAMESPACES).await.map_err(io::Error::other)? {
                Some(found) => (found.version, serde_json::from_slice(&found.value)?),
                None => (0, StoredNamespaces::default()),
            },
        };
        stored.namespaces.entry(DEFAULT.into()).or_default();
        Ok((version, stored))
    }

    /// Replaces the namespaces, and returns their new version. A shared document is replaced only if it still has the
    /// version `version`. Otherwise returns `None`.
    pub(crate) async fn replace(&self, version: u64, stored: &StoredNamespaces) -> io::Result<Option<u64>> {
        match self {
            Self::File(path) => files::replace(path, &stored.namespaces).map(|()| Some(version)),
            Self::Shared(store) => {
                let value = serde_json::to_vec(stored)?;
                store.replace_document(NAMESPACES, version, Some(&value)).await.map_err(io::Error::other)
            }
        }
    }
}

/// Returns the path of the file which says that there has been a file of namespaces at `path`.
fn note_beside(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

/// Returns whether the file of namespaces at `path` is missing, although there has been one.
pub(crate) fn is_lost(path: &Path) -> bool {
    !path.exists() && note_beside(path).exists()
}

/// Notes beside the file of namespaces at `path` that it is there, so that its loss is noticed.
pub(super) fn note(path: &Path) -> io::Result<()> {
    let note = note_beside(path);
    files::note(&mut files::open_lock(&note)?, &note, b"There is a file of namespaces beside this file.\n")
}
