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

use super::tasks::Sleeps;
use super::tokio_one_shots::poll_once;
use super::tokio_runtime::TokioRuntime;
use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads, Timeouts};
use crate::common::Payload;
use pingora_timeout::{Elapsed, sleep, timeout};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

pub(crate) struct Pingora(TokioRuntime);

const NAME: &str = "pingora-timeout";

impl Contestant for Pingora {
    const NAME: &'static str = NAME;
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(threads: usize, _on_fire: impl OnFire) -> Self {
        Self(TokioRuntime::start(threads))
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

impl OneShots for Pingora {
    type Caller = Sleeper;

    fn caller(&self) -> Sleeper {
        Sleeper
    }
}

/// A caller that boxes each sleep and polls it once to register it. A pair of schedule and cancel pins the sleep to the
/// stack instead.
pub(crate) struct Sleeper;

impl Caller for Sleeper {
    type Id = Pin<Box<dyn Future<Output = ()> + Send>>;

    #[inline]
    fn schedule(&mut self, delay: Duration, _payload: Payload) -> Self::Id {
        let mut sleep: Self::Id = Box::pin(sleep(delay));
        let Poll::Pending = poll_once(sleep.as_mut()) else { panic!("due just after it was scheduled") };
        sleep
    }

    #[inline]
    fn cancel(&mut self, mut sleep: Self::Id) -> bool {
        poll_once(sleep.as_mut()).is_pending()
    }

    #[inline]
    fn schedule_and_cancel(&mut self, delay: Duration, _payload: Payload) -> bool {
        let mut sleep = pin!(sleep(delay));
        poll_once(sleep.as_mut()).is_pending()
    }
}

/// The sleep of pingora, for tasks on a runtime.
pub(crate) struct PingoraSleeps;

impl Sleeps for PingoraSleeps {
    const NAME: &'static str = NAME;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().enable_time().build().expect("the system gives us threads")
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        sleep(deadline.saturating_duration_since(Instant::now()))
    }
}
