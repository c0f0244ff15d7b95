//! Measures the files of the store, and how full their disk is.

use crate::settings::{Settings, StorePlace};
use crate::task;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::timeout;
#[cfg(unix)]
use tourbillon_durable::store::Room;
use tourbillon_durable::store::path_of_file;

/// The longest time for which a report waits for the disk.
const SLOW: Duration = Duration::from_secs(3);

/// The size of the store's files, and the free space on their file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The size of the store's files, in bytes.
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

    /// Measures the file system of the store. Returns `None` if the system does not report the values. Blocks until the
    /// disk answers.
    #[cfg(unix)]
    fn measure(files: &StoreFiles, keep_free: u64) -> Option<Self> {
        let folder = files.folder();
        let found = rustix::fs::statvfs(folder.as_path()).ok()?;
        let size = found.f_blocks.saturating_mul(found.f_frsize);
        Some(Self {
            used: files.sizes().map(|(_, size)| size).iter().sum(),
            free: found.f_bavail.saturating_mul(found.f_frsize),
            size,
            keep_free: Room::kept_free(keep_free, size),
        })
    }

    /// Returns `None`, because file systems cannot be measured on this operating system.
    #[cfg(not(unix))]
    fn measure(_: &StoreFiles, _: u64) -> Option<Self> {
        None
    }
}

/// The files of a store on this machine: the database, its journal of changes, and its reserve (a file that is removed
/// when the disk is full).
#[derive(Clone, Debug)]
pub(super) struct StoreFiles {
    database: PathBuf,
    /// The label of each file in metrics, and the suffix that follows the name of the database in the file's name.
    parts: [(&'static str, &'static str); 3],
}

impl StoreFiles {
    /// Returns the files of the service's store. If nodes share the timers, the files do not exist.
    pub(super) fn of(settings: &Settings) -> Self {
        match &settings.store {
            StorePlace::Sqlite(path) => Self {
                database: path.clone(),
                parts: [("timers", ""), ("journal", "-wal"), ("reserve", "-reserve")],
            },
            _ => Self {
                database: settings.data.join("timers.redb"),
                parts: [("timers", ""), ("journal", ".ops"), ("reserve", ".reserve")],
            },
        }
    }

    /// Returns the path by which the store opens the database. The other files are beside it, also if the name of the
    /// database in the data folder is a link. Blocks until the disk answers.
    fn path(&self) -> PathBuf {
        path_of_file(&self.database).unwrap_or_else(|_| self.database.clone())
    }

    /// Returns the folder of the files. Blocks until the disk answers.
    pub(super) fn folder(&self) -> PathBuf {
        let path = self.path();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new(".")).to_owned()
    }

    /// Returns the label of each file in metrics, and the size of the file in bytes. Blocks until the disk answers.
    pub(super) fn sizes(&self) -> [(&'static str, u64); 3] {
        let database = self.path();
        self.parts.map(|(label, suffix)| {
            let mut path = database.clone().into_os_string();
            path.push(suffix);
            (label, std::fs::metadata(path).map_or(0, |file| file.len()))
        })
    }
}

/// Reads from the disk on a thread, one read at a time. So a disk that does not answer blocks only one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskReads(Arc<Mutex<()>>);

impl DiskReads {
    /// Calls `read` on a thread that may block. Returns `None` if the disk does not answer in time.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let lock = Arc::clone(&self.0);
        let answer = async move {
            let only = lock.lock_owned().await;
            // The thread holds the lock until the disk answers, even if nobody waits any more.
            let read = move || {
                let value = read();
                drop(only);
                value
            };
            task::blocking(read).await
        };
        timeout(SLOW, answer).await.ok()?.ok()
    }

    /// Measures the file system of the store with the files `files`. Returns `None` if the system does not report the
    /// values, or if the disk does not answer in time.
    pub(super) async fn measure(&self, files: StoreFiles, keep_free: u64) -> Option<Disk> {
        self.read(move || Disk::measure(&files, keep_free)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_disk_that_hangs_holds_one_thread() {
        let (reads, begun) = (DiskReads::default(), Arc::<AtomicU32>::default());
        let (answer, answered) = mpsc::channel::<()>();
        let answered = Arc::new(std::sync::Mutex::new(answered));
        let read = || {
            let (begun, answered) = (Arc::clone(&begun), Arc::clone(&answered));
            reads.read(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                answered.lock().unwrap().recv().is_ok()
            })
        };
        assert_eq!(tokio::join!(read(), read(), read()), (None, None, None));
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        answer.send(()).unwrap();
        answer.send(()).unwrap();
        assert_eq!(read().await, Some(true));
    }

    #[test]
    fn the_disk_of_an_sqlite_database_is_the_disk_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut settings = Settings::new(root.join("data"));
        assert_eq!(StoreFiles::of(&settings).folder(), root.join("data"));
        let database = root.join("shop.db");
        std::fs::write(&database, [0; 10]).unwrap();
        std::fs::write(root.join("shop.db-wal"), [0; 7]).unwrap();
        std::fs::write(root.join("other"), [0; 5]).unwrap();
        settings.store = StorePlace::Sqlite(database);
        let files = StoreFiles::of(&settings);
        assert_eq!(files.folder(), root);
        assert_eq!(files.sizes(), [("timers", 10), ("journal", 7), ("reserve", 0)]);
        #[cfg(unix)]
        {
            std::fs::create_dir(root.join("data")).unwrap();
            std::os::unix::fs::symlink("../shop.db", root.join("data/link.db")).unwrap();
            settings.store = StorePlace::Sqlite(root.join("data/link.db"));
            let linked = StoreFiles::of(&settings);
            assert_eq!((linked.folder(), linked.sizes()), (root, files.sizes()));
        }
        settings.store = StorePlace::Sqlite("shop.db".into());
        assert_eq!(StoreFiles::of(&settings).folder(), std::env::current_dir().unwrap());
    }
}
