//! Firing: what a worker does with a due chunk.

use super::{Core, Due, with_local};
use crate::dispatch::{DueChunk, Fire};
use crate::slab::Magazine;
use crate::state::Claim;
use crate::sync::{Ordering, StdArc};
use crate::tick::Timestamp;
use crate::ticket::{Posting, TimerId};
use core::cell::RefCell;

thread_local! {
    /// The engines whose handlers are on this thread's stack, outermost first.
    static FIRING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A worker's stay in an engine, from the begin of a chunk to its end.
struct Session<'a, T: Send + 'static> {
    core: &'a Core<T>,
    /// Slots of fired timers: a magazine for the depot at the end.
    vacated: Magazine,
}

impl<'a, T: Send + 'static> Session<'a, T> {
    fn begin(core: &'a Core<T>) -> Self {
        // Ordering: SeqCst. With `shutdown`: it sees the session, or the session sees that the engine stops.
        core.sessions.fetch_add(1, Ordering::SeqCst);
        let _ = FIRING.try_with(|firing| firing.borrow_mut().push(core.id));
        Self { core, vacated: Magazine::new() }
    }
}

impl<T: Send + 'static> Drop for Session<'_, T> {
    fn drop(&mut self) {
        let _ = FIRING.try_with(|firing| firing.borrow_mut().pop());
        let vacated = core::mem::replace(&mut self.vacated, Magazine::new());
        self.core.slots().give(vacated);
        self.core.end_session();
    }
}

impl<T: Send + 'static> Core<T> {
    /// Whether a handler of this engine is on the calling thread's stack.
    fn is_firing_here(&self) -> bool {
        FIRING.try_with(|firing| firing.borrow().contains(&self.id)).unwrap_or(false)
    }

    /// Whether waiting for a handler could be waiting for oneself: in one, and on a thread of the pool, which may be
    /// doing something on behalf of one.
    pub(crate) fn must_not_wait_here(&self) -> bool {
        self.is_firing_here() || self.dispatcher.is_worker_here()
    }

    /// Runs the handler of a claimed timer and vacates its slot.
    fn run_handler(self: &StdArc<Self>, shard: usize, index: u32, generation: u32, due: Due<T>) {
        let counters = &self.shards[shard].counters;
        counters.fired.add(1);
        counters.record_lateness(due.lateness);
        if !self.guarded.run(|| (self.handler)(due, self)) {
            counters.panics.add(1);
        }
        if self.slots().control(index).finish(generation) {
            self.announce_quiet();
        }
    }

    /// Sends the ticket that an early one asks for.
    #[cold]
    fn reissue(&self, index: u32, stamp: u32, deadline: Timestamp) {
        with_local(self, |local| {
            let pushed = local.lane.push(Posting { deadline, index, stamp });
            local.lane.lane().count_not_scheduled();
            // A closed engine returns the timer by its state word; the ticket does not matter then.
            let _ = self.notify(local, pushed, deadline);
        });
    }
}

impl<T: Send + 'static> Fire for Core<T> {
    fn job_dropped(&self, shard: usize) {
        self.shards[shard].parker.wake_if_asleep();
    }

    fn fire(self: &StdArc<Self>, shard: usize, chunk: &DueChunk) {
        let counters = &self.shards[shard].counters;
        let mut session = Session::begin(self);
        for ticket in chunk.tickets() {
            self.slab.prefetch(ticket.index);
        }
        let begin = self.clock.now();
        let mut now = begin;
        // Ordering: SeqCst. With `Session::begin`.
        while !self.stopping.load(Ordering::SeqCst) {
            let Some((ticket, is_first)) = chunk.take() else { break };
            if is_first {
                counters.begun.add(1);
            }
            // A clock that stepped back meanwhile does not unmake what its shard saw: the ticket's tick has begun.
            let fire_time = now.max(self.tick.start_of(ticket.tick));
            match self.slots().control(ticket.index).claim(ticket.stamp, fire_time) {
                Claim::Won { generation, deadline } => {
                    // SAFETY: I3: the claim made the payload ours.
                    let payload = unsafe { self.slab.take(ticket.index) };
                    let id = TimerId::new(ticket.index, generation);
                    let due = Due { id, deadline, lateness: now - deadline, payload };
                    self.run_handler(shard, ticket.index, generation, due);
                    self.slots().vacate(&mut session.vacated, ticket.index);
                    now = self.clock.now();
                }
                Claim::Early { stamp, deadline } => self.reissue(ticket.index, stamp, deadline),
                Claim::Stale => counters.stale_at_worker.add(1),
            }
        }
        counters.add_busy(now - begin);
    }
}
