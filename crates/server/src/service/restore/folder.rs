//! Restores a backup into a data folder, or into the SQLite database of a service. The documentation of the parent
//! module has the states of both restores.

use super::mark::{Mark, STORE, name_of_database, name_of_file, remove, sync_folder};
use super::{RestoreError, Restored, add_namespaces, drop_timers, file_error, is_empty, verified};
use crate::state::{NamespaceStorage, files};
use pollster::block_on;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::{BackupError, Restore};
use tourbillon_durable::store::{Counts, RedbStore, StoreError, TimerStore as _};
use tourbillon_sqlite::SqliteStore;

const NAMESPACES: &str = "namespaces.json";

/// Makes a data folder if it is missing, and locks it until the returned file is closed. Fails if a service or another
/// restore uses the folder.
fn lock(data: &Path) -> Result<File, RestoreError> {
    files::make_folder(data).map_err(file_error(data))?;
    let locked = files::lock_folder(data, false).map_err(file_error(&data.join("lock")))?;
    locked.ok_or_else(|| RestoreError::InUse(data.to_owned()))
}

fn counts(store: &RedbStore) -> Result<Counts, BackupError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(store.counts())?)
}

/// Removes the files of the store from a data folder, and syncs the folder. So the removal survives a power failure,
/// and the caller may then remove the mark of the unfinished restore.
fn remove_store(data: &Path) -> Result<(), RestoreError> {
    remove(&data.join(STORE))?;
    remove(&data.join(format!("{STORE}.ops")))?;
    sync_folder(data).map_err(file_error(data))
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
    let _locked = lock(data)?;
    let left_behind = Mark::left_behind(data, name_of_file())?;
    if left_behind.as_ref().is_some_and(Mark::may_drop) {
        remove_store(data)?;
    }
    let path = data.join(STORE);
    let of_store = |error| RestoreError::Store(path.clone(), error);
    let opened = RedbStore::builder().cache(cache).open(&path);
    let store = opened.map_err(|error| of_store(error.into()))?;
    let counted = counts(&store).map_err(of_store)?;
    if !counted.by_namespace.is_empty() || counted.quarantined > 0 {
        return Err(Mark::not_empty(left_behind.as_ref(), &path));
    }
    let mark = Mark::made(left_behind, data, name_of_file())?;
    let how = how(store.now());
    let stored = how.restore(&store, open).map_err(|error| match error {
        BackupError::Store(_) | BackupError::NotEmpty => of_store(error),
        error => of_backup(error),
    });
    let restored = stored.and_then(|timers| {
        let counted = counts(&store).map_err(of_store)?;
        let path = data.join(NAMESPACES);
        let added = add_namespaces(NamespaceStorage::File(path.clone()), &attached, &counted, || Ok(()));
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
    let _locked = lock(data)?;
    let name = name_of_database(data, path);
    let left_behind = Mark::left_behind(data, &name)?;
    let store = SqliteStore::open(path).map_err(of_error)?;
    if left_behind.as_ref().is_some_and(Mark::may_drop) {
        drop_timers(&store, || Ok(())).map_err(of_error)?;
    }
    if !is_empty(&store).map_err(of_error)? {
        return Err(Mark::not_empty(left_behind.as_ref(), path));
    }
    let mark = Mark::made(left_behind, data, &name)?;
    let open = || File::open(from).map(BufReader::new);
    let stored = how(store.now()).restore(&store, open).map_err(|error| match error {
        BackupError::Store(_) | BackupError::NotEmpty => of_store(error),
        error => RestoreError::Backup(from.to_owned(), error),
    });
    let restored = stored.and_then(|timers| {
        let counted = block_on(store.counts()).map_err(of_error)?;
        let path = data.join(NAMESPACES);
        let added = add_namespaces(NamespaceStorage::File(path.clone()), &attached, &counted, || Ok(()));
        let (kept, bare) = added.map_err(file_error(&path))?;
        Ok(Restored { at, timers, kept, bare })
    });
    if restored.is_err() {
        drop_timers(&store, || Ok(())).map_err(of_error)?;
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
