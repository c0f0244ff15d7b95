//! Settles deliveries: decides how each delivery ends, and keeps the result until the delivery loop reports it to the
//! store. A delivery is settled only once (invariant R1 of [`delivery_loop`](crate::runtime::delivery_loop)).

use super::delivery::{DeliveryEnd, Observed, Removal, UnderWay};
use super::put_off::{PUT_OFF, Until};
use super::removing::{RemovalAnswer, ended_unremoved};
use super::{Runtime, RuntimeState, Wakes};
use crate::delivery::Settlement;
use crate::runtime::alarm::HandlerTime;
use crate::runtime::event::{Ending, Event};
use crate::state::Phase;
use crate::store::{Op, Outcome};
use crate::supervise::Kept;
use crate::verdict::Verdict;
use std::sync::Arc;
use std::time::Instant;
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
    /// failure after its timeout. `passed` is the time that has passed, or `None` for an answer. Returns the id of the
    /// engine's timer for this timeout, which the caller must cancel. Does nothing and returns `None` if the delivery
    /// is already settled, or if the handler has got its whole time again. A delivery that waits for its beginning has
    /// not failed at its timeout: it is put off.
    pub(super) fn settle(
        &self,
        number: u64,
        verdict: Verdict,
        passed: Option<HandlerTime>,
    ) -> Option<tourbillon::TimerId> {
        let now = Now { runtime: self.moment(), store: self.store_now() };
        let mut state = self.lock();
        let present = state.deliveries.get_mut(number)?.time();
        if passed.is_some_and(|passed| passed != present) {
            return None;
        }
        let mut delivery = state.deliveries.remove(number)?;
        let (alarm, settlement) = (delivery.alarm.take(), Arc::clone(&delivery.settlement));
        if settlement.settle() {
            let waits = delivery.removal == Removal::Asked || delivery.removal.is_at_store();
            if waits && passed.is_some() {
                state.give_back(delivery, now.store);
                self.notify(&state, Wakes::any);
            } else {
                self.end(&mut state, delivery, verdict, now);
            }
        }
        drop(state);
        settlement.wake();
        alarm
    }

    /// Settles a delivery whose lease the store has already ended. No result is reported to the store. Returns false,
    /// and does nothing, if the delivery is neither under way nor put off. `due` is the due moment of its timer.
    pub(crate) fn settle_lost(&self, number: u64, due: UtcMillis) -> bool {
        let at = self.store_now();
        let mut state = self.lock();
        let Some(delivery) = state.deliveries.remove_leased(number, due) else { return false };
        let _was_put_off = delivery.settlement.settle();
        let may_be_removed = delivery.may_be_removed;
        if let Some(Observed { attempt, .. }) = delivery.observed {
            state.settled.events.push(Event::LeaseLost { attempt, at, may_be_removed });
        }
        self.notify(&state, |wakes| wakes.on_requests);
        drop(state);
        delivery.settlement.wake();
        true
    }

    /// Handles the answer to the removal of the delivery `number`. If the timer may still be stored, its delivery is
    /// put off until the end of the pause `until`. Returns the work of a handler that must be handed to an executor
    /// again, because it has not waited on its thread.
    pub(crate) fn removal_answered(
        &self,
        number: u64,
        answer: RemovalAnswer,
        until: Until,
    ) -> Option<Box<Kept>> {
        let at = self.store_now();
        let mut state = self.lock();
        // The runtime must not look idle before the answer is counted and reported. The loop sets the number anew after
        // it has polled its calls.
        state.unanswered.ends += 1;
        let left = state.deliveries.take_left(number);
        let is_left = left.is_some();
        let (mut delivery, instead) = match left {
            Some(left) => (left.delivery, left.instead),
            None => match state.deliveries.remove(number) {
                Some(delivery) => (delivery, None),
                // A delivery whose removal is at the store is in one of these places.
                None => return None,
            },
        };
        let kept = delivery.kept.take();
        let settlement = Arc::clone(&delivery.settlement);
        if let RemovalAnswer::Outcome(outcome @ Outcome::Ended { phase: Phase::Done, next, .. }) = &answer {
            delivery.removal = Removal::Done;
            if let Some(observed) = &mut delivery.observed {
                observed.next = *next;
            }
            let (id, key) = (delivery.id, delivery.key.clone());
            // The handler has its whole time from the beginning of the delivery. The timeout of its former time may be
            // about to settle the delivery, and would find it begun.
            delivery.renewed_times += u32::from(delivery.begun.is_some());
            let time = delivery.time();
            let called = delivery.begun.is_some().then_some((delivery.alarm.take(), delivery.timeout));
            match is_left {
                // The delivery was settled before it has begun.
                true => state.lose(delivery, at),
                false => {
                    if called.is_some() {
                        self.reporter.delivered();
                    }
                    settlement.remove();
                    state.deliveries.insert(delivery);
                }
            }
            self.notify(&state, |wakes| wakes.on_requests);
            drop(state);
            settlement.wake();
            if let Some((alarm, timeout)) = called {
                self.cancel_timeout(alarm);
                if !is_left {
                    self.set_timeout(time, timeout);
                }
            }
            self.reporter.removed(id, key, outcome);
            return kept.filter(|_| !is_left);
        }
        delivery.removal = Removal::Asked;
        delivery.may_be_removed |= matches!(answer, RemovalAnswer::Unknown);
        let _was_left = settlement.settle();
        if answer.puts_off() {
            match instead {
                Some(op) => state.settled.ends.push(DeliveryEnd { delivery, op }),
                // An executor that drops all its work must not get the timer again at once.
                None if is_left => state.put_off(delivery, Until::Moment(Instant::now() + PUT_OFF)),
                None => state.put_off(delivery, until),
            }
            drop(state);
            settlement.wake();
            return None;
        }
        let alarm = delivery.alarm.take();
        state.settled.events.extend(ended_unremoved(&mut delivery, &answer, at));
        drop(state);
        settlement.wake();
        self.cancel_timeout(alarm);
        match answer {
            RemovalAnswer::Outcome(outcome) => {
                self.reporter.ended(&delivery, &Op::Skip(delivery.id, delivery.token), &outcome);
            }
            RemovalAnswer::Unknown | RemovalAnswer::GivenUp => self.reporter.ends_lost(1),
        }
        None
    }

    /// Notes that the removals of these deliveries take long. Handlers that were not called leave their threads.
    pub(crate) fn note_long_removals(&self, numbers: &[u64]) {
        let waiting: Vec<Arc<Settlement>> = {
            let mut state = self.lock();
            numbers.iter().filter_map(|number| state.deliveries.note_long_removal(*number)).collect()
        };
        waiting.iter().for_each(|settlement| settlement.wake());
    }

    /// Puts deliveries off that have asked for the removals of their timers, until the end of the pause `until`.
    /// Leaves out deliveries that have been settled since.
    pub(crate) fn put_off_asked(&self, numbers: impl IntoIterator<Item = u64>, until: Until) {
        let settled: Vec<Arc<Settlement>> = {
            let mut state = self.lock();
            numbers.into_iter().filter_map(|number| state.put_off_asked(number, until)).collect()
        };
        settled.iter().for_each(|settlement| settlement.wake());
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
        match delivery.removal.is_at_store() {
            // The operation counts if the store has not removed the timer.
            true => state.deliveries.leave_at_store(delivery, Some(op)),
            false => state.settled.ends.push(DeliveryEnd { delivery, op }),
        }
    }
}
