//! Notices steps of the store's clock, and has schedules computed anew after a step back.
//!
//! The loop compares the store's clock with a steady clock at each of its steps. A store that announces steps of its
//! clock makes the loop compare at once. Without an announcement a step is noticed at the loop's next step, or when the
//! program asks for a comparison.
//!
//! After a step back, and at the start, a worker computes the plans anew that were decided on by a clock that was
//! ahead. Only one worker does so at a time. It begins again after another step back during its work. It also begins
//! again, after a pause, when the store fails. [`Plans`] are its states.

use super::plans::Plans;
use super::{Runtime, RuntimeState};
use crate::executor::{Executor, Threads};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// The pause after an error of the store, before the worker tries again.
const PAUSE: Duration = Duration::from_secs(1);

impl Runtime {
    /// Wakes the loop if the store's clock has stepped.
    pub(crate) fn look_at_clock(&self) {
        let has_stepped = {
            let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            // A copy is compared, so that the loop's own comparison still sees the step.
            steps.clone().compare(|| self.store.now(), || self.clocks.steady.true_now()).is_some()
        };
        if has_stepped {
            self.look();
        }
    }

    /// Reports a step of the store's clock since the last call. After a step back it has plans computed anew.
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

    /// Starts a worker that computes plans anew by the present clock, unless a worker does so already.
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

/// A worker that computes plans anew, or is about to.
struct Following {
    runtime: Arc<Runtime>,
    is_at_it: bool,
}

impl Following {
    /// Returns whether the worker must compute plans. Otherwise its work is over.
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

/// Notes that the worker has ended, or was dropped from the queue of the workers.
impl Drop for Following {
    fn drop(&mut self) {
        if self.is_at_it {
            self.runtime.lock().plans = Plans::Followed;
        }
        self.runtime.changed.notify_all();
    }
}
