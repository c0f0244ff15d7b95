//! The contestants. There is a file for each way to have timers, and here are the traits through which the workloads
//! use them.

mod async_io_timeout;
mod async_io_timer;
mod by_id;
mod clock;
mod delay_queue;
mod futures_delay;
mod futures_one_shot;
mod futures_timeout;
mod handlers;
mod hash_wheel_timer;
mod kestrel_timer;
mod locked_own_now;
mod ours_timeout;
mod ours_timer;
mod pingora;
mod services;
mod smol_tasks;
mod tasks;
mod tokio_alternative;
mod tokio_one_shots;
mod tokio_runtime;
mod tokio_sleep;
mod tokio_timeout;

pub(crate) use async_io_timeout::AsyncIoTimeout;
pub(crate) use async_io_timer::AsyncIo;
pub(crate) use by_id::ById;
pub(crate) use clock::{Clock, PER_ITERATION, Reads, Stopwatch};
pub(crate) use delay_queue::DelayQueues;
pub(crate) use futures_delay::FuturesDelay;
pub(crate) use futures_one_shot::FuturesOneShot;
pub(crate) use futures_timeout::FuturesTimeout;
pub(crate) use hash_wheel_timer::HashWheelTimer;
pub(crate) use kestrel_timer::KestrelTimer;
pub(crate) use locked_own_now::LockedOwnNow;
pub(crate) use ours_timeout::OursTimeout;
pub(crate) use ours_timer::{OursTimer, OursTimerEach};
pub(crate) use pingora::{Pingora, PingoraSleeps};
pub(crate) use services::{
    AcrossBoundary, CoarseInline, CoarserInline, DefaultSlice, Fine, FineInline, Inline, Of, OwnWorkers,
    Sharded, ThroughHandleOnInstant, Unpinned, UnpinnedInline,
};
pub(crate) use smol_tasks::{AsyncIoSleep, FuturesSleep, SmolTasks};
pub(crate) use tasks::{Tasks, TokioSleeps};
pub(crate) use tokio_alternative::{Alternative, AlternativeSleeps};
pub(crate) use tokio_one_shots::TokioOneShots;
pub(crate) use tokio_sleep::{TokioFar, TokioSleep};
pub(crate) use tokio_timeout::TokioTimeout;

use crate::common::{Payload, payload};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// A way to have timers, including the threads that it needs.
pub(crate) trait Contestant: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    const READS: Reads;
    /// Whether the other contestants are compared with this contestant.
    const IS_OURS: bool = false;
    /// The reason why this contestant takes no turn, if there is a reason.
    const WHY_NOT: Option<&'static str> = None;
    /// Whether jobs yield between two bursts of operations. Without that the contestant would fall behind.
    const YIELDS: bool = false;

    /// Starts a contestant for calls from `threads` threads. A contestant that calls a handler calls `on_fire` for each
    /// timer that fires.
    fn start(threads: usize, on_fire: impl OnFire) -> Self;

    /// Runs all jobs at the same time, each on its own thread.
    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        let threads: Vec<_> = jobs.into_iter().map(|job| thread::spawn(|| wait_for(job))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a job's own checks hold")).collect()
    }

    /// Waits, so that the contestant can bring timers to their places.
    fn settle(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// The handler of each timer that fires.
pub(crate) trait OnFire: Fn(Payload) + Send + Sync + 'static {}

impl<F: Fn(Payload) + Send + Sync + 'static> OnFire for F {}

/// A contestant whose timers are scheduled anew each time, and mostly cancelled.
pub(crate) trait OneShots: Contestant {
    type Caller: Caller;

    /// Makes a [`Caller`] for the present job.
    fn caller(&self) -> Self::Caller;

    /// Returns the number of pending timers, if the contestant counts them.
    fn pending(&self) -> Option<usize> {
        None
    }
}

/// The calls of one job to a [`OneShots`].
pub(crate) trait Caller: Send + 'static {
    /// The value by which a timer is cancelled.
    type Id: Send + 'static;
    /// Whether the contestant knows the winner if a firing and a cancel race.
    const KNOWS_WHO_WON: bool = true;

    /// Makes timers for the payloads with numbers below `count`, if the contestant keeps timers.
    fn prepare(&mut self, _count: usize) {}

    /// Arms a timer for `delay` from now, and reads the clock for that.
    fn schedule(&mut self, delay: Duration, payload: Payload) -> Self::Id;

    /// Cancels a timer. Returns whether it was pending.
    fn cancel(&mut self, id: Self::Id) -> bool;

    /// Gives a timer another deadline. If the timer has fired, schedules a new timer.
    #[inline]
    fn reschedule(&mut self, id: Self::Id, delay: Duration, payload: Payload) -> Self::Id {
        self.cancel(id);
        self.schedule(delay, payload)
    }

    /// Schedules a timer and cancels it. Does so in a cheaper way than with two calls, if there is a cheaper way.
    #[inline]
    fn schedule_and_cancel(&mut self, delay: Duration, payload: Payload) -> bool {
        let id = self.schedule(delay, payload);
        self.cancel(id)
    }

    /// Fires due timers, if the contestant fires on the caller's own thread. This call does not wait.
    #[inline]
    fn turn(&mut self) {}

    /// Lets time pass. A contestant that fires on the caller's own thread fires during this call.
    fn pass(&mut self, time: Duration) -> impl Future<Output = ()> + Send {
        async move { thread::sleep(time) }
    }
}

/// A contestant whose timers stay and are armed repeatedly.
pub(crate) trait Owned: Contestant {
    type Connections: Connections;

    /// Whether no timer is pending any more after [`Connections::disarm`].
    const DISARMS: bool;

    /// Makes connections for the calling job. Their timers are not armed, or their deadlines are far ahead.
    fn connect(&self, count: usize) -> Self::Connections;

    /// Fires due timers. Then returns how many timers of `all` connections are pending. May be called from outside a
    /// job.
    fn pending(&self, all: &mut [Self::Connections]) -> usize;
}

/// The connections of a thread, each with a timer.
pub(crate) trait Connections: Send + 'static {
    /// The size of the handle by which a connection refers to its timer.
    const BYTES_OF_HANDLE: usize;

    /// Begins an iteration of the event loop.
    #[inline]
    fn begin_iteration(&mut self) {}

    /// Gives connection `at` a deadline, `delay` from now. The connection may already have a deadline.
    fn arm(&mut self, at: u32, delay: Duration);

    /// Disarms the timer of a connection, if the contestant can do that.
    fn disarm(&mut self, at: u32);
}

/// A contestant that limits the time of a future.
pub(crate) trait Timeouts: Contestant {
    type Elapsed: fmt::Debug + Send + 'static;
    /// The time by which a timeout may be early by design.
    const EARLY: Duration = Duration::ZERO;

    /// Returns the output of `future`, unless `delay` passes first.
    fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Self::Elapsed>> + Send;
}

/// Counts the handler calls of a contestant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fires(Arc<AtomicU64>);

impl Fires {
    pub(crate) fn handler(&self) -> impl OnFire + use<> {
        let count = Arc::clone(&self.0);
        move |fired| {
            assert_eq!(fired, payload(fired[0]));
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Polls a future until it is ready. This is for futures that the contestant does not drive itself.
fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::sleep(Duration::from_micros(100));
    }
}
