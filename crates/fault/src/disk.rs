//! A small file system in memory, which a test fills.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A small file system in memory. Dropping the value unmounts it.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a file system of `mebibytes` MiB. Returns `None`, with a line on standard error, if this process may not
    /// mount file systems.
    #[must_use]
    pub fn mount(mebibytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m,mode=755"), "tmpfs"]).arg(folder.path());
        if mount.output().is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(folder));
        }
        drop(writeln!(io::stderr(), "skipped: this process may not mount a file system"));
        None
    }

    /// Returns the folder of the file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the file system to the last byte, as another program on the same disk could.
    pub fn fill(&self) {
        let mut file = fs::File::create(self.path().join("others")).expect("a file");
        let block = vec![1; 1 << 16];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&block[..512]).is_ok() {}
    }

    /// Removes the file that [`fill`](Self::fill) has written.
    pub fn free(&self) {
        fs::remove_file(self.path().join("others")).expect("the file of the other program");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
