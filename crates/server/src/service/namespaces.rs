//! Namespaces: their limits and their signing secrets.

use super::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tourbillon_api::{Moment, NamespaceLimits};

/// The namespace that is always there.
pub(crate) const DEFAULT: &str = "default";

/// A namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) limits: NamespaceLimits,
    /// The signing secrets, the newest first.
    #[serde(default)]
    pub(crate) secrets: Vec<SigningSecret>,
}

/// A signing secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SigningSecret {
    pub(crate) secret: Box<str>,
    pub(crate) made: Moment,
    /// The moment from which it signs no more.
    pub(crate) until: Option<Moment>,
}

type Map = BTreeMap<Box<str>, Arc<Namespace>>;

/// The namespaces of a service.
#[derive(Debug)]
pub(crate) struct Namespaces {
    path: PathBuf,
    /// Held by the one change that is written.
    writing: Mutex<()>,
    map: RwLock<Arc<Map>>,
}

impl Namespaces {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut map: Map = files::read(path)?.unwrap_or_default();
        map.entry(DEFAULT.into()).or_default();
        Ok(Self { path: path.to_owned(), writing: Mutex::new(()), map: RwLock::new(Arc::new(map)) })
    }

    /// All namespaces as they are now.
    pub(crate) fn all(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A namespace, if there is one with this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Namespace>> {
        self.all().get(name).cloned()
    }

    /// Changes the namespaces and returns once the change is on the disk. Blocks.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Map) -> T) -> io::Result<T> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = Map::clone(&self.all());
        let answer = change(&mut map);
        map.entry(DEFAULT.into()).or_default();
        files::replace(&self.path, &map)?;
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        Ok(answer)
    }
}
