//! A loop on a thread of its own.

use crate::foreign::LONG_POLL;
use crate::support::HOUR;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::LoopShard;

/// A loop on a thread of its own, with a condition variable for a poll.
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
    /// Whether the loop is in a poll that lasts for long unless it is woken.
    is_long: bool,
}

impl Poll {
    /// Lets the present poll return, or the next poll if none is under way.
    fn wake(&self, is_over: bool) {
        let mut state = self.state.lock().unwrap();
        state.is_woken = true;
        state.is_over |= is_over;
        self.changed.notify_one();
    }

    /// Returns false if the loop is over.
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
    /// Turns the loop that `take` returns, on a new thread.
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

    /// The number of times that the engine has woken the loop.
    pub(crate) fn wakes(&self) -> u64 {
        self.poll.wakes.load(Ordering::SeqCst)
    }

    /// Ends the loop: its shard has none afterwards.
    pub(crate) fn end(self) {
        self.poll.wake(true);
        self.thread.join().unwrap();
    }
}
