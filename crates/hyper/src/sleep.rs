//! The sleep that hyper awaits.

use crate::fallback::fallback_engine;
use crate::source::Source;
use hyper::rt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tourbillon::Timestamp;
use tourbillon::future::{ShutDown, Sleep};

/// A sleep that completes at its deadline even if its engine is shut down.
#[derive(Debug)]
pub(crate) struct TimerSleep {
    sleep: Sleep,
    /// The engine on which the sleep runs now. The engine's clock shows how much time is left.
    source: Source,
    has_moved: bool,
}

impl TimerSleep {
    pub(crate) fn new(source: Source, deadline: Timestamp) -> Self {
        Self { sleep: source.sleep_until(deadline), source, has_moved: false }
    }

    pub(crate) fn reset(&mut self, deadline: Timestamp) {
        self.sleep.reset(deadline);
    }

    fn poll_on_engine(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ShutDown>> {
        pin!(self.sleep.try_wait()).poll(cx)
    }

    /// Continues the sleep for the rest of its time on another engine, which is never shut down.
    fn move_to_fallback(&mut self) {
        let left = self.sleep.deadline() - self.source.now();
        if let Some(engine) = fallback_engine() {
            self.sleep = engine.sleep(left);
            self.source = Source::of(engine.clone());
        }
    }
}

impl rt::Sleep for TimerSleep {}

impl Future for TimerSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut outcome = ready!(this.poll_on_engine(cx));
        if outcome.is_err() && !this.has_moved {
            this.has_moved = true;
            this.move_to_fallback();
            outcome = ready!(this.poll_on_engine(cx));
        }
        if outcome.is_err() {
            // No engine is left that could wake the task. So the task wakes itself again and again, and checks the
            // clock each time.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
