//! The sleep that hyper awaits.

use crate::fallback::fallback_engine;
use crate::source::Source;
use hyper::rt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tourbillon::future::{ShutDown, Sleep, Wakeup};
use tourbillon::{Handle, Timestamp};

/// A sleep that completes at its deadline even if its engine is shut down.
#[derive(Debug)]
pub(crate) struct TimerSleep {
    sleep: Sleep,
    /// The engine for which the sleep was made. Deadlines are moments of this engine's clock, even after the sleep has
    /// moved to the fallback engine.
    source: Source,
    has_ended: bool,
    /// The engine on which the sleep runs now, if its own engine has ended and the fallback engine could be started.
    fallback: Option<&'static Handle<Wakeup>>,
}

impl TimerSleep {
    pub(crate) fn new(source: Source, deadline: Timestamp) -> Self {
        Self { sleep: source.sleep_until(deadline), source, has_ended: false, fallback: None }
    }

    pub(crate) fn reset(&mut self, deadline: Timestamp) {
        match self.fallback {
            None => self.sleep.reset(deadline),
            // The two clocks may show different times. The rest is counted first, so that the sum is not early.
            Some(engine) => {
                let left = deadline - self.source.now();
                self.sleep.reset(engine.now() + left);
            }
        }
    }

    fn poll_on_engine(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ShutDown>> {
        pin!(self.sleep.try_wait()).poll(cx)
    }

    /// Continues the sleep for the rest of its time on another engine, which is never shut down.
    fn move_to_fallback(&mut self) {
        let left = self.sleep.deadline() - self.source.now();
        self.fallback = fallback_engine();
        if let Some(engine) = self.fallback {
            self.sleep = engine.sleep(left);
        }
    }
}

impl rt::Sleep for TimerSleep {}

impl Future for TimerSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut outcome = ready!(this.poll_on_engine(cx));
        if outcome.is_err() && !this.has_ended {
            this.has_ended = true;
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
