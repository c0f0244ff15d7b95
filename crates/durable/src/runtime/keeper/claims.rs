//! Claims, and the beginning of deliveries.

use super::calls::Calls;
use super::ends::ended_unstored;
use super::pause::Pause;
use super::{Fetch, Keeper, REAP};
use crate::delivery::{Delivery, Settlement};
use crate::executor::{Executor, Threads};
use crate::handler::Verdict;
use crate::policy::{Guarantee, Misfire};
use crate::runtime::alarm::Alarms;
use crate::runtime::catch_up::CatchUp;
use crate::runtime::event::Ending;
use crate::runtime::under_way::{Observed, UnderWay};
use crate::state::{State as TimerState, Token};
use crate::store::{Durability, Leased, Limit, Op, Outcome, Shares, StoreError, StoreErrorKind};
use crate::supervise::supervise;
use crate::timer::Timer;
use crate::utc::UtcMillis;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The greatest number of timers that one claim takes.
const CLAIM: u32 = 512;
/// The payload bytes after which a claim takes no further timer.
const CLAIM_BYTES: u64 = 4 << 20;
/// The longest time for which the alarm is set.
const LONGEST_ALARM: Duration = Duration::from_secs(365 * 86_400);

impl Keeper {
    /// Puts timers back whose handlers were missing when they were due, and are there now.
    pub(super) fn put_back_known_kinds(&self, calls: &mut Calls, pause: &mut Pause) {
        for kind in self.handlers.keys() {
            loop {
                let op = Op::Unpark(reason_for_unknown(kind), REAP);
                match self.wait_for(calls, self.store.apply(vec![op], Durability::Volatile)) {
                    Ok(outcomes) if matches!(outcomes[..], [Outcome::Unparked(REAP..)]) => {}
                    Ok(_) => break,
                    Err(error) => {
                        if !self.bear(&error, calls, pause) || error.kind() == StoreErrorKind::Closed {
                            return;
                        }
                    }
                }
            }
        }
    }

    pub(super) fn claim(
        self: &Arc<Self>,
        room: usize,
        claim: u64,
        (alarms, threads): (&Alarms, &Threads),
        calls: &mut Calls,
        catch_up: &mut CatchUp,
        pause: &mut Pause,
    ) {
        let wanted = u32::try_from(room).unwrap_or(u32::MAX).min(CLAIM);
        let now = self.store.now();
        let limit = |timers| Limit { timers, bytes: CLAIM_BYTES };
        let call = match catch_up {
            CatchUp::Together(rate) => {
                let next_due = {
                    let state = self.lock();
                    // A store without pending timers has none that is late.
                    state.has_claimed.then(|| state.next_due.unwrap_or(now))
                };
                match rate.permits(next_due, now, wanted) {
                    Ok(permitted) => self.store.claim(self.claimant, claim, limit(permitted)),
                    Err(rest) => {
                        alarms.look_in(rest);
                        return;
                    }
                }
            }
            CatchUp::InTurn(rates) => {
                let under_way = {
                    let mut state = self.lock();
                    // A handler that returns during the claim makes the loop look again.
                    state.has_withheld = true;
                    state.occupants.counts()
                };
                let shares = Shares::new(room, under_way).with_late(rates.permits(now));
                self.store.claim_in_turn(self.claimant, claim, limit(wanted), shares)
            }
        };
        let claimed = match self.wait_for(calls, call) {
            Ok(claimed) => claimed,
            Err(error) => {
                self.recover(&error, claim, (alarms, threads), calls);
                let _goes_on = self.bear(&error, calls, pause);
                self.set_renewal(alarms);
                self.look();
                return;
            }
        };
        pause.reset();
        self.reporter.claimed(&claimed);
        let is_due = |moment: Option<UtcMillis>| moment.is_some_and(|moment| moment <= claimed.now);
        let (next, permit) = match catch_up {
            CatchUp::Together(rate) => {
                rate.note(u32::try_from(claimed.leased.len()).unwrap_or(u32::MAX));
                (claimed.next_due, None)
            }
            CatchUp::InTurn(rates) => {
                rates.note(&claimed.leased, claimed.now);
                let is_withheld = is_due(claimed.next_due) && !is_due(claimed.next_claim);
                let permit = rates.rest(claimed.now).filter(|_| is_withheld);
                (claimed.next_claim, permit)
            }
        };
        {
            let mut state = self.lock();
            state.has_claimed = true;
            state.next_due = claimed.next_due;
            state.look |= is_due(next);
            state.has_withheld = is_due(claimed.next_due) && !is_due(next);
        }
        if let Some(end) = claimed.next_reap {
            self.set_renewal_by(alarms, end, claimed.now);
        }
        let next_due = next.filter(|due| *due > claimed.now).map(|due| due - claimed.now);
        if let Some(rest) = next_due.into_iter().chain(permit).min() {
            alarms.look_in(rest.min(LONGEST_ALARM));
        }
        for leased in claimed.leased.into_iter().filter_map(|leased| calls.keep(leased)) {
            self.begin(leased, claimed.now, alarms, threads);
        }
    }

    /// Begins what a claim has leased whose answer was lost, if it can be asked for. Otherwise the leases end.
    fn recover(
        self: &Arc<Self>,
        error: &StoreError,
        claim: u64,
        (alarms, threads): (&Alarms, &Threads),
        calls: &mut Calls,
    ) {
        if error.kind() == StoreErrorKind::Unknown
            && let Ok(leased) = self.wait_for(calls, self.store.recover(self.claimant, claim))
        {
            let now = self.store.now();
            let leased = leased.into_iter().filter_map(|leased| calls.keep(leased));
            leased.for_each(|leased| self.begin(leased, now, alarms, threads));
        }
    }

    /// Claims parked timers for a caller, and begins their deliveries.
    pub(super) fn take_parked(
        self: &Arc<Self>,
        fetch: Fetch,
        (room, claim): (usize, u64),
        (alarms, threads): (&Alarms, &Threads),
        calls: &mut Calls,
        pause: &mut Pause,
    ) {
        let Fetch { reason, wanted, most, reply } = fetch;
        let most = u32::try_from(room).unwrap_or(u32::MAX).min(CLAIM).min(most);
        let limit = Limit { timers: most, bytes: CLAIM_BYTES };
        let call = self.store.claim_parked(self.claimant, claim, reason, wanted.min(most), limit);
        let answer = match self.wait_for(calls, call) {
            Ok(claimed) => {
                pause.reset();
                Ok(claimed.map(|claimed| {
                    self.reporter.claimed(&claimed);
                    let count = u32::try_from(claimed.leased.len()).unwrap_or(u32::MAX);
                    for leased in claimed.leased.into_iter().filter_map(|leased| calls.keep(leased)) {
                        self.begin(leased, claimed.now, alarms, threads);
                    }
                    count
                }))
            }
            Err(error) => {
                self.recover(&error, claim, (alarms, threads), calls);
                self.set_renewal(alarms);
                Err(error)
            }
        };
        let error = answer.as_ref().err().cloned();
        let _caller_has_gone = reply.send(answer);
        if let Some(error) = error {
            let _goes_on = self.bear(&error, calls, pause);
        }
    }

    /// Begins a delivery, or ends it at once if it must not be made.
    pub(super) fn begin(
        self: &Arc<Self>,
        leased: Leased,
        now: UtcMillis,
        alarms: &Alarms,
        threads: &Threads,
    ) {
        let Leased { timer, token } = leased;
        let is_stored = timer.policy.guarantee == Guarantee::AtLeastOnce;
        let unclaimed = || Timer { deliveries: timer.deliveries.saturating_sub(1), ..timer.clone() };
        let unstored = (!is_stored).then(|| Box::new(unclaimed()));
        let observed = self.reporter.is_observed().then(|| Observed::new(&timer));
        // Not under the lock: it calls the function for incidents.
        let obstacle = self.obstacle(&timer, token, now);
        let mut state = self.lock();
        let number = state.next_number;
        state.next_number += 1;
        let settlement = Arc::new(Settlement::default());
        let under_way = UnderWay {
            id: timer.id,
            token,
            settlement: Arc::clone(&settlement),
            unstored,
            number,
            timeout: None,
            due: timer.due,
            until: match timer.state {
                TimerState::Leased(lease) => lease.until,
                _ => UtcMillis::MAX,
            },
            key: timer.key.clone(),
            begun: None,
            is_snoozed: false,
            observed,
        };
        // No handler returns that would make the loop look for what was withheld.
        state.look |= state.has_withheld && obstacle.is_some();
        match obstacle {
            None => {}
            Some(Obstacle::End(op)) => {
                state.ends.push((under_way, op));
                return;
            }
            Some(Obstacle::Nothing) => {
                drop(state);
                if let Some(Observed { of, .. }) = under_way.observed {
                    self.reporter.emit(&ended_unstored(of, now, Ending::Skipped, None));
                }
                return;
            }
        }
        let Some(handler) = self.handlers.get(&*timer.kind) else { return };
        // The stop came during the claim.
        if state.stop.is_some() {
            let op = match &under_way.unstored {
                Some(timer) => Op::Return(timer.clone(), token),
                None => Op::Release(under_way.id, token),
            };
            state.ends.push((under_way, op));
            return;
        }
        let delivery = Delivery::new(&timer, now, Arc::clone(&settlement));
        state.under_way.insert(number, under_way);
        drop(state);
        self.set_renewal(alarms);
        let timeout = alarms.timeout_in(number, timer.policy.timeout);
        {
            // A handler that is seen to run has its timeout.
            let mut state = self.lock();
            state.occupied += 1;
            if self.settings.in_turn {
                state.occupants.enter(number, &timer.namespace);
            }
            if let Some(under_way) = state.under_way.get_mut(&number) {
                under_way.timeout = timeout;
            }
        }
        self.reporter.delivered();
        let work = supervise(
            Arc::<Self>::clone(self),
            Arc::clone(handler),
            number,
            timer.payload.0,
            (delivery, settlement),
        );
        let spawn = || match &self.settings.executor {
            Some(executor) if !handler.blocks() => executor.spawn(work),
            _ => threads.spawn(work),
        };
        // Work that is dropped gives its timer back. The other timers of the claim begin none the less: those that are
        // delivered at most once are nowhere else.
        if catch_unwind(AssertUnwindSafe(spawn)).is_err() {
            self.reporter.store_failed(&StoreError::new(StoreErrorKind::Unknown, "the executor panicked"));
        }
    }

    /// The reason why a delivery must not be made, if there is one.
    fn obstacle(&self, timer: &Timer, token: Token, now: UtcMillis) -> Option<Obstacle> {
        let is_stored = timer.policy.guarantee == Guarantee::AtLeastOnce;
        if !self.has_handler(&timer.kind) {
            self.reporter.unknown_kind(timer);
            let reason = reason_for_unknown(&timer.kind);
            return Some(Obstacle::End(if is_stored {
                Op::Park(timer.id, token, reason)
            } else {
                let deliveries = timer.deliveries.saturating_sub(1);
                let parked = Timer { state: TimerState::Parked(reason), deliveries, ..timer.clone() };
                Op::Return(Box::new(parked), token)
            }));
        }
        let lateness = now - timer.due;
        match timer.policy.misfire {
            Misfire::Within(grace) if timer.failures == 0 && lateness > grace => {
                self.reporter.skipped(timer, lateness);
                Some(if is_stored { Obstacle::End(Op::Skip(timer.id, token)) } else { Obstacle::Nothing })
            }
            _ => None,
        }
    }
}

/// The reason for which timers of a kind without a handler are parked.
fn reason_for_unknown(kind: &str) -> Box<str> {
    format!("{}{kind}", Verdict::NO_HANDLER).into()
}

/// What is done instead of a delivery.
enum Obstacle {
    /// The operation is applied.
    End(Op),
    /// Nothing: the store has forgotten the timer.
    Nothing,
}
