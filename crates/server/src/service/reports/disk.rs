//! Measures how full the disk is.

use super::Reports;

/// The room on the file system of the data folder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The bytes of all files in the data folder.
    pub(crate) used: u64,
    /// The bytes that the service can still use.
    pub(crate) free: u64,
    /// All bytes of the file system.
    pub(crate) size: u64,
    /// The service stores nothing new if fewer bytes than this are free.
    pub(crate) keep_free: u64,
}

impl Disk {
    /// Returns whether nothing new is stored, since too little is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free < self.keep_free
    }

    /// Returns whether less is free than a tenth of the file system, or than twice the bytes that must stay free.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.free < self.size / 10 || self.free < 2 * self.keep_free
    }
}

impl Reports {
    /// Measures the disk. `None` if the timers are in Redis, or if the system does not tell. Blocks until the disk has
    /// answered.
    #[cfg(unix)]
    pub(crate) fn disk(&self) -> Option<Disk> {
        if self.namespaces.is_shared() {
            return None;
        }
        let folder = &self.settings.data;
        let found = rustix::fs::statvfs(folder).ok()?;
        let files = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
        let bytes = |entry: std::fs::DirEntry| entry.metadata().ok().filter(std::fs::Metadata::is_file);
        Some(Disk {
            used: files.filter_map(bytes).map(|metadata| metadata.len()).sum(),
            free: found.f_bavail.saturating_mul(found.f_frsize),
            size: found.f_blocks.saturating_mul(found.f_frsize),
            keep_free: self.settings.keep_free,
        })
    }

    /// Returns `None`: on this system the disk is not measured.
    #[cfg(not(unix))]
    pub(crate) fn disk(&self) -> Option<Disk> {
        None
    }
}
