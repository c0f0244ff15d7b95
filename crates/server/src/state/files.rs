//! Replaces small files as a whole. After a crash, a file has either its old contents or its new contents.
//!
//! A file contains JSON. Its last line is the CRC-32 of all earlier bytes, written as 32 blanks: a space for 0 and a
//! tab for 1, the highest bit first. JSON permits blanks at its end, so any program can read the file. If the last line
//! is missing, another program has written the file, and its contents are accepted unchecked.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;

/// The length of a file's checksum, in bytes: a line break, and 32 blanks that stand for the bits of the checksum.
const CHECKSUM: usize = 33;

/// Returns the checksum of `bytes` as text: a line break, and a space or a tab for each of the 32 bits.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let sum = crc32fast::hash(bytes);
    let mut line = [b'\n'; CHECKSUM];
    for (bit, blank) in (0..32).rev().zip(&mut line[1..]) {
        *blank = if sum >> bit & 1 == 0 { b' ' } else { b'\t' };
    }
    line
}

/// Returns whether `bytes` end with a checksum, right or wrong. An undamaged checksum has only spaces and tabs after
/// its line break. Line feeds and carriage returns are accepted there, too, so that a damaged checksum is recognized: a
/// flipped bit can turn a tab into a carriage return.
fn has_checksum(bytes: &[u8]) -> bool {
    let blanks = bytes.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
    // The 32 blanks alone suffice, because the line break before them may be damaged.
    blanks >= CHECKSUM - 1
}

/// Reads a JSON file and verifies its checksum. Returns `None` if the file does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(explained(path, error)),
    };
    // If damage turns a blank into a character that is not blank, `has_checksum` may return false. The parser then
    // fails, because JSON permits only blanks at its end.
    if has_checksum(&bytes) {
        // A file of 32 blanks alone is shorter than a checksum with its line break.
        let (rest, line) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM));
        if *line != checksum(rest) {
            let message = "the file is damaged: its checksum differs. If it was changed by hand, remove the blanks at \
                           its end";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from)
}

/// Explains an error about missing permissions: adds the owner of the file, and the user of this process.
#[cfg(unix)]
fn explained(path: &Path, error: io::Error) -> io::Error {
    let owner = std::fs::metadata(path).map(|data| std::os::unix::fs::MetadataExt::uid(&data));
    match (error.kind(), owner) {
        (io::ErrorKind::PermissionDenied, Ok(owner)) => {
            let own = rustix::process::geteuid();
            let message = format!("{error}: it belongs to the user {owner}, and this process runs as {own}");
            io::Error::new(error.kind(), message)
        }
        _ => error,
    }
}

#[cfg(not(unix))]
fn explained(_: &Path, error: io::Error) -> io::Error {
    error
}

/// Creates a folder and its missing parents. Only the owner may access a new folder. An existing folder does not
/// change. The new folders survive a power failure.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    // The missing folders are listed before they are created, because only new names need a sync.
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| is_missing(folder)).collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    let synced = missing.iter().try_for_each(|folder| sync_folder(folder));
    if synced.is_err() {
        // The next call must find the folders missing, because it syncs only new folders.
        for folder in missing {
            let _is_made_again_by_the_next_call = std::fs::remove_dir(folder);
        }
    }
    synced
}

/// Creates a folder as [`make_folder`] does, but fails if its parent is missing.
pub(crate) fn make_in_folder(path: &Path) -> io::Result<()> {
    std::fs::metadata(folder_of(path))?;
    make_folder(path)
}

fn is_missing(folder: &Path) -> bool {
    // The ancestors of a relative path end with the empty path, which stands for the current folder.
    !folder.as_os_str().is_empty() && !folder.exists()
}

/// Syncs the folder that contains `path`, so that the name `path` survives a power failure.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        // Windows cannot open a folder as a file.
        Some(_) if cfg!(unix) => File::open(folder_of(path))?.sync_all(),
        _ => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces a JSON file by a new file with a checksum, as [`replace_bytes`] describes.
pub(crate) fn replace<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.extend_from_slice(&checksum(&bytes));
    replace_bytes(path, &bytes)
}

/// Replaces the contents of a file. Returns once the new contents survive a power failure.
///
/// An existing file keeps its owner and its mode, so the service can still read a file that another user has changed. A
/// new file gets the owner of its folder. Only its owner may read it, because it may contain secrets.
///
/// # Errors
///
/// Fails if the new file cannot be given to its owner. The old file then does not change.
pub(crate) fn replace_bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // An interrupted replacement may have left this file, and `create` fails if the path exists.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create(&new)?;
    // The owner is set before the rename, so at each moment the service can read the file at `path`.
    let former = std::fs::metadata(path).ok();
    let written = give(&file, path, former.as_ref()).and_then(|()| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    });
    if written.is_err() {
        let _is_overwritten_the_next_time = std::fs::remove_file(&new);
    }
    written?;
    // The rename changes the folder. Without this sync, a power failure could bring back the old contents.
    sync_folder(path)
}

/// Creates a file that only its owner may read. Fails if the path exists, even as a link, because another user who owns
/// the folder may have put a link there.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Gives the file `new` the owner and the mode of the file `former`, which it replaces under the name `path`. Without a
/// `former` file, gives `new` the owner of the folder.
#[cfg(unix)]
fn give(new: &File, path: &Path, former: Option<&Metadata>) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, fchown};
    let owner = match former {
        Some(former) => former.clone(),
        None => std::fs::metadata(folder_of(path))?,
    };
    let present = new.metadata()?;
    if (owner.uid(), owner.gid()) != (present.uid(), present.gid()) {
        let given = fchown(new, Some(owner.uid()), Some(owner.gid()));
        // A new file may keep this user's group if its owner is already correct.
        if let Err(error) = given
            && (former.is_some() || owner.uid() != present.uid())
        {
            let message =
                format!("it belongs to the user {}, to whom this user cannot give it: {error}", owner.uid());
            return Err(io::Error::new(error.kind(), message));
        }
    }
    match former {
        Some(former) => new.set_permissions(PermissionsExt::from_mode(former.mode() & 0o777)),
        None => Ok(()),
    }
}

#[cfg(not(unix))]
fn give(_: &File, _: &Path, _: Option<&Metadata>) -> io::Result<()> {
    Ok(())
}

/// Gives a file to the owner of its folder, because another user, such as an administrator, may have created the file.
#[cfg(unix)]
pub(crate) fn give_to_owner_of_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, lchown};
    // A link is not followed, because the owner of the folder may have put a link to a foreign file there.
    let present = match std::fs::symlink_metadata(path) {
        Ok(present) => present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let folder = std::fs::metadata(folder_of(path))?;
    if present.uid() == folder.uid() {
        return Ok(());
    }
    lchown(path, Some(folder.uid()), Some(folder.gid()))
}

#[cfg(not(unix))]
pub(crate) fn give_to_owner_of_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Opens an empty file that is used only for locks. Creates a missing file, and gives it to the owner of its folder.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    match create(path) {
        Ok(file) => give(&file, path, None).map(|()| file).inspect_err(|_| {
            // The owner of the folder could not open a lock file of another user.
            let _is_left_behind = std::fs::remove_file(path);
        }),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path)
        }
        Err(error) => Err(error),
    }
}

/// Writes `text` into the empty file `file` with this path. Does nothing if the file has a text already. The text
/// survives a power failure.
pub(crate) fn note(file: &mut File, path: &Path, text: &[u8]) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        file.write_all(text)?;
        file.sync_all()?;
        sync_folder(path)?;
    }
    Ok(())
}

/// Locks a data folder for this process, until the returned file is closed. Returns `None` if another process has the
/// lock. `without_locks` permits a file system without locks, where nothing keeps other processes out.
pub(crate) fn lock_folder(folder: &Path, without_locks: bool) -> io::Result<Option<File>> {
    let path = folder.join("lock");
    let file = match create(&path) {
        Ok(file) => {
            // The owner of the folder could not open a lock file of an administrator. Any other user cannot give it
            // away, and is probably the user of the service.
            let _best_effort = give(&file, &path, None);
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(&path)?
        }
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            let message = "the file system has no locks, so another service could use the folder as well, and each \
                           would lose changes of the other. Use another folder, or permit one without locks in the \
                           settings";
            if without_locks { Ok(Some(file)) } else { Err(io::Error::new(error.kind(), message)) }
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Map = BTreeMap<String, u32>;

    #[test]
    fn a_flipped_bit_or_a_zeroed_sector_of_a_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.json");
        let map: Map = (0..100).map(|n| (format!("name {n}"), n)).collect();
        replace(&path, &map).unwrap();
        assert_eq!(read(&path).unwrap(), Some(map));
        let bytes = std::fs::read(&path).unwrap();
        assert!(serde_json::from_slice::<Map>(&bytes).is_ok(), "any program reads the file");
        let damage = |damaged: &[u8], name: &str| {
            std::fs::write(&path, damaged).unwrap();
            let found = read::<Map>(&path);
            assert!(found.is_err(), "{name}: {found:?}");
        };
        for bit in (0..bytes.len() * 8).step_by(3).chain((bytes.len() - CHECKSUM) * 8..bytes.len() * 8) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            damage(&damaged, &format!("bit {bit}"));
        }
        for start in (0..bytes.len()).step_by(512) {
            let mut damaged = bytes.clone();
            let end = damaged.len().min(start + 512);
            damaged[start..end].fill(0);
            damage(&damaged, &format!("zeros from {start} on"));
        }
    }

    #[test]
    fn a_file_of_another_program_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.json");
        for text in ["{\"a\":1}", "{\"a\":1}\n", "{ \"a\": 1 }  \n\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read::<Map>(&path).unwrap(), Some(Map::from([("a".to_owned(), 1)])));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_mode_and_a_new_one_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.json");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, &Map::new()).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        // The remains of an interrupted write.
        std::fs::write(path.with_extension("new"), "{").unwrap();
        replace(&path, &Map::from([("a".to_owned(), 1)])).unwrap();
        assert_eq!(mode(), 0o640);
        assert_eq!(read::<Map>(&path).unwrap().unwrap().len(), 1);
        // A link with this name is not followed.
        let other = folder.path().join("other");
        std::fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, path.with_extension("new")).unwrap();
        replace(&path, &Map::new()).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"other");
    }
}
