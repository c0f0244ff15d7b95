//! Requests to the operating system: open files, processor time, and events.

use mio::{Events, Poll};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Waits for events, at most for `timeout`. A signal also ends the wait.
pub(crate) fn poll(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        result => result,
    }
}

/// Raises this process's limit of open files as far as the system allows. Returns the limit.
#[cfg(target_os = "linux")]
pub(crate) fn raise_file_limit() -> io::Result<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX))
}

/// Returns the processor time of this process, in user and system mode.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Returns the limit of open files without raising it. On other systems the user must raise it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn raise_file_limit() -> io::Result<usize> {
    Ok(usize::MAX)
}

/// Returns zero, because the processor time is not measured on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_time() -> Duration {
    Duration::ZERO
}
