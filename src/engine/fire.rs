//! Fires the timers of due chunks, on the thread of a worker.
//!
//! A *session* is the time in which a worker fires tickets of one batch. A session is passed by value, so that its
//! references stay in registers while the worker changes the [`Results`].

use super::core::Core;
use super::due::{Due, Moment, Payload};
use super::local::lend;
use super::pace::Pace;
use crate::base::counters::{StationCounters, Stripe, Tally};
use crate::base::sync::StdArc;
use crate::base::tick::Timestamp;
use crate::base::ticket::{Insertion, Ticket, TimerId};
use crate::dispatch::{Batch, Dispatcher, DueChunk, Fire};
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::{Magazine, Slab};
use crate::lockfree::state::Claim;
use crate::lockfree::state::owned::{AfterRun, Begin, End};
use crate::shard::here;

/// The parts of an engine that a worker uses in a session, the time in which it fires tickets of one batch.
struct Session<'a, T: Send + 'static> {
    core: &'a StdArc<Core<T>>,
    slab: &'a Slab<T>,
    counters: &'a StationCounters,
}

/// The results that a session collects, and passes to the engine at its end. A session is the time in which a worker
/// fires tickets of one batch.
struct Results<'a> {
    /// The slots of timers that have fired.
    vacated: Magazine,
    tally: Tally<'a>,
    pace: Pace,
}

/// A session that has begun. Dropping this guard ends the session and gives its results to the engine.
struct OpenSession<'a, T: Send + 'static> {
    session: Session<'a, T>,
    results: Results<'a>,
}

impl<T: Send + 'static> Clone for Session<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + 'static> Copy for Session<'_, T> {}

impl<'a, T: Send + 'static> OpenSession<'a, T> {
    fn begin(core: &'a StdArc<Core<T>>, shard: usize) -> Self {
        // First, because a clock of the user's own may panic: then no session has begun.
        let pace = Pace::begin(core.clock());
        core.quiescence.begin_session();
        core.membership.begin_firing();
        let session = Session {
            core,
            slab: &core.timers.slab,
            counters: &core.admission().stations().at(shard).counters,
        };
        let tally = session.counters.tally(Stripe::of_this_thread());
        Self { session, results: Results { vacated: Magazine::new(), tally, pace } }
    }

    #[inline(always)]
    fn parts(&mut self) -> (Session<'a, T>, &mut Results<'a>) {
        (self.session, &mut self.results)
    }

    /// Fires tickets of `chunk` until it has called `most` handlers or no ticket is left. Returns the number of called
    /// handlers.
    fn fire_chunk(&mut self, chunk: &DueChunk, most: usize) -> usize {
        let (session, results) = self.parts();
        let Session { core, slab, counters } = session;
        let is_alone = core.membership.dispatcher().is_inline();
        for ticket in chunk.tickets() {
            slab.prefetch(ticket.index());
        }
        let begin = results.pace.now();
        let mut called = 0;
        while called < most && !core.quiescence.is_stopping() {
            let next = if is_alone { chunk.take_alone() } else { chunk.take() };
            let Some((ticket, is_first)) = next else { break };
            if is_first {
                counters.begin_chunk(chunk.handed_over());
            }
            let verdict = results.pace.verdict();
            let ran = if ticket.is_owned() {
                session.fire_owned(results, ticket, verdict)
            } else {
                session.fire_scheduled(results, ticket, verdict, chunk.handed_over())
            };
            if ran {
                called += 1;
                results.pace.count_handler(core.clock(), counters);
            }
        }
        counters.add_busy(results.pace.now() - begin);
        results.pace.publish(counters);
        called
    }

    /// Ends the session. Only then does the histogram of lateness have all its timers.
    fn end(mut self) {
        let (session, results) = self.parts();
        let begin = results.pace.now();
        results.pace.end_last_row(session.core.clock(), session.counters);
        session.counters.add_busy(results.pace.now() - begin);
    }
}

impl<'a, T: Send + 'static> Session<'a, T> {
    /// Calls the handler of a timer with the value that `due` returns, and counts a panic of the handler.
    ///
    /// `due` is called where the handler is called. If the timer were passed through the guard instead, it would be
    /// copied, and the processor would wait for the copy.
    #[inline(always)]
    fn call(self, results: &mut Results<'a>, deadline: Timestamp, due: impl FnOnce() -> Due<'a, T>) {
        results.pace.note(deadline);
        let core = self.core;
        let mut due = Some(due);
        let called = core.guarded.run(|| {
            if let Some(due) = due.take() {
                (core.handler)(due(), core);
            }
        });
        if !called {
            self.counters.panics.add(1);
        }
    }

    /// Fires a one-shot, if its ticket is still valid. Returns true if the handler ran. `verdict` is a reading of the
    /// clock. `found` is the reading by which the shard found the ticket due.
    #[inline]
    fn fire_scheduled(
        self,
        results: &mut Results<'a>,
        ticket: Ticket,
        verdict: Timestamp,
        found: Timestamp,
    ) -> bool {
        let (index, stamp) = (ticket.index(), ticket.stamp());
        let (core, counters) = (self.core, self.counters);
        let slots = core.timers.slots();
        let control = slots.control(index);
        // The ticket's tick had begun when the shard found it due, even if the clock has stepped back after that. The
        // ticket may be another timer's, whose stamp fits by chance: then its low bits hardly fit as well. If they fit,
        // too, and the timer was armed after the step, the timer fires early (`base::ticket`, "Never early").
        let has_come = |deadline: Timestamp| {
            deadline <= verdict || deadline <= found && ticket.is_of(core.tick().due_tick(deadline))
        };
        match control.claim_if(stamp, has_come) {
            Claim::Won { generation, deadline } => {
                results.tally.count_one_shot();
                self.call(results, deadline, || {
                    // SAFETY: I3: the claim made the payload ours, and this closure is called once.
                    let payload = Payload::Taken(unsafe { self.slab.take(index) });
                    let id = TimerId::new(index, generation);
                    Due { moment: Moment::of_one_shot(id, deadline, core.clock()), payload }
                });
                control.finish(generation);
                core.quiescence.announce_end(index);
                slots.vacate(&mut results.vacated, control, index);
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
    /// Returns true if the handler ran. Only `verdict`, a reading of the true clock, decides whether the deadline has
    /// come. The start of the ticket's tick does not count, because the deadline may have been set after the clock had
    /// stepped back.
    fn fire_owned(self, results: &mut Results<'a>, ticket: Ticket, verdict: Timestamp) -> bool {
        let (index, stamp) = (ticket.index(), ticket.stamp());
        let (core, counters) = (self.core, self.counters);
        let timer = core.timers.slots().owned(index);
        match timer.begin(stamp, verdict) {
            Begin::Run { deadline } => {
                // SAFETY: O5: the slot is not vacated before we end the run, and the handle shares only a payload that
                // is `Sync`.
                let payload = unsafe { self.slab.peek(index) };
                results.tally.count_owned();
                self.call(results, deadline, || {
                    let moment = Moment::of_owned(index, deadline, core.timers.slots(), core.clock());
                    Due { moment, payload: Payload::Kept(payload) }
                });
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
                // The drop of the payload may have taken long. So the clock is read before the next handler.
                results.pace.end_row(core.clock(), counters);
            }
            Begin::AtRest => counters.stale_at_worker.add(1),
        }
        false
    }

    /// Drops the payload of an owned timer, and gives the slot back. The timer's handle was dropped while this worker
    /// fired the timer.
    fn free_owned(self, results: &mut Results<'a>, index: u32) {
        // SAFETY: O5: we vacated the slot, and it is in no magazine yet.
        let payload = unsafe { self.slab.take(index) };
        let slots = self.core.timers.slots();
        slots.vacate(&mut results.vacated, slots.control(index), index);
        self.core.timers.count_destroyed();
        self.core.guarded.run(|| drop(payload));
    }

    /// Sends another ticket for a one-shot. The present ticket came due before the timer's deadline.
    #[cold]
    fn reissue(self, index: u32, stamp: u16, deadline: Timestamp) {
        // If the engine is closed, it returns the timer by its state word, whatever ticket it has.
        let _ = self.send_ticket(Insertion { deadline, index, stamp });
    }

    /// Sends a ticket for the next check of an owned timer, at the moment `check`.
    fn reissue_owned(self, index: u32, stamp: u16, check: Timestamp) {
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
        results.pace.flush(counters);
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
        let mut open = OpenSession::begin(&self, batch.shard());
        let mut called = 0;
        for chunk in batch.chunks() {
            if called == most {
                break;
            }
            called += open.fire_chunk(chunk, most - called);
        }
        open.end();
        called
    }
}
