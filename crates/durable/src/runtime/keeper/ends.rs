//! The ends of deliveries, from the settlement to the store.

use super::calls::{Answered, Calls};
use super::{Keeper, State};
use crate::executor::{Threads, block_on};
use crate::handler::Verdict;
use crate::runtime::alarm::Alarms;
use crate::runtime::event::{Attempt, Ending, Event};
use crate::runtime::under_way::{Observed, UnderWay};
use crate::state::{Event as TimerEvent, Failure, Lease, Next, Phase, State as TimerState, Token, step};
use crate::store::{Durability, Op, Outcome};
use crate::timer::Timer;
use crate::utc::UtcMillis;
use core::time::Duration;
use std::sync::Arc;
use tourbillon::Timestamp;

impl Keeper {
    /// Waits until the ends that the store has answered survive the end of the process, which may follow at once, and
    /// leaves the store to the processes that share it.
    pub(super) fn leave(&self) {
        if self.settings.end_durability < Durability::PowerLoss
            && let Err(error) = block_on(self.store.apply(Vec::new(), Durability::PowerLoss))
        {
            self.reporter.store_failed(&error);
        }
        if let Err(error) = block_on(self.store.leave()) {
            self.reporter.store_failed(&error);
        }
    }

    /// Settles a delivery with a verdict. Returns its timeout. Does nothing if the delivery is settled.
    pub(super) fn settle(&self, number: u64, verdict: Verdict) -> Option<tourbillon::TimerId> {
        let (now, at) = (self.clock.now(), self.store.now());
        let mut state = self.lock();
        let under_way = state.under_way.remove(&number)?;
        let (timeout, settlement) = (under_way.timeout, Arc::clone(&under_way.settlement));
        if settlement.settle() {
            self.end(&mut state, under_way, verdict, now, at);
        }
        drop(state);
        settlement.wake();
        timeout
    }

    /// Settles a delivery that the store has settled already. Returns false, and does nothing, if the delivery is not
    /// under way any more.
    pub(super) fn settle_lost(&self, number: u64) -> bool {
        let at = self.store.now();
        let mut state = self.lock();
        let Some(under_way) = state.under_way.remove(&number) else { return false };
        if under_way.settlement.settle()
            && let Some(Observed { of, .. }) = under_way.observed
        {
            state.events.push(Event::LeaseLost { of, at });
        }
        self.notify(&state, |wants| wants.others);
        drop(state);
        under_way.settlement.wake();
        true
    }

    /// Notes the end of a delivery that the caller has settled. `now` and `at` are the same moment, by the runtime's
    /// clock and by the store's.
    fn end(&self, state: &mut State, under_way: UnderWay, verdict: Verdict, now: Timestamp, at: UtcMillis) {
        let mut under_way = under_way;
        let verdict = verdict.admitted();
        let took = under_way.begun.map(|begun| now - begun);
        if let Some(took) = took {
            self.reporter.took(took);
        }
        if let Some(observed) = &mut under_way.observed {
            (observed.answer, observed.took) = (Some(verdict.clone()), took);
        }
        self.notify(state, |wants| wants.ends || under_way.unstored.is_some() && wants.others);
        if let Some(timer) = &under_way.unstored {
            let returned = match &verdict {
                Verdict::Park(reason) => {
                    Some(Timer { state: TimerState::Parked(reason.clone()), ..(**timer).clone() })
                }
                Verdict::Snooze(moment) => snoozed(timer, under_way.token, *moment, at),
                _ => None,
            };
            if let Some(returned) = returned {
                let token = under_way.token;
                under_way.is_snoozed = matches!(verdict, Verdict::Snooze(_));
                state.ends.push((under_way, Op::Return(Box::new(returned), token)));
                return;
            }
            self.reporter.ended_at_most_once(&verdict);
            if let Some(Observed { of, .. }) = under_way.observed {
                state.events.push(ended_unstored(of, at, Ending::Answered(verdict), took));
            }
            return;
        }
        let UnderWay { id, token, .. } = under_way;
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
        state.ends.push((under_way, op));
    }

    /// Reports ends that the store has, or that are lost, and begins the deliveries that waited for them.
    pub(super) fn report(
        self: &Arc<Self>,
        answers: Vec<Answered>,
        calls: &mut Calls,
        alarms: &Alarms,
        threads: &Threads,
    ) {
        // First of all: an executor may panic.
        let mut free = Vec::new();
        for Answered::Stored(ends, _) | Answered::Lost(ends) in &answers {
            free.extend(calls.let_go(ends));
        }
        for answered in answers {
            match answered {
                Answered::Stored(ends, stored) => {
                    self.reporter.store_answered();
                    for ((under_way, op), (outcome, due)) in ends.iter().zip(stored) {
                        self.reporter.ended(under_way, op, &outcome);
                        if let Some(observed) = &under_way.observed {
                            self.emit_end(observed, op, &outcome, due);
                        }
                    }
                }
                Answered::Lost(ends) => {
                    // The leases end by themselves, and the timers are delivered again.
                    self.reporter.ends_lost(ends.len());
                    for observed in ends.iter().filter_map(|(under_way, _)| under_way.observed.as_ref()) {
                        let of = Arc::clone(&observed.of);
                        self.reporter.emit(&Event::EndLost { of, at: self.store.now() });
                    }
                }
            }
        }
        let now = self.store.now();
        free.into_iter().for_each(|leased| self.begin(leased, now, alarms, threads));
    }

    /// Emits the end of a delivery as the store has it.
    fn emit_end(&self, observed: &Observed, op: &Op, outcome: &Outcome, due: Option<UtcMillis>) {
        let (of, at) = (Arc::clone(&observed.of), self.store.now());
        let (phase, next) = match (op, outcome) {
            (Op::Return(timer, _), Outcome::Created(_) | Outcome::Repeated(_)) => (timer.state.phase(), None),
            (_, Outcome::Ended { phase, next, .. }) => (*phase, *next),
            _ => return self.reporter.emit(&Event::LeaseLost { of, at }),
        };
        let (ending, took) = (observed.ending(op), observed.took);
        self.reporter.emit(&Event::Ended { of, at, ending, took, phase, next, due });
    }
}

/// A timer that the store has forgotten, as it is once its handler has snoozed it.
fn snoozed(timer: &Timer, token: Token, moment: UtcMillis, now: UtcMillis) -> Option<Timer> {
    let lease = Lease { token, until: UtcMillis::MAX, withdrawn: None };
    let deliveries = timer.deliveries.saturating_add(1);
    let leased = Timer { state: TimerState::Leased(lease), deliveries, ..timer.clone() };
    match step(&leased, TimerEvent::Snooze(token, moment), now) {
        Ok(Next::Stays(snoozed)) => Some(snoozed),
        Ok(Next::Ends(_)) | Err(_) => None,
    }
}

/// The event of an end of which the store knows nothing.
pub(super) fn ended_unstored(
    of: Arc<Attempt>,
    at: UtcMillis,
    ending: Ending,
    took: Option<Duration>,
) -> Event {
    Event::Ended { of, at, ending, took, phase: Phase::Done, next: None, due: None }
}

/// An error's first bytes: a record must not grow with what a handler writes.
fn shorten(error: Box<str>) -> Box<str> {
    const MOST: usize = 500;
    if error.len() <= MOST {
        return error;
    }
    let end = (0..=MOST).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    error[..end].into()
}
