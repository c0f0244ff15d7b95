//! Settles deliveries: decides how each delivery ends, and keeps the result until the delivery loop reports it to the
//! store. A delivery is settled only once (invariant R1 of [`delivery_loop`](crate::runtime::delivery_loop)).

use super::delivery::{DeliveryEnd, Observed, UnderWay};
use super::{Runtime, RuntimeState};
use crate::handler::Verdict;
use crate::runtime::event::{Attempt, Ending, Event};
use crate::state::{Event as TimerEvent, Failure, Lease, Next, Phase, State as TimerState, Token, step};
use crate::store::Op;
use crate::timer::Timer;
use core::time::Duration;
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
    /// Does nothing and returns `None` if the delivery is already settled.
    pub(super) fn settle(&self, number: u64, verdict: Verdict) -> Option<tourbillon::TimerId> {
        let now = Now { runtime: self.moment(), store: self.store_now() };
        let mut state = self.lock();
        let delivery = state.deliveries.remove(number)?;
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

    /// Turns the verdict of a settled delivery into the operation that reports the result to the store. The operation
    /// waits in [`Settled::ends`](super::state::Settled::ends) until the delivery loop sends it. A timer that is
    /// delivered at most once is no longer stored, so its result is not reported, but appears in the metrics and in the
    /// observer's events. The exception is a timer that the handler has parked or snoozed, which must be stored again.
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
        // The caller still holds the lock, so the loop wakes only after the result below is recorded. The end of an
        // unstored timer's delivery may leave only an event, and events wake the loop by `on_requests`.
        self.notify(state, |wakes| wakes.on_ends || delivery.unstored.is_some() && wakes.on_requests);
        if let Some(timer) = &delivery.unstored {
            let returned = match &verdict {
                Verdict::Park(reason) => {
                    Some(Timer { state: TimerState::Parked(reason.clone()), ..(**timer).clone() })
                }
                Verdict::Snooze(moment) => snoozed(timer, delivery.token, *moment, now.store),
                _ => None,
            };
            if let Some(returned) = returned {
                let op = Op::Return(Box::new(returned), delivery.token);
                return state.settled.ends.push(DeliveryEnd { delivery, op });
            }
            self.reporter.ended_at_most_once(&verdict);
            if let Some(Observed { attempt, .. }) = delivery.observed {
                let ended = ended_unstored(attempt, now.store, Ending::Answered(verdict), took);
                state.settled.events.push(ended);
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

/// Returns the timer to store again after its handler has snoozed it until `moment`. The timer is delivered at most
/// once, so its claim had removed it from the store. The returned timer is pending, or dead if `moment` is later than
/// its [`max_age`](crate::policy::Policy::max_age) permits. Returns `None` if [`step`] refuses the snooze.
fn snoozed(timer: &Timer, token: Token, moment: UtcMillis, now: UtcMillis) -> Option<Timer> {
    let lease = Lease { token, until: UtcMillis::MAX, withdrawn: None };
    // `timer` does not count this delivery. The snooze takes back one count, so the delivery is counted first.
    let deliveries = timer.deliveries.saturating_add(1);
    let leased = Timer { state: TimerState::Leased(lease), deliveries, ..timer.clone() };
    match step(&leased, TimerEvent::Snooze(token, moment), now) {
        Ok(Next::Stays(snoozed)) => Some(snoozed),
        // Neither case happens: the lease above has this token, and is not withdrawn.
        Ok(Next::Ends(_)) | Err(_) => None,
    }
}

/// Makes the event for the end of a delivery whose claim has already removed the timer from the store.
pub(crate) fn ended_unstored(
    attempt: Arc<Attempt>,
    at: UtcMillis,
    ending: Ending,
    took: Option<Duration>,
) -> Event {
    Event::Ended { attempt, at, ending, took, phase: Phase::Done, next: None, due: None }
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
