//! The loop of a runtime: it claims what is due, hands it to handlers, and reports the ends of deliveries to the store.
//!
//! One thread does all of it, and sleeps until one of these is wanted:
//!
//! | signal | from | the loop |
//! |---|---|---|
//! | fetch  | a caller that wants parked timers ([`Timers::fetch`](crate::Timers::fetch)) | claims these, in turn with what is due |
//! | look   | the alarm at the next due moment; the store, if a timer may be due earlier; room for a delivery | claims |
//! | events | a handler that is called, if there is an observer | emits them |
//! | ended  | a delivery that is settled | sends the ends that are there to the store, in one batch for each part of it |
//! | called | the store, with the answer to ends or to a renewal | reports the ends as stored; reaps |
//! | renew  | a timer at each third of a lease, while deliveries are under way | renews |
//! | stop   | `shutdown` | gives back what is under way, waits for the answers to ends, and ends |
//!
//! The loop waits for claims and reaps. Ends and renewals are at the store meanwhile ([`calls`] has their states and
//! races).
//!
//! # Why no timers are loaded ahead
//! The store's index by due moment is the queue, and every claim returns the moment at which the next timer is due. So
//! the engine's wheel has one timer for all stored ones: the alarm. A timer that is created, moved or cancelled changes
//! the index in the transaction that answers its caller, and there is no copy of the index that could be out of date.
//!
//! # Invariants
//! R1. A delivery is settled once: by its answer, its timeout, its loss, or the stop. R2. While a claimable timer is in
//! the store and there is room for a delivery, the loop looks, or an alarm is set for the timer's due moment or an
//! earlier one. R3. No error of the store ends the loop. It tries again after a pause. R4. While leases are in the
//! store, as far as is known, a renewal is set: it renews those of deliveries under way, and ends those whose holder is
//! gone. R5. No waker, handler, executor, observer or future of the store is called under the lock: each may wait for a
//! thread that wants the lock, or want it itself. R6. Events are emitted by the loop's thread alone, a timer's in their
//! order. What happens on other threads is noted under the lock and emitted before any end that is noted later. R7.
//! Nothing is claimed while [`MOST_ENDS`] ends have no answer: a store that answers claims and no ends costs a bounded
//! memory.

mod calls;
mod claims;
mod clocks;
mod ends;
mod handlers;
mod leases;
mod occupants;
mod pause;
mod waits;

use self::calls::{Answered, Called, Calls, Renewed, Ring};
use self::occupants::Occupants;
use self::pause::Pause;
use super::alarm::{Alarms, Signal};
use super::catch_up::CatchUp;
use super::event::Event;
use super::report::Reporter;
use super::settings::Settings;
use super::steps::Steps;
use super::under_way::UnderWay;
use crate::executor::Threads;
use crate::handler::{Handler, Verdict};
use crate::store::{Claimant, Op, StoreError, StoreErrorKind, TimerStore};
use crate::utc::UtcMillis;
use core::time::Duration;
use futures_channel::oneshot;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tourbillon::Clock;

/// The number of ends without an answer from which on nothing is claimed (R7).
const MOST_ENDS: usize = 4_096;
/// The greatest number of leases that are reaped at once.
const REAP: u32 = 1_000;

/// The part of a runtime that its threads share.
pub(crate) struct Keeper {
    pub(crate) store: Arc<dyn TimerStore>,
    pub(crate) settings: Settings,
    pub(crate) reporter: Reporter,
    clock: Arc<dyn Clock>,
    steady: Arc<dyn Clock>,
    steps: Mutex<Steps>,
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
    /// Ends that are not sent yet.
    ends: Vec<(UnderWay, Op)>,
    /// The number of ends that were sent, or wait to be, and have no answer that was reported.
    unanswered: usize,
    /// Since when the longest of the calls beside the loop has no answer.
    unanswered_since: Option<Instant>,
    /// A renewal is at the store, or is followed by a reap.
    is_renewing: bool,
    /// The calls whose wakers were called.
    called: Vec<Called>,
    /// The waker was called of the call for which the loop waits.
    is_answered: bool,
    /// What the loop is to be woken for.
    wants: Wants,
    /// Events that happened on other threads than the loop's, for an observer.
    events: Vec<Event>,
    /// The loop is at the observer.
    is_emitting: bool,
    under_way: HashMap<u64, UnderWay>,
    /// The number of handlers that have not returned; some of their deliveries may be settled by now.
    occupied: usize,
    /// Whose handlers these are, if claims are in turn.
    occupants: Occupants,
    /// Timers that are due wait since their namespaces have their shares.
    has_withheld: bool,
    /// Plans are being computed anew.
    is_following: bool,
    /// The clock has gone back since that was begun.
    has_gone_back: bool,
    /// The number of the next delivery, and of the next claim.
    next_number: u64,
    next_claim: u64,
    /// What the last claim said of the first pending timer.
    next_due: Option<UtcMillis>,
    has_claimed: bool,
    /// Parked timers that callers want. The last claim was for them.
    fetches: VecDeque<Fetch>,
    has_fetched: bool,
    /// Since when the loop is at the store.
    busy_since: Option<Instant>,
}

/// What a caller wants of the timers that are parked for a reason: so many, and at most so many. The caller that gets
/// no answer learns that the runtime has stopped.
pub(super) struct Fetch {
    reason: Box<str>,
    wanted: u32,
    most: u32,
    reply: oneshot::Sender<Result<Option<u32>, StoreError>>,
}

/// What a sleeping loop is woken for, besides the stop and the answers of the store. A look at something that cannot be
/// done yet would cost a turn of the thread for each delivery.
#[derive(Clone, Copy, Debug)]
struct Wants {
    ends: bool,
    others: bool,
}

impl Default for Wants {
    fn default() -> Self {
        Self { ends: true, others: true }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    /// The moment at which deliveries that are still under way are given back.
    until: Instant,
}

impl State {
    fn is_idle(&self, now: UtcMillis) -> bool {
        let nothing_due = !self.has_withheld && self.next_due.is_none_or(|due| due > now);
        self.has_claimed
            && !self.look
            && self.fetches.is_empty()
            && self.busy_since.is_none()
            && self.ends.is_empty()
            && self.unanswered == 0
            && !self.is_renewing
            && self.events.is_empty()
            && !self.is_emitting
            && self.occupied == 0
            && !self.is_following
            && self.under_way.is_empty()
            && nothing_due
    }
}

impl Keeper {
    pub(crate) fn new(
        store: Arc<dyn TimerStore>,
        (clock, steady): (Arc<dyn Clock>, Arc<dyn Clock>),
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
            steady,
            steps: Mutex::default(),
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

    /// Wakes the loop if it wants to be.
    fn notify(&self, state: &State, is_wanted: impl Fn(Wants) -> bool) {
        if is_wanted(state.wants) {
            self.changed.notify_all();
        }
    }

    /// Makes the loop look for timers that are due.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        state.look = true;
        self.notify(&state, |wants| wants.others);
    }

    /// Makes the loop claim timers that are parked for a reason. The answer is their number; `None` if the store has no
    /// such claim.
    pub(crate) fn fetch(
        &self,
        reason: Box<str>,
        wanted: u32,
        most: u32,
    ) -> oneshot::Receiver<Result<Option<u32>, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.lock();
        if state.stop.is_none() {
            state.fetches.push_back(Fetch { reason, wanted, most, reply });
            self.notify(&state, |wants| wants.others);
        }
        answer
    }

    /// Makes the loop poll a call.
    fn call(&self, called: Called) {
        let mut state = self.lock();
        match called {
            Called::Awaited => state.is_answered = true,
            Called::Renewal | Called::Ends(_) => state.called.push(called),
        }
        self.changed.notify_all();
    }

    /// Handles the engine's signal.
    pub(crate) fn signal(&self, signal: Signal) {
        match signal {
            Signal::Look => self.look(),
            Signal::Renew => {
                let mut state = self.lock();
                (state.renew, state.is_renewal_set) = (true, false);
                self.notify(&state, |wants| wants.others);
            }
            Signal::Timeout(number) => {
                let error = "the handler did not answer in time".into();
                let _fired = self.settle(number, Verdict::Retry { error, after: None });
            }
        }
    }

    /// Stops the loop. Waits for deliveries under way for at most `patience`, and for the loop's end.
    pub(crate) fn stop(&self, patience: Duration) {
        let mut state = self.lock();
        let until = Instant::now() + patience.min(Duration::from_secs(86_400 * 365));
        if state.stop.is_none_or(|stop| until < stop.until) {
            state.stop = Some(Stop { until });
        }
        let unanswered = core::mem::take(&mut state.fetches);
        drop(state);
        self.changed.notify_all();
        // Not under the lock: their wakers are called.
        drop(unanswered);
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

    /// Runs until the runtime is stopped.
    pub(crate) fn serve(self: &Arc<Self>, threads: &Threads) {
        let Some(alarms) = self.alarms.get() else { return };
        let (mut pause, mut renewals) = (Pause::new(self.settings.lease), Pause::new(self.settings.lease));
        let mut catch_up = CatchUp::new(self.settings.catch_up_rate, self.settings.in_turn);
        let weak = Arc::downgrade(self);
        let ring: Ring = Arc::new(move |called| drop(weak.upgrade().inspect(|keeper| keeper.call(called))));
        let mut calls =
            Calls::new(Arc::clone(&self.store), self.settings.end_durability, self.claimant, ring);
        self.put_back_known_kinds(&mut calls, &mut pause);
        // The clock may have gone back while no process ran.
        self.follow_clock(threads);
        while let Some(wanted) = self.await_work(&mut calls) {
            self.note_step(threads);
            let serve = || match wanted {
                Wanted::Events(events) => events.iter().for_each(|event| self.reporter.emit(event)),
                Wanted::Answers(answers) => {
                    self.report(answers, &mut calls, alarms, threads);
                    // An end that was lost leaves a lease.
                    self.set_renewal(alarms);
                }
                Wanted::Renewal => self.renew(&mut calls),
                Wanted::Reap(renewed) => self.reap(renewed, alarms, &mut calls, &mut renewals),
                Wanted::Claim { room, claim } => {
                    self.claim(room, claim, (alarms, threads), &mut calls, &mut catch_up, &mut pause);
                }
                Wanted::Fetch { fetch, room, claim } => {
                    self.take_parked(fetch, (room, claim), (alarms, threads), &mut calls, &mut pause);
                }
            };
            // A store of the caller's may panic. What was under way then is delivered again.
            if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                let error = StoreError::new(StoreErrorKind::Unknown, "the store panicked");
                let _goes_on = self.bear(&error, &mut calls, &mut pause);
                self.look();
            }
            {
                let mut state = self.lock();
                (state.busy_since, state.is_emitting) = (None, false);
                (state.unanswered, state.unanswered_since) = (calls.count(), calls.since());
                state.is_renewing = calls.is_renewing();
            }
            self.changed.notify_all();
        }
        drop(calls);
        let _after_a_panic_leases_end = catch_unwind(AssertUnwindSafe(|| self.leave()));
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Whether a worker is at something that may not end.
    pub(crate) fn is_occupied(&self) -> bool {
        let state = self.lock();
        state.occupied > 0 || state.is_following
    }

    /// The number of handlers that run, and the moment of the first pending timer, as far as is known.
    pub(crate) fn progress(&self) -> Progress {
        let state = self.lock();
        Progress {
            running: state.occupied,
            overrun: state.occupied.saturating_sub(state.under_way.len()),
            next_due: state.next_due,
            stuck_for: state
                .busy_since
                .into_iter()
                .chain(state.unanswered_since)
                .min()
                .map(|since| since.elapsed()),
        }
    }
}

/// What a runtime is at.
pub(crate) struct Progress {
    /// The number of handlers that have not returned.
    pub(crate) running: usize,
    /// Of these, the number whose deliveries are settled.
    pub(crate) overrun: usize,
    /// The moment of the first pending timer, as far as the last claim knew.
    pub(crate) next_due: Option<UtcMillis>,
    /// The time for which the loop, or an end, has waited for the store.
    pub(crate) stuck_for: Option<Duration>,
}

/// What the loop is to do next.
enum Wanted {
    Events(Vec<Event>),
    Answers(Vec<Answered>),
    Renewal,
    Reap(Renewed),
    Claim { room: usize, claim: u64 },
    Fetch { fetch: Fetch, room: usize, claim: u64 },
}
