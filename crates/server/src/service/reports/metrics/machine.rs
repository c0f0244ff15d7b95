//! Reads system metrics about the process, and about the disk with the store's files. The calls may block if the disk
//! hangs.

use super::page::Page;
use crate::service::reports::disk::StoreFiles;
#[cfg(target_os = "linux")]
use core::time::Duration;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::time::SystemTime;

/// Writes the metrics of the process and of the disk, as far as the system reports them.
pub(super) fn page(files: &StoreFiles) -> Page {
    let mut page = Page::new("tourbillon_");
    page.family("store_bytes", "gauge", "Bytes of the store's files; all 0 with Redis.");
    for (part, size) in files.sizes() {
        page.value("store_bytes", &[("part", part)], &size);
    }
    if let Some((free, all)) = disk(&files.folder()) {
        let help = "Free bytes of the file system with the store's files, or with the data folder.";
        page.single("disk_free_bytes", "gauge", help, &free);
        page.single("disk_bytes", "gauge", "All bytes of this file system.", &all);
    }
    page.add(&process());
    page
}

/// Returns the number of bytes that are free for this user on a folder's file system, and the size of the file system
/// in bytes.
#[cfg(target_os = "linux")]
fn disk(folder: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

#[cfg(not(target_os = "linux"))]
fn disk(_folder: &Path) -> Option<(u64, u64)> {
    None
}

/// The fields of `/proc/self/stat` that the metrics show.
#[cfg(target_os = "linux")]
struct Stat {
    /// The processor time that the process has used, in ticks.
    used: u64,
    threads: u64,
    /// The time from the start of the system to the start of the process, in ticks.
    start: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

#[cfg(target_os = "linux")]
impl Stat {
    /// Reads the fields from the text of `/proc/self/stat`. Returns `None` if the text lacks one of them.
    fn read(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain spaces and parentheses.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        // The system's manual counts from 1, and the name is field 2.
        let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
        Some(Self {
            used: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            start: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Writes the metrics of the process under the names that Prometheus' client libraries use.
#[cfg(target_os = "linux")]
fn process() -> Page {
    let mut page = Page::new("process_");
    if let Some(stat) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::read) {
        #[expect(clippy::cast_precision_loss, reason = "2^53 ticks are millions of years")]
        let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let help = "Time of the processor that the process has used, in user mode and in the kernel.";
        page.single("cpu_seconds_total", "counter", help, &seconds(stat.used));
        let page_size = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        let resident = stat.resident_pages.saturating_mul(page_size);
        page.single("resident_memory_bytes", "gauge", "Memory of the process that is in RAM.", &resident);
        page.single("virtual_memory_bytes", "gauge", "Address space of the process.", &stat.virtual_bytes);
        page.single("threads", "gauge", "Threads of the process.", &stat.threads);
        let age = since_boot() - seconds(stat.start);
        let start = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64() - age;
        let help = "Start of the process, in seconds since 1970.";
        page.single("start_time_seconds", "gauge", help, &start);
    }
    if let Some(count) = open_files() {
        page.single("open_fds", "gauge", "Open file descriptors.", &count);
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        page.single("max_fds", "gauge", "File descriptors that the process may open.", &most);
    }
    page
}

/// Returns the number of open file descriptors. Since Linux 6.2 the size of the folder `/proc/self/fd` is this number.
#[cfg(target_os = "linux")]
fn open_files() -> Option<u64> {
    let folder = Path::new("/proc/self/fd");
    let size = std::fs::metadata(folder).ok()?.len();
    if size > 0 { Some(size) } else { u64::try_from(std::fs::read_dir(folder).ok()?.count()).ok() }
}

/// Returns the time since the system started, in seconds. Uses the system's clock, because a sandbox may hide the files
/// in `/proc` about the whole system.
#[cfg(target_os = "linux")]
fn since_boot() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

#[cfg(not(target_os = "linux"))]
fn process() -> Page {
    Page::new("process_")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::Stat;

    #[test]
    fn the_name_of_the_program_does_not_move_the_fields() {
        let read = |name: &str| {
            let stat = format!(
                "9 ({name}) S 1 9 9 0 -1 4194304 1 2 3 4 50 7 5 6 20 0 12 0 345 1000 25 18446744073709551615"
            );
            Stat::read(&stat)
                .map(|stat| [stat.used, stat.threads, stat.start, stat.virtual_bytes, stat.resident_pages])
        };
        assert_eq!(read("tourbillond"), Some([57, 12, 345, 1000, 25]));
        assert_eq!(read("a b) (c"), read("tourbillond"));
        assert!(Stat::read("9 (tourbillond) S 1 9").is_none());
    }
}
