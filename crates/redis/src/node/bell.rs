//! The bell: the signal that ends the sleep of a node's background thread.

use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Instant;

/// Wakes a node's background thread early, or stops it.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Default)]
struct Rung {
    is_rung: bool,
    is_closed: bool,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Rung> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present wait of the background thread, or its next wait if it is not waiting.
    pub(crate) fn ring(&self) {
        self.lock().is_rung = true;
        self.changed.notify_all();
    }

    /// Stops the background thread: the present call of [`wait`](Self::wait) and all later calls return `false`.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for at most `time` until the bell rings or is closed. Returns `false` once the bell is closed.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        let mut state = self.lock();
        while !state.is_rung && !state.is_closed {
            // The clock cannot represent the end of a very long wait, so the wait is measured from its start.
            let Some(rest) = time.checked_sub(start.elapsed()) else { break };
            state = self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_rung = false;
        !state.is_closed
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_may_be_longer_than_the_clock_can_represent() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.wait(Duration::MAX));
        bell.close();
        assert!(!bell.wait(Duration::MAX));
    }
}
