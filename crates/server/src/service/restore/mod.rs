//! Restores a backup into the data folder of a stopped service, into its SQLite database, or into a deployment without
//! running nodes.
//!
//! # A restore that is killed
//! A restore opens the store and creates the file `restoring` before it stores the first timer. It removes the file
//! once everything is on the disk. No service opens a folder with that file. So if the file exists, the stored timers
//! come from a restore that did not end, and the next restore may remove them.
//!
//! In Redis a shared document, the *note*, replaces the file. A running restore renews the note every few seconds, so
//! an old note belongs to a restore that was killed.
//!
//! In PostgreSQL a restore is one transaction (`postgres.rs`), so a restore that was killed leaves nothing.

mod postgres;

pub(crate) use postgres::restore_in_postgres;

use super::backup::Attached;
use super::deployment::{RESTORING, open_store};
use crate::convert::is_name;
use crate::settings::RedisSettings;
use crate::state::{Map, NamespaceStorage, Namespaces, files};
use core::fmt;
use core::time::Duration;
use pollster::block_on;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::{self, BackupError, Restore};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{
    Counts, Durability, Filter, Op, RedbStore, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_redis::RedisStore;
use tourbillon_sqlite::SqliteStore;

const STORE: &str = "timers.redb";
const NAMESPACES: &str = "namespaces.json";
const MARK: &str = "restoring";

/// The reason why a restore of a backup failed.
#[derive(Debug)]
pub(crate) enum RestoreError {
    /// The backup is not valid, or the file of the backup cannot be read.
    Backup(PathBuf, BackupError),
    /// The data folder already has timers, or its store cannot be opened or written.
    Store(PathBuf, BackupError),
    /// A file other than the store cannot be read or written.
    File(PathBuf, io::Error),
    /// Another process is restoring a backup into this data folder.
    UnderWay(PathBuf),
    /// This deployment already has timers, or cannot be read or written. The text names it, for example "the schema
    /// shop".
    Deployment(Box<str>, BackupError),
    /// Another process is restoring a backup into this deployment, or was doing so within the last 15 seconds.
    DeploymentUnderWay(Box<str>),
    /// These nodes of this deployment are running. The values are the deployment and the names of the nodes.
    Nodes(Box<str>, Names),
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
            Self::Deployment(name, BackupError::NotEmpty) => {
                write!(f, "{name} has timers; a restore needs an empty one")
            }
            Self::Deployment(name, error) => write!(f, "{name}: {error}"),
            Self::DeploymentUnderWay(name) => {
                let seconds = DEAD.as_secs();
                write!(f, "{name}: another restore is under way, or was killed less than {seconds} s ago")
            }
            Self::Nodes(name, nodes) => {
                write!(f, "{name}: stop its nodes first: {}", nodes.join(", "))
            }
            Self::UnderWay(path) => write!(f, "{}: another restore is under way", path.display()),
        }
    }
}

impl core::error::Error for RestoreError {}

type Names = Vec<Box<str>>;

/// The result of a successful restore of a backup.
#[derive(Debug)]
pub(crate) struct Restored {
    /// The moment at which the backup was made.
    pub(crate) at: UtcMillis,
    pub(crate) timers: u64,
    /// The namespaces of the backup that already existed. They keep their limits and secrets.
    pub(crate) kept: Names,
    /// The namespaces that have restored timers, but are missing in the backup. They have no limits and no secrets.
    pub(crate) bare: Names,
}

/// Returns whether a restore into this data folder has begun and not ended.
pub(crate) fn is_half_restored(data: &Path) -> bool {
    data.join(MARK).exists()
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> RestoreError + use<> {
    let path = path.to_owned();
    move |error| RestoreError::File(path, error)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes a file if it exists.
fn remove(path: &Path) -> Result<(), RestoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

/// Counts the timers in a store, by namespace.
fn counts(store: &RedbStore) -> Result<Counts, BackupError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(store.counts())?)
}

/// Removes the files of the store from a data folder.
fn remove_store(data: &Path) -> Result<(), RestoreError> {
    remove(&data.join(STORE))?;
    remove(&data.join(format!("{STORE}.ops")))
}

/// The file `restoring` in a data folder, which marks an unfinished restore. The file is locked until this value is
/// dropped.
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
        let file = options.open(path).map_err(file_error(path))?;
        // The system releases the lock when the process ends. So a file with a lock belongs to a restore that still
        // runs.
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), locked: file }),
            Err(TryLockError::WouldBlock) => Err(RestoreError::UnderWay(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(file_error(path)(error)),
        }
    }

    /// Opens and locks the file `restoring` of a restore that was killed. Returns `None` if the file does not exist.
    fn left_behind(data: &Path) -> Result<Option<Self>, RestoreError> {
        let path = data.join(MARK);
        let mark = match Self::open(&path, false) {
            Err(RestoreError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            mark => mark?,
        };
        // The other restore may have ended, and removed the file, just before this lock.
        Ok(path.exists().then_some(mark))
    }

    fn make(data: &Path) -> Result<Self, RestoreError> {
        let mark = Self::open(&data.join(MARK), true)?;
        let text = b"A restore into this folder has not ended. Run tourbillond restore again.\n";
        (&mark.locked).write_all(text).map_err(file_error(&mark.path))?;
        // The file must survive a power failure before the first timer is stored. Otherwise a service could open a
        // folder with a part of the backup.
        mark.locked.sync_all().map_err(file_error(&mark.path))?;
        sync_folder(data).map_err(file_error(data))?;
        Ok(mark)
    }

    fn remove(self, data: &Path) -> Result<(), RestoreError> {
        remove(&self.path)?;
        sync_folder(data).map_err(file_error(data))
    }
}

/// Restores a backup into a data folder. Fails if the folder already has timers. `how` gets the present time of the
/// store's clock. It returns the [`Restore`], which says when the restored timers become due.
///
/// After a failure, the folder has none of the backup's timers, or the file `restoring` stays in the folder. No service
/// opens a folder with this file.
pub(crate) fn restore(
    data: &Path,
    cache: usize,
    from: &Path,
    how: impl FnOnce(UtcMillis) -> Restore,
) -> Result<Restored, RestoreError> {
    let open = || File::open(from).map(BufReader::new);
    let of_backup = |error| RestoreError::Backup(from.to_owned(), error);
    let (at, attached) = verified(from)?;
    files::make_folder(data).map_err(file_error(data))?;
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
    // The file is made only after the store was found empty, because the next restore removes all timers beside such a
    // file.
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
        let path = data.join(NAMESPACES);
        let added = add_namespaces(NamespaceStorage::File(path.clone()), &attached, &counted);
        let (kept, bare) = added.map_err(file_error(&path))?;
        Ok(Restored { at, timers, kept, bare })
    });
    let closed = store.close().map_err(|error| of_store(error.into()));
    let restored = restored.and_then(|restored| closed.map(|()| restored));
    for name in [STORE.to_owned(), format!("{STORE}.ops"), format!("{STORE}.reserve")] {
        let path = data.join(name);
        files::give_to_owner_of_folder(&path).map_err(file_error(&path))?;
    }
    if restored.is_err() {
        remove_store(data)?;
    }
    mark.remove(data)?;
    restored
}

/// Restores the timers of a backup into an SQLite database, and the namespaces into the data folder. Fails if the
/// database already has timers. `how` gets the present time of the store's clock. It returns the [`Restore`], which
/// says when the restored timers become due. Tables of other programs do not change.
///
/// After a failure, the database has none of the backup's timers, or the file `restoring` stays in the data folder. No
/// service opens a data folder with this file.
pub(crate) fn restore_on_sqlite(
    data: &Path,
    path: &Path,
    from: &Path,
    how: impl FnOnce(UtcMillis) -> Restore,
) -> Result<Restored, RestoreError> {
    let of_store = |error| RestoreError::Store(path.to_owned(), error);
    let of_error = |error: StoreError| of_store(error.into());
    let (at, attached) = verified(from)?;
    files::make_folder(data).map_err(file_error(data))?;
    let left_behind = Mark::left_behind(data)?;
    let store = SqliteStore::open(path).map_err(of_error)?;
    if left_behind.is_some() {
        // Other programs may have tables in the database, so only the timers are removed, not the file.
        drop_timers(&store).map_err(of_error)?;
    }
    if !is_empty(&store).map_err(of_error)? {
        return Err(of_store(BackupError::NotEmpty));
    }
    // The file is made only after the store was found empty, because the next restore removes all timers beside such a
    // file.
    let mark = match left_behind {
        Some(mark) => mark,
        None => Mark::make(data)?,
    };
    let open = || File::open(from).map(BufReader::new);
    let stored = how(store.now()).restore(&store, open).map_err(|error| match error {
        BackupError::Store(_) | BackupError::NotEmpty => of_store(error),
        error => RestoreError::Backup(from.to_owned(), error),
    });
    let restored = stored.and_then(|timers| {
        let counted = block_on(store.counts()).map_err(of_error)?;
        let path = data.join(NAMESPACES);
        let added = add_namespaces(NamespaceStorage::File(path.clone()), &attached, &counted);
        let (kept, bare) = added.map_err(file_error(&path))?;
        Ok(Restored { at, timers, kept, bare })
    });
    if restored.is_err() {
        drop_timers(&store).map_err(of_error)?;
    }
    store.close().map_err(of_error)?;
    for end in ["", "-owner"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        let file = PathBuf::from(file);
        files::give_to_owner_of_folder(&file).map_err(file_error(&file))?;
    }
    mark.remove(data)?;
    restored
}

/// Reads a whole backup to check it. Returns the moment of the backup, and the namespaces in it.
fn verified(from: &Path) -> Result<(UtcMillis, Attached), RestoreError> {
    let of_backup = |error| RestoreError::Backup(from.to_owned(), error);
    let file = File::open(from).map(BufReader::new).map_err(file_error(from))?;
    let contents = backup::read(file).map_err(of_backup)?;
    let attached =
        contents.attached.as_deref().map_or(Ok(Attached { namespaces: Map::new() }), |attached| {
            serde_json::from_str(attached).map_err(|error| of_backup(BackupError::Io(error.into())))
        })?;
    Ok((contents.at, attached))
}

/// The lifetime of the note in Redis that marks a running restore. If the restore does not renew its note within this
/// time, it counts as killed.
const DEAD: Duration = Duration::from_secs(15);
/// The time between two renewals of a restore's note in Redis (the document that marks a running restore).
const WRITTEN: Duration = Duration::from_secs(3);

/// A lock that keeps other restores out of a deployment on Redis. A thread renews the restore's note (the document in
/// Redis that marks a running restore) until [`stop`](Self::stop).
struct Hold {
    end: Sender<()>,
    thread: JoinHandle<Result<u64, StoreError>>,
}

/// Renews the restore's note (the document in Redis that marks a running restore) if the note still has the version
/// `version`. Returns the note's new version, or `None` if another process has changed the note.
async fn write_note(store: &RedisStore, version: u64) -> Result<Option<u64>, StoreError> {
    let until = (store.now() + DEAD).as_millis().to_string();
    if !store.replace_document(RESTORING, version, Some(until.as_bytes())).await? {
        return Ok(None);
    }
    // The change does not return its version, so the note is read again. With another value, the note belongs to
    // another restore.
    let note = store.document(RESTORING).await?;
    Ok(note.filter(|note| note.value == until.as_bytes()).map(|note| note.version))
}

impl Hold {
    /// Writes this restore's note (the document that marks a running restore) into Redis, so that no other restore
    /// begins. Returns `None` if another restore is running. Otherwise also returns whether a killed restore had left
    /// its note.
    fn take(store: &Arc<RedisStore>) -> Result<Option<(Self, bool)>, StoreError> {
        let note = block_on(store.document(RESTORING))?;
        let until = note.as_ref().and_then(|note| core::str::from_utf8(&note.value).ok()?.parse().ok());
        if until.is_some_and(|until| store.now() < UtcMillis::from_millis(until)) {
            return Ok(None);
        }
        let before = note.as_ref().map_or(0, |note| note.version);
        let Some(mut version) = block_on(write_note(store, before))? else { return Ok(None) };
        let (end, ended) = channel();
        let store = Arc::clone(store);
        let thread = thread::Builder::new().name("tourbillond-restore".to_owned()).spawn(move || {
            // `stop` drops the sender, which ends the loop at once.
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(WRITTEN) {
                let message = "another process restores into the deployment";
                let lost = || StoreError::new(StoreErrorKind::Closed, message);
                version = block_on(write_note(&store, version))?.ok_or_else(lost)?;
            }
            Ok(version)
        })?;
        Ok(Some((Self { end, thread }, note.is_some())))
    }

    /// Stops the thread that renews the note (the document in Redis that marks a running restore). Returns the note's
    /// version, with which the caller removes the note.
    fn stop(self) -> Result<u64, StoreError> {
        drop(self.end);
        let panicked =
            |_| Err(StoreError::new(StoreErrorKind::Io, "the thread of the restore's note has panicked"));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Removes all timers of a store. No service may run on the store.
fn drop_timers(store: &dyn TimerStore) -> Result<(), StoreError> {
    let mut cursor = None;
    loop {
        let page = block_on(store.list(Filter::default(), cursor, AT_ONCE))?;
        let ops = page.timers.iter().map(|timer| Op::Cancel(timer.id.into(), None)).collect();
        block_on(store.apply(ops, Durability::PowerLoss))?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// The number of timers that one call of the store removes.
const AT_ONCE: u32 = 200;

fn is_empty(store: &dyn TimerStore) -> Result<bool, StoreError> {
    let counts = block_on(store.counts())?;
    Ok(counts.by_namespace.is_empty() && counts.quarantined == 0)
}

/// Restores a backup into a deployment on Redis. Fails if the deployment already has timers or running nodes. `how`
/// gets the present time of the store's clock. It returns the [`Restore`], which says when the restored timers become
/// due.
///
/// After a failure, the timers of the backup are removed again. If they cannot be removed, the note of this restore
/// (the document that marks a running restore) stays in Redis. No node then starts before a later restore has removed
/// the timers and the note.
pub(crate) fn restore_shared(
    redis: &RedisSettings,
    from: &Path,
    how: impl FnOnce(UtcMillis) -> Restore,
) -> Result<Restored, RestoreError> {
    let name: Box<str> = format!("the deployment {}", redis.deployment).into();
    let of_store = |error: StoreError| RestoreError::Deployment(name.clone(), error.into());
    let (at, attached) = verified(from)?;
    let store = Arc::new(open_store(redis).map_err(of_store)?);
    let Some((hold, is_left_behind)) = Hold::take(&store).map_err(of_store)? else {
        return Err(RestoreError::DeploymentUnderWay(name));
    };
    let begun = begin(&store, &name, is_left_behind);
    // A restore that fails at its beginning has stored nothing. The timers in the deployment are then not its own, and
    // must stay.
    let may_have_stored = begun.is_ok();
    let restored = begun.and_then(|()| {
        let open = || File::open(from).map(BufReader::new);
        let stored = how(store.now()).restore(&*store, open).map_err(|error| match error {
            BackupError::Store(_) | BackupError::NotEmpty => RestoreError::Deployment(name.clone(), error),
            error => RestoreError::Backup(from.to_owned(), error),
        });
        let timers = stored?;
        let counted = block_on(store.counts()).map_err(of_store)?;
        let shared = NamespaceStorage::Shared(Arc::clone(&store) as _);
        let added = add_namespaces(shared, &attached, &counted);
        let of_notes = |error| RestoreError::Deployment(name.clone(), BackupError::Io(error));
        let (kept, bare) = added.map_err(of_notes)?;
        Ok(Restored { at, timers, kept, bare })
    });
    // If another process has taken the note, the timers belong to that process. `stop` then fails, and this restore
    // changes neither the note nor the timers.
    let version = hold.stop().map_err(of_store)?;
    if restored.is_err() && may_have_stored {
        drop_timers(&*store).map_err(of_store)?;
    }
    let is_removed = block_on(store.replace_document(RESTORING, version, None)).map_err(of_store)?;
    if !is_removed && restored.is_ok() {
        return Err(RestoreError::DeploymentUnderWay(name));
    }
    restored
}

/// Fails if nodes other than this process are running on the store. `name` is the name of the deployment, such as "the
/// schema shop", for the error.
fn refuse_beside_nodes(store: &dyn TimerStore, name: &str) -> Result<(), RestoreError> {
    let of_store = |error: StoreError| RestoreError::Deployment(name.into(), error.into());
    let nodes = block_on(store.nodes()).map_err(of_store)?.unwrap_or_default().nodes;
    let live: Names =
        nodes.into_iter().filter(|node| node.is_live && !node.is_this).map(|node| node.name).collect();
    if live.is_empty() { Ok(()) } else { Err(RestoreError::Nodes(name.into(), live)) }
}

/// Prepares a deployment on Redis for a restore. Fails if nodes are running, or if the deployment has timers. If
/// `is_left_behind` is true, an earlier restore was killed, and its timers are removed first.
fn begin(store: &RedisStore, name: &str, is_left_behind: bool) -> Result<(), RestoreError> {
    let of_store = |error: StoreError| RestoreError::Deployment(name.into(), error.into());
    refuse_beside_nodes(store, name)?;
    if is_left_behind {
        drop_timers(store).map_err(of_store)?;
    }
    if !is_empty(store).map_err(of_store)? {
        return Err(RestoreError::Deployment(name.into(), BackupError::NotEmpty));
    }
    Ok(())
}

/// Adds the namespaces of a backup to the namespaces of the service, and also adds the namespaces that have restored
/// timers (`used`) but are missing in the backup. Returns the names of the backup's namespaces that already existed,
/// and the names of the added namespaces that were missing in the backup.
fn add_namespaces(
    storage: NamespaceStorage,
    attached: &Attached,
    used: &Counts,
) -> io::Result<(Names, Names)> {
    let (_, there) = block_on(storage.read::<Map>())?;
    let used = used.by_namespace.keys().map(|(namespace, _)| &**namespace).collect();
    let Merged { kept, bare, added } = merged(&there, attached, used);
    if !added.is_empty() {
        Namespaces::open(storage)?.change(|map| map.extend(added.clone()))?;
    }
    Ok((kept, bare))
}

/// The effect of a restore on the namespaces of a service.
struct Merged {
    /// The names of the backup's namespaces that already existed. The restore does not change these namespaces.
    kept: Names,
    /// The names of the added namespaces that have restored timers, but are missing in the backup. They get no limits
    /// and no secrets.
    bare: Names,
    /// All namespaces that the restore adds, including those in `bare`.
    added: Map,
}

/// Computes which namespaces a restore adds. `there` are the namespaces that already exist, `attached` has the
/// namespaces of the backup, and `used` are the names of the namespaces that have restored timers.
fn merged(there: &Map, attached: &Attached, used: BTreeSet<&str>) -> Merged {
    let (mut kept, mut bare, mut added) = (Vec::new(), Vec::new(), Map::new());
    for (name, namespace) in &attached.namespaces {
        if there.contains_key(name) {
            kept.push(name.clone());
        } else {
            added.insert(name.clone(), Arc::clone(namespace));
        }
    }
    // A schedule is a timer in an internal namespace, whose name ends with the namespace in which the schedule creates
    // timers.
    let used: BTreeSet<_> =
        used.into_iter().map(|name| name.strip_prefix(Schedules::NAMESPACES).unwrap_or(name)).collect();
    for name in used.into_iter().filter(|name| is_name(name)) {
        let is_known = there.contains_key(name) || added.contains_key(name);
        if !is_known {
            added.insert(name.into(), Arc::default());
            bare.push(name.into());
        }
    }
    Merged { kept, bare, added }
}
