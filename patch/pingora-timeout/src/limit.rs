//! Limits of time, and the timers that measure them.

use crate::timer::{TimerManager, TimerStub};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The manager of the timers that the crate's functions make.
pub(crate) static MANAGER: TimerManager = TimerManager::new();

/// The length of a limit, and the timer that measures the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Fast(Duration),
    Tokio(Duration),
}

impl Limit {
    /// Starts the timer. tokio's timer panics outside of a runtime, as tokio's own functions do.
    pub(crate) fn start(self) -> Running {
        match self {
            Self::Fast(time) => Running::Fast(MANAGER.register_timer(time)),
            Self::Tokio(time) => Running::Tokio(Box::pin(tokio::time::sleep(time))),
        }
    }
}

/// A limit whose time runs. The future completes when the time has passed.
#[derive(Debug)]
pub(crate) enum Running {
    Fast(TimerStub),
    Tokio(Pin<Box<tokio::time::Sleep>>),
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::Fast(stub) => stub.poll_expired(cx),
            Self::Tokio(sleep) => sleep.as_mut().poll(cx),
        }
    }
}
