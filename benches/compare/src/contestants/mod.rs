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
mod server_ours;
mod server_tokio;
mod server_unlimited;
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
pub(crate) use futures_one_shot::{Delays, FuturesOneShot, FuturesTimer, FuturesTimerDropIn};
pub(crate) use futures_timeout::FuturesTimeout;
pub(crate) use hash_wheel_timer::HashWheelTimer;
pub(crate) use kestrel_timer::KestrelTimer;
pub(crate) use locked_own_now::LockedOwnNow;
pub(crate) use ours_timeout::OursTimeout;
pub(crate) use ours_timer::{OursTimer, OursTimerEach};
pub(crate) use pingora::{Pingora, PingoraSleeps, PingoraTimeout, PingoraTimeoutDropIn};
pub(crate) use server_ours::OursServer;
pub(crate) use server_tokio::TokioServer;
pub(crate) use server_unlimited::UnlimitedServer;
pub(crate) use services::{
    AcrossBoundary, CoarseInline, CoarserInline, DefaultSlice, Fine, FineInline, Inline, Of, OwnWorkers,
    Sharded, ThroughHandleOnInstant, Unpinned, UnpinnedInline,
};
pub(crate) use smol_tasks::{AsyncIoSleep, FuturesSleep, SmolTasks};
pub(crate) use tasks::{Tasks, TasksOfThreads, TokioSleeps};
pub(crate) use tokio_alternative::{Alternative, AlternativeSleeps};
pub(crate) use tokio_one_shots::TokioOneShots;
pub(crate) use tokio_sleep::{TokioFar, TokioSleep};
pub(crate) use tokio_timeout::TokioTimeout;

use crate::common::{Payload, payload};
use axum::Router;
use axum::http::StatusCode;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};

/// A timer implementation under measurement, including its threads.
pub(crate) trait Contestant: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    const READS: Reads;
    /// Whether the contestant is ours, so that other contestants are compared with it.
    const IS_OURS: bool = false;
    /// The reason why this contestant is not measured. `None` if it is measured.
    const WHY_NOT: Option<&'static str> = None;
    /// Whether a job must yield after each burst of operations, because the contestant would otherwise fall behind.
    const YIELDS: bool = false;

    /// Starts a contestant that at most `threads` threads call. A contestant with handlers calls `on_fire` for each
    /// timer that fires.
    fn start(threads: usize, on_fire: impl OnFire) -> Self;

    /// Runs all jobs at the same time, each on its own thread.
    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        let threads: Vec<_> = jobs.into_iter().map(|job| thread::spawn(|| wait_for(job))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a job's own checks hold")).collect()
    }

    /// Waits for `time`, so that the contestant's own threads can file the scheduled timers.
    fn settle(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// A function that the contestant calls with the payload of each timer that fires.
pub(crate) trait OnFire: Fn(Payload) + Send + Sync + 'static {}

impl<F: Fn(Payload) + Send + Sync + 'static> OnFire for F {}

/// A contestant that makes a new timer for each use. Most timers are cancelled.
pub(crate) trait OneShots: Contestant {
    type Caller: Caller;

    /// Makes a [`Caller`] for the job that runs this call.
    fn caller(&self) -> Self::Caller;

    /// Returns the number of pending timers. `None` if the contestant does not count them.
    fn pending(&self) -> Option<usize> {
        None
    }
}

/// One job's access to a [`OneShots`] contestant.
pub(crate) trait Caller: Send + 'static {
    /// The value that names a timer for its cancel.
    type Id: Send + 'static;
    /// Whether a cancel's result is right even if the cancel races with the firing of the timer.
    const KNOWS_WHO_WON: bool = true;

    /// Makes timers for the payloads with numbers below `_count`, if the contestant reuses timers.
    fn prepare(&mut self, _count: usize) {}

    /// Arms a timer that is due `delay` after now. Reads the clock to learn the present time.
    fn schedule(&mut self, delay: Duration, payload: Payload) -> Self::Id;

    /// Cancels a timer. Returns whether the timer was pending.
    fn cancel(&mut self, id: Self::Id) -> bool;

    /// Replaces the deadline of the timer `id` by `delay` after now. If the timer has fired, schedules a new timer.
    #[inline]
    fn reschedule(&mut self, id: Self::Id, delay: Duration, payload: Payload) -> Self::Id {
        self.cancel(id);
        self.schedule(delay, payload)
    }

    /// Schedules a timer and cancels it. A contestant may have a cheaper way for this than two calls.
    #[inline]
    fn schedule_and_cancel(&mut self, delay: Duration, payload: Payload) -> bool {
        let id = self.schedule(delay, payload);
        self.cancel(id)
    }

    /// Fires due timers without waiting, if the contestant fires on the caller's own thread.
    #[inline]
    fn turn(&mut self) {}

    /// Returns after `time`. A contestant that fires on the caller's own thread fires due timers during the call.
    fn pass(&mut self, time: Duration) -> impl Future<Output = ()> + Send {
        async move { thread::sleep(time) }
    }
}

/// A contestant whose timers stay and are armed repeatedly.
pub(crate) trait Owned: Contestant {
    type Connections: Connections;

    /// Whether [`Connections::disarm`] leaves no timer pending.
    const DISARMS: bool;

    /// Makes `count` connections for the calling job. The timers of the new connections are not armed, or their
    /// deadlines are far ahead.
    fn connect(&self, count: usize) -> Self::Connections;

    /// Fires due timers, and then returns the number of pending timers of all the given connections. Callers may be
    /// outside a job.
    fn pending(&self, all: &mut [Self::Connections]) -> usize;
}

/// The connections of a thread, each with a timer.
pub(crate) trait Connections: Send + 'static {
    /// The size, in bytes, of the handle by which a connection refers to its timer.
    const BYTES_OF_HANDLE: usize;

    /// Begins an iteration of the caller's event loop.
    #[inline]
    fn begin_iteration(&mut self) {}

    /// Gives connection `at` a deadline, `delay` from now. The connection may already have a deadline.
    fn arm(&mut self, at: u32, delay: Duration);

    /// Disarms the timer of connection `at`, if the contestant can disarm timers.
    fn disarm(&mut self, at: u32);
}

/// A contestant that limits the time of a future.
pub(crate) trait Timeouts: Contestant {
    type Elapsed: fmt::Debug + Send + 'static;
    /// The time by which the contestant's timeouts may be early by design.
    const EARLY: Duration = Duration::ZERO;

    /// Returns the output of `future`, unless `delay` passes first.
    fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Self::Elapsed>> + Send;
}

/// The timers of a server on a tokio runtime. Each limit is set in the way that is usual for these timers.
pub(crate) trait ServerTimers: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Whether the timers are ours, so that other timers are compared with them.
    const IS_OURS: bool = false;
    /// The reason why these timers are not measured. `None` if they are measured.
    const WHY_NOT: Option<&'static str> = None;
    /// Whether the server's limits take effect. False for a server that sets no timers.
    const LIMITS: bool = true;

    /// The sleep of a connection, which is moved whenever bytes come or go.
    type Sleep: Future<Output = ()> + Send;

    /// Makes the server's runtime, with tokio's defaults and a worker for each core.
    fn runtime() -> Runtime {
        runtime::Builder::new_multi_thread().enable_all().build().expect("the system gives us threads")
    }

    /// The data of one of a connection's waits. The connection keeps the data from one timeout to the next.
    type Limit: Default + Send;

    /// Returns the output of `future`, or `None` if `delay` passes first.
    fn timeout<F: Future<Output: Send> + Send>(
        limit: &mut Self::Limit,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;

    /// Limits the time for a request's header, including the wait for the header.
    fn limit_headers(http: &mut auto::Builder<TokioExecutor>, limit: Duration);

    /// Limits the time from a request's header to its response. A late response becomes [`TOO_LATE`].
    fn limit_requests(app: Router, limit: Duration) -> Router;

    fn sleep_until(deadline: Instant) -> Self::Sleep;

    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Instant);
}

/// The status of the response that replaces a response after the time limit.
pub(crate) const TOO_LATE: StatusCode = StatusCode::GATEWAY_TIMEOUT;

/// The number of a contestant's handler calls.
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

/// Polls a future every 100 µs until it is ready. Serves futures for which the contestant calls no waker.
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
