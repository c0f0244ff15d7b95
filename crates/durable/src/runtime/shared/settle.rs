//! Settles deliveries: decides how each delivery ends, and keeps the result until the delivery loop reports it to the
//! store. A delivery is settled only once (invariant R1 of [`delivery_loop`](crate::runtime::delivery_loop)).

use super::delivery::{DeliveryEnd, Observed, Removal, UnderWay};
use super::{Runtime, RuntimeState};
use crate::delivery::Instead;
use crate::runtime::event::{Ending, Event};
use crate::timer::TimerId;
use crate::verdict::Verdict;
use std::sync::Arc;
use tourbillon::Timestamp;
use tourbillon_words::UtcMillis;

/// The present moment by the runtime's clock and by the store's clock.
#[derive(Clone, Copy)]
struct Now {
    /// The present moment by the runtime's clock. This clock cannot be set, so it measures durations.
    runtime: Timestamp,
    /// The present moment by the store's clock, the time of day. This clock may be set to another time.
    store: UtcMillis,
}

impl Runtime {
    /// Settles the delivery `number`: decides that the delivery ends with `verdict`, the handler's answer or the
    /// failure after its timeout. Returns the id of the engine's timer for this timeout, which the caller must cancel.
    /// Does nothing and returns `None` if the delivery is already settled. If the store was asked to remove the timer
    /// and has not answered, the removal decides what becomes of the timer. The verdict counts only if the removal is
    /// not at the store. A timeout then puts the timer off, since the delivery has not begun and so has not failed.
    pub(super) fn settle(
        &self,
        number: u64,
        verdict: Verdict,
        is_answer: bool,
    ) -> Option<tourbillon::TimerId> {
        let now = Now { runtime: self.moment(), store: self.store_now() };
        let mut state = self.lock();
        let Some(mut delivery) = state.deliveries.remove(number) else {
            let waiting = state.deliveries.stop_waiting(number)?;
            waiting.settle_by(match is_answer {
                true => Instead { verdict: verdict.admitted(), answered: Some(now.runtime) },
                false => Instead::put_off(now.store),
            });
            drop(state);
            waiting.wake();
            return None;
        };
        let (alarm, settlement) = (delivery.alarm.take(), Arc::clone(&delivery.settlement));
        if settlement.settle() {
            self.end(&mut state, delivery, verdict, now);
        }
        drop(state);
        settlement.wake();
        alarm
    }

    /// Settles a delivery whose lease the store has already ended. No result is reported to the store. Returns false,
    /// and does nothing, if the delivery is no longer under way.
    pub(crate) fn settle_lost(&self, number: u64) -> bool {
        let at = self.store_now();
        let mut state = self.lock();
        let Some(delivery) = state.deliveries.remove(number) else { return false };
        if delivery.settlement.settle()
            && let Some(Observed { attempt, .. }) = delivery.observed
        {
            state.settled.events.push(Event::LeaseLost { attempt, at });
        }
        self.notify(&state, |wakes| wakes.on_requests);
        drop(state);
        delivery.settlement.wake();
        true
    }

    /// Handles the end of a removal at which the delivery of a timer that is delivered at most once begins: the store
    /// has confirmed that it has the timer no longer. `next` is the next occurrence of the timer's series.
    pub(crate) fn begin_removed(&self, mut delivery: UnderWay, next: Option<TimerId>) {
        let (at, settlement) = (self.store_now(), Arc::clone(&delivery.settlement));
        delivery.removal = Removal::Done;
        if let Some(observed) = &mut delivery.observed {
            observed.next = next;
        }
        let alarm = delivery.alarm;
        let mut state = self.lock();
        let is_awaited = state.deliveries.stop_waiting(delivery.number).is_some();
        if is_awaited {
            settlement.remove();
            state.deliveries.insert(delivery);
        } else if let Some(observed) = delivery.observed {
            // Nobody waits for this delivery, and the timer is lost. This ends the delivery: its handler is not called.
            state.settled.events.push(observed.ended_removed(at, Ending::GivenBack));
        }
        drop(state);
        if !is_awaited && let Some(alarms) = self.alarms.get() {
            alarms.cancel(alarm);
        }
        settlement.wake();
    }

    /// Settles a delivery that must not begin, since the store has not removed its timer, or nobody knows whether it
    /// has.
    pub(crate) fn settle_unremoved(&self, delivery: &UnderWay) {
        let _was_given_up = self.lock().deliveries.stop_waiting(delivery.number);
        let _was_settled = delivery.settlement.settle();
        delivery.settlement.wake();
    }

    /// Turns the verdict of a settled delivery into the operation that reports the result to the store. The operation
    /// waits in [`Settled::ends`](super::state::Settled::ends) until the delivery loop sends it. A timer that is
    /// delivered at most once is no longer stored once its delivery has begun. So its result is not reported, but
    /// appears in the metrics and in the observer's events.
    fn end(&self, state: &mut RuntimeState, mut delivery: UnderWay, verdict: Verdict, now: Now) {
        let verdict = verdict.admitted();
        let took = delivery.begun.map(|begun| now.runtime - begun);
        if let Some(took) = took {
            self.reporter.took(took);
        }
        delivery.note_answer(&verdict, took);
        let is_removed = delivery.removal == Removal::Done;
        // The caller still holds the lock, so the loop wakes only after the result below is recorded. The end of a
        // removed timer's delivery leaves only an event, and events wake the loop by `on_requests`.
        self.notify(state, |wakes| wakes.on_ends || is_removed && wakes.on_requests);
        if is_removed {
            self.reporter.ended_at_most_once(&verdict);
            if let Some(observed) = delivery.observed {
                state.settled.events.push(observed.ended_removed(now.store, Ending::Answered(verdict)));
            }
            return;
        }
        let op = delivery.op_of(verdict);
        state.settled.ends.push(DeliveryEnd { delivery, op });
    }
}
