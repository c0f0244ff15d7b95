//! A sleep in a tokio runtime whose clock a test has paused or moved.
//!
//! Such a sleep is tokio's own, even if its deadline has passed by the clock. So it ends at the same moment and in the
//! same order as the sleeps of tokio, and an idle runtime advances its clock to it. A sleep that was armed before the
//! clock was paused is a timer, and has a place of its own in the order.

use crate::base::tick::Timestamp;
use crate::system::clock::runtime::{Instant, is_moved};
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use std::panic::AssertUnwindSafe;
use tokio::task::coop::unconstrained;

/// A sleep of tokio in place of a timer.
#[derive(Debug)]
pub(super) struct PausedSleep {
    /// A panic elsewhere leaves the sleep whole, as it leaves a timer.
    sleep: AssertUnwindSafe<Pin<Box<tokio::time::Sleep>>>,
    /// Whether a poll has found the sleep over. tokio's own flag is not enough: when a runtime ends, tokio marks all of
    /// the runtime's sleeps as elapsed.
    is_over: bool,
}

impl PausedSleep {
    /// Begins a sleep. Returns `None` unless a test has paused or moved the runtime's clock.
    pub(super) fn begin(deadline: Timestamp) -> Option<Self> {
        is_moved().then(|| {
            let sleep = Box::pin(tokio::time::sleep_until(instant(deadline)));
            Self { sleep: AssertUnwindSafe(sleep), is_over: false }
        })
    }

    /// Replaces the sleep's deadline. The task that polled the sleep last is woken at the new deadline.
    pub(super) fn reset(&mut self, deadline: Timestamp) {
        self.sleep.as_mut().reset(instant(deadline));
        self.is_over = false;
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Polls the sleep. Panics as tokio's sleep does if its runtime has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The poll takes nothing from the task's budget, as that of a timer does not.
        let outcome = pin!(unconstrained(poll_fn(|cx| self.sleep.as_mut().poll(cx)))).poll(cx);
        self.is_over = outcome.is_ready();
        outcome
    }
}

fn instant(moment: Timestamp) -> Instant {
    std::time::Instant::from(moment).into()
}
