//! Sets how the system schedules the threads of a set of shards: the length of their time slices, and their priority.
//!
//! A thread that wakes on a busy core waits there until the running thread has used its slice, some milliseconds by
//! default. A thread that asks for a short slice has an earlier virtual deadline, and runs first (I. Stoica and H.
//! Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995). Since 6.12, Linux lets threads ask without
//! privilege. A request that the system refuses is counted and has no other effect.

use crate::base::counters::Counter;
use core::time::Duration;

/// The time slice and the priority that the threads of a set of shards request from the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// The length of a thread's time slice. `None` leaves the length to the system.
    pub(crate) slice: Option<Duration>,
    pub(crate) priority: Priority,
}

impl Scheduling {
    /// The shortest slice that Linux grants.
    pub(crate) const SHORTEST_SLICE: Duration = Duration::from_micros(100);
    /// The longest slice that Linux grants.
    pub(crate) const LONGEST_SLICE: Duration = Duration::from_millis(100);
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { slice: Some(Self::SHORTEST_SLICE), priority: Priority::Inherited }
    }
}

/// The priority at which the system runs a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The thread keeps the priority of the thread that started it.
    Inherited,
    /// A nice value, from -20 (urgent) to 19.
    Nice(i8),
    /// A real-time priority from 1 to 99 (urgent). The thread runs before all threads without a real-time priority, and
    /// takes turns with threads of the same priority.
    RealTime(u8),
}

/// Counts the threads whose requests for a slice or a priority were refused.
#[derive(Debug, Default)]
pub(crate) struct SchedulingRefusals {
    pub(crate) slices: Counter,
    pub(crate) priorities: Counter,
}

impl Scheduling {
    /// Requests this time slice and priority for the calling thread. Counts refusals in `refusals`.
    pub(crate) fn apply_here(self, refusals: &SchedulingRefusals) {
        if self.priority != Priority::Inherited && !imp::set_priority(self.priority) {
            refusals.priorities.add(1);
        }
        // Real-time threads have no slices.
        if let (Some(slice), false) = (self.slice, matches!(self.priority, Priority::RealTime(_)))
            && !imp::set_slice(slice)
        {
            refusals.slices.add(1);
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use crate::system::scheduling::Priority;
    use core::time::Duration;

    /// The kernel's `struct sched_attr` in its first version (sched_setattr(2)).
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }

    const SIZE: u32 = 48;
    const _: () = assert!(size_of::<Attributes>() == SIZE as usize);
    const CALLING_THREAD: libc::c_long = 0;
    /// The flag of `sched_setattr` that limits the setting to the calling thread. Threads that a handler starts are
    /// then scheduled as usual.
    const RESET_ON_FORK: u64 = 1;

    fn of_this_thread() -> Option<Attributes> {
        let mut attributes = Attributes::default();
        let (out, no_flags) = (&raw mut attributes, 0 as libc::c_long);
        // SAFETY: the kernel writes at most `SIZE` bytes to `out`, which has as many.
        let outcome = unsafe {
            libc::syscall(libc::SYS_sched_getattr, CALLING_THREAD, out, libc::c_long::from(SIZE), no_flags)
        };
        (outcome == 0).then_some(attributes)
    }

    fn set(attributes: Attributes) -> bool {
        let attributes = Attributes { size: SIZE, flags: attributes.flags | RESET_ON_FORK, ..attributes };
        let (wanted, no_flags) = (&raw const attributes, 0 as libc::c_long);
        // SAFETY: the kernel reads as many bytes as `size` states, and writes none unless the size is wrong.
        unsafe { libc::syscall(libc::SYS_sched_setattr, CALLING_THREAD, wanted, no_flags) == 0 }
    }

    pub(super) fn set_priority(priority: Priority) -> bool {
        let Some(now) = of_this_thread() else { return false };
        let ordinary = Attributes { policy: libc::SCHED_OTHER.cast_unsigned(), priority: 0, ..now };
        set(match priority {
            Priority::Inherited => return true,
            Priority::Nice(nice) => Attributes { nice: i32::from(nice), ..ordinary },
            Priority::RealTime(priority) => Attributes {
                policy: libc::SCHED_RR.cast_unsigned(),
                priority: u32::from(priority),
                nice: 0,
                runtime: 0,
                ..now
            },
        })
    }

    /// Sets the slice of the calling thread. Returns whether the system grants the slice. Older systems accept the call
    /// and ignore the slice, so the function reads the slice back.
    pub(super) fn set_slice(slice: Duration) -> bool {
        let Some(now) = of_this_thread() else { return false };
        if now.policy != libc::SCHED_OTHER.cast_unsigned() {
            return false;
        }
        let runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
        set(Attributes { runtime, ..now }) && of_this_thread().is_some_and(|then| then.runtime == runtime)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Runs `f` on a new thread, because scheduling settings stay with a thread.
        fn on_a_thread<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
            crate::base::sync::thread::spawn(f).join().unwrap()
        }

        #[test]
        fn a_slice_is_granted_or_refused_and_the_thread_stays_as_it_was() {
            let (before, granted, after) = on_a_thread(|| {
                let before = of_this_thread().unwrap();
                (before, set_slice(Duration::from_micros(200)), of_this_thread().unwrap())
            });
            assert_eq!(
                (before.policy, before.nice, before.priority),
                (after.policy, after.nice, after.priority)
            );
            assert_eq!(granted, after.runtime == 200_000);
        }

        #[test]
        fn what_a_thread_starts_is_scheduled_as_usual() {
            let (granted, child) = on_a_thread(|| {
                let granted = set_slice(Duration::from_micros(200));
                (granted, on_a_thread(|| of_this_thread().unwrap()))
            });
            assert!(!granted || child.runtime != 200_000, "{child:?}");
        }

        #[test]
        fn a_nice_value_is_set() {
            // Any thread may become less urgent.
            let (set, after) = on_a_thread(|| (set_priority(Priority::Nice(7)), of_this_thread().unwrap()));
            assert!(set);
            assert_eq!(after.nice, 7);
        }

        #[test]
        fn a_real_time_priority_is_granted_or_refused() {
            let (granted, after) =
                on_a_thread(|| (set_priority(Priority::RealTime(1)), of_this_thread().unwrap()));
            assert_eq!(granted, after.policy == libc::SCHED_RR.cast_unsigned());
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use crate::system::scheduling::Priority;
    use core::time::Duration;

    pub(super) fn set_priority(_: Priority) -> bool {
        false
    }

    pub(super) fn set_slice(_: Duration) -> bool {
        false
    }
}
