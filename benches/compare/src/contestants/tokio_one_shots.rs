//! tokio's `Sleep` as a timer that is scheduled once. It is boxed, polled once for its registration, and dropped for a
//! cancel.
//!
//! A pair of schedule and cancel pins the sleep to the stack, as in a `select!` beside the future that it limits. The
//! sleep carries no payload, since the action is in the task that waits for it. No task yields to the runtime in the
//! timed region, so the figures do not include the driver's turns.

use super::tokio_runtime::TokioRuntime;
use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads};
use crate::common::Payload;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

pub(crate) struct TokioOneShots(TokioRuntime);

impl Contestant for TokioOneShots {
    const NAME: &'static str = "tokio, Sleep";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(threads: usize, _on_fire: impl OnFire) -> Self {
        Self(TokioRuntime::start(threads))
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        self.0.run(jobs)
    }

    fn settle(&self, time: Duration) {
        self.0.turn(time);
    }
}

impl OneShots for TokioOneShots {
    type Caller = Sleeper;

    fn caller(&self) -> Sleeper {
        Sleeper
    }
}

/// A caller whose timers belong to the runtime in which they are made.
pub(crate) struct Sleeper;

impl Caller for Sleeper {
    type Id = Pin<Box<Sleep>>;

    #[inline]
    fn schedule(&mut self, delay: Duration, _payload: Payload) -> Self::Id {
        let mut sleep = Box::pin(sleep(delay));
        // The poll registers the sleep. If the sleep has elapsed, the cancel shows that.
        _ = poll_once(sleep.as_mut());
        sleep
    }

    #[inline]
    fn cancel(&mut self, sleep: Self::Id) -> bool {
        !sleep.is_elapsed()
    }

    #[inline]
    fn schedule_and_cancel(&mut self, delay: Duration, _payload: Payload) -> bool {
        let mut sleep = pin!(sleep(delay));
        poll_once(sleep.as_mut()).is_pending()
    }
}

#[inline]
pub(super) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
