//! Measures how full the disk with the data folder is.

use super::Reports;
#[cfg(unix)]
use tourbillon_durable::store::RedbBuilder;

/// The size of the data folder, and the free space on its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The size of all files in the data folder, in bytes.
    pub(crate) used: u64,
    /// The number of free bytes that the service can use on the file system.
    pub(crate) free: u64,
    /// The size of the file system in bytes.
    pub(crate) size: u64,
    /// The number of bytes that must stay free. With less free space, the service stores nothing new.
    pub(crate) keep_free: u64,
}

impl Disk {
    /// Returns whether the free space is too small to store anything new.
    pub(crate) fn is_full(&self) -> bool {
        self.free < self.keep_free
    }

    /// Returns whether the free space is below a tenth of the file system, or below twice the number of bytes that must
    /// stay free.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.free < self.size / 10 || self.free < 2 * self.keep_free
    }
}

impl Reports {
    /// Measures the file system of the data folder. Returns `None` if nodes share the timers, or if the system does not
    /// report the values. Blocks until the disk answers.
    #[cfg(unix)]
    pub(crate) fn disk(&self) -> Option<Disk> {
        if self.namespaces.is_shared() {
            return None;
        }
        let folder = &self.settings.data;
        let found = rustix::fs::statvfs(folder).ok()?;
        let files = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
        let bytes = |entry: std::fs::DirEntry| entry.metadata().ok().filter(std::fs::Metadata::is_file);
        let size = found.f_blocks.saturating_mul(found.f_frsize);
        Some(Disk {
            used: files.filter_map(bytes).map(|metadata| metadata.len()).sum(),
            free: found.f_bavail.saturating_mul(found.f_frsize),
            size,
            keep_free: RedbBuilder::kept_free(self.settings.keep_free, size),
        })
    }

    /// Returns `None`, because file systems cannot be measured on this operating system.
    #[cfg(not(unix))]
    pub(crate) fn disk(&self) -> Option<Disk> {
        None
    }
}
