//! Finds the one path by which a store opens its files.

use super::error::{StoreError, StoreErrorKind};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

/// The greatest number of links that are followed from a path to its file, as on Linux.
const MOST_LINKS: usize = 40;

/// Returns the absolute path of a store's file, without symbolic links. The file need not exist, but its folder must.
/// If the path is a link to a missing file, returns the path of the missing file. For authors of stores.
///
/// A store has files beside its file, for example a journal, whose names begin with the name of the file. So the store
/// must open its file by the same path each time. The working folder of the process may change, and several links may
/// lead to the file.
///
/// # Errors
///
/// Fails with [`StoreErrorKind::Limit`] if the file has several names (hard links), since each name would have a
/// journal of its own. Fails if the folder does not exist, or if the operating system reports an error.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::store::path_of_file;
///
/// let folder = tempfile::tempdir()?;
/// let path = path_of_file(&folder.path().join("timers.redb"))?;
/// assert_eq!(path, folder.path().canonicalize()?.join("timers.redb"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn path_of_file(path: &Path) -> Result<PathBuf, StoreError> {
    let found = resolved(path)?;
    match std::fs::metadata(&found) {
        Ok(file) if names_of(&file) > 1 => {
            let message = format!(
                "{} has {} names (hard links): each name would have a journal of its own, so timers would be lost. \
                 Remove the other names, or put a copy in place of the file",
                found.display(),
                names_of(&file)
            );
            Err(StoreError::new(StoreErrorKind::Limit, message))
        }
        _ => Ok(found),
    }
}

fn resolved(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        match std::fs::canonicalize(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path does not end with the name of a file",
            ));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize()?;
        // The creation of a file follows a link whose file is missing, and so does this loop.
        match std::fs::read_link(folder.join(name)) {
            Ok(target) => path = folder.join(target),
            Err(_) => return Ok(folder.join(name)),
        }
    }
    Err(io::Error::other("too many links lead from the path to its file"))
}

/// Returns the number of names (hard links) of a file. A folder counts as one name.
#[cfg(unix)]
fn names_of(file: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    if file.is_file() { file.nlink() } else { 1 }
}

#[cfg(not(unix))]
fn names_of(_: &Metadata) -> u64 {
    1
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn all_names_of_a_file_lead_to_one_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/old")).unwrap();
        symlink(root.join("data"), root.join("link")).unwrap();
        symlink("timers", root.join("data/near")).unwrap();
        symlink("../../link/near", root.join("data/old/far")).unwrap();
        let expected = root.join("data/timers");
        let names = ["data/timers", "link/timers", "data/near", "link/old/far", "data/old/../timers"];
        // The file does not exist in the first round.
        for round in 0..2 {
            for name in names {
                assert_eq!(path_of_file(&root.join(name)).unwrap(), expected, "{name} in round {round}");
            }
            fs::write(&expected, "").unwrap();
        }
        let opened = fs::File::open(&expected).unwrap();
        let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
        if Path::new("/proc/self/fd").exists() {
            assert_eq!(path_of_file(Path::new(&by_descriptor)).unwrap(), expected);
        }
    }

    #[test]
    fn a_path_without_a_file_of_its_own_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        symlink("second", root.join("first")).unwrap();
        symlink("first", root.join("second")).unwrap();
        for name in ["first", "missing/timers", "missing/.."] {
            assert!(path_of_file(&root.join(name)).is_err(), "{name}");
        }
        assert!(path_of_file(Path::new("")).is_err());
        fs::write(root.join("timers"), "").unwrap();
        fs::hard_link(root.join("timers"), root.join("other")).unwrap();
        for name in ["timers", "other"] {
            let error = path_of_file(&root.join(name)).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Limit);
            assert!(error.to_string().contains("2 names"), "{error}");
        }
        fs::remove_file(root.join("other")).unwrap();
        assert!(path_of_file(&root.join("timers")).is_ok());
    }
}
