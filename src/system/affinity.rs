//! Pins threads to cores, and makes the ends of sleeps precise.

/// Returns the core on which the calling thread runs, if the system reports it.
pub(crate) fn current_core() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(target_os = "linux"))]
    None
}

/// The outcome of pinning a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Pin {
    Pinned,
    Refused,
    /// The thread was not pinned, because the system has no call for that.
    #[cfg(not(target_os = "linux"))]
    Impossible,
}

/// The set of cores on which a thread may run. A thread that was pinned gets this set back afterwards.
#[derive(Debug)]
pub(crate) struct AllowedCores(#[cfg(target_os = "linux")] Option<rustix::thread::CpuSet>);

impl AllowedCores {
    pub(crate) fn of_current_thread() -> Self {
        Self(
            #[cfg(target_os = "linux")]
            rustix::thread::sched_getaffinity(None).ok(),
        )
    }

    pub(crate) fn restore(&self) {
        #[cfg(target_os = "linux")]
        if let Some(cores) = &self.0 {
            // If the call is refused, the thread stays pinned: slower, but still correct.
            let _refused = rustix::thread::sched_setaffinity(None, cores);
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn pin_current_thread(core: usize) -> Pin {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if core >= CpuSet::MAX_CPU {
        return Pin::Refused;
    }
    let mut set = CpuSet::new();
    set.set(core);
    if sched_setaffinity(None, &set).is_ok() { Pin::Pinned } else { Pin::Refused }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin_current_thread(_core: usize) -> Pin {
    Pin::Impossible
}

/// Returns the number of threads that can run at once: the number of cores that this process may use. If the
/// container's share of processor time is smaller, the number is lower. The standard library reads the share from
/// control groups of both versions, which `tests/quota.rs` checks.
pub(crate) fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(crate) fn allowed_cores() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    }
    (0..parallelism()).collect()
}

/// Asks the kernel not to delay the calling thread's wake-ups. By default the kernel delays them by up to 50 µs, to
/// batch them.
pub(crate) fn tighten_timer_slack() {
    #[cfg(target_os = "linux")]
    {
        // If the call is refused, some precision is lost and nothing else.
        let _refused = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
    }
}
