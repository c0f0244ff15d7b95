//! Small files that are replaced as a whole: after a crash the old contents or the new ones are there.
//!
//! A file is JSON, and its last line is the CRC-32 of all bytes before it, in 32 blanks: a space is 0 and a tab is 1,
//! the highest bit first. JSON permits blanks there, so any program reads the file. A file without such a line was
//! written by another program, and is taken as it is.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// The length of the last line, with the line break before it.
const CHECKSUM: usize = 33;

/// The last line of a file with these bytes.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let sum = crc32fast::hash(bytes);
    let mut line = [b'\n'; CHECKSUM];
    for (bit, blank) in (0..32).rev().zip(&mut line[1..]) {
        *blank = if sum >> bit & 1 == 0 { b' ' } else { b'\t' };
    }
    line
}

/// Whether the bytes end with a line of a checksum, which may be a wrong one. A flipped bit turns a tab into a line
/// break.
fn has_checksum(bytes: &[u8]) -> bool {
    let blanks = bytes.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
    blanks >= CHECKSUM - 1
}

/// The value in a JSON file, or none if there is no such file.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if has_checksum(&bytes) {
        let (rest, line) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM));
        if *line != checksum(rest) {
            let message = "the file is damaged: its checksum differs. If it was changed by hand, remove the blanks at \
                           its end";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from)
}

/// Makes a folder, and those that it is in, if it is missing. Only its owner may look into a folder that was made. One
/// that is there stays as it is. The names of folders that were made survive a loss of power.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| is_missing(folder)).collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    missing.into_iter().try_for_each(sync_folder)
}

fn is_missing(folder: &Path) -> bool {
    !folder.as_os_str().is_empty() && !folder.exists()
}

/// Syncs the folder that a file or folder is in.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)?.sync_all()
        }
        _ => Ok(()),
    }
}

/// Replaces a JSON file. Only its owner may read the file, since it may have secrets. The call returns once the new
/// contents survive a loss of power.
pub(super) fn replace<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.extend_from_slice(&checksum(&bytes));
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_folder(path)
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
}
