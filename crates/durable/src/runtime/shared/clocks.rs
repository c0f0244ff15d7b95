//! Steps of the store's clock.
//!
//! The loop compares the clocks at each of its steps. A store whose clock announces steps makes it compare at once;
//! without an announcement a step is seen at the loop's next step, or when the program asks for a comparison.
//!
//! After a step back, and at the start, a worker computes the plans anew that were decided on by a clock that was
//! ahead. One worker at a time does so. After a step back during its work it begins again, and after an error of the
//! store, too, when a pause is over. [`Plans`] are its states.

use super::plans::Plans;
use super::{Runtime, RuntimeState};
use crate::executor::{Executor, Threads};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

impl Runtime {
    /// Makes the loop turn if the clock has stepped.
    pub(crate) fn look_at_clock(&self) {
        let has_stepped = {
            let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            // The loop's own comparison is to see the step.
            steps.clone().compare(|| self.store.now(), || self.clocks.steady.true_now()).is_some()
        };
        if has_stepped {
            self.look();
        }
    }

    /// Reports a step of the clock since the last turn.
    pub(crate) fn note_step(self: &Arc<Self>, threads: &Threads) {
        let step = {
            let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            steps.compare(|| self.store.now(), || self.clocks.steady.true_now())
        };
        let Some(step) = step else { return };
        self.reporter.clock_stepped(step);
        if step.is_back() {
            self.follow_clock(threads);
        }
    }

    /// Has plans computed anew by the present clock.
    pub(crate) fn follow_clock(self: &Arc<Self>, threads: &Threads) {
        let Some(follow) = self.settings.follow_clock.clone() else { return };
        {
            let plans = &mut self.lock().plans;
            if core::mem::replace(plans, Plans::Stale).is_following() {
                return;
            }
        }
        let mut following = Following { runtime: Arc::clone(self), is_at_it: true };
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
    runtime: Arc<Runtime>,
    is_at_it: bool,
}

impl Following {
    /// Whether plans are stale and the worker goes on.
    fn begins(&mut self) -> bool {
        let mut state = self.runtime.lock();
        self.is_at_it = state.plans == Plans::Stale && !state.is_stopping();
        // The state changes under the lock under which a step back is noted. So a step back is either seen here, or
        // finds the state `Followed` and begins another worker.
        state.plans = if self.is_at_it { Plans::Computing } else { Plans::Followed };
        self.is_at_it
    }

    fn again_after_a_pause(&self) {
        let mut state = self.runtime.lock();
        state.plans = Plans::Stale;
        let is_running = |state: &mut RuntimeState| !state.is_stopping();
        let waited = self.runtime.changed.wait_timeout_while(state, PAUSE, is_running);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The worker has ended, or the queue of the workers was dropped.
impl Drop for Following {
    fn drop(&mut self) {
        if self.is_at_it {
            self.runtime.lock().plans = Plans::Followed;
        }
        self.runtime.changed.notify_all();
    }
}
