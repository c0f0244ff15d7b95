//! The protocol of an owned timer: a timer whose handle keeps one slot, and arms and disarms it any number of times.
//!
//! A connection arms its timeout for each request and disarms it with the answer; the timeout hardly ever fires. So an
//! arming or a disarming is a plain store of the deadline and a load of the state, without a read-modify-write and
//! without a ticket. The ticket that is out (posted and not yet checked) stays out. The cost is paid when the ticket is
//! due: the shard checks the deadlines of many such tickets at once, with the heavy half of a
//! [`Barrier`](crate::lockfree::barrier::Barrier).
//!
//! # Layout
//! ```text
//! state     63               24 23       8 7                                                                0
//!          | check              | sequence | shut dropped changed checking | owned waited running queued |
//! deadline  nanoseconds on the engine's clock, or DISARMED and the last ones in units
//! extra     63         0       31    20 19       0
//!          | generation |     | tag    | offset   |
//! ```
//! `check` is the moment at which the ticket that is out is due and the deadline is checked. It counts units of 2^20 ns
//! since the engine's start, rounded up, and lasts for 36 years. `offset` is the nanosecond before the check within its
//! unit. It is valid while `tag` equals the low bits of the sequence. If the deadline and the check are in different
//! units, the state alone decides which is earlier. If they are in the same unit, the extra word is needed as well.
//!
//! # States
//! ```text
//!                    arm: queue a ticket
//!        at rest ──────────────────────────► queued ◄──┐ arm earlier: queue another ticket, the old one is stale
//!         ▲  ▲                               │  ▲   └──┘
//!         │  │ disarmed for good: drop it    │  │ deadline later, or disarmed long before
//!         │  │                `begin_check`: │  │ its deadline: queue the ticket again
//!         │  │                   the ticket  │  │
//!         │  │                     is due    ▼  │
//!         │  └────────────────────────────── checking
//!         │ not changed                      │  ▲
//!         │                       `begin`:   │  │ changed: check the deadline again
//!         │                   deadline has   ▼  │
//!         └───────────────────────────── running
//! ```
//! *shut*: the engine is shut down, and no arming is honoured. *dropped*: the handle was dropped while the timer was
//! checking or running; the timer's holder frees it. *changed*: the deadline was changed while the timer was checking
//! or running. At rest, this flag means that the timer came to rest because it was disarmed, or that it is new and will
//! hardly fire.
//!
//! # Invariants
//! O1. The thread that moves a timer to `checking` is the timer's *holder* until the thread moves the timer on or hands
//!     it over. Only the holder moves the timer out of `checking` and `running`, with one exception: the shutdown moves
//!     a timer from `checking` to `shut`. If payloads get a *last word* (a final call with the payload at the
//!     shutdown), the shutdown is the holder of that last run, and ends it.
//! O2. While a timer is `queued`, a ticket with its stamp exists for the moment `check`. The ticket is in a lane or in
//!     a wheel, or the arm that queued the timer is about to push it.
//! O3. For each acknowledged deadline, either the timer is queued and its check is not after the deadline, or the
//!     timer's holder sees the deadline.
//! O4. A timer that is at rest or shut is not armed, even if its deadline word contains a deadline.
//! O5. The payload lives from `own` until the timer is vacated. The handle vacates the timer, or, if the timer was
//!     dropped, the holder does.
//! I1 to I3 of [`super`] hold with "holder" for "claimer".
//!
//! # Why a store and a load are enough
//! Arming stores the deadline, passes a light fence and reads the state. A check changes the state to `checking` by a
//! CAS, passes the heavy fence and reads the deadline. The fences are ordered, which leaves two cases:
//! - Case A, the arm's fence is first: the holder reads the arm's deadline, or a deadline that was stored later.
//! - Case B, the holder's fence is first: the arm reads `checking`, or a state that followed it. If the timer is
//!   checking or running, the arm sets `changed` by a CAS. The holder's next CAS then fails, and the holder checks the
//!   deadline again. If the timer is queued again, or at rest, the arm queues a ticket unless the new check is early
//!   enough.
//!
//! Every update of the state is a read-modify-write, so a thread that reads `changed` reads the deadline that was
//! stored before the flag.
//!
//! # Races and their legal endings
//! - arm x fire: (a) the holder sees the new deadline: nothing fires before it. (b) The handler has begun: the arm
//!   returns `Running`, and the end of the run queues a ticket for the new deadline.
//! - arm x re-issue: the holder queues a ticket that is due at the new deadline or before, or the arm queues a ticket.
//! - disarm x fire: (a) nothing fires and the disarm returns `Armed`; (b) the disarm returns `Running`; (c) the handler
//!   has ended and the disarm returns `Idle`. A disarm that removes an arming made by the handler reports that arming.
//!   The exception is a disarm that meets the end of the run, which may return `Idle`.
//! - two disarms of one arming: nothing fires, and one of them returns `Armed`, or both do.
//! - two arms: the deadline that was stored last is in force. Each arm queues a ticket unless the present ticket is
//!   early enough. If one arm is preempted between its update of the state and the push of its ticket, the other arm's
//!   deadline may be late by the length of that preemption.
//! - drop x fire, drop x running handler: either the handle or the holder vacates the slot, never both.
//! - run x shutdown: either the end of the run finds the timer shut and gives the last word, or the shutdown begins a
//!   run of its own afterwards and gives it. The last word is given once. No handler begins during the last run or
//!   afterwards.
//! - drop x shutdown: the handle vacates the slot, or the end of the last run does.
//! - arm x shutdown: the arm returns `Shut`, or it was acknowledged before the shutdown and its deadline is forgotten.
//!   The end of a run also forgets an arm that came during the run.
//! - An arm's deadline may fire between the arm's store and its CAS. Then the run consumes the deadline. The check that
//!   the arm's flag or ticket causes finds no deadline. The timer fires once.
//! - If an arm sets `changed` between two checks of a holder, the holder only checks again. No counter counts these
//!   changes, so nothing wraps.
//!
//! # Synchronisation
//! | pair | one side                | other side               | handed over or ruled out         | model |
//! |------|-------------------------|--------------------------|----------------------------------|-------|
//! | F3   | store, then load (`postpone`, `disarm`) | `begin_check`, then `check` | both miss      | `owned::arm_races_with_fire`, `owned::disarm_races_with_fire` |
//! | S1   | `queue`, `withdraw`     | `check`, `begin`, `end`  | the deadline stored before       | `owned::arm_races_with_fire` |
//! | S2   | `own`, `end`, `decide`  | `begin`, `release`, `shut_running`, `await_run`, `has_run` | the payload, the extra word, the effects of the handler and of the last word | `owned::drop_races_with_running_handler`, `last_run::run_races_with_the_last_run`, `last_run::make_and_drop_race_with_the_last_run` |

mod extra;
mod outcome;
mod view;

pub(crate) use extra::Extra;
pub use outcome::Disarm;
pub(crate) use outcome::{AfterRun, Arm, Begin, Check, End, Release, Shut, Withdrawn};
pub(crate) use view::{Extras, Owned};

use crate::base::sync::Ordering;
use crate::base::tick::Timestamp;
use crate::lockfree::state::{
    FLAGS, OWNED, QUEUED, RUNNING, WAITED, generation_of, number_of, stamp_of, vacant,
};
use extra::first_sequence;

/// State flag: a thread (the timer's holder) checks the timer's deadline.
const CHECKING: u64 = 1 << 4;
/// State flag: the deadline was changed while a thread checked the timer or ran its handler.
const CHANGED: u64 = 1 << 5;
/// State flag: the timer's handle was dropped.
const DROPPED: u64 = 1 << 6;
/// State flag: the engine is shut down.
const SHUT: u64 = 1 << 7;

/// The tag of the deadline word of a disarmed timer. The lower bits of the word hold the last deadline in units of 2^20
/// ns. As deadlines, the tagged words would be moments within five hours, 402 years after the clock's origin. An arming
/// for a moment in these five hours gets the end of the five hours as its deadline.
const DISARMED: u64 = 0xb000 << 48;
const LAST_DEADLINE_BITS: u32 = 44;
/// A disarmed timer counts as in use while its last deadline is farther ahead than this number of nanoseconds. A first
/// check comes earlier by at most this time.
const IN_USE: u64 = 1 << 26;
/// The deadline word of a timer that is not armed and has no last deadline.
const NEVER: u64 = DISARMED;

#[inline(always)]
fn is_disarmed(word: u64) -> bool {
    word >> LAST_DEADLINE_BITS == DISARMED >> LAST_DEADLINE_BITS
}

#[inline(always)]
fn word_of(deadline: Timestamp) -> u64 {
    let deadline = deadline.as_nanos();
    if is_disarmed(deadline) { DISARMED + (1 << LAST_DEADLINE_BITS) } else { deadline }
}

/// Returns the deadline word of a timer that was disarmed while its word was `word`.
#[inline(always)]
fn disarmed(word: u64) -> u64 {
    if is_disarmed(word) { word } else { DISARMED | word >> (u64::BITS - LAST_DEADLINE_BITS) }
}

/// Returns the last deadline of a disarmed timer from its deadline word, rounded down to 2^20 ns.
fn last_deadline(word: u64) -> u64 {
    word << (u64::BITS - LAST_DEADLINE_BITS)
}

impl Owned<'_> {
    /// Turns a vacant slot into an owned timer at rest. The caller holds the slot and has written the payload. If
    /// `expects_fire` is false, the timer's first check may come before its deadline (see [`queue`](Self::queue)).
    pub(crate) fn own(&self, expects_fire: bool) {
        // Ordering: Relaxed. We hold the vacant slot, and no other thread writes its words.
        let state = self.control.state.load(Ordering::Relaxed);
        debug_assert_eq!(state, vacant(generation_of(state)), "owned a slot that is in use");
        let as_if_disarmed = if expects_fire { 0 } else { CHANGED };
        let at_rest = OWNED | as_if_disarmed | first_sequence(generation_of(state));
        self.extra().begin(generation_of(state), at_rest);
        // Ordering: Release [T3], as in `link`.
        self.control.deadline.store(NEVER, Ordering::Release);
        // Ordering: Release [S2]. Publishes the payload.
        self.control.state.store(at_rest, Ordering::Release);
    }

    #[inline(always)]
    fn set_deadline(&self, deadline: u64) {
        // Ordering: Release [T3], as in `link`. The fence that follows orders the arming.
        #[cfg(not(all(test, tourbillon_loom)))]
        self.control.deadline.store(deadline, Ordering::Release);
        // Loom would let this store come between the store of `consume` and the store that `consume` read.
        #[cfg(all(test, tourbillon_loom))]
        self.control.deadline.swap(deadline, Ordering::Release);
    }

    /// Removes `deadline` from the deadline word, because the handler is about to begin for it. Does nothing if the
    /// word holds another deadline by now. A thread may have stored `deadline` and not yet updated the state. The check
    /// that follows finds the deadline gone. So the timer fires only once for `deadline`.
    fn consume(&self, deadline: u64) {
        // Ordering: Release [T3], as in `link`. Failure Relaxed: nothing is read.
        let _ = self.control.deadline.compare_exchange(deadline, NEVER, Ordering::Release, Ordering::Relaxed);
    }

    /// Arms the timer by storing `deadline`. Returns true if the timer's present ticket (a request to check the timer)
    /// is due in time, so that the arming is complete. Otherwise the caller must call `queue`.
    #[inline(always)]
    pub(crate) fn postpone(&self, deadline: Timestamp) -> bool {
        let deadline = word_of(deadline);
        self.set_deadline(deadline);
        // Ordering: light fence [F3].
        self.barrier.light();
        // Ordering: Relaxed. The fence orders this load, and nothing is read through it.
        self.origin().is_covered(self.control.state.load(Ordering::Relaxed), deadline)
    }

    /// Completes an arming after `postpone` has returned false. Queues a ticket for the deadline, if the timer needs a
    /// new ticket. If the timer did not fire for its last deadline, or is new and was made by [`own`](Self::own)
    /// without `expects_fire`, then `early` chooses the moment of the check: it gets the deadline, and returns a moment
    /// at or before the deadline.
    pub(crate) fn queue(&self, deadline: Timestamp, early: impl Fn(Timestamp) -> Timestamp) -> Arm {
        let deadline = word_of(deadline);
        self.queue_by(|state| {
            if self.origin().is_covered(state, deadline) {
                return None;
            }
            let check = self.check_for(state, deadline)?;
            let expects_fire = state & (QUEUED | CHANGED) == 0;
            Some(if expects_fire { check } else { early(Timestamp::from_nanos(check)).as_nanos().min(check) })
        })
    }

    /// Replaces the timer's present ticket by a new ticket, whose lane (a thread's queue) the caller can choose. The
    /// caller has called `postpone`, with any result. The new ticket is not later than the old ticket, because other
    /// threads may rely on the old ticket (O3).
    pub(crate) fn queue_anew(&self, deadline: Timestamp) -> Arm {
        let deadline = word_of(deadline);
        self.queue_by(|state| {
            let earliest = self.origin().unit_of_check(state);
            Some(earliest.map_or(deadline, |check| check.min(deadline)).min(self.origin().last_check()))
        })
    }

    /// Queues a ticket for the moment that `check_for` returns. `check_for` returns `None` if the timer's present
    /// ticket suffices. If a thread checks the timer or runs its handler, only sets the flag `changed`.
    fn queue_by(&self, check_for: impl Fn(u64) -> Option<u64>) -> Arm {
        // Ordering: Relaxed. A hint for the CAS.
        let mut state = self.control.state.load(Ordering::Relaxed);
        loop {
            let (next, then) = if state & SHUT != 0 {
                return Arm::Shut;
            } else if state & DROPPED != 0 {
                return Arm::Dropped;
            } else if state & RUNNING != 0 {
                (state | CHANGED, Arm::Running)
            } else if state & CHECKING != 0 {
                (state | CHANGED, Arm::Pending)
            } else if let Some(check) = check_for(state) {
                let next = self.origin().queued(state, check);
                (next, Arm::Queue { stamp: stamp_of(next), check: Timestamp::from_nanos(check) })
            } else {
                return Arm::Pending;
            };
            match self.update(state, next) {
                Ok(()) => {
                    if let Arm::Queue { check, .. } = then {
                        self.extra().note(next, check.as_nanos());
                    }
                    return then;
                }
                Err(newer) => state = newer,
            }
        }
    }

    /// Removes the deadline, so that the timer is not armed.
    #[inline(always)]
    pub(crate) fn disarm(&self) -> Withdrawn {
        // Ordering: Relaxed. The value decides between two names for the same outcome. Two threads that disarm may both
        // read the arming: one winner would need a swap here.
        let was = self.control.deadline.load(Ordering::Relaxed);
        self.set_deadline(disarmed(was));
        // Ordering: light fence [F3].
        self.barrier.light();
        // Ordering: Acquire [S2]. The effects of a handler that has ended.
        let state = self.control.state.load(Ordering::Acquire);
        if state & FLAGS == OWNED | QUEUED {
            return if is_disarmed(was) { Withdrawn::Idle } else { Withdrawn::Armed };
        }
        self.withdraw(was, state)
    }

    #[cold]
    fn withdraw(&self, was: u64, mut state: u64) -> Withdrawn {
        while state & CHECKING != 0 {
            match self.update(state, state | CHANGED) {
                Ok(()) => return if is_disarmed(was) { Withdrawn::Idle } else { Withdrawn::Armed },
                Err(newer) => state = newer,
            }
        }
        if state & RUNNING != 0 {
            // If the timer was armed again since the handler began, the end of the run or the next check finds it
            // disarmed.
            return Withdrawn::Running { was_armed: state & CHANGED != 0 && !is_disarmed(was) };
        }
        if state & (QUEUED | CHANGED) != 0 && !is_disarmed(was) { Withdrawn::Armed } else { Withdrawn::Idle }
    }

    pub(crate) fn armed_for(&self) -> Option<Timestamp> {
        // Ordering: Acquire. The deadline of the last change of the state, or a deadline that was stored later.
        let state = self.control.state.load(Ordering::Acquire);
        // Ordering: Relaxed. The load above orders this one.
        let deadline = self.control.deadline.load(Ordering::Relaxed);
        let in_force =
            state & (QUEUED | CHECKING) != 0 || state & (RUNNING | CHANGED | SHUT) == RUNNING | CHANGED;
        (in_force && !is_disarmed(deadline)).then_some(Timestamp::from_nanos(deadline))
    }

    /// Makes the caller the timer's holder, the only thread that checks or fires the timer. The timer's ticket is due.
    /// The caller passes a heavy fence and then calls `check`. Returns false if the ticket is stale.
    pub(crate) fn begin_check(&self, stamp: u16) -> bool {
        // Ordering: Relaxed. A hint for the CAS.
        let mut state = self.control.state.load(Ordering::Relaxed);
        while state & FLAGS == OWNED | QUEUED && stamp_of(state) == stamp {
            match self.update(state, state ^ (QUEUED | CHECKING)) {
                Ok(()) => return true,
                Err(newer) => state = newer,
            }
        }
        false
    }

    /// Checks the deadline of a timer that the caller holds. After `begin_check`, the caller has passed a heavy fence
    /// (F3). If the timer was postponed, `next_check` chooses the moment of the next check. `next_check` gets the
    /// latest permitted moment, and must return that moment or an earlier one.
    pub(crate) fn check(
        &self,
        stamp: u16,
        now: Timestamp,
        next_check: impl Fn(Timestamp) -> Timestamp,
    ) -> Check {
        // Ordering: Acquire [S1]. The deadline of the last change.
        let state = self.control.state.load(Ordering::Acquire);
        match self.decide(state, stamp, Some(now), next_check) {
            Decision::Due { .. } | Decision::Dropped { .. } => Check::Due,
            Decision::Later { stamp, check } => Check::Later { stamp, check },
            Decision::AtRest => Check::AtRest,
        }
    }

    /// Begins the handler's run for a timer that `check` found due. `now` is the moment at which the handler would
    /// begin. Checks the deadline once more.
    pub(crate) fn begin(&self, stamp: u16, now: Timestamp) -> Begin {
        // Ordering: Acquire [S1]. The deadline of the last change.
        let mut state = self.control.state.load(Ordering::Acquire);
        loop {
            let changed = match self.decide(state, stamp, Some(now), at_its_deadline) {
                Decision::Due { state: checking, deadline } => {
                    self.update(checking, checking ^ (CHECKING | RUNNING)).map(|()| {
                        self.consume(deadline);
                        Begin::Run { deadline: Timestamp::from_nanos(deadline) }
                    })
                }
                Decision::Dropped { state: dropped } => {
                    self.update(dropped, self.extra().vacated()).map(|()| Begin::Free)
                }
                Decision::Later { stamp, check } => return Begin::Later { stamp, check },
                Decision::AtRest => return Begin::AtRest,
            };
            match changed {
                Ok(then) => return then,
                Err(newer) => state = newer,
            }
        }
    }

    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn end(&self) -> End {
        self.end_with(|| {})
    }

    /// Ends the handler's run. If the shutdown came during the run, first calls `last_word`. During that call, the
    /// caller may still access the payload.
    pub(crate) fn end_with(&self, last_word: impl FnOnce()) -> End {
        let mut last_word = Some(last_word);
        // Ordering: Acquire [S1]. The deadline of the last change.
        let mut state = self.control.state.load(Ordering::Acquire);
        loop {
            debug_assert!(state & RUNNING != 0, "O1");
            if state & (SHUT | DROPPED) == SHUT
                && let Some(say) = last_word.take()
            {
                say();
            }
            let next = if state & DROPPED != 0 {
                self.extra().vacated()
            } else if state & (CHANGED | SHUT) == CHANGED {
                state & !(RUNNING | WAITED | CHANGED) | CHECKING
            } else {
                state & !(RUNNING | WAITED | CHANGED)
            };
            match self.update(state, next) {
                Ok(()) => return End { waited: state & WAITED != 0, then: self.after_run(next) },
                Err(newer) => state = newer,
            }
        }
    }

    fn after_run(&self, mut state: u64) -> AfterRun {
        if state & OWNED == 0 {
            return AfterRun::Free;
        }
        loop {
            match self.decide(state, stamp_of(state), None, at_its_deadline) {
                Decision::Later { stamp, check } => return AfterRun::Later { stamp, check },
                Decision::Dropped { state: dropped } => match self.update(dropped, self.extra().vacated()) {
                    Ok(()) => return AfterRun::Free,
                    Err(newer) => state = newer,
                },
                Decision::Due { .. } | Decision::AtRest => return AfterRun::AtRest,
            }
        }
    }

    /// Moves a timer from the state `checking` to its next state. Leaves the move to the caller if the timer was
    /// dropped or is due at `now`. If `now` is `None`, the timer counts as not due.
    fn decide(
        &self,
        mut state: u64,
        stamp: u16,
        now: Option<Timestamp>,
        next_check: impl Fn(Timestamp) -> Timestamp,
    ) -> Decision {
        loop {
            if state & CHECKING == 0 || stamp_of(state) != stamp {
                return Decision::AtRest;
            }
            if state & DROPPED != 0 {
                return Decision::Dropped { state };
            }
            // Ordering: Relaxed. The value is not older than the fence (F3) or the flag `changed` that we read (S1).
            let word = self.control.deadline.load(Ordering::Relaxed);
            let (is_armed, deadline) =
                if is_disarmed(word) { (false, last_deadline(word)) } else { (true, word) };
            let ahead = now.map_or(0, |now| deadline.saturating_sub(now.as_nanos()));
            let is_in_use = ahead > if is_armed { 0 } else { IN_USE };
            let check = check_before(deadline, now, self.origin().last_check(), &next_check);
            let next = if state & CHANGED != 0 {
                state & !CHANGED
            } else if is_in_use || is_armed && now.is_none() {
                // A disarmed timer that is in use keeps its ticket, which is then early enough for the next arming. Any
                // other disarmed timer comes to rest at once, although a deadline of no force may be ahead.
                self.origin().queued(state, check)
            } else if is_armed {
                return Decision::Due { state, deadline };
            } else {
                // The flag `changed` marks that the timer was disarmed. After a run it is not set: the run had consumed
                // the deadline that the disarm found.
                state & !CHECKING | if now.is_some() { CHANGED } else { 0 }
            };
            match self.update(state, next) {
                Ok(()) if next & QUEUED != 0 => {
                    self.extra().note(next, check);
                    return Decision::Later { stamp: stamp_of(next), check: Timestamp::from_nanos(check) };
                }
                Ok(()) => state = next,
                Err(newer) => state = newer,
            }
        }
    }

    /// Releases the timer, because its handle is dropped. Either vacates the slot, or leaves the slot to the thread
    /// that checks or fires the timer. In both cases the timer does not fire for its deadline.
    pub(crate) fn release(&self) -> Release {
        // Ordering: Relaxed. A hint for the CAS.
        let mut state = self.control.state.load(Ordering::Relaxed);
        loop {
            let (next, then) = if state & (CHECKING | RUNNING) == 0 {
                (self.extra().vacated(), Release::Vacated)
            } else {
                (state | DROPPED, Release::Left)
            };
            match self.update(state, next) {
                Ok(()) => return then,
                Err(newer) => state = newer,
            }
        }
    }

    pub(crate) fn is_owned(&self) -> bool {
        // Ordering: Relaxed. A hint.
        self.control.state.load(Ordering::Relaxed) & OWNED != 0
    }

    /// Makes the timer refuse every further arming, for the shutdown. Returns `None` if the slot does not belong to an
    /// owned timer.
    pub(crate) fn shut(&self) -> Option<Shut> {
        self.shut_into(0, Shut::Kept)
    }

    /// Works like `shut`, and also begins the timer's last run, in which the payload gets a final call. If the handler
    /// runs already, `end_with` makes the final call at the end of that run.
    pub(crate) fn shut_running(&self) -> Option<Shut> {
        self.shut_into(RUNNING, Shut::Run)
    }

    /// Returns whether the timer has a holder, a thread that checks it or runs its handler.
    #[cfg(feature = "async")]
    pub(crate) fn is_held(&self) -> bool {
        // Ordering: Relaxed. A hint: a holder may come or go at once.
        self.control.state.load(Ordering::Relaxed) & (CHECKING | RUNNING) != 0
    }

    #[cfg(feature = "async")]
    pub(crate) fn is_shut(&self) -> bool {
        // Ordering: Relaxed. A thread that was woken by the last word has acquired the flag from the cell of its waker
        // (model `last_run::a_sleep_races_with_the_last_run`).
        self.control.state.load(Ordering::Relaxed) & SHUT != 0
    }

    fn shut_into(&self, flags: u64, outcome: Shut) -> Option<Shut> {
        // Ordering: Acquire [S2]. The extra word.
        let mut state = self.control.state.load(Ordering::Acquire);
        while state & OWNED != 0 {
            let (next, then) = if state & SHUT != 0 {
                return Some(Shut::Kept);
            } else if state & RUNNING != 0 {
                (state | SHUT, Shut::Kept)
            } else if state & DROPPED != 0 {
                (self.extra().vacated(), Shut::Free)
            } else {
                (state & !(QUEUED | CHECKING | CHANGED) | SHUT | flags, outcome)
            };
            match self.update(state, next) {
                Ok(()) => return Some(then),
                Err(newer) => state = newer,
            }
        }
        None
    }

    /// Makes `end_with` report that a thread waits for the end of the present run. Returns the number of the run, or
    /// `None` if no handler runs.
    pub(crate) fn await_run(&self) -> Option<u32> {
        // Ordering: Acquire [S2]. If the handler has ended, the handler's effects.
        let mut state = self.control.state.load(Ordering::Acquire);
        while state & (OWNED | RUNNING) == OWNED | RUNNING {
            match self.update(state, state | WAITED) {
                Ok(()) => return Some(number_of(state)),
                Err(newer) => state = newer,
            }
        }
        None
    }

    /// Returns whether the run with this number has ended.
    pub(crate) fn has_run(&self, run: u32) -> bool {
        // Ordering: Acquire [S2]. The handler's effects.
        let state = self.control.state.load(Ordering::Acquire);
        state & (OWNED | RUNNING) != OWNED | RUNNING || number_of(state) != run
    }

    #[inline]
    fn update(&self, from: u64, to: u64) -> Result<(), u64> {
        // Ordering: AcqRel [S1, S2], both ways: the thread that updates the state next sees everything that was stored
        // before, the deadline and the handler's effects. Failure Acquire [S1]: the retry reads the deadline of the
        // update that succeeded.
        self.control.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// Returns the moment at which to check a timer that must be checked at the moment `latest` or before. While
/// `last_check` is in the future, the moment is not after `last_check` either.
fn check_before(
    latest: u64,
    now: Option<Timestamp>,
    last_check: u64,
    next_check: impl Fn(Timestamp) -> Timestamp,
) -> u64 {
    let check = next_check(Timestamp::from_nanos(latest)).as_nanos();
    debug_assert!(check <= latest, "O3");
    if now.is_some_and(|now| now.as_nanos() < last_check) { check.min(last_check) } else { check }
}

/// Returns the deadline itself as the moment of the next check. Timers whose checks do not come together use this
/// function.
fn at_its_deadline(deadline: Timestamp) -> Timestamp {
    deadline
}

/// The result of `decide`: the timer's next state, or the step that is left to the caller.
enum Decision {
    Due { state: u64, deadline: u64 },
    Dropped { state: u64 },
    Later { stamp: u16, check: Timestamp },
    AtRest,
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::AtomicU64;
    use crate::base::ticket::TimerId;
    use crate::lockfree::state::{Cancel, Control};

    /// The generation of an owned timer is in its extra word, and goes round at 2^40. The slot has an owned timer and a
    /// one-shot in turn. In some cases the owned timer takes the generation round, in others the one-shot.
    #[test]
    fn generations_of_owned_timers_go_round() {
        const GENERATIONS: u64 = 1 << 40;
        let (at, due) = (Timestamp::from_nanos, Timestamp::from_nanos(20 << 20));
        for (index, first) in [(7, GENERATIONS - 2), (7, GENERATIONS - 3), (1 << 24, GENERATIONS - 3)] {
            let control = Control { state: AtomicU64::new(vacant(first)), deadline: AtomicU64::new(0) };
            let extras = Extras::new(index + 1, at(0));
            let timer = extras.view(&control, index);
            let mut stale = Vec::new();
            for round in 0..4 {
                let generation = (first + 2 * round) % GENERATIONS;
                timer.own(true);
                assert_eq!(timer.generation(), generation);
                let id = TimerId::new(index, timer.generation());
                assert!(!stale.contains(&id));
                stale.push(id);
                assert!(!timer.postpone(due));
                let Arm::Queue { stamp, .. } = timer.queue(due, |deadline| deadline) else {
                    panic!("{id:?}")
                };
                assert_eq!((timer.disarm(), timer.armed_for()), (Withdrawn::Armed, None));
                assert!(timer.postpone(due));
                assert!(timer.begin_check(stamp));
                assert_eq!(timer.check(stamp, due, |deadline| deadline), Check::Due);
                assert_eq!(timer.begin(stamp, due), Begin::Run { deadline: due });
                assert_eq!(timer.generation(), generation);
                for &id in &stale {
                    assert_eq!((control.cancel(id), control.deadline(id)), (Cancel::Gone, None));
                    assert!(!control.is_running(id) && control.has_ended(id));
                }
                // The handle is dropped during the run, or after it.
                if round % 2 == 0 {
                    assert_eq!(timer.release(), Release::Left);
                    assert_eq!(timer.end_with(|| {}), End { waited: false, then: AfterRun::Free });
                } else {
                    assert_eq!(timer.end_with(|| {}), End { waited: false, then: AfterRun::AtRest });
                    assert_eq!(timer.release(), Release::Vacated);
                }
                let (id, _) = control.arm(index, at(1));
                assert!(id.is_of((generation + 1) % GENERATIONS) && !stale.contains(&id));
                for &id in &stale {
                    assert_eq!((control.cancel(id), control.deadline(id)), (Cancel::Gone, None));
                    assert!(control.has_ended(id));
                }
                assert_eq!(control.cancel(id), Cancel::Won);
                stale.push(id);
            }
        }
    }

    /// Returns the start of a unit of the state's checks.
    fn at(unit: u64) -> Timestamp {
        Timestamp::from_nanos(unit << 20)
    }

    /// Calls `f` with a new timer, of which a firing is expected or not.
    fn with_new(expects_fire: bool, f: impl FnOnce(&Owned<'_>)) {
        let control = Control { state: AtomicU64::new(vacant(2)), deadline: AtomicU64::new(0) };
        let extras = Extras::new(1, at(0));
        let timer = extras.view(&control, 0);
        timer.own(expects_fire);
        f(&timer);
    }

    #[test]
    fn a_new_timer_is_checked_early_unless_it_is_expected_to_fire() {
        let (early, due) = (at(10), at(20));
        for (expects_fire, moment) in [(true, due), (false, early)] {
            with_new(expects_fire, |timer| {
                assert!(!timer.postpone(due));
                let Arm::Queue { check, .. } = timer.queue(due, |_| early) else {
                    panic!("it needs a ticket")
                };
                assert_eq!(check, moment);
            });
        }
    }

    #[test]
    fn a_disarmed_timer_keeps_its_ticket_until_its_last_deadline_is_near() {
        let (first, last, later) = (at(10), at(1_010), at(1_015));
        with_new(false, |timer| {
            assert!(!timer.postpone(last));
            let Arm::Queue { stamp, check } = timer.queue(last, |_| first) else {
                panic!("it needs a ticket")
            };
            assert_eq!((check, timer.disarm()), (first, Withdrawn::Armed));
            assert!(timer.begin_check(stamp));
            let Check::Later { check, stamp } = timer.check(stamp, first, |latest| latest) else {
                panic!("the timer is in use")
            };
            assert_eq!(check, last);
            assert!(timer.postpone(later), "the ticket is early enough for the next arming");
            assert_eq!(timer.disarm(), Withdrawn::Armed);
            let near = Timestamp::from_nanos(later.as_nanos() - IN_USE);
            assert!(timer.begin_check(stamp));
            assert!(matches!(timer.check(stamp, near, |latest| latest), Check::AtRest));
            assert!(!timer.postpone(at(2_000)), "a timer at rest needs a ticket");
        });
    }
}
