//! This process: its figures from the operating system, and its early end.

use std::fs;
use std::time::Duration;

/// The exit status of a program that cannot do the workload.
pub(crate) const CANNOT: i32 = 3;

/// Ends the process with the exit status for a workload that the program cannot do. Prints `why`.
pub(crate) fn cannot(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(CANNOT)
}

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

/// Lets this process and its children open `count` files at a time. Returns false if the system does not permit it.
#[cfg(target_os = "linux")]
pub(crate) fn may_open(count: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    limit.current.is_none_or(|current| current >= count)
        || setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..limit }).is_ok()
}

/// Returns true, because nothing is known about the limit of this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn may_open(_: u64) -> bool {
    true
}
