//! Keeps copies of the timers that this process has claimed, as the claim read them.

use crate::layout::{Found, Shard};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::policy::Guarantee;
use tourbillon_durable::state::{State, Token};
use tourbillon_durable::timer::TimerId;

/// The greatest number of claimed timers whose copies are kept. Further timers are read again at the end of their
/// deliveries.
const MOST: usize = 100_000;

/// Copies of the timers that this process has claimed. When a delivery ends, this process computes the change of the
/// timer from the copy, and does not read the timer again. The timer may have changed since the claim, so the commit
/// compares the copy with the stored timer.
#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<TimerId, Found>>);

impl Held {
    fn timers(&self) -> MutexGuard<'_, HashMap<TimerId, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a copy of a claimed timer until the timer's delivery ends.
    pub(crate) fn keep(&self, found: &Found) {
        let mut timers = self.timers();
        // A copy only saves a read, so further timers may go without a copy.
        if timers.len() < MOST {
            timers.insert(found.id(), found.clone());
        }
    }

    /// Returns the kept copy of a claimed timer, if a copy is kept.
    pub(crate) fn get(&self, id: TimerId) -> Option<Found> {
        self.timers().get(&id).cloned()
    }

    /// Returns whether a copy of the timer is kept, and the timer belongs to no series.
    pub(crate) fn has_single(&self, id: TimerId) -> bool {
        self.timers().get(&id).is_some_and(|found| found.timer.series.is_none())
    }

    /// Returns the shard and the guarantee of a claimed timer, if a copy of the timer is kept.
    pub(crate) fn guarantee_of(&self, id: TimerId) -> Option<(Shard, Guarantee)> {
        self.timers().get(&id).map(|found| (found.shard, found.timer.policy.guarantee))
    }

    /// Returns the shard of a claimed timer, if a copy of the timer is kept.
    pub(crate) fn shard_of(&self, id: TimerId) -> Option<Shard> {
        self.timers().get(&id).map(|found| found.shard)
    }

    pub(crate) fn let_go(&self, id: TimerId) {
        self.timers().remove(&id);
    }

    /// Removes the copy of a timer that was claimed with the token `token`. A copy from a later claim stays.
    pub(crate) fn let_go_of(&self, id: TimerId, token: Token) {
        let mut timers = self.timers();
        let of_claim =
            |found: &Found| matches!(&found.timer.state, State::Leased(lease) if lease.token == token);
        if timers.get(&id).is_some_and(of_claim) {
            timers.remove(&id);
        }
    }

    /// Forgets all copies, because the timers belong to another deployment.
    pub(crate) fn clear(&self) {
        self.timers().clear();
    }
}
