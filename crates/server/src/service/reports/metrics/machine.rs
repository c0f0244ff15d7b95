//! Reads the system's numbers about the process and about the disk with the data folder. The calls may block if the
//! disk hangs.

use super::page::Page;
#[cfg(target_os = "linux")]
use core::time::Duration;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::time::SystemTime;

/// The names that the metrics use for the store's files. Each name has the suffix of the file.
const PARTS: [(&str, &str); 3] = [("timers", ""), ("journal", ".ops"), ("reserve", ".reserve")];

/// Writes the metrics of the process and of the disk. Leaves out the numbers that the system does not tell.
pub(super) fn page(data: &Path) -> Page {
    let mut page = Page::new("tourbillon_");
    page.family("store_bytes", "gauge", "Bytes of the store's files; all 0 with Redis.");
    for (part, end) in PARTS {
        let file = std::fs::metadata(data.join(format!("timers.redb{end}")));
        page.value("store_bytes", &[("part", part)], &file.map_or(0, |file| file.len()));
    }
    if let Some((free, all)) = disk(data) {
        let help = "Free bytes of the file system with the data folder.";
        page.single("disk_free_bytes", "gauge", help, &free);
        page.single("disk_bytes", "gauge", "All bytes of this file system.", &all);
    }
    page.add(&process());
    page
}

/// Returns the number of bytes on a folder's file system that are free for this user. Also returns the size of the file
/// system in bytes.
#[cfg(target_os = "linux")]
fn disk(folder: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

#[cfg(not(target_os = "linux"))]
fn disk(_folder: &Path) -> Option<(u64, u64)> {
    None
}

/// Writes the metrics of the process, with the names that Prometheus' client libraries use.
#[cfg(target_os = "linux")]
fn process() -> Page {
    let mut page = Page::new("process_");
    let Ok(process) = procfs::process::Process::myself() else { return page };
    if let Ok(stat) = process.stat() {
        #[expect(clippy::cast_precision_loss, reason = "2^53 ticks are millions of years")]
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let help = "Time of the processor that the process has used, in user mode and in the kernel.";
        page.single("cpu_seconds_total", "counter", help, &seconds(stat.utime.saturating_add(stat.stime)));
        let resident = stat.rss.saturating_mul(procfs::page_size());
        page.single("resident_memory_bytes", "gauge", "Memory of the process that is in RAM.", &resident);
        page.single("virtual_memory_bytes", "gauge", "Address space of the process.", &stat.vsize);
        page.single("threads", "gauge", "Threads of the process.", &stat.num_threads);
        let age = since_boot() - seconds(stat.starttime);
        let start = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64() - age;
        let help = "Start of the process, in seconds since 1970.";
        page.single("start_time_seconds", "gauge", help, &start);
    }
    if let Ok(count) = process.fd_count() {
        page.single("open_fds", "gauge", "Open file descriptors.", &count);
    }
    if let Ok(limits) = process.limits()
        && let procfs::process::LimitValue::Value(most) = limits.max_open_files.soft_limit
    {
        page.single("max_fds", "gauge", "File descriptors that the process may open.", &most);
    }
    page
}

/// Returns the time since the system started, in seconds. Asks the system's clock, because a sandbox may hide the files
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
