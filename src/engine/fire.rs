//! Fires the timers of due chunks, on the thread of a worker.

use super::core::Core;
use super::due::{Due, DueId, Payload};
use super::local::lend;
use crate::base::buckets::Run;
use crate::base::counters::{StationCounters, Stripe};
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use crate::base::ticket::{Insertion, Ticket, TimerId};
use crate::dispatch::{Batch, Dispatcher, DueChunk, Fire};
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::{Magazine, Slab};
use crate::lockfree::state::Claim;
use crate::lockfree::state::owned::{AfterRun, Begin, End};
use crate::shard::here;

/// A worker's session in an engine: the time in which the worker fires one chunk, a group of due tickets. A session is
/// passed by value, so that its references stay in registers while the worker changes the [`Results`].
struct Session<'a, T: Send + 'static> {
    core: &'a StdArc<Core<T>>,
    slab: &'a Slab<T>,
    counters: &'a StationCounters,
    stripe: Stripe,
}

/// Collects the slots and the latenesses of the timers that a session fires. A session is a worker's time with one
/// chunk (a group of due tickets). At its end, the slots and latenesses go to the engine.
struct Results {
    /// The slots of timers that have fired.
    vacated: Magazine,
    lateness: Run,
}

/// A session that has begun. A session is a worker's time with one chunk, a group of due tickets. Dropping this guard
/// ends the session and gives its results to the engine.
struct OpenSession<'a, T: Send + 'static> {
    session: Session<'a, T>,
    results: Results,
}

impl<T: Send + 'static> Clone for Session<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for Session<'_, T> {}

impl<'a, T: Send + 'static> OpenSession<'a, T> {
    fn begin(core: &'a StdArc<Core<T>>, shard: usize) -> Self {
        core.quiescence.begin_session();
        core.membership.begin_firing();
        let session = Session {
            core,
            slab: &core.timers.slab,
            counters: &core.admission().stations().at(shard).counters,
            stripe: Stripe::of_this_thread(),
        };
        Self { session, results: Results { vacated: Magazine::new(), lateness: Run::default() } }
    }

    /// Returns the session, and the results to fill. Both borrow from this guard. The guard's drop ends the session.
    #[inline(always)]
    fn parts(&mut self) -> (Session<'_, T>, &mut Results) {
        (self.session, &mut self.results)
    }
}

impl<'a, T: Send + 'static> Session<'a, T> {
    /// Fires tickets (requests to check timers) of `chunk` until it has called `most` handlers or no ticket is left.
    /// Returns the number of called handlers.
    fn fire_chunk(core: &'a StdArc<Core<T>>, shard: usize, chunk: &DueChunk, most: usize) -> usize {
        let (tick, clock) = (core.tick(), core.clock());
        let mut open = OpenSession::begin(core, shard);
        let (session, results) = open.parts();
        let counters = session.counters;
        for ticket in chunk.tickets() {
            session.slab.prefetch(ticket.index);
        }
        let mut verdict = clock.true_now();
        let begin = clock.now();
        let mut now = begin;
        let mut called = 0;
        while called < most && !core.quiescence.is_stopping() {
            let Some((ticket, is_first)) = chunk.take() else { break };
            if is_first {
                counters.begin_chunk(chunk.handed_over());
            }
            let come = verdict.max(tick.start_of(ticket.tick));
            let due_at = DueAt { now, verdict, come };
            let ran = if ticket.is_owned() {
                session.fire_owned(results, ticket, due_at)
            } else {
                session.fire_scheduled(results, ticket, due_at)
            };
            if ran {
                called += 1;
                now = clock.now();
                // `now` is less than the earlier reading only if the clock has stepped back.
                verdict = verdict.min(now);
            }
        }
        counters.add_busy(now - begin);
        called
    }

    /// Calls the handler of a timer. Counts the timer's lateness, and a panic of the handler.
    fn call(self, results: &mut Results, due: Due<'a, T>) {
        self.counters.note_lateness(&mut results.lateness, due.lateness);
        let core = self.core;
        if !core.guarded.run(|| (core.handler)(due, core)) {
            self.counters.panics.add(1);
        }
    }

    /// Fires a one-shot, if its ticket is still valid. Returns true if the handler ran.
    #[inline]
    fn fire_scheduled(self, results: &mut Results, ticket: Ticket, due_at: DueAt) -> bool {
        let Ticket { index, stamp, .. } = ticket;
        let (core, counters) = (self.core, self.counters);
        let slots = core.timers.slots();
        let control = slots.control(index);
        match control.claim(stamp, due_at.come) {
            Claim::Won { generation, deadline } => {
                // SAFETY: I3: the claim made the payload ours.
                let payload = Payload::Taken(unsafe { self.slab.take(index) });
                counters.count_fired(self.stripe);
                let id = DueId::one_shot(TimerId::new(index, generation));
                let lateness = due_at.now - deadline;
                self.call(results, Due { id, deadline, lateness, payload });
                if control.finish(generation) {
                    core.quiescence.announce();
                }
                slots.vacate(&mut results.vacated, index);
                return true;
            }
            Claim::Early { stamp, deadline } => {
                counters.passed_on.add(1);
                self.reissue(index, stamp, deadline);
            }
            Claim::Stale => counters.stale_at_worker.add(1),
        }
        false
    }

    /// Fires an owned timer, unless the timer was postponed, disarmed or dropped after its shard had checked it.
    /// Returns true if the handler ran.
    fn fire_owned(self, results: &mut Results, ticket: Ticket, due_at: DueAt) -> bool {
        let Ticket { index, stamp, .. } = ticket;
        let (core, counters) = (self.core, self.counters);
        let timer = core.timers.slots().owned(index);
        // `verdict` decides, not the start of the ticket's tick: the deadline may have been set after the clock had
        // stepped back.
        match timer.begin(stamp, due_at.verdict) {
            Begin::Run { deadline } => {
                // SAFETY: O5: the slot is not vacated before we end the run, and the handle shares only a payload that
                // is `Sync`.
                let payload = unsafe { self.slab.peek(index) };
                counters.count_owned_fired(self.stripe);
                let (id, lateness) = (DueId::owned(index, core.timers.slots()), due_at.now - deadline);
                self.call(results, Due { id, deadline, lateness, payload: Payload::Kept(payload) });
                let mut waker = None;
                let End { waited, then } = timer.end_with(|| waker = core.timers.take_waker(payload));
                match then {
                    AfterRun::Later { stamp, check } => self.reissue_owned(index, stamp, check),
                    AfterRun::Free => self.free_owned(results, index),
                    AfterRun::AtRest => {}
                }
                if waited {
                    core.quiescence.announce();
                }
                core.wake(waker);
                return true;
            }
            Begin::Later { stamp, check } => {
                counters.passed_on.add(1);
                self.reissue_owned(index, stamp, check);
            }
            Begin::Free => {
                counters.passed_on.add(1);
                self.free_owned(results, index);
            }
            Begin::AtRest => counters.stale_at_worker.add(1),
        }
        false
    }

    /// Drops the payload of an owned timer, and gives the slot back. The timer's handle was dropped while this worker
    /// fired the timer.
    fn free_owned(self, results: &mut Results, index: u32) {
        // SAFETY: O5: we vacated the slot, and it is in no magazine yet.
        let payload = unsafe { self.slab.take(index) };
        self.core.timers.slots().vacate(&mut results.vacated, index);
        self.core.timers.count_destroyed();
        self.core.guarded.run(|| drop(payload));
    }

    /// Sends another ticket for a one-shot. The present ticket came due before the timer's deadline.
    #[cold]
    fn reissue(self, index: u32, stamp: u32, deadline: Timestamp) {
        // If the engine is closed, it returns the timer by its state word, whatever ticket it has.
        let _ = self.send_ticket(Insertion { deadline, index, stamp });
    }

    /// Sends a ticket for the next check of an owned timer, at the moment `check`.
    fn reissue_owned(self, index: u32, stamp: u32, check: Timestamp) {
        if self.send_ticket(Insertion { deadline: check, index, stamp }) == Notified::Closed {
            // The shutdown may have reached this timer while this worker held it.
            self.core.shut_late_timer(index);
        }
    }

    /// Posts a ticket for a timer that exists already. The ticket does not count as a scheduled timer.
    fn send_ticket(self, insertion: Insertion) -> Notified {
        let admission = self.core.admission();
        let mut local = lend(admission);
        let pushed = local.lane.push(insertion);
        local.lane.lane().count_not_scheduled();
        local.notify(admission, pushed, insertion.deadline)
    }
}

impl<T: Send + 'static> Drop for OpenSession<'_, T> {
    fn drop(&mut self) {
        let Self { session: Session { core, counters, .. }, results } = self;
        here::end_firing();
        counters.count_lateness(&mut results.lateness);
        let vacated = core::mem::replace(&mut results.vacated, Magazine::new());
        let slots = core.timers.slots();
        if core.membership.is_turned_here() {
            // A loop's thread schedules timers, too. So the slots stay with the thread, and in its core's cache.
            lend(core.admission()).magazines.put_all(slots, vacated);
        } else {
            slots.give(vacated);
        }
        core.quiescence.end_session();
    }
}

/// Two moments: they decide whether the timer of a ticket fires, and how late the timer is.
#[derive(Clone, Copy)]
struct DueAt {
    /// The moment from which the lateness is computed. It is read from the fast clock, which may be a little ahead.
    now: Timestamp,
    /// The moment that decides whether an owned timer's deadline has come. It is read from the true clock, which is
    /// never ahead.
    verdict: Timestamp,
    /// The later of `verdict` and the start of the tick in which the timer's ticket is due. The tick has begun, even if
    /// the clock has stepped back after that.
    come: Timestamp,
}

impl<T: Send + 'static> Fire for Core<T> {
    fn dispatcher(&self) -> &Dispatcher {
        self.membership.dispatcher()
    }

    fn batch_taken(&self, shard: usize) {
        self.admission().stations().at(shard).made_room();
    }

    fn job_dropped(&self, shard: usize) {
        self.admission().stations().at(shard).want_check();
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            if called == most {
                break;
            }
            called += Session::fire_chunk(&self, batch.shard(), chunk, most - called);
        }
        called
    }
}
