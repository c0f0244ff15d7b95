//! Which core a thread runs on, and how exactly its sleeps end.

/// The core that the calling thread runs on, where the system tells.
pub(crate) fn current_core() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(target_os = "linux"))]
    None
}

/// Pins the calling thread to `core`. False when the system refused, or has no such call here.
pub(crate) fn pin_current_thread(core: usize) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_setaffinity};
        if core >= CpuSet::MAX_CPU {
            return false;
        }
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = core;
        false
    }
}

/// The cores that this process may use.
pub(crate) fn allowed_cores() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..cores).collect()
}

/// Asks the kernel not to delay this thread's wake-ups in order to batch them (its default is 50 µs).
pub(crate) fn tighten_timer_slack() {
    #[cfg(target_os = "linux")]
    {
        // A refusal costs some precision and nothing else.
        let _refused = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
    }
}
