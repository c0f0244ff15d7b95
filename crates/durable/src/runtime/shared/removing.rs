//! Handles the store's answers to removals, with which the deliveries of timers begin that are delivered at most once.

use super::delivery::{DeliveryEnd, Observed, Removal, UnderWay};
use super::put_off::{PUT_OFF, Until};
use super::{Runtime, RuntimeState};
use crate::delivery::Settlement;
use crate::runtime::event::{Ending, Event};
use crate::state::{Phase, Refusal};
use crate::store::{Op, Outcome};
use crate::supervise::Kept;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The store's answer to a removal.
#[derive(Debug)]
pub(crate) enum RemovalAnswer {
    Outcome(Outcome),
    /// The call has failed. The store may have removed the timer all the same.
    Unknown,
    /// The call has failed, and the runtime does not try again.
    GivenUp,
}

impl RemovalAnswer {
    /// Returns true if the timer may still be stored, and its delivery may begin later.
    fn puts_off(&self) -> bool {
        let is_leased = Outcome::Refused(Refusal::State(Phase::Leased));
        match self {
            Self::Outcome(outcome) => *outcome == Outcome::Held || *outcome == is_leased,
            Self::Unknown => true,
            Self::GivenUp => false,
        }
    }
}

impl Runtime {
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
                    // The handler has its whole time from the beginning of the delivery.
                    self.set_timeout(number, timeout);
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
}

/// Makes the event for a delivery that must not begin: the store has not removed its timer, or nobody knows whether it
/// has.
fn ended_unremoved(delivery: &mut UnderWay, answer: &RemovalAnswer, at: UtcMillis) -> Option<Event> {
    let may_be_removed = delivery.may_be_removed;
    let Observed { attempt, took, .. } = delivery.observed.take()?;
    Some(match answer {
        RemovalAnswer::Outcome(Outcome::Ended { phase, next, .. }) => {
            let (phase, next, ending) = (*phase, *next, Ending::GivenBack);
            Event::Ended { attempt, at, ending, took, phase, next, due: None }
        }
        RemovalAnswer::Outcome(_) => Event::LeaseLost { attempt, at, may_be_removed },
        RemovalAnswer::Unknown | RemovalAnswer::GivenUp => {
            Event::EndLost { attempt, at, may_be_removed: true }
        }
    })
}

impl RuntimeState {
    fn put_off_asked(&mut self, number: u64, until: Until) -> Option<Arc<Settlement>> {
        self.deliveries.get_mut(number).filter(|delivery| delivery.removal == Removal::Asked)?;
        let delivery = self.deliveries.remove(number)?;
        let settlement = Arc::clone(&delivery.settlement);
        if settlement.settle() {
            self.put_off(delivery, until);
        }
        Some(settlement)
    }

    /// Puts off a settled delivery that has not begun. Its timer is given back at the end of the pause `until`, or at
    /// once if the runtime stops.
    pub(crate) fn put_off(&mut self, delivery: UnderWay, until: Until) {
        match self.is_stopping() {
            true => self.release(delivery),
            false => self.deliveries.put_off.add(delivery, until),
        }
    }

    /// Gives back the timers whose pauses of a fixed length are over.
    pub(crate) fn release_over(&mut self, now: Instant) {
        let over = self.deliveries.put_off.take_over(now);
        over.into_iter().for_each(|delivery| self.release(delivery));
    }

    /// Gives back the timer of a lane that is due first.
    pub(crate) fn release_first(&mut self, lane: u32) -> bool {
        let first = self.deliveries.put_off.take_first(lane);
        first.into_iter().map(|delivery| self.release(delivery)).count() > 0
    }

    /// Gives back all timers of a lane that were put off.
    pub(crate) fn release_lane(&mut self, lane: u32) {
        let of_lane = self.deliveries.put_off.take_lane(lane);
        of_lane.into_iter().for_each(|delivery| self.release(delivery));
    }

    /// Gives back all timers that were put off.
    pub(crate) fn release_all(&mut self) {
        let all = self.deliveries.put_off.take_all();
        all.for_each(|delivery| self.release(delivery));
    }

    /// Gives the timer of a settled delivery back to the store. The timer keeps its due moment.
    pub(super) fn release(&mut self, delivery: UnderWay) {
        let op = Op::Release(delivery.id, delivery.token);
        self.settled.ends.push(DeliveryEnd { delivery, op });
    }

    /// Counts a timer that the store has removed, and whose delivery does not go on.
    pub(super) fn lose(&mut self, delivery: UnderWay, at: UtcMillis) {
        self.deliveries.lost += 1;
        let ended = delivery.observed.map(|observed| observed.ended_removed(at, Ending::GivenBack));
        self.settled.events.extend(ended);
    }
}
