//! Keeps the shared state of a runtime under its lock, and wakes the threads that wait for a change of the state.

use super::{RenewalAlarm, RuntimeState, Wakes};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The state that the threads of a runtime share. It has no reference to the store: a thread of the store that signals
/// the runtime must not drop the last reference to its own store. So a store in a file is closed when the program's
/// last drop has returned.
pub(crate) struct Signals {
    state: Mutex<RuntimeState>,
    pub(in crate::runtime) changed: Condvar,
}

impl Signals {
    pub(super) fn new(state: RuntimeState) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RuntimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the delivery loop after a thread has recorded a signal in the shared state. Does nothing if the signal
    /// must not wake the loop now. `is_wanted` reads this from the loop's [`Wakes`].
    pub(super) fn notify(&self, state: &RuntimeState, is_wanted: impl Fn(Wakes) -> bool) {
        if is_wanted(state.wakes) {
            self.changed.notify_all();
        }
    }

    /// Makes the delivery loop claim timers that are due.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        state.requests.look = true;
        self.notify(&state, |wakes| wakes.on_requests);
    }

    /// Makes the delivery loop poll the futures of its calls to the store, because one of these calls may have made
    /// progress.
    pub(crate) fn poll(&self) {
        self.lock().requests.poll = true;
        self.changed.notify_all();
    }

    /// Makes the delivery loop renew the leases of its deliveries.
    pub(crate) fn renew(&self) {
        let mut state = self.lock();
        state.requests.renewal = RenewalAlarm::Rung;
        self.notify(&state, |wakes| wakes.on_requests);
    }
}
