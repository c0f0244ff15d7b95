//! Measures how full the disk with the data folder is.

use super::Reports;
#[cfg(unix)]
use tourbillon_durable::store::RedbBuilder;

/// The use of the data folder and of its file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The size of all files in the data folder.
    pub(crate) used: u64,
    /// The free room that the service may use.
    pub(crate) free: u64,
    /// The size of the file system.
    pub(crate) size: u64,
    /// The service stores nothing new if less room than this is free.
    pub(crate) keep_free: u64,
}

impl Disk {
    /// Returns whether too little room is free for storing anything new.
    pub(crate) fn is_full(&self) -> bool {
        self.free < self.keep_free
    }

    /// Returns whether the free room is below a tenth of the file system, or below twice the room that must stay free.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.free < self.size / 10 || self.free < 2 * self.keep_free
    }
}

impl Reports {
    /// Measures the disk. Returns `None` if the timers are in Redis, or if the system does not tell the numbers. Blocks
    /// until the disk answers.
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

    /// Returns `None`, since the disk cannot be measured on this system.
    #[cfg(not(unix))]
    pub(crate) fn disk(&self) -> Option<Disk> {
        None
    }
}
