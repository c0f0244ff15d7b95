//! Offers the system's time of day as a clock, for stores that outlive their processes.

use crate::panics::survive;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};
use tourbillon::{Clock, ClockReport, OnStep, Timestamp};

/// The system's time of day. Its timestamps count from the start of 1970, in Coordinated Universal Time. So the moments
/// in a store stay valid for another process, and after a restart of the machine.
///
/// The time of day steps when it is set to another time. It advances while the machine is suspended. After each step,
/// the clock calls its [`subscribe`](Clock::subscribe)d functions. A thread of the process notices the steps. On Linux
/// this thread sleeps until the kernel announces a step. On other systems it compares the time of day with a monotonic
/// clock once a second. The thread starts with the first subscription.
///
/// The clock is for stores. It is not suitable for the engine of the `tourbillon` crate: after a step back, no timer of
/// the engine would fire until the time of day has caught up.
///
/// ```
/// use tourbillon::Clock as _;
/// use tourbillon_durable::{UtcMillis, WallClock};
///
/// let now = UtcMillis::from_nanos(WallClock::new().now().as_nanos());
/// assert!(now > UtcMillis::from_millis(1_700_000_000_000), "after 2023");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock(());

impl WallClock {
    /// Makes a clock that shows the system's time of day.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        // A time before 1970 counts as the start of 1970, when nothing is due.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::ZERO + since
    }

    fn report(&self) -> ClockReport {
        ClockReport::exact("wall")
    }

    fn subscribe(&self, on_step: OnStep) {
        static WATCHED: Once = Once::new();
        subscribers().push(on_step);
        WATCHED.call_once(|| {
            // If this thread does not start, a runtime notices a step only at its next alarm.
            let _thread = thread::Builder::new().name("tb-wall-clock".to_owned()).spawn(watch);
        });
    }
}

static SUBSCRIBERS: Mutex<Vec<OnStep>> = Mutex::new(Vec::new());

fn subscribers() -> MutexGuard<'static, Vec<OnStep>> {
    SUBSCRIBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls the subscribed functions. A function that returns false is not called again. Does not hold the lock of the
/// subscribers during the calls, because a function may subscribe another function. A function that panics stays
/// subscribed. Its panic must neither end the thread that notices the steps, nor lose the other functions.
fn call_subscribers() {
    let mut called = core::mem::take(&mut *subscribers());
    called.retain(|on_step| survive(on_step).unwrap_or(true));
    // A called function may have subscribed another function, so the list may have entries again.
    subscribers().append(&mut called);
}

/// Calls the subscribed functions each time the time of day steps, which means that it is set to another time. Runs
/// until the process ends.
fn watch() {
    // If the kernel announces no steps, the loop below finds them by comparisons, as on other systems.
    #[cfg(target_os = "linux")]
    let _failed = kernel::each_step(call_subscribers);
    let mut before = distance();
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = distance();
        if now.abs_diff(before) > NOTICED {
            call_subscribers();
        }
        before = now;
    }
}

/// The greatest change of the [`distance`] (the time of day minus the monotonic clock) within a second that does not
/// count as a step, in nanoseconds. A greater change means that the time of day was set to another time. Gradual
/// corrections of the time of day change the distance by less.
const NOTICED: u128 = 2_000_000;

/// Returns the time of day minus the monotonic clock, in nanoseconds. Only the difference between two results of this
/// function has a meaning.
fn distance() -> i128 {
    // An interruption of the thread between the two readings looks like a step. Such a false step does no harm, because
    // it only wakes the subscribers once more.
    let (instant, wall) = (Timestamp::from(Instant::now()), WallClock::new().now());
    i128::from(wall.as_nanos()) - i128::from(instant.as_nanos())
}

#[cfg(target_os = "linux")]
mod kernel {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::fs::File;
    use std::io::{self, Read};

    /// Calls `on_step` each time the system's time of day is set to another time. Returns an error if the kernel does
    /// not announce such a step. Otherwise does not return.
    pub(super) fn each_step(on_step: impl Fn()) -> io::Result<()> {
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC)?;
        // The timer is set to a moment that never comes. A step of the clock cancels the wait for this moment, and so
        // ends the read below.
        let never = Timespec { tv_sec: i64::MAX >> 30, tv_nsec: 0 };
        let never = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &never)?;
        let mut timer = File::from(timer);
        loop {
            match timer.read(&mut [0; 8]) {
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error()) => {
                    // The timer stays armed after the cancelled read, so the next read waits for the next step.
                    on_step();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    #[test]
    fn it_counts_from_the_start_of_1970() {
        let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let (before, now, after) = (since(), WallClock::new().now() - Timestamp::ZERO, since());
        // The time of day may be set during the test. The second condition permits this, but not by a year.
        assert!(before <= now && now <= after || now.abs_diff(before) < Duration::from_secs(31_536_000));
        assert!(now > Duration::from_secs(1_600_000_000), "{now:?}");
    }

    /// Locked by each test that calls the subscribers, since all tests share the subscribers.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_subscriber_that_panics_is_called_again_and_takes_no_other_with_it() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, called) = mpsc::channel();
        for name in ["first", "panics", "last"] {
            let (sender, calls) = (sender.clone(), AtomicU32::new(0));
            WallClock::new().subscribe(Box::new(move || {
                sender.send(name).unwrap();
                let is_first = calls.fetch_add(1, Ordering::Relaxed) == 0;
                assert!(name != "panics" || !is_first, "a subscriber's own panic");
                is_first
            }));
        }
        call_subscribers();
        call_subscribers();
        call_subscribers();
        assert_eq!(
            called.try_iter().collect::<Vec<_>>(),
            ["first", "panics", "last", "first", "panics", "last"]
        );
    }

    #[test]
    fn a_subscriber_is_called_for_each_step_until_it_has_had_enough() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, called) = mpsc::channel();
        WallClock::new().subscribe(Box::new(move || {
            // A subscribed function may itself subscribe further functions.
            WallClock::new().subscribe(Box::new(|| false));
            sender.send(()).unwrap();
            false
        }));
        call_subscribers();
        call_subscribers();
        assert_eq!(called.try_iter().count(), 1);
    }
}
