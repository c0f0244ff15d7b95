//! Requests to the operating system: open files, processor time, and events.

use mio::{Events, Poll};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Waits for events, at most for `timeout`. A signal ends the wait without an event.
pub(crate) fn poll(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        result => result,
    }
}

/// Allows as many open files as this process may allow itself, and returns their number.
#[cfg(target_os = "linux")]
pub(crate) fn raise_file_limit() -> io::Result<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX))
}

/// The time, user and system, that this process has spent on processors.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// On other systems the user has to raise the limit.
#[cfg(not(target_os = "linux"))]
pub(crate) fn raise_file_limit() -> io::Result<usize> {
    Ok(usize::MAX)
}

/// On other systems the time is not measured.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_time() -> Duration {
    Duration::ZERO
}
