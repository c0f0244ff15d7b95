//! Alarms for which one thread waits. They are set for a time ahead, and set again or cleared before they ring, if all
//! goes well.
//!
//! On Linux each alarm is a `timerfd`: to set or clear it is a system call, and wakes no thread. Elsewhere, and if the
//! system has no descriptors left, the waiting thread sleeps until the first of the moments. If that alarm was set
//! again or cleared by then, the thread sleeps on.
//!
//! One thread at a time sets and clears an alarm. An alarm that rings while it is set again or cleared may be reported
//! all the same.

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    #[cfg(target_os = "linux")]
    use super::timers::Timers;
    use crate::base::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use core::time::Duration;
    use std::time::Instant;

    /// Alarms for which one thread waits. An alarm's number is its index.
    #[derive(Debug)]
    pub(crate) struct Alarms {
        /// `None` if the system has no descriptors left.
        #[cfg(target_os = "linux")]
        timers: Option<Timers>,
        moments: Mutex<Moments>,
        changed: Condvar,
        origin: Instant,
    }

    #[derive(Debug)]
    struct Moments {
        at: Box<[Option<Instant>]>,
        /// The moment at which the waiting thread wakes by itself. `None` if it sleeps until it is woken.
        wakes_at: Option<Instant>,
        is_closed: bool,
    }

    impl Alarms {
        pub(crate) fn new(count: usize) -> Self {
            Self {
                #[cfg(target_os = "linux")]
                timers: Timers::new(count),
                moments: Mutex::new(Moments {
                    at: vec![None; count].into(),
                    wakes_at: None,
                    is_closed: false,
                }),
                changed: Condvar::new(),
                origin: Instant::now(),
            }
        }

        /// Returns the present, in nanoseconds after the alarms were made.
        pub(crate) fn now(&self) -> u64 {
            u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
        }

        /// Makes alarm `n` ring after `time`, and not at the moment for which it was set before.
        pub(crate) fn set(&self, n: usize, time: Duration) {
            #[cfg(target_os = "linux")]
            if let Some(timers) = &self.timers {
                return timers.set(n, time);
            }
            let mut moments = self.lock();
            let now = Instant::now();
            let at = now.checked_add(time).unwrap_or(now);
            moments.at[n] = Some(at);
            if moments.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
                self.changed.notify_one();
            }
        }

        pub(crate) fn clear(&self, n: usize) {
            #[cfg(target_os = "linux")]
            if let Some(timers) = &self.timers {
                return timers.clear(n);
            }
            self.lock().at[n] = None;
        }

        /// Ends each present and later wait.
        pub(crate) fn close(&self) {
            #[cfg(target_os = "linux")]
            if let Some(timers) = &self.timers {
                timers.close();
            }
            self.lock().is_closed = true;
            self.changed.notify_all();
        }

        /// Waits until an alarm rings, and puts the numbers of the alarms that have rung into `rung`. Returns false
        /// once the alarms are closed.
        pub(crate) fn wait(&self, rung: &mut Vec<usize>) -> bool {
            #[cfg(target_os = "linux")]
            if let Some(timers) = &self.timers {
                timers.wait(rung);
                return !self.lock().is_closed;
            }
            let mut moments = self.lock();
            while !moments.is_closed {
                let now = Instant::now();
                for (n, at) in moments.at.iter_mut().enumerate() {
                    if at.take_if(|at| *at <= now).is_some() {
                        rung.push(n);
                    }
                }
                if !rung.is_empty() {
                    return true;
                }
                moments.wakes_at = moments.at.iter().flatten().min().copied();
                moments = match moments.wakes_at {
                    Some(at) => {
                        let time = at.saturating_duration_since(now);
                        self.changed.wait_timeout(moments, time).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.changed.wait(moments).unwrap_or_else(PoisonError::into_inner),
                };
            }
            false
        }

        fn lock(&self) -> MutexGuard<'_, Moments> {
            self.moments.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Makes alarms that do without the descriptors of the system.
        #[cfg(test)]
        pub(crate) fn without_descriptors(count: usize) -> Self {
            Self {
                #[cfg(target_os = "linux")]
                timers: None,
                ..Self::new(count)
            }
        }
    }
}

/// Alarms that are `timerfd` descriptors of the system.
#[cfg(all(target_os = "linux", not(all(test, tourbillon_loom))))]
mod timers {
    use crate::base::sync::sleep;
    use core::time::Duration;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::io;
    use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
    use std::os::fd::FromRawFd as _;

    /// A `timerfd` for each alarm, and one more that rings for ever once the alarms are closed.
    #[derive(Debug)]
    pub(super) struct Timers {
        alarms: Box<[OwnedFd]>,
        closing: OwnedFd,
    }

    /// The pause after a wait that the system has refused, or that has ended without an alarm.
    const PAUSE: Duration = Duration::from_millis(1);

    impl Timers {
        pub(super) fn new(count: usize) -> Option<Self> {
            Some(Self { alarms: (0..count).map(|_| make()).collect::<Option<_>>()?, closing: make()? })
        }

        pub(super) fn set(&self, n: usize, time: Duration) {
            set(&self.alarms[n], time);
        }

        pub(super) fn clear(&self, n: usize) {
            set(&self.alarms[n], Duration::ZERO);
        }

        pub(super) fn close(&self) {
            set(&self.closing, Duration::from_nanos(1));
        }

        /// Waits until an alarm rings, or the alarms are closed.
        pub(super) fn wait(&self, rung: &mut Vec<usize>) {
            let fds = self.alarms.iter().chain([&self.closing]);
            let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(io::Errno::INTR) => return,
                // The system is out of memory, or the process may not poll so many descriptors.
                Err(_) => sleep(PAUSE),
            }
            rung.extend((0..self.alarms.len()).filter(|&n| has_rung(&self.alarms[n])));
            let is_closed = fds.last().is_some_and(|closing| closing.revents().contains(PollFlags::IN));
            if rung.is_empty() && !is_closed {
                // The alarm was cleared just now, or the program has closed descriptors that are not its own. Then each
                // poll returns at once.
                sleep(PAUSE);
            }
        }
    }

    /// Makes a timer that is not set. Returns `None` if the system has no descriptors left.
    fn make() -> Option<OwnedFd> {
        // The C library's function: valgrind reports a branch on rustix's result as a branch on undefined bits. SAFETY:
        // the call reads no memory of ours.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        // SAFETY: a number that is not negative is a new descriptor, which nobody else has.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Makes the timer expire once after `time`, or never if `time` is zero. An expiry that nobody has read is
    /// forgotten.
    fn set(fd: impl AsFd, time: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // The call fails only for a descriptor or a time that is not valid.
        let _set = timerfd_settime(fd, TimerfdTimerFlags::empty(), &spec);
    }

    /// Returns whether the timer has expired, and forgets the expiry.
    fn has_rung(fd: impl AsFd) -> bool {
        io::read(fd, &mut [0_u8; 8]).is_ok()
    }
}

#[cfg(all(test, tourbillon_loom))]
mod imp {
    use crate::base::sync::{ModelledCondvar, ModelledMutex};
    use core::time::Duration;

    /// The alarms of a model, which has no time. An alarm that is set may ring at once.
    #[derive(Debug)]
    pub(crate) struct Alarms {
        state: ModelledMutex<State>,
        changed: ModelledCondvar,
    }

    #[derive(Debug)]
    struct State {
        is_set: Box<[bool]>,
        is_closed: bool,
    }

    impl State {
        fn take_set(&mut self, rung: &mut Vec<usize>) {
            let set = self.is_set.iter_mut().enumerate();
            rung.extend(set.filter_map(|(n, is_set)| core::mem::take(is_set).then_some(n)));
        }
    }

    impl Alarms {
        pub(crate) fn new(count: usize) -> Self {
            let state = State { is_set: vec![false; count].into(), is_closed: false };
            Self { state: ModelledMutex::new(state), changed: ModelledCondvar::new() }
        }

        /// Returns 0: a model has no time.
        pub(crate) fn now(&self) -> u64 {
            0
        }

        pub(crate) fn set(&self, n: usize, _: Duration) {
            self.state.lock().unwrap().is_set[n] = true;
            self.changed.notify_one();
        }

        pub(crate) fn clear(&self, n: usize) {
            self.state.lock().unwrap().is_set[n] = false;
        }

        pub(crate) fn close(&self) {
            self.state.lock().unwrap().is_closed = true;
            self.changed.notify_one();
        }

        pub(crate) fn wait(&self, rung: &mut Vec<usize>) -> bool {
            let mut state = self.state.lock().unwrap();
            loop {
                if state.is_closed {
                    return false;
                }
                state.take_set(rung);
                if !rung.is_empty() {
                    return true;
                }
                state = self.changed.wait(state).unwrap();
            }
        }

        /// Makes the alarms that are set ring.
        pub(crate) fn take_set(&self, rung: &mut Vec<usize>) {
            self.state.lock().unwrap().take_set(rung);
        }
    }
}

pub(crate) use imp::Alarms;

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::{sleep, thread};
    use core::time::Duration;
    use std::time::Instant;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn wait(alarms: &Alarms) -> Vec<usize> {
        let mut rung = Vec::new();
        while rung.is_empty() {
            assert!(alarms.wait(&mut rung));
        }
        rung
    }

    fn each(test: impl Fn(Alarms)) {
        test(Alarms::new(3));
        test(Alarms::without_descriptors(3));
    }

    #[test]
    fn an_alarm_rings_once_at_the_moment_for_which_it_was_set_last() {
        each(|alarms| {
            let begin = Instant::now();
            alarms.set(0, HOUR);
            alarms.set(1, MS);
            alarms.set(1, 20 * MS);
            alarms.set(2, MS);
            alarms.clear(2);
            assert_eq!(wait(&alarms), [1]);
            assert!(begin.elapsed() >= 20 * MS);
            alarms.set(2, MS);
            assert_eq!(wait(&alarms), [2], "the first does not ring again");
        });
    }

    #[test]
    fn an_earlier_alarm_and_the_closing_end_a_wait() {
        each(|alarms| {
            alarms.set(0, HOUR);
            thread::scope(|threads| {
                let waiting = threads.spawn(|| wait(&alarms));
                sleep(5 * MS);
                alarms.set(1, MS);
                assert_eq!(waiting.join().unwrap(), [1]);
                let waiting = threads.spawn(|| {
                    let mut rung = Vec::new();
                    while alarms.wait(&mut rung) {}
                    rung
                });
                sleep(5 * MS);
                alarms.close();
                assert!(waiting.join().unwrap().is_empty());
            });
            assert!(!alarms.wait(&mut Vec::new()), "it is closed for good");
        });
    }
}
