//! Restores of backups into the folder of a service that does not run.
//!
//! # A restore that is killed
//! A restore notes itself in the file `restoring` before it stores the first timer, while it has the store open, and removes
//! the file after all is on the disk. No service opens a folder with that file. So the timers beside it are those of a
//! restore that did not end, and the next restore may drop them.

use super::backup::Attached;
use super::files;
use super::namespaces::{Map, Namespaces};
use crate::convert::is_name;
use core::fmt;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::{self, BackupError, Restore};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{Counts, RedbStore, TimerStore};

const STORE: &str = "timers.redb";
const NAMESPACES: &str = "namespaces.json";
const MARK: &str = "restoring";

/// The reason why nothing was restored.
#[derive(Debug)]
pub(crate) enum RestoreError {
    /// The backup is refused, or cannot be read.
    Backup(PathBuf, BackupError),
    /// The folder has timers, or its store cannot be opened or written.
    Store(PathBuf, BackupError),
    /// A file cannot be read or written.
    File(PathBuf, io::Error),
    /// Another process restores into the folder.
    UnderWay(PathBuf),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Store(path, BackupError::NotEmpty) => {
                write!(f, "{}: the store has timers; a restore needs an empty one", path.display())
            }
            Self::Store(path, error) => write!(f, "{}: {error}", path.display()),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::UnderWay(path) => write!(f, "{}: another restore is under way", path.display()),
        }
    }
}

impl core::error::Error for RestoreError {}

type Names = Vec<Box<str>>;

/// What was restored.
#[derive(Debug)]
pub(crate) struct Restored {
    /// The moment of the backup.
    pub(crate) at: UtcMillis,
    pub(crate) timers: u64,
    /// The namespaces that were there and stay as they were.
    pub(crate) kept: Names,
    /// The namespaces that are not in the backup although timers are in them. They have no limits and no secrets.
    pub(crate) bare: Names,
}

/// Whether a restore into this folder has begun and not ended.
pub(crate) fn is_half_restored(data: &Path) -> bool {
    data.join(MARK).exists()
}

fn of(path: &Path) -> impl FnOnce(io::Error) -> RestoreError + use<> {
    let path = path.to_owned();
    move |error| RestoreError::File(path, error)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), RestoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(of(path)(error)),
        _ => Ok(()),
    }
}

/// The numbers of the store's timers.
fn counts(store: &RedbStore) -> Result<Counts, BackupError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(store.counts())?)
}

/// Removes the files of the store.
fn remove_store(data: &Path) -> Result<(), RestoreError> {
    remove(&data.join(STORE))?;
    remove(&data.join(format!("{STORE}.ops")))
}

/// The note of a restore, which is locked for as long as the value lives.
struct Mark {
    path: PathBuf,
    locked: File,
}

impl Mark {
    fn open(path: &Path, make: bool) -> Result<Self, RestoreError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(of(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), locked: file }),
            Err(TryLockError::WouldBlock) => Err(RestoreError::UnderWay(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(of(path)(error)),
        }
    }

    /// The note of a restore that was killed, if there is one.
    fn left_behind(data: &Path) -> Result<Option<Self>, RestoreError> {
        let path = data.join(MARK);
        let mark = match Self::open(&path, false) {
            Err(RestoreError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            mark => mark?,
        };
        // The other restore may have ended between the opening and the lock.
        Ok(path.exists().then_some(mark))
    }

    fn make(data: &Path) -> Result<Self, RestoreError> {
        let mark = Self::open(&data.join(MARK), true)?;
        let text = b"A restore into this folder has not ended. Run tourbillond restore again.\n";
        (&mark.locked).write_all(text).map_err(of(&mark.path))?;
        mark.locked.sync_all().map_err(of(&mark.path))?;
        sync_folder(data).map_err(of(data))?;
        Ok(mark)
    }

    fn remove(self, data: &Path) -> Result<(), RestoreError> {
        remove(&self.path)?;
        sync_folder(data).map_err(of(data))
    }
}

/// Restores a backup into the folder of a service, which must have no timers. `how` gets the store's time. After an error
/// the folder has no timers.
pub(crate) fn restore(
    data: &Path,
    cache: usize,
    from: &Path,
    how: impl FnOnce(UtcMillis) -> Restore,
) -> Result<Restored, RestoreError> {
    let open = || File::open(from).map(BufReader::new);
    let of_backup = |error| RestoreError::Backup(from.to_owned(), error);
    let contents = backup::read(open().map_err(of(from))?).map_err(of_backup)?;
    let attached =
        contents.attached.as_deref().map_or(Ok(Attached { namespaces: Map::new() }), |attached| {
            serde_json::from_str(attached).map_err(|error| of_backup(BackupError::Io(error.into())))
        })?;
    files::make_folder(data).map_err(of(data))?;
    let left_behind = Mark::left_behind(data)?;
    if left_behind.is_some() {
        remove_store(data)?;
    }
    let path = data.join(STORE);
    let of_store = |error| RestoreError::Store(path.clone(), error);
    let opened = RedbStore::builder().cache(cache).open(&path);
    let store = opened.map_err(|error| of_store(error.into()))?;
    let counted = counts(&store).map_err(of_store)?;
    if !counted.by_namespace.is_empty() || counted.quarantined > 0 {
        return Err(of_store(BackupError::NotEmpty));
    }
    let mark = match left_behind {
        Some(mark) => mark,
        None => Mark::make(data)?,
    };
    let how = how(store.now());
    let stored = how.restore(&store, open).map_err(|error| match error {
        BackupError::Store(_) | BackupError::NotEmpty => of_store(error),
        error => of_backup(error),
    });
    let restored = stored.and_then(|timers| {
        let counted = counts(&store).map_err(of_store)?;
        let (kept, bare) = add_namespaces(data, &attached, &counted)?;
        Ok(Restored { at: contents.at, timers, kept, bare })
    });
    let closed = store.close().map_err(|error| of_store(error.into()));
    let restored = restored.and_then(|restored| closed.map(|()| restored));
    if restored.is_err() {
        remove_store(data)?;
    }
    mark.remove(data)?;
    restored
}

/// Adds the namespaces of a backup, and those that timers are in. Returns the names of those that were there before, and of
/// those that only timers name.
fn add_namespaces(data: &Path, attached: &Attached, used: &Counts) -> Result<(Names, Names), RestoreError> {
    let path = data.join(NAMESPACES);
    let there: Map = files::read(&path).map_err(of(&path))?.unwrap_or_default();
    let (mut kept, mut bare, mut added) = (Vec::new(), Vec::new(), Map::new());
    for (name, namespace) in &attached.namespaces {
        if there.contains_key(name) {
            kept.push(name.clone());
        } else {
            added.insert(name.clone(), Arc::clone(namespace));
        }
    }
    // Schedules are timers in a namespace whose name ends with that of their occurrences.
    let used = used.by_namespace.keys().map(|(namespace, _)| &**namespace);
    let used: BTreeSet<_> =
        used.map(|name| name.strip_prefix(Schedules::NAMESPACES).unwrap_or(name)).collect();
    for name in used.into_iter().filter(|name| is_name(name)) {
        let is_known = there.contains_key(name) || added.contains_key(name);
        if !is_known {
            added.insert(name.into(), Arc::default());
            bare.push(name.into());
        }
    }
    if !added.is_empty() {
        let namespaces = Namespaces::open(&path).map_err(of(&path))?;
        namespaces.change(|map| map.extend(added)).map_err(of(&path))?;
    }
    Ok((kept, bare))
}
