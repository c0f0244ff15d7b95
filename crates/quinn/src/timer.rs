//! The timer of a connection.

use quinn::AsyncTimer;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tourbillon::future::{Sleep, sleep_until_instant};

/// A sleep of the engine as quinn's timer.
#[derive(Debug)]
pub(crate) struct Timer {
    /// The engine's sleep. A poll of it does not count towards tokio's budget for the task. So a deadline that has come
    /// is never reported as pending.
    sleep: Sleep,
}

impl Timer {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { sleep: sleep_until_instant(deadline.into()) }
    }
}

impl AsyncTimer for Timer {
    fn reset(self: Pin<&mut Self>, deadline: Instant) {
        let sleep = &mut self.get_mut().sleep;
        // The engine may have another clock, if the thread has entered its shards.
        sleep.reset(sleep.moment_of(deadline.into()));
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.get_mut().sleep).poll(cx)
    }
}
