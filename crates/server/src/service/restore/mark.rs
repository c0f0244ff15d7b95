//! The file `restoring`, which marks a data folder while a restore is unfinished. The mark names the store of the
//! restore: beside the SQLite database of a restore, a data folder may have another store.

use super::{RestoreError, file_error};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use tourbillon_durable::backup::BackupError;

/// The file of the store in a data folder.
pub(super) const STORE: &str = "timers.redb";
const MARK: &str = "restoring";
const BEFORE_NAME: &[u8] = b"A restore into ";
const AFTER_NAME: &[u8] = b" has not ended. Run `tourbillond restore` again.\n";

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> Result<(), RestoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

/// Returns whether a restore into this data folder has begun and not ended.
pub(crate) fn is_half_restored(data: &Path) -> bool {
    data.join(MARK).exists()
}

/// Returns the name by which a mark (the file of an unfinished restore) identifies an SQLite database, even before the
/// database exists. The name is the path from the data folder if the database is in this folder, so it stays valid if
/// the folder moves. Otherwise it is the absolute path.
pub(super) fn name_of_database(data: &Path, path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    let path = path.canonicalize().ok().or_else(in_folder).unwrap_or(path);
    match data.canonicalize().as_deref().map(|data| path.strip_prefix(data)) {
        // The name begins with `./`, so it differs from the name of a store in a file ([`name_of_file`]).
        Ok(Ok(in_data)) => Path::new(".").join(in_data),
        _ => path,
    }
}

/// The file `restoring`, which marks an unfinished restore in a data folder. The restore has locked this folder.
pub(super) struct Mark {
    path: PathBuf,
    file: File,
    /// Whether this restore may remove the stored timers, because a restore that was killed has stored them.
    may_drop: bool,
}

impl Mark {
    fn open(path: &Path, make: bool) -> Result<File, RestoreError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).map_err(file_error(path))
    }

    /// Opens the mark that a killed restore has left in the data folder. Returns `None` if there is no mark. Fails if
    /// the mark names another store than `store`.
    pub(super) fn left_behind(data: &Path, store: &Path) -> Result<Option<Self>, RestoreError> {
        let path = data.join(MARK);
        let file = match Self::open(&path, false) {
            Err(RestoreError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut mark = Self { path, file, may_drop: false };
        mark.may_drop = mark.names(store)?;
        Ok(Some(mark))
    }

    /// Returns whether the mark names the store `store`. Returns false if the mark names no store, because a restore
    /// was killed during the write of the mark. Fails if the mark names another store.
    fn names(&self, store: &Path) -> Result<bool, RestoreError> {
        let mut text = Vec::new();
        (&self.file).read_to_end(&mut text).map_err(file_error(&self.path))?;
        let name = text.strip_prefix(BEFORE_NAME).and_then(|rest| rest.strip_suffix(AFTER_NAME));
        match name {
            None => Ok(false),
            Some(name) if name == store.as_os_str().as_encoded_bytes() => Ok(true),
            Some(name) => {
                Err(RestoreError::OtherStore(self.path.clone(), String::from_utf8_lossy(name).into()))
            }
        }
    }

    /// Returns whether this restore may remove the stored timers, because a restore that was killed has stored them.
    pub(super) fn may_drop(&self) -> bool {
        self.may_drop
    }

    /// Makes the error of a restore into `store`, which already has timers. `left_behind` is the mark of a killed
    /// restore, if there is one.
    pub(super) fn not_empty(left_behind: Option<&Self>, store: &Path) -> RestoreError {
        match left_behind.filter(|mark| !mark.may_drop) {
            Some(mark) => RestoreError::Unnamed(store.to_owned(), mark.path.clone()),
            None => RestoreError::Store(store.to_owned(), BackupError::NotEmpty),
        }
    }

    /// Returns a mark that names `store`, a store that was found empty. Reuses `left_behind`, the mark of a killed
    /// restore, if there is one.
    pub(super) fn made(left_behind: Option<Self>, data: &Path, store: &Path) -> Result<Self, RestoreError> {
        match left_behind {
            Some(mark) if mark.may_drop => Ok(mark),
            Some(mark) => mark.named(data, store),
            None => Self::make(data, store),
        }
    }

    /// Creates a mark that names `store`, a store that was found empty.
    fn make(data: &Path, store: &Path) -> Result<Self, RestoreError> {
        let path = data.join(MARK);
        Self { file: Self::open(&path, true)?, path, may_drop: false }.named(data, store)
    }

    /// Writes `store`, the name of a store that was found empty, into the mark.
    fn named(mut self, data: &Path, store: &Path) -> Result<Self, RestoreError> {
        let text = [BEFORE_NAME, store.as_os_str().as_encoded_bytes(), AFTER_NAME].concat();
        let mut file = &self.file;
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text));
        written.and_then(|()| file.sync_all()).map_err(file_error(&self.path))?;
        sync_folder(data).map_err(file_error(data))?;
        self.may_drop = true;
        Ok(self)
    }

    pub(super) fn remove(self, data: &Path) -> Result<(), RestoreError> {
        remove(&self.path)?;
        sync_folder(data).map_err(file_error(data))
    }
}

/// Returns the name by which a mark (the file of an unfinished restore) identifies the store file in the data folder.
/// The name stays valid if the folder moves.
pub(super) fn name_of_file() -> &'static Path {
    Path::new(STORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_an_sqlite_database_in_the_data_folder_moves_with_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        std::fs::create_dir(&old).unwrap();
        let name = name_of_database(&old, &old.join("timers.redb"));
        drop(Mark::made(None, &old, &name).unwrap());
        std::fs::write(old.join("timers.redb"), "").unwrap();
        std::fs::rename(&old, &new).unwrap();
        let found = |name: &Path| Mark::left_behind(&new, name);
        let name = name_of_database(&new, &new.join("timers.redb"));
        assert!(found(&name).unwrap().is_some_and(|mark| mark.may_drop()));
        for other in [name_of_file(), &name_of_database(&new, &folder.path().join("timers.redb"))] {
            assert!(matches!(found(other), Err(RestoreError::OtherStore(..))), "{}", other.display());
        }
    }
}
