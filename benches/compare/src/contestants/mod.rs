//! Who is measured: a file for each way to have timers, and the traits through which the workloads use them.

mod by_id;
mod futures_delay;
mod futures_timeout;
mod locked_own_now;
mod ours_timeout;
mod ours_timer;
mod tokio_runtime;
mod tokio_sleep;
mod tokio_timeout;

pub(crate) use by_id::ById;
pub(crate) use futures_delay::FuturesDelay;
pub(crate) use futures_timeout::FuturesTimeout;
pub(crate) use locked_own_now::LockedOwnNow;
pub(crate) use ours_timeout::OursTimeout;
pub(crate) use ours_timer::OursTimer;
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

/// The clock reads inside the timed region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// One for each arm.
    EachArm(Clock),
    /// One for each iteration of an event loop, [`PER_ITERATION`] requests; the deadlines are counted from it.
    EachIteration(Clock),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `std::time::Instant::now`
    Instant,
    /// The engine's default, the processor's counter where that is usable
    Tsc,
}

/// Requests that an event loop handles in one iteration.
pub(crate) const PER_ITERATION: usize = 64;

impl Reads {
    /// Whether two contestants read their clocks equally often.
    pub(crate) fn is_like(self, other: Self) -> bool {
        matches!(self, Self::EachArm(_)) == matches!(other, Self::EachArm(_))
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::EachArm(clock) | Self::EachIteration(clock)) = self;
        f.write_str(match clock {
            Clock::Instant => "Instant",
            Clock::Tsc => "TSC",
        })?;
        match self {
            Self::EachArm(_) => f.write_str(", each arm"),
            Self::EachIteration(_) => write!(f, ", each {PER_ITERATION}"),
        }
    }
}

/// A way to have timers, and the threads that it has for them.
pub(crate) trait Contestant: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    const READS: Reads;
    /// Whether others are compared with it.
    const IS_OURS: bool = false;

    /// One that is called from `threads` threads.
    fn start(threads: usize) -> Self;

    /// Runs all jobs at once, each on a thread of its own.
    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        let threads: Vec<_> = jobs.into_iter().map(|job| thread::spawn(|| wait_for(job))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a job's own checks hold")).collect()
    }

    /// Lets it bring timers to where they wait.
    fn settle(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// One whose timers stay and are armed over and over.
pub(crate) trait Owned: Contestant {
    type Connections: Connections;

    /// Whether [`Connections::disarm`] leaves nothing pending.
    const DISARMS: bool;

    /// Connections of the calling job, their timers not armed, or far ahead.
    fn connect(&self, count: usize) -> Self::Connections;

    /// What became of the timers of `all` its connections; fires what is due, and may be called from outside of a job.
    fn count(&self, all: &mut [Self::Connections]) -> Counts;
}

/// One thread's connections, a timer each.
pub(crate) trait Connections: Send + 'static {
    /// An iteration of the event loop begins.
    #[inline]
    fn begin_iteration(&mut self) {}

    /// Gives connection `at` a deadline, `delay` from now, whether or not it has one.
    fn arm(&mut self, at: u32, delay: Duration);

    /// Takes the deadline away, if the contestant can.
    fn disarm(&mut self, at: u32);
}

/// Timers of one contestant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) pending: u64,
    /// Fired so far, and at least those that have not been armed since.
    pub(crate) fired: u64,
}

/// One that limits how long a future may take.
pub(crate) trait Timeouts: Contestant {
    type Elapsed: fmt::Debug + Send + 'static;

    /// The output of `future`, unless `delay` passes first.
    fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Self::Elapsed>> + Send;
}

/// Counts what a contestant's handler gets.
#[derive(Clone, Debug, Default)]
struct Fires(Arc<AtomicU64>);

impl Fires {
    fn handler(&self) -> impl Fn(Payload) + Send + Sync + 'static {
        let count = Arc::clone(&self.0);
        move |fired| {
            assert_eq!(fired, payload(fired[0]));
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Polls until it is ready; for futures that their contestant does not drive.
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
