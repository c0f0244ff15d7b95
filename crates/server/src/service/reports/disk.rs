//! How full the disk is.

use super::Reports;

/// The room on the file system of the data folder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The bytes of the files in the folder.
    pub(crate) used: u64,
    /// The bytes that are free for the service.
    pub(crate) free: u64,
    /// All bytes of the file system.
    pub(crate) size: u64,
    /// The free bytes below which nothing new is stored.
    pub(crate) keep_free: u64,
}

impl Disk {
    /// Whether nothing new is stored since too little is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free < self.keep_free
    }

    /// Whether less is free than a tenth of the file system, or than twice the bytes that must stay free.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.free < self.size / 10 || self.free < 2 * self.keep_free
    }
}

impl Reports {
    /// The room on the disk, if the timers are in a file and the system says it. Blocks for as long as that
    /// takes.
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

    /// The system does not tell it.
    #[cfg(not(unix))]
    pub(crate) fn disk(&self) -> Option<Disk> {
        None
    }
}
