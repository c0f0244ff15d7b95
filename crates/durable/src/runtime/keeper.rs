//! The loop of a runtime: it claims what is due, hands it to handlers, and reports the ends of deliveries to the store.
//!
//! One thread does all of it, and sleeps until one of these is wanted:
//!
//! | signal | from | the loop |
//! |---|---|---|
//! | look   | the alarm at the next due moment; the store, if a timer may be due earlier; room for a delivery | claims |
//! | events | a handler that is called, if there is an observer | emits them |
//! | ended  | a delivery that is settled | reports all ends that are there in one batch |
//! | renew  | a timer at each third of a lease, while deliveries are under way | renews, and reaps |
//! | stop   | `shutdown` | gives back what is under way, and ends |
//!
//! # Why no timers are loaded ahead
//! The store's index by due moment is the queue, and every claim returns the moment at which the next timer is due. So
//! the engine's wheel has one timer for all stored ones: the alarm. A timer that is created, moved or cancelled changes
//! the index in the transaction that answers its caller, and there is no copy of the index that could be out of date.
//!
//! # Invariants
//! R1. A delivery is settled once: by its answer, its timeout, its loss, or the stop.
//! R2. While a claimable timer is in the store and there is room for a delivery, the loop looks, or an alarm is set for
//!     the timer's due moment or an earlier one.
//! R3. No error of the store ends the loop. It tries again after a pause.
//! R4. While leases are in the store, as far as is known, a renewal is set: it renews those of deliveries under way, and
//!     ends those whose holder is gone.
//! R5. No waker, handler, executor or observer is called under the lock: each may wait for a thread that wants the lock.
//! R6. Events are emitted by the loop's thread alone, a delivery's in their order. What happens on other threads is noted
//!     under the lock and emitted before any end that is noted later.

use super::alarm::{Alarms, Signal};
use super::catch_up::CatchUp;
use super::event::{Attempt, Ending, Event};
use super::report::Reporter;
use super::settings::Settings;
use super::under_way::{Observed, UnderWay};
use crate::delivery::{Delivery, Settlement};
use crate::executor::{Executor, Threads, block_on};
use crate::handler::{Handler, Verdict};
use crate::policy::{Guarantee, Misfire};
use crate::state::{Event as TimerEvent, Failure, Lease, Next, Phase, State as TimerState, Token, step};
use crate::store::{
    Claimant, Durability, Leased, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use crate::supervise::{Supervisor, supervise};
use crate::timer::{Timer, TimerId};
use crate::utc::UtcMillis;
use core::time::Duration;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tourbillon::{Clock, Timestamp};

/// The greatest number of timers that one claim takes.
const CLAIM: u32 = 512;
/// The payload bytes after which a claim takes no further timer.
const CLAIM_BYTES: u64 = 4 << 20;
/// The greatest number of ends that are reported in one batch.
const BATCH: usize = 4_096;
/// The greatest number of leases that are reaped at once.
const REAP: u32 = 1_000;
/// The pause after an executor has dropped a handler's work.
const DROPPED: Duration = Duration::from_secs(1);
/// The pauses after errors of the store.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest time for which the alarm is set.
const LONGEST_ALARM: Duration = Duration::from_secs(365 * 86_400);

/// The part of a runtime that its threads share.
pub(crate) struct Keeper {
    pub(crate) store: Arc<dyn TimerStore>,
    pub(crate) settings: Settings,
    pub(crate) reporter: Reporter,
    clock: Arc<dyn Clock>,
    handlers: HashMap<&'static str, Arc<dyn Handler>>,
    claimant: Claimant,
    alarms: OnceLock<Alarms>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A claim is wanted.
    look: bool,
    /// A renewal is wanted.
    renew: bool,
    /// The alarm of the next renewal is set (R4).
    is_renewal_set: bool,
    stop: Option<Stop>,
    has_ended: bool,
    /// Ends that the store does not know of.
    ends: Vec<(UnderWay, Op)>,
    /// Events that happened on other threads than the loop's, for an observer.
    events: Vec<Event>,
    /// The loop is at the observer.
    is_emitting: bool,
    under_way: HashMap<u64, UnderWay>,
    /// The number of handlers that have not returned; some of their deliveries may be settled by now.
    occupied: usize,
    /// The number of the next delivery, and of the next claim.
    next_number: u64,
    next_claim: u64,
    /// What the last claim said of the first pending timer.
    next_due: Option<UtcMillis>,
    has_claimed: bool,
    /// Since when the loop is at the store.
    busy_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    /// The moment at which deliveries that are still under way are given back.
    until: Instant,
}

impl State {
    fn is_idle(&self, now: UtcMillis) -> bool {
        let nothing_due = self.next_due.is_none_or(|due| due > now);
        self.has_claimed
            && !self.look
            && self.busy_since.is_none()
            && self.ends.is_empty()
            && self.events.is_empty()
            && !self.is_emitting
            && self.occupied == 0
            && self.under_way.is_empty()
            && nothing_due
    }
}

impl Keeper {
    pub(crate) fn new(
        store: Arc<dyn TimerStore>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        handlers: HashMap<&'static str, Arc<dyn Handler>>,
        incarnation: u64,
    ) -> Self {
        let claimant = Claimant { incarnation, lease: settings.lease };
        // Leases of a process that died are ended first.
        let state = State { look: true, renew: true, ..State::default() };
        Self {
            store,
            clock,
            reporter: Reporter::new(settings.on_incident.clone(), settings.observe.clone()),
            settings,
            handlers,
            claimant,
            alarms: OnceLock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Gives the keeper the engine's timers, once, before the loop begins.
    pub(crate) fn set_alarms(&self, alarms: Alarms) {
        let _only_once = self.alarms.set(alarms);
    }

    pub(crate) fn has_handler(&self, kind: &str) -> bool {
        self.handlers.contains_key(kind)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- Signals ---

    /// Makes the loop look for timers that are due.
    pub(crate) fn look(&self) {
        self.lock().look = true;
        self.changed.notify_all();
    }

    /// Handles the engine's signal.
    pub(crate) fn signal(&self, signal: Signal) {
        match signal {
            Signal::Look => self.look(),
            Signal::Renew => {
                let mut state = self.lock();
                (state.renew, state.is_renewal_set) = (true, false);
                self.changed.notify_all();
            }
            Signal::Timeout(number) => {
                let error = "the handler did not answer in time".into();
                let _fired = self.settle(number, Verdict::Retry { error, after: None });
            }
        }
    }

    /// Settles a delivery with a verdict. Returns its timeout. Does nothing if the delivery is settled.
    fn settle(&self, number: u64, verdict: Verdict) -> Option<tourbillon::TimerId> {
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

    /// Settles a delivery that the store has settled already. Does nothing if the delivery is settled.
    fn settle_lost(&self, number: u64) {
        let at = self.store.now();
        let mut state = self.lock();
        let Some(under_way) = state.under_way.remove(&number) else { return };
        if under_way.settlement.settle()
            && let Some(Observed { of, .. }) = under_way.observed
        {
            state.events.push(Event::LeaseLost { of, at });
        }
        self.changed.notify_all();
        drop(state);
        under_way.settlement.wake();
    }

    /// Notes the end of a delivery that the caller has settled. `now` and `at` are the same moment, by the runtime's clock
    /// and by the store's.
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
        self.changed.notify_all();
        if let Some(timer) = &under_way.unstored {
            let returned = match &verdict {
                Verdict::Park(reason) => {
                    Some(Timer { state: TimerState::Parked(reason.clone()), ..(**timer).clone() })
                }
                Verdict::Snooze(moment) => snoozed(timer, under_way.token, *moment, at),
                _ => None,
            };
            if let Some(returned) = returned {
                under_way.is_snoozed = matches!(verdict, Verdict::Snooze(_));
                state.ends.push((under_way, Op::Return(Box::new(returned))));
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

    /// Stops the loop. Waits for deliveries under way for at most `patience`, and for the loop's end.
    pub(crate) fn stop(&self, patience: Duration) {
        let mut state = self.lock();
        let until = Instant::now() + patience.min(Duration::from_secs(86_400 * 365));
        if state.stop.is_none_or(|stop| until < stop.until) {
            state.stop = Some(Stop { until });
        }
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stop.is_some()
    }

    pub(crate) fn await_end(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until no timer is due, no handler runs, and the store knows of all ends; at most for `patience`.
    pub(crate) fn await_idle(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if state.is_idle(self.store.now()) {
                return true;
            }
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return false };
            // Time may pass on a clock that signals nothing to this thread.
            let step = rest.min(Duration::from_millis(5));
            state = self.changed.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // --- The loop ---

    /// Runs until the runtime is stopped.
    pub(crate) fn serve(self: &Arc<Self>, threads: &Threads) {
        let Some(alarms) = self.alarms.get() else { return };
        let mut pause = Pause::new(self.settings.lease);
        let mut catch_up = CatchUp::new(self.settings.catch_up_rate);
        self.put_back_known_kinds(&mut pause);
        while let Some(wanted) = self.await_work() {
            let serve = || match wanted {
                Wanted::Events(events) => events.iter().for_each(|event| self.reporter.emit(event)),
                Wanted::Ends(ends) => {
                    self.report(ends, &mut pause);
                    // An end that was lost leaves a lease.
                    self.set_renewal(alarms);
                }
                Wanted::Renewal => self.renew(alarms, &mut pause),
                Wanted::Claim { room, claim } => {
                    self.claim(room, claim, alarms, threads, &mut catch_up, &mut pause);
                }
            };
            // A store or an executor of the caller's may panic. What was under way then is delivered again.
            if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                let error = StoreError::new(StoreErrorKind::Unknown, "the store or the executor panicked");
                let _goes_on = self.bear(&error, &mut pause);
                self.look();
            }
            {
                let mut state = self.lock();
                (state.busy_since, state.is_emitting) = (None, false);
            }
            self.changed.notify_all();
        }
        let _after_a_panic_leases_end = catch_unwind(AssertUnwindSafe(|| self.secure_ends()));
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the ends that the store has answered survive the end of the process, which may follow at once.
    fn secure_ends(&self) {
        if self.settings.end_durability < Durability::PowerLoss
            && let Err(error) = block_on(self.store.apply(Vec::new(), Durability::PowerLoss))
        {
            self.reporter.store_failed(&error);
        }
    }

    /// Waits until something is wanted. Returns `None` when the runtime is stopped and the store knows of all ends.
    fn await_work(&self) -> Option<Wanted> {
        let mut state = self.lock();
        loop {
            // A delivery's events come before its end, which is emitted when the store has it.
            if !state.events.is_empty() {
                state.is_emitting = true;
                return Some(Wanted::Events(core::mem::take(&mut state.events)));
            }
            if !state.ends.is_empty() {
                state.busy_since = Some(Instant::now());
                let taken = state.ends.len().min(BATCH);
                return Some(Wanted::Ends(state.ends.drain(..taken).collect()));
            }
            if let Some(Stop { until }) = state.stop {
                if state.under_way.is_empty() {
                    return None;
                }
                match until.checked_duration_since(Instant::now()) {
                    Some(rest) if !rest.is_zero() && !state.renew => {
                        state =
                            self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
                        continue;
                    }
                    Some(rest) if !rest.is_zero() => {}
                    _ => {
                        let settled = give_all_back(&mut state);
                        drop(state);
                        settled.iter().for_each(|settlement| settlement.wake());
                        state = self.lock();
                        continue;
                    }
                }
            }
            if state.renew {
                state.renew = false;
                state.busy_since = Some(Instant::now());
                return Some(Wanted::Renewal);
            }
            let room = self.settings.concurrency.saturating_sub(state.occupied);
            if state.look && room > 0 {
                state.look = false;
                state.busy_since = Some(Instant::now());
                state.next_claim += 1;
                return Some(Wanted::Claim { room, claim: state.next_claim });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts timers back whose handlers were missing when they were due, and are there now.
    fn put_back_known_kinds(&self, pause: &mut Pause) {
        for kind in self.handlers.keys() {
            loop {
                let op = Op::Unpark(reason_for_unknown(kind), REAP);
                match block_on(self.store.apply(vec![op], Durability::Volatile)) {
                    Ok(outcomes) if matches!(outcomes[..], [Outcome::Unparked(REAP..)]) => {}
                    Ok(_) => break,
                    Err(error) => {
                        if !self.bear(&error, pause) || error.kind() == StoreErrorKind::Closed {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Reports an error of the store and waits. Returns false, and does not wait, if the runtime is stopped.
    fn bear(&self, error: &StoreError, pause: &mut Pause) -> bool {
        self.reporter.store_failed(error);
        let until = Instant::now() + pause.next();
        let mut state = self.lock();
        // Signals other than the stop do not end the pause: under load there are always some.
        while state.stop.is_none() {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return true };
            state = self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Reports ends to the store, and tries again until the store answers.
    fn report(&self, ends: Vec<(UnderWay, Op)>, pause: &mut Pause) {
        loop {
            let ops = ends.iter().map(|(_, op)| op.clone()).collect();
            let error = match block_on(self.store.apply(ops, self.settings.end_durability)) {
                Ok(outcomes) => {
                    pause.reset();
                    self.reporter.store_answered();
                    for ((under_way, op), outcome) in ends.iter().zip(outcomes) {
                        self.reporter.ended(under_way, op, &outcome);
                        if let Some(observed) = &under_way.observed {
                            self.emit_end(observed, op, &outcome);
                        }
                    }
                    return;
                }
                Err(error) => error,
            };
            let goes_on = self.bear(&error, pause);
            if error.is_transient() && (goes_on || !pause.is_long()) {
                if !goes_on {
                    // A stop waits a while for a store that may come back.
                    std::thread::sleep(pause.0);
                }
            } else if ends.len() > 1 && error.kind() != StoreErrorKind::Closed {
                // One of them may be at fault.
                ends.into_iter().for_each(|end| self.report(vec![end], pause));
                return;
            } else {
                // The leases end by themselves, and the timers are delivered again.
                self.reporter.ends_lost(ends.len());
                for observed in ends.into_iter().filter_map(|(under_way, _)| under_way.observed) {
                    self.reporter.emit(&Event::EndLost { of: observed.of, at: self.store.now() });
                }
                return;
            }
        }
    }

    /// Emits the end of a delivery as the store has it.
    fn emit_end(&self, observed: &Observed, op: &Op, outcome: &Outcome) {
        let (of, at) = (Arc::clone(&observed.of), self.store.now());
        let (phase, next) = match (op, outcome) {
            (Op::Return(timer), _) => (timer.state.phase(), None),
            (_, Outcome::Ended { phase, next, .. }) => (*phase, *next),
            _ => return self.reporter.emit(&Event::LeaseLost { of, at }),
        };
        let due = next.or((phase == Phase::Pending).then_some(of.id)).and_then(|id| {
            let timer = block_on(self.store.get(id.into())).ok().flatten();
            timer.map(|timer| timer.due)
        });
        let (ending, took) = (observed.ending(op), observed.took);
        self.reporter.emit(&Event::Ended { of, at, ending, took, phase, next, due });
    }

    /// Notes the new ends of leases, which are not before a lease's length from `begin` on.
    fn note_renewal(&self, leases: &[(u64, TimerId, Token)], lost: &[TimerId], begin: UtcMillis) {
        let mut state = self.lock();
        for (number, id, _) in leases {
            if let Some(under_way) = state.under_way.get_mut(number).filter(|_| !lost.contains(id)) {
                under_way.until = begin + self.settings.lease;
            }
        }
    }

    fn renew(&self, alarms: &Alarms, pause: &mut Pause) {
        let leases: Vec<_> = {
            let mut state = self.lock();
            if !state.ends.is_empty() {
                // The leases of these are not renewed, and must not be ended as those of a holder that is gone.
                state.renew = true;
                return;
            }
            let stored = state.under_way.values().filter(|under_way| under_way.unstored.is_none());
            stored.map(|under_way| (under_way.number, under_way.id, under_way.token)).collect()
        };
        let tokens = leases.iter().map(|(_, id, token)| (*id, *token)).collect();
        let begin = self.store.now();
        let renewed = if leases.is_empty() {
            Ok(Vec::new())
        } else {
            block_on(self.store.renew(self.claimant, tokens))
        };
        match renewed {
            Ok(lost) => {
                pause.reset();
                self.reporter.store_answered();
                self.note_renewal(&leases, &lost, begin);
                for (number, ..) in leases.iter().filter(|(_, id, _)| lost.contains(id)) {
                    // An end may have been reported meanwhile: then the delivery is not under way any more.
                    self.reporter.lease_lost();
                    self.settle_lost(*number);
                }
            }
            Err(error) => {
                // Leases that could not be renewed are not ended either: the handlers go on.
                let _goes_on = self.bear(&error, pause);
                self.set_renewal_in(alarms, pause.0);
                return;
            }
        }
        match block_on(self.store.reap(REAP)) {
            Ok(reaped) => {
                self.reporter.reaped(&reaped, self.store.now());
                let ended = reaped.returned.len() + reaped.dead.len() + reaped.withdrawn as usize;
                let mut state = self.lock();
                state.look |= !reaped.returned.is_empty();
                state.renew |= ended >= REAP as usize;
                let has_leases = reaped.next.is_some() || !state.under_way.is_empty();
                drop(state);
                if has_leases {
                    self.set_renewal(alarms);
                }
            }
            Err(error) => {
                self.reporter.store_failed(&error);
                self.set_renewal(alarms);
            }
        }
    }

    /// Sets the alarm of the next renewal, unless it is set (R4).
    fn set_renewal(&self, alarms: &Alarms) {
        self.set_renewal_in(alarms, self.settings.lease / 3);
    }

    fn set_renewal_in(&self, alarms: &Alarms, rest: Duration) {
        let was_set = core::mem::replace(&mut self.lock().is_renewal_set, true);
        if !was_set {
            // Not under the lock, for which the engine's thread waits.
            alarms.renew_in(rest);
        }
    }

    fn claim(
        self: &Arc<Self>,
        room: usize,
        claim: u64,
        alarms: &Alarms,
        threads: &Threads,
        catch_up: &mut CatchUp,
        pause: &mut Pause,
    ) {
        let wanted = u32::try_from(room).unwrap_or(u32::MAX).min(CLAIM);
        let now = self.store.now();
        let next_due = {
            let state = self.lock();
            // A store without pending timers has none that is late.
            state.has_claimed.then(|| state.next_due.unwrap_or(now))
        };
        let permitted = match catch_up.permits(next_due, now, wanted) {
            Ok(permitted) => permitted,
            Err(rest) => {
                alarms.look_in(rest);
                return;
            }
        };
        let limit = Limit { timers: permitted, bytes: CLAIM_BYTES };
        let claimed = match block_on(self.store.claim(self.claimant, claim, limit)) {
            Ok(claimed) => claimed,
            Err(error) => {
                // The claim may have had its effect: the timers are asked for, or their leases end.
                if error.kind() == StoreErrorKind::Unknown
                    && let Ok(leased) = block_on(self.store.recover(self.claimant, claim))
                {
                    let now = self.store.now();
                    leased.into_iter().for_each(|leased| self.begin(leased, now, alarms, threads));
                }
                let _goes_on = self.bear(&error, pause);
                self.set_renewal(alarms);
                self.look();
                return;
            }
        };
        pause.reset();
        self.reporter.claimed(&claimed);
        catch_up.note(u32::try_from(claimed.leased.len()).unwrap_or(u32::MAX));
        {
            let mut state = self.lock();
            state.has_claimed = true;
            state.next_due = claimed.next_due;
            state.look |= claimed.next_due.is_some_and(|due| due <= claimed.now);
        }
        if let Some(due) = claimed.next_due.filter(|due| *due > claimed.now) {
            alarms.look_in((due - claimed.now).min(LONGEST_ALARM));
        }
        for leased in claimed.leased {
            self.begin(leased, claimed.now, alarms, threads);
        }
    }

    /// Begins a delivery, or ends it at once if it must not be made.
    fn begin(self: &Arc<Self>, leased: Leased, now: UtcMillis, alarms: &Alarms, threads: &Threads) {
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
        match obstacle {
            None => {}
            Some(Obstacle::End(op)) => {
                state.ends.push((under_way, op));
                self.changed.notify_all();
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
                Some(timer) => Op::Return(timer.clone()),
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
        match &self.settings.executor {
            Some(executor) if !handler.blocks() => executor.spawn(work),
            _ => threads.spawn(work),
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
                Op::Return(Box::new(Timer { state: TimerState::Parked(reason), deliveries, ..timer.clone() }))
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

    /// The number of handlers that run, and the moment of the first pending timer, as far as is known.
    pub(crate) fn progress(&self) -> Progress {
        let state = self.lock();
        Progress {
            running: state.occupied,
            overrun: state.occupied.saturating_sub(state.under_way.len()),
            next_due: state.next_due,
            stuck_for: state.busy_since.map(|since| since.elapsed()),
        }
    }
}

impl Supervisor for Keeper {
    fn may_begin(&self, number: u64) -> bool {
        let (now, at) = (self.clock.now(), self.store.now());
        let mut state = self.lock();
        let Some(under_way) = state.under_way.get_mut(&number) else { return false };
        if under_way.until > at {
            under_way.begun = Some(now);
            let lateness = at - under_way.due;
            self.reporter.called(lateness);
            if let Some(of) = under_way.observed.as_ref().map(|observed| Arc::clone(&observed.of)) {
                state.events.push(Event::Began { of, at, lateness });
                self.changed.notify_all();
            }
            return true;
        }
        if let Some(under_way) = state.under_way.remove(&number)
            && under_way.settlement.settle()
        {
            let op = Op::Release(under_way.id, under_way.token);
            state.ends.push((under_way, op));
            self.changed.notify_all();
        }
        false
    }

    fn answered(&self, number: u64, verdict: Verdict) {
        let timeout = self.settle(number, verdict);
        if let Some(alarms) = self.alarms.get() {
            alarms.cancel(timeout);
        }
    }

    fn returned(&self, number: u64, has_begun: bool) {
        let at = self.store.now();
        let mut state = self.lock();
        state.occupied -= 1;
        let dropped = state.under_way.remove(&number);
        let settlement = dropped.as_ref().map(|under_way| Arc::clone(&under_way.settlement));
        if let Some(under_way) = dropped
            && under_way.settlement.settle()
        {
            let op = match &under_way.unstored {
                Some(_) if has_begun => {
                    let observed = under_way.observed.as_ref().map(|observed| Arc::clone(&observed.of));
                    let event = observed.map(|of| ended_unstored(of, at, Ending::GivenBack, None));
                    state.events.extend(event);
                    None
                }
                Some(timer) => Some(Op::Return(timer.clone())),
                None if state.stop.is_some() => Some(Op::Release(under_way.id, under_way.token)),
                None => Some(Op::Snooze(under_way.id, under_way.token, at + DROPPED)),
            };
            state.ends.extend(op.map(|op| (under_way, op)));
        }
        self.changed.notify_all();
        drop(state);
        if let Some(settlement) = settlement {
            settlement.wake();
        }
    }
}

/// Gives back the timers of all deliveries that are under way. Returns the settlements that are to be woken.
fn give_all_back(state: &mut State) -> Vec<Arc<Settlement>> {
    let mut settled = Vec::new();
    for (_, under_way) in core::mem::take(&mut state.under_way) {
        if under_way.unstored.is_none() && under_way.settlement.settle() {
            settled.push(Arc::clone(&under_way.settlement));
            let op = Op::Release(under_way.id, under_way.token);
            state.ends.push((under_way, op));
        }
    }
    settled
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
fn ended_unstored(of: Arc<Attempt>, at: UtcMillis, ending: Ending, took: Option<Duration>) -> Event {
    Event::Ended { of, at, ending, took, phase: Phase::Done, next: None, due: None }
}

/// The reason for which timers of a kind without a handler are parked.
fn reason_for_unknown(kind: &str) -> Box<str> {
    format!("{}{kind}", Verdict::NO_HANDLER).into()
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

/// What is done instead of a delivery.
enum Obstacle {
    /// The operation is applied.
    End(Op),
    /// Nothing: the store has forgotten the timer.
    Nothing,
}

/// What a runtime is at.
pub(crate) struct Progress {
    /// The number of handlers that have not returned.
    pub(crate) running: usize,
    /// Of these, the number whose deliveries are settled.
    pub(crate) overrun: usize,
    /// The moment of the first pending timer, as far as the last claim knew.
    pub(crate) next_due: Option<UtcMillis>,
    /// The time for which the loop has waited for the store.
    pub(crate) stuck_for: Option<Duration>,
}

/// What the loop is to do next.
enum Wanted {
    Events(Vec<Event>),
    Ends(Vec<(UnderWay, Op)>),
    Renewal,
    Claim { room: usize, claim: u64 },
}

/// The pauses after errors of the store, each twice as long as the one before, up to the second one here.
struct Pause(Duration, Duration);

impl Pause {
    /// Pauses that are short beside a lease: once the store is back, leases are renewed before they end.
    fn new(lease: Duration) -> Self {
        Self(Duration::ZERO, LONGEST_PAUSE.min(lease / 8))
    }

    fn next(&mut self) -> Duration {
        self.0 = (2 * self.0).clamp(FIRST_PAUSE, self.1);
        self.0
    }

    fn reset(&mut self) {
        self.0 = Duration::ZERO;
    }

    fn is_long(&self) -> bool {
        self.0 >= self.1
    }
}
