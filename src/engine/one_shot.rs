//! One-shot timers: schedules, cancels, moves and evicts them.

use super::local::{Local, Slot};
use super::timers::{CANCELS_PER_CHECK, Timers};
use crate::base::error::{BatchError, Refusal, RescheduleError};
use crate::base::tick::Timestamp;
use crate::base::ticket::{Insertion, TimerId};
use crate::lockfree::parker::Notified;
use crate::lockfree::state;

/// The outcome of a cancel.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outcome tells whether the handler runs, and carries the payload"]
#[non_exhaustive]
pub enum Cancel<T> {
    /// The timer was cancelled: its handler has not begun and does not run. The value is the timer's payload.
    Cancelled(T),
    /// The handler has begun and has not ended.
    Running,
    /// The timer had ended before the call: it had fired, or was cancelled, or a shutdown had returned it.
    Gone,
}

impl<T> Cancel<T> {
    /// Returns the payload if the timer was cancelled.
    #[must_use]
    pub fn payload(self) -> Option<T> {
        match self {
            Self::Cancelled(payload) => Some(payload),
            Self::Running | Self::Gone => None,
        }
    }

    /// Returns the same outcome, with the payload mapped by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Cancel<U> {
        match self {
            Self::Cancelled(payload) => Cancel::Cancelled(f(payload)),
            Self::Running => Cancel::Running,
            Self::Gone => Cancel::Gone,
        }
    }
}

/// A timer that had not fired when a shutdown returned it.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfired<T> {
    /// The timer's id. It is stale from now on.
    pub id: TimerId,
    /// The moment for which the timer was armed.
    pub deadline: Timestamp,
    /// The payload that was scheduled with the timer.
    pub payload: T,
}

impl<T: Send + 'static> Timers<T> {
    /// Schedules a timer in a slot that the caller has reserved. If the engine is shut down, the error returns the
    /// payload.
    #[inline(always)]
    pub(crate) fn schedule(
        &self,
        local: &mut Local,
        Slot(index): Slot,
        deadline: Timestamp,
        payload: T,
    ) -> Result<TimerId, T> {
        // SAFETY: I3: the magazine gave us the vacant slot.
        unsafe { self.slab.write(index, payload) };
        self.arm(local, index, deadline)
    }

    /// Arms the one-shot in slot `index`, and sends its ticket (a request to check the timer). The caller holds the
    /// slot and has written the payload.
    #[inline(always)]
    fn arm(&self, local: &mut Local, index: u32, deadline: Timestamp) -> Result<TimerId, T> {
        let (id, stamp) = self.slots().control(index).arm(index, deadline);
        let pushed = local.lane.push(Insertion { deadline, index, stamp });
        if local.notify(&self.admission, pushed, deadline) == Notified::Closed
            && let Some(payload) = self.withdraw(local, id)
        {
            local.lane.lane().count_not_scheduled();
            return Err(payload);
        }
        Ok(id)
    }

    /// Schedules many timers. Publishes all timers at once, with at most one wake-up of the shard. If some timers are
    /// refused, the error returns them in order, with the reason. A batch may fill the lane (a thread's queue to a
    /// shard) beyond its capacity.
    pub(crate) fn schedule_batch(
        &self,
        local: &mut Local,
        items: Vec<(Timestamp, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        if !local.lane.has_room() {
            let kind = local.refuse_for_want_of_room(&self.admission);
            return Err(BatchError { kind, scheduled: Vec::new(), refused: items });
        }
        let mut armed = Vec::with_capacity(items.len());
        let mut insertions = Vec::with_capacity(items.len());
        let mut items = items.into_iter();
        let mut refused = Vec::new();
        let mut kind = Refusal::EngineFull;
        for (deadline, payload) in &mut items {
            let index = match local.take_slot(&self.admission) {
                Ok(Slot(index)) => index,
                Err(refusal) => {
                    refused.push((deadline, payload));
                    kind = refusal;
                    break;
                }
            };
            // SAFETY: I3: the magazine gave us the vacant slot.
            unsafe { self.slab.write(index, payload) };
            let (id, stamp) = self.slots().control(index).arm(index, deadline);
            armed.push((id, deadline));
            insertions.push(Insertion { deadline, index, stamp });
        }
        let earliest = armed.iter().map(|&(_, deadline)| deadline).min().unwrap_or(Timestamp::MAX);
        let pushed = local.lane.push_all(&insertions);
        let mut ids = Vec::with_capacity(armed.len());
        if local.notify(&self.admission, pushed, earliest) == Notified::Open {
            ids.extend(armed.into_iter().map(|(id, _)| id));
        } else {
            kind = self.admission.why_closed();
            for (id, deadline) in armed {
                match self.withdraw(local, id) {
                    Some(payload) => {
                        local.lane.lane().count_not_scheduled();
                        refused.push((deadline, payload));
                    }
                    None => ids.push(id),
                }
            }
        }
        refused.extend(items);
        if refused.is_empty() { Ok(ids) } else { Err(BatchError { kind, scheduled: ids, refused }) }
    }

    /// Takes back a timer that was armed while the engine was being shut down. Returns `None` if the shutdown has taken
    /// the timer out.
    #[cold]
    fn withdraw(&self, local: &mut Local, id: TimerId) -> Option<T> {
        self.take_back(local, id).ok()
    }

    /// Cancels an armed timer. Returns its payload, or the reason why the timer was not cancelled. The method moves the
    /// payload out before it gives the slot back, because the slot's next holder writes another payload there.
    #[inline(always)]
    fn take_back(&self, local: &mut Local, id: TimerId) -> Result<T, state::Cancel> {
        let Some(control) = self.control(id) else { return Err(state::Cancel::Gone) };
        match control.cancel(id) {
            state::Cancel::Won => {
                // SAFETY: I3: we took the timer out of `queued`, and its slot is in no magazine yet.
                let payload = unsafe { self.slab.take(id.index()) };
                local.magazines.put(self.slots(), id.index());
                Ok(payload)
            }
            otherwise => Err(otherwise),
        }
    }

    #[inline(always)]
    pub(crate) fn cancel(&self, local: &mut Local, id: TimerId) -> Cancel<T> {
        match self.take_back(local, id) {
            Ok(payload) => {
                self.count_cancel(local);
                Cancel::Cancelled(payload)
            }
            Err(state::Cancel::Running) => Cancel::Running,
            Err(_) => Cancel::Gone,
        }
    }

    #[inline(always)]
    fn count_cancel(&self, local: &Local) {
        if local.lane.lane().count_cancelled().is_multiple_of(CANCELS_PER_CHECK) {
            self.admission.stations().consider_a_sweep();
        }
    }

    /// Moves a pending timer: cancels it, and schedules its payload again in the same slot, under a new id. Does not
    /// wait for room in the lane.
    pub(crate) fn reschedule(
        &self,
        local: &mut Local,
        id: TimerId,
        deadline: Timestamp,
    ) -> Result<TimerId, RescheduleError<T>> {
        if !local.lane.has_room() {
            return Err(match local.refuse_for_want_of_room(&self.admission) {
                // A shutdown is under way, and returns the timer.
                Refusal::ShutDown => RescheduleError::Gone,
                Refusal::EngineFull | Refusal::LaneFull | Refusal::Forked => RescheduleError::LaneFull,
            });
        }
        let Some(control) = self.control(id) else { return Err(RescheduleError::Gone) };
        match control.cancel(id) {
            state::Cancel::Won => {}
            state::Cancel::Running => return Err(RescheduleError::Running),
            state::Cancel::Gone => return Err(RescheduleError::Gone),
        }
        self.count_cancel(local);
        // The caller holds the slot now, and the payload stays in it.
        self.arm(local, id.index(), deadline).map_err(|payload| match self.admission.why_closed() {
            Refusal::Forked => RescheduleError::Forked(payload),
            _ => RescheduleError::ShutDown(payload),
        })
    }

    pub(crate) fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        self.control(id)?.deadline(id)
    }

    /// Takes the one-shot out of slot `index`. Returns `None` unless the one-shot is armed and its handler has not
    /// begun.
    pub(super) fn evict(&self, index: u32) -> Option<Unfired<T>> {
        let (generation, deadline) = self.slots().control(index).evict()?;
        // SAFETY: I3: we took the timer out of `queued`.
        let payload = unsafe { self.slab.take(index) };
        Some(Unfired { id: TimerId::new(index, generation), deadline, payload })
    }
}
