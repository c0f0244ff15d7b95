//! Threads that start together. They stop when the first of them is done, or when the time is over. So all of them work
//! during the whole measurement.

use crate::contestants::Contestant;
use std::future::poll_fn;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

pub(super) struct Start {
    missing: Mutex<usize>,
    complete: Condvar,
    /// The number of threads that have not been woken yet.
    asleep: AtomicUsize,
    start: OnceLock<Instant>,
    is_over: AtomicBool,
}

/// The limits of a thread's run: a time and a number of operations. The thread stops at the first limit that it
/// reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) operations: usize,
    pub(super) time: Duration,
}

impl Limit {
    pub(super) fn operations(operations: usize) -> Self {
        Self { operations, time: Duration::MAX }
    }

    pub(super) fn time(time: Duration) -> Self {
        Self { operations: usize::MAX, time }
    }
}

/// The number of operations of a single thread, and the time that they took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    pub(super) time: Duration,
    pub(super) operations: usize,
}

/// The number of operations between two checks whether another thread has finished. The number is a multiple of an
/// event loop's iteration.
const BURST: usize = 256;

impl Start {
    /// The time for which a thread waits for the other threads before it lets its runtime run another task.
    const MEETING: Duration = Duration::from_millis(10);
    /// The time after which a thread that has not started counts as failed.
    const LONGEST: Duration = Duration::from_secs(30);

    pub(super) fn new(threads: usize) -> Self {
        Self {
            missing: Mutex::new(threads),
            complete: Condvar::new(),
            asleep: AtomicUsize::new(threads),
            start: OnceLock::new(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Waits for the other threads, and then runs operations in bursts, up to the limit. Runs at least one burst.
    pub(super) async fn lap<C: Contestant>(&self, limit: Limit, mut burst: impl FnMut(Range<usize>)) -> Lap {
        let start = self.wait().await;
        let mut done = 0;
        loop {
            let next = limit.operations.min(done + BURST);
            burst(done..next);
            done = next;
            let time = start.elapsed();
            if done == limit.operations || time >= limit.time || self.is_over.load(Ordering::Relaxed) {
                self.is_over.store(true, Ordering::Relaxed);
                return Lap { time, operations: done };
            }
            if C::YIELDS {
                yield_once().await;
            }
        }
    }

    /// Waits until all threads are ready to start. Returns the moment from which all threads count their time. If
    /// threads share a core, the time includes their wait for the core.
    async fn wait(&self) -> Instant {
        let begun = Instant::now();
        while !self.meet() {
            assert!(begun.elapsed() < Self::LONGEST, "not all threads have come");
            yield_once().await;
        }
        // A wake-up takes as long as thousands of operations, so the start is delayed until all threads are awake.
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        while self.asleep.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        *self.start.get_or_init(Instant::now)
    }

    /// Blocks the thread until all jobs have come, or for a time. Returns whether all jobs have come. Two jobs in the
    /// queue of one runtime worker never meet, so each job needs its own thread.
    fn meet(&self) -> bool {
        const HELD: &str = "nobody panics with the lock held";
        let mut missing = self.missing.lock().expect(HELD);
        *missing -= 1;
        if *missing == 0 {
            self.complete.notify_all();
        }
        let waited = self.complete.wait_timeout_while(missing, Self::MEETING, |missing| *missing > 0);
        let (mut missing, _) = waited.expect(HELD);
        let is_complete = *missing == 0;
        if !is_complete {
            *missing += 1;
        }
        is_complete
    }
}

/// Lets the runtime run other tasks. The runtime may move this task to another worker.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns the sum of all threads' times, divided by the number of all operations. A thread's time includes its waits.
pub(super) fn nanos_each(laps: &[Lap]) -> f64 {
    let time: Duration = laps.iter().map(|lap| lap.time).sum();
    let operations: usize = laps.iter().map(|lap| lap.operations).sum();
    time.as_secs_f64() * 1e9 / operations as f64
}
