//! Notices steps of the store's clock, and recomputes the plans of schedules after a step back.
//!
//! Whenever the delivery loop has work, it compares the store's clock with a steady clock first. A store that announces
//! a step of its clock ([`subscribe`](crate::store::TimerStore::subscribe)) makes the loop work at once. Without an
//! announcement, the loop notices the step before its next work, or when the program calls
//! [`look_at_clock`](crate::Timers::look_at_clock).
//!
//! In this module, a *plan* is the next instant of a schedule. A plan that was computed while the store's clock was
//! ahead is too late after a step back. So a worker recomputes the plans at the start and after each step back. At most
//! one such worker exists at a time. If the clock steps back again during the work, the worker repeats the work. If the
//! store fails, the worker repeats the work after a pause. [`Plans`] has the states.

use super::plans::Plans;
use super::{Runtime, RuntimeState};
use crate::executor::{Executor, Threads};
use crate::panics::survive;
use core::time::Duration;
use std::sync::{Arc, PoisonError};

/// The pause after an error of the store, before the next attempt to recompute the instants of schedules.
const PAUSE: Duration = Duration::from_secs(1);

impl Runtime {
    /// Compares the store's clock with the steady clock. Wakes the delivery loop if the store's clock has stepped.
    pub(crate) fn look_at_clock(&self) {
        let has_stepped = {
            let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            // This compares a copy of the last readings. So the delivery loop's own comparison still sees the step.
            steps.clone().compare(|| self.store.now(), || self.clocks.steady.true_now()).is_some()
        };
        if has_stepped {
            self.look();
        }
    }

    /// Reports a step of the store's clock, if the clock has stepped since the last call of this method. After a step
    /// back, starts a worker that recomputes the next instants of schedules.
    pub(crate) fn note_step(self: &Arc<Self>, threads: &Threads) {
        // The lock is released before the report, because the program's function for incidents may call
        // `look_at_clock`.
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

    /// Starts a worker that recomputes the next instants of schedules by the store's present time. If such a worker
    /// already exists, it repeats its work instead.
    pub(crate) fn follow_clock(self: &Arc<Self>, threads: &Threads) {
        let Some(follow) = self.settings.follow_clock.clone() else { return };
        {
            let plans = &mut self.lock().plans;
            if core::mem::replace(plans, Plans::Stale).is_following() {
                return;
            }
        }
        // The worker counts as at work even before it begins. So if the threads end first, its drop still leaves the
        // state `Followed`.
        let mut following = Following { runtime: Arc::clone(self), is_at_it: true };
        // The work blocks its thread, so it must not run on the program's executor.
        threads.spawn(Box::pin(async move {
            while following.begins() {
                let followed = survive(|| follow());
                if let Some(Err(_)) = followed {
                    following.again_after_a_pause();
                }
            }
        }));
    }
}

/// The worker that recomputes the next instants of schedules. The worker runs on a thread of the runtime, or waits for
/// a free thread.
struct Following {
    runtime: Arc<Runtime>,
    is_at_it: bool,
}

impl Following {
    /// Returns true if the worker must recompute the next instants of schedules now. Otherwise the worker ends.
    fn begins(&mut self) -> bool {
        let mut state = self.runtime.lock();
        self.is_at_it = state.plans == Plans::Stale && !state.is_stopping();
        // A step back is recorded under this lock, too. So no step back is overlooked: either this worker sees it, or
        // the thread that records it finds the state `Followed` and starts another worker.
        state.plans = if self.is_at_it { Plans::Computing } else { Plans::Followed };
        self.is_at_it
    }

    fn again_after_a_pause(&self) {
        let mut state = self.runtime.lock();
        state.plans = Plans::Stale;
        // Only the stop of the runtime ends the pause early. Other changes notify `changed`, too.
        let is_running = |state: &mut RuntimeState| !state.is_stopping();
        let waited = self.runtime.signals.changed.wait_timeout_while(state, PAUSE, is_running);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Records that the worker has ended, or was dropped before a thread ran it.
impl Drop for Following {
    fn drop(&mut self) {
        // Once `begins` has returned false, the state may already belong to the next worker.
        if self.is_at_it {
            self.runtime.lock().plans = Plans::Followed;
        }
        self.runtime.signals.changed.notify_all();
    }
}
