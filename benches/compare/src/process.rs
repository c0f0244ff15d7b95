//! Figures of this process from the operating system.

use std::fs;
use std::time::Duration;

/// Returns the process's present resident memory, in bytes.
pub(crate) fn resident() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Returns the process's largest resident memory so far, in bytes.
pub(crate) fn peak_resident() -> Option<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(key: &str) -> Option<u64> {
    Some(field(&fs::read_to_string("/proc/self/status").ok()?, key)? * 1_024)
}

fn field(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the number of times that all threads except the main thread have gone to sleep.
pub(crate) fn sleeps_of_other_threads() -> Option<u64> {
    let main = std::process::id().to_string();
    sleeps(|thread| thread != main)
}

/// Returns the number of times that the process's present threads have gone to sleep.
pub(crate) fn sleeps_of_all_threads() -> Option<u64> {
    sleeps(|_| true)
}

fn sleeps(is_counted: impl Fn(&str) -> bool) -> Option<u64> {
    let mut sleeps = 0;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let thread = thread.ok()?;
        if thread.file_name().to_str().is_some_and(&is_counted) {
            // A thread may have ended since the folder was listed.
            let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
            sleeps += field(&status, "voluntary_ctxt_switches:")?;
        }
    }
    Some(sleeps)
}

/// Returns the total time for which the calling thread could run but had no core, by the scheduler's account. Linux
/// keeps the account if it was built with `CONFIG_SCHED_INFO`.
pub(crate) fn waited_for_a_core() -> Option<Duration> {
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    account.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Returns the processor time of this process, in user and system mode.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
}

/// Returns `None`, because this system has no measurement of processor time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_time() -> Option<Duration> {
    None
}
