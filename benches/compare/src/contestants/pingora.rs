//! pingora-timeout. Its `timeout` limits a future, its `sleep` is a timer, and tasks sleep by it.
//!
//! Each thread has a tree, with an entry for each 10 ms that has deadlines. All timers of these 10 ms share the entry.
//! One thread checks all trees every 10 ms. Deadlines are cut to milliseconds, and then rounded up to 10 ms. So a timer
//! may be early by less than a millisecond.
//!
//! A dropped future is no longer woken, but nothing is cancelled. The entry stays until its deadline, and later timers
//! share it. For timeouts above 15 minutes, `timeout` uses tokio's timer. `sleep` never does, so the figures for timers
//! an hour ahead are pingora's own. A timer cannot be reset. The crate takes delays, not deadlines, so a task counts
//! its delay from its own start.
//!
//! The drop-in of the folder `patch` has the same face, and its timers are ours: a task of the runtime turns them.

use super::tasks::Sleeps;
use super::tokio_one_shots::poll_once;
use super::tokio_runtime::TokioRuntime;
use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads, Timeouts};
use crate::common::Payload;
use pingora_timeout::{Elapsed, timeout};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// The interface of pingora-timeout, which other crates also provide.
pub(crate) trait SleepFace: Send + Sync + 'static {
    const NAME: &'static str;
    const IS_OURS: bool;
    const READS: Reads;
    /// Whether a job must yield after each burst of operations.
    const YIELDS: bool;

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send + 'static;
}

pub(crate) struct PingoraTimeout;
pub(crate) struct PingoraTimeoutDropIn;

impl SleepFace for PingoraTimeout {
    const NAME: &'static str = "pingora-timeout";
    const IS_OURS: bool = false;
    const READS: Reads = Reads::EachArm(Clock::Instant);
    const YIELDS: bool = false;

    #[inline]
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send + 'static {
        pingora_timeout::sleep(time)
    }
}

impl SleepFace for PingoraTimeoutDropIn {
    const NAME: &'static str = "pingora-timeout, the drop-in";
    const IS_OURS: bool = true;
    const READS: Reads = Reads::EachArm(Clock::Tsc);
    /// True, because a task of the runtime turns the timers, and the task runs only when a job yields. Without yields,
    /// each caller whose lane (its queue to the shard) is full turns the shard itself.
    const YIELDS: bool = true;

    #[inline]
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send + 'static {
        pingora_timeout_drop_in::sleep(time)
    }
}

pub(crate) struct Pingora<F: SleepFace = PingoraTimeout>(TokioRuntime, PhantomData<F>);

impl<F: SleepFace> Contestant for Pingora<F> {
    const NAME: &'static str = F::NAME;
    const READS: Reads = F::READS;
    const IS_OURS: bool = F::IS_OURS;
    const YIELDS: bool = F::YIELDS;

    fn start(threads: usize, _on_fire: impl OnFire) -> Self {
        Self(TokioRuntime::start(threads), PhantomData)
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        self.0.run(jobs)
    }
}

impl Timeouts for Pingora {
    type Elapsed = Elapsed;
    const EARLY: Duration = Duration::from_millis(1);

    #[inline]
    fn timeout<F: Future<Output: Send> + Send>(
        &self,
        delay: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + Send {
        timeout(delay, future)
    }
}

impl<F: SleepFace> OneShots for Pingora<F> {
    type Caller = Sleeper<F>;

    fn caller(&self) -> Sleeper<F> {
        Sleeper(PhantomData)
    }
}

/// A caller that boxes each sleep and polls it once to register it. A pair of schedule and cancel pins the sleep to the
/// stack instead.
pub(crate) struct Sleeper<F>(PhantomData<F>);

impl<F: SleepFace> Caller for Sleeper<F> {
    type Id = Pin<Box<dyn Future<Output = ()> + Send>>;

    #[inline]
    fn schedule(&mut self, delay: Duration, _payload: Payload) -> Self::Id {
        let mut sleep: Self::Id = Box::pin(F::sleep(delay));
        let Poll::Pending = poll_once(sleep.as_mut()) else { panic!("due just after it was scheduled") };
        sleep
    }

    #[inline]
    fn cancel(&mut self, mut sleep: Self::Id) -> bool {
        poll_once(sleep.as_mut()).is_pending()
    }

    #[inline]
    fn schedule_and_cancel(&mut self, delay: Duration, _payload: Payload) -> bool {
        let mut sleep = pin!(F::sleep(delay));
        poll_once(sleep.as_mut()).is_pending()
    }
}

/// The sleeps of pingora-timeout, or of a crate with the same interface, for tasks on a runtime.
pub(crate) struct PingoraSleeps<F = PingoraTimeout>(PhantomData<F>);

impl<F: SleepFace> Sleeps for PingoraSleeps<F> {
    const NAME: &'static str = F::NAME;
    const READS: Reads = F::READS;
    const IS_OURS: bool = F::IS_OURS;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().enable_time().build().expect("the system gives us threads")
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        F::sleep(deadline.saturating_duration_since(Instant::now()))
    }
}
