//! A loop on its own thread.

use crate::foreign::LONG_POLL;
use crate::support::HOUR;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::LoopShard;

/// A loop on its own thread. The loop's poll waits at a condition variable.
pub(crate) struct Polling {
    poll: Arc<Poll>,
    thread: thread::JoinHandle<()>,
}

#[derive(Default)]
struct Poll {
    state: Mutex<PollState>,
    changed: Condvar,
    wakes: AtomicU64,
}

#[derive(Default)]
struct PollState {
    is_woken: bool,
    is_over: bool,
    /// Whether the loop is in a long poll, which ends early only by a wake.
    is_long: bool,
}

impl Poll {
    /// Makes the loop's present poll return. If no poll is under way, the next poll returns at once. With `is_over`,
    /// the loop then ends.
    fn wake(&self, is_over: bool) {
        let mut state = self.state.lock().unwrap();
        state.is_woken = true;
        state.is_over |= is_over;
        self.changed.notify_one();
    }

    /// Waits at most `timeout` for a wake of the loop. Returns false if the loop must end.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.unwrap_or(HOUR);
        let mut state = self.state.lock().unwrap();
        state.is_long = timeout > LONG_POLL;
        let sleeps = |state: &mut PollState| !state.is_woken;
        let (mut state, _) = self.changed.wait_timeout_while(state, timeout, sleeps).unwrap();
        (state.is_woken, state.is_long) = (false, false);
        !state.is_over
    }
}

impl Polling {
    /// Starts a thread that turns the loop from `take`.
    pub(crate) fn spawn(take: impl FnOnce() -> LoopShard + Send + 'static) -> Self {
        let poll = Arc::new(Poll::default());
        let (own, woken) = (Arc::clone(&poll), Arc::clone(&poll));
        let run = move || {
            let mut shard = take();
            shard.wake_by(move || {
                woken.wakes.fetch_add(1, Ordering::SeqCst);
                woken.wake(false);
            });
            while own.wait(shard.timeout(Instant::now())) {
                let _ = shard.turn(Instant::now(), 256);
            }
        };
        Self { poll, thread: thread::spawn(run) }
    }

    pub(crate) fn polls_for_long(&self) -> bool {
        let state = self.poll.state.lock().unwrap();
        state.is_long && !state.is_woken
    }

    /// Returns how often the engine has woken the loop.
    pub(crate) fn wakes(&self) -> u64 {
        self.poll.wakes.load(Ordering::SeqCst)
    }

    /// Ends the loop. Afterwards no loop leads the shard.
    pub(crate) fn end(self) {
        self.poll.wake(true);
        self.thread.join().unwrap();
    }
}
