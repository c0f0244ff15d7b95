//! Timers to wait for. The functions of the crate use this module, and programs need not.

use crate::wait::Wait;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A timer that runs: see [`TimerManager::register_timer`]. Dropping the stub cancels the timer.
#[derive(Debug)]
pub struct TimerStub {
    /// The wait until the timer expires. `None` if the timer was registered during a pause, and so has expired already.
    wait: Option<Wait>,
}

impl TimerStub {
    /// Completes when the timer expires.
    pub async fn poll(mut self) {
        poll_fn(|cx| self.poll_expired(cx)).await;
    }

    #[inline]
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.wait {
            Some(wait) => wait.poll(cx),
            None => Poll::Ready(()),
        }
    }
}

/// Registers timers on the engine of the tokio runtime that the calling thread is in, or else on the process's engine.
/// A manager has a pause of its own, and no thread.
#[derive(Debug, Default)]
pub struct TimerManager {
    is_paused: AtomicBool,
}

impl TimerManager {
    /// Makes a manager that is not in a pause.
    pub const fn new() -> Self {
        Self { is_paused: AtomicBool::new(false) }
    }

    /// Registers a timer that expires `duration` from now, or later; never earlier. A timer that is registered in a
    /// pause has expired from the start, as in the original crate.
    ///
    /// # Panics
    ///
    /// Panics if the process's engine is not started yet and the system refuses a thread.
    pub fn register_timer(&self, duration: Duration) -> TimerStub {
        // Ordering: Relaxed. No other data is read through the flag.
        let is_paused = self.is_paused.load(Ordering::Relaxed);
        TimerStub { wait: (!is_paused).then(|| Wait::new(duration)) }
    }

    /// Begins a pause, for a fork that follows. In a pause, new timers expire at once. Timers that were registered
    /// before go on, because the engine needs no pause.
    pub fn pause_for_fork(&self) {
        // Ordering: Relaxed. As in `register_timer`.
        self.is_paused.store(true, Ordering::Relaxed);
    }

    /// Ends the pause, in the parent and in the child. In the child, timers run on the engines of new runtimes, or on
    /// an engine of the child.
    pub fn unpause(&self) {
        // Ordering: Relaxed. As in `register_timer`.
        self.is_paused.store(false, Ordering::Relaxed);
    }
}
