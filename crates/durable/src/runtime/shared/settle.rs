//! Settles deliveries: decides how each delivery ends, and keeps the result until the delivery loop reports it to the
//! store. A delivery is settled only once (invariant R1 of [`delivery_loop`](crate::runtime::delivery_loop)).

use super::delivery::{DeliveryEnd, Observed, Removal, UnderWay};
use super::{Runtime, RuntimeState};
use crate::handler::Verdict;
use crate::runtime::event::{Ending, Event};
use crate::state::Failure;
use crate::store::Op;
use crate::timer::TimerId;
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
    /// and has not answered, the verdict does not count: the removal decides what becomes of the timer.
    pub(super) fn settle(&self, number: u64, verdict: Verdict) -> Option<tourbillon::TimerId> {
        let now = Now { runtime: self.moment(), store: self.store_now() };
        let mut state = self.lock();
        let Some(delivery) = state.deliveries.remove(number) else {
            let waiting = state.deliveries.stop_waiting(number)?;
            let _the_first = waiting.settle();
            drop(state);
            waiting.wake();
            return None;
        };
        let (alarm, settlement) = (delivery.alarm, Arc::clone(&delivery.settlement));
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
        let mut state = self.lock();
        if state.deliveries.stop_waiting(delivery.number).is_some() {
            settlement.remove();
            state.deliveries.insert(delivery);
        } else if let Some(observed) = delivery.observed {
            // Nobody waits for this delivery, and the timer is lost. This ends the delivery: its handler is not called.
            state.settled.events.push(observed.ended_removed(at, Ending::GivenBack));
        }
        drop(state);
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
        if let Some(observed) = &mut delivery.observed {
            (observed.verdict, observed.took) = (Some(verdict.clone()), took);
        }
        delivery.is_snoozed = matches!(verdict, Verdict::Snooze(_));
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
        let UnderWay { id, token, .. } = delivery;
        let op = match verdict {
            Verdict::Done => Op::Ack(id, token),
            Verdict::Retry { error, after } => {
                Op::Fail(id, token, Failure { error: shorten(error), retry_after: after, is_final: false })
            }
            Verdict::Dead(error) => {
                Op::Fail(id, token, Failure { error: shorten(error), retry_after: None, is_final: true })
            }
            Verdict::Snooze(moment) => Op::Snooze(id, token, moment),
            Verdict::Park(reason) => Op::Park(id, token, reason),
        };
        state.settled.ends.push(DeliveryEnd { delivery, op });
    }
}

/// Cuts the text of an error to its first 500 bytes, so that a handler cannot make the timer's record long.
fn shorten(error: Box<str>) -> Box<str> {
    const MOST: usize = 500;
    if error.len() <= MOST {
        return error;
    }
    let end = (0..=MOST).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    error[..end].into()
}
