//! Steps of the store's clock.
//!
//! The loop compares the clocks at each of its turns. A store whose clock announces steps makes it turn at once;
//! without an announcement a step is seen at the next turn, or when the program asks for a comparison.
//!
//! After a step back, and at the start, a worker computes the plans anew that were decided on by a clock that was
//! ahead. One worker at a time does so. A step back that comes meanwhile makes it begin again, and so does an error of
//! the store, after a pause.

use super::{Keeper, State};
use crate::executor::{Executor, Threads};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

impl Keeper {
    /// Makes the loop turn if the clock has stepped.
    pub(crate) fn look_at_clock(&self) {
        let has_stepped = {
            let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            // The loop's own comparison is to see the step.
            steps.clone().compare(|| self.store.now(), || self.steady.true_now()).is_some()
        };
        if has_stepped {
            self.look();
        }
    }

    /// Reports a step of the clock since the last turn.
    pub(super) fn note_step(self: &Arc<Self>, threads: &Threads) {
        let step = {
            let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            steps.compare(|| self.store.now(), || self.steady.true_now())
        };
        let Some(step) = step else { return };
        self.reporter.clock_stepped(step);
        if step.is_back() {
            self.follow_clock(threads);
        }
    }

    /// Has plans computed anew by the present clock.
    pub(super) fn follow_clock(self: &Arc<Self>, threads: &Threads) {
        let Some(follow) = self.settings.follow_clock.clone() else { return };
        {
            let mut state = self.lock();
            state.has_gone_back = true;
            if core::mem::replace(&mut state.is_following, true) {
                return;
            }
        }
        let mut following = Following { keeper: Arc::clone(self), is_at_it: true };
        threads.spawn(Box::pin(async move {
            while following.begins() {
                let followed = catch_unwind(AssertUnwindSafe(|| follow()));
                if let Ok(Err(_)) = followed {
                    following.again_after_a_pause();
                }
            }
        }));
    }
}

/// A worker that computes plans anew, or will.
struct Following {
    keeper: Arc<Keeper>,
    is_at_it: bool,
}

impl Following {
    /// Whether plans are to be computed.
    fn begins(&mut self) -> bool {
        let mut state = self.keeper.lock();
        self.is_at_it = core::mem::take(&mut state.has_gone_back) && state.stop.is_none();
        // Under the lock with which the next step leaves its note: from here on it begins another worker.
        state.is_following = self.is_at_it;
        self.is_at_it
    }

    fn again_after_a_pause(&self) {
        let mut state = self.keeper.lock();
        state.has_gone_back = true;
        let is_running = |state: &mut State| state.stop.is_none();
        let waited = self.keeper.changed.wait_timeout_while(state, PAUSE, is_running);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The worker has ended, or the queue of the workers was dropped.
impl Drop for Following {
    fn drop(&mut self) {
        if self.is_at_it {
            self.keeper.lock().is_following = false;
        }
        self.keeper.changed.notify_all();
    }
}
