//! Figures of processes from `/proc`.

use std::fs;
use std::path::Path;

/// The number of clock ticks a second in the files of `/proc`.
const TICKS: f64 = 100.0;

/// Returns this process's present resident memory, in bytes.
pub(crate) fn ram() -> f64 {
    kilobytes("/proc/self/smaps_rollup", "Pss:")
}

/// Returns the present resident memory of the process `pid`, in bytes.
pub(crate) fn ram_of(pid: u32) -> f64 {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the largest resident memory of this process so far, in bytes.
pub(crate) fn peak() -> f64 {
    kilobytes("/proc/self/status", "VmHWM:")
}

/// Returns the largest resident memory of the process `pid` so far, in bytes.
pub(crate) fn peak_of(pid: u32) -> f64 {
    kilobytes(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> f64 {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

fn kilobytes(path: &str, key: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    field(&text, key).unwrap_or(f64::NAN) * 1_024.0
}

fn field(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the processor time of a process in seconds, exact to 10 ms.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Returns the process `pid` and its children. A session of PostgreSQL is a child of the server's first process.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |child: &u32| {
        let text = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        fields.split_ascii_whitespace().nth(1).and_then(|parent| parent.parse().ok()) == Some(pid)
    };
    pids.filter(is_child).chain([pid]).collect()
}

/// Returns the processor time of a process and of its children, those that have ended included.
pub(crate) fn family_cpu_seconds(pid: u32) -> f64 {
    let ended = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
        fields.skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS
    };
    ended(&pid) + family(pid).into_iter().map(cpu_seconds).sum::<f64>()
}

/// Returns how often threads of the process `pid` got a processor again after they had given it up.
pub(crate) fn wakes(pid: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let statuses =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    statuses.filter_map(|status| field(&status, "voluntary_ctxt_switches:")).sum()
}

/// Returns the bytes that a folder occupies on the disk, as `du` counts them.
pub(crate) fn disk(folder: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt;

    let Ok(entries) = fs::read_dir(folder) else { return f64::NAN };
    let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 bytes")]
    sizes.map(|meta| (meta.blocks() * 512) as f64).sum()
}
