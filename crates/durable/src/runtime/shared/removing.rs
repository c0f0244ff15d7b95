//! Says what follows from the answers to removals, and puts deliveries off that cannot begin.

use super::RuntimeState;
use super::delivery::{DeliveryEnd, Observed, Removal, UnderWay};
use super::put_off::Until;
use crate::delivery::Settlement;
use crate::runtime::event::{Ending, Event};
use crate::state::{Phase, Refusal};
use crate::store::{Op, Outcome};
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
    pub(super) fn puts_off(&self) -> bool {
        let is_leased = Outcome::Refused(Refusal::State(Phase::Leased));
        match self {
            Self::Outcome(outcome) => *outcome == Outcome::Held || *outcome == is_leased,
            Self::Unknown => true,
            Self::GivenUp => false,
        }
    }
}

/// Makes the event for a delivery that must not begin: the store has not removed its timer, or nobody knows whether it
/// has.
pub(super) fn ended_unremoved(
    delivery: &mut UnderWay,
    answer: &RemovalAnswer,
    at: UtcMillis,
) -> Option<Event> {
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
    pub(super) fn put_off_asked(&mut self, number: u64, until: Until) -> Option<Arc<Settlement>> {
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
