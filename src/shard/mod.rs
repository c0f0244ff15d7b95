//! One shard: a wheel, an inbox and a sleep. `turn` is a function of explicit time; `thread` gives it a thread.
//!
//! A shard reads its lanes, its wheel and the time, and nothing else. Its turn: drain the lanes, advance the wheel,
//! hand over what is due, look after slow chunks, sweep a little if asked.

mod thread;

pub(crate) use thread::drive;

use crate::counters::ShardCounters;
use crate::dispatch::{Dispatcher, DueChunk, Fire, HANDOVER_CHUNKS, Handover, Underway};
use crate::inbox::Inbox;
use crate::limits::{CHUNK_TICKETS, RADIX_BITS};
use crate::parker::Parker;
use crate::slab::Slots;
use crate::sync::{AtomicBool, Ordering, StdArc};
use crate::tick::{Tick, TickLength};
use crate::ticket::{Posting, Ticket};
use crate::wheel::{Progress, TicketWheel};

/// Tickets that one turn hands out or moves at most, before it looks at the lanes again: some hundred µs of work.
const TURN_BUDGET: usize = 16_384;
/// Chunks that one turn sweeps at most.
const SWEEP_CHUNKS: usize = 256;

/// What a shard shares with producers and workers.
#[derive(Debug)]
pub(crate) struct ShardShared {
    pub(crate) inbox: Inbox,
    pub(crate) parker: Parker,
    pub(crate) counters: ShardCounters,
    sweep_wanted: AtomicBool,
}

impl ShardShared {
    pub(crate) fn new(lane_capacity: u64) -> Self {
        Self {
            inbox: Inbox::new(lane_capacity),
            parker: Parker::new(),
            counters: ShardCounters::new(),
            sweep_wanted: AtomicBool::new(false),
        }
    }

    /// Asks the shard to drop its stale tickets.
    pub(crate) fn want_sweep(&self) {
        // Ordering: Relaxed. The shard reads it on its next turn, or on the one after; the wake follows.
        if !self.sweep_wanted.swap(true, Ordering::Relaxed) {
            self.parker.wake_if_asleep();
        }
    }
}

/// What the shard wants after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    /// Another turn at once: there was more to do than one turn does.
    Turn,
    /// A turn at this tick, or when woken.
    Sleep(Option<Tick>),
}

/// The shard's own side: whoever has it drives it.
#[derive(Debug)]
pub(crate) struct Shard {
    index: usize,
    shared: StdArc<ShardShared>,
    slots: StdArc<Slots>,
    wheel: TicketWheel<RADIX_BITS>,
    tick: TickLength,
    /// Postings on their way from a lane to the wheel.
    drained: Vec<Posting>,
    underway: Underway,
    looked_at: Tick,
    look_interval: u64,
}

impl Shard {
    /// `look_interval` is how many ticks a chunk may stand still before it gets help.
    pub(crate) fn new(
        index: usize,
        shared: StdArc<ShardShared>,
        slots: StdArc<Slots>,
        tick: TickLength,
        look_interval: u64,
    ) -> Self {
        Self {
            index,
            shared,
            slots,
            wheel: TicketWheel::new(Tick(0)),
            tick,
            drained: Vec::with_capacity(CHUNK_TICKETS),
            underway: Underway::default(),
            looked_at: Tick(0),
            look_interval: look_interval.max(1),
        }
    }

    /// Does what is to be done at `now`. Handlers that run inline run here.
    pub(crate) fn turn<F: Fire>(&mut self, now: Tick, dispatcher: &Dispatcher, fire: &StdArc<F>) -> Next {
        self.drain();
        // A clock that stepped back is waited for: to the wheel, the moments in between have passed.
        let progress =
            if now < self.wheel.position() { Progress::Settled } else { self.advance(now, dispatcher, fire) };
        self.look_after_slow_chunks(now, dispatcher, fire);
        let swept = self.sweep();
        let counters = &self.shared.counters;
        counters.turns.add(1);
        counters.tickets.set(self.wheel.len() as u64);
        if progress == Progress::BudgetSpent || !swept {
            return Next::Turn;
        }
        Next::Sleep(self.wake_tick(now))
    }

    fn wake_tick(&self, now: Tick) -> Option<Tick> {
        let due = self.wheel.wake_tick();
        if !self.underway.wants_a_look() {
            return due;
        }
        let look = now.saturating_add(self.look_interval);
        Some(due.map_or(look, |due| due.min(look)))
    }

    /// The tick at which the wheel next has something to do.
    pub(crate) fn next_due(&self) -> Option<Tick> {
        self.wheel.wake_tick()
    }

    /// Brings tickets from the lanes into the wheel; those whose timer has ended meanwhile end here.
    pub(crate) fn drain(&mut self) {
        let Self { shared, slots, wheel, tick, drained, .. } = self;
        let mut stale = 0;
        for lane in shared.inbox.lanes() {
            // SAFETY: N3: `&mut self`, and a shard is the one reader of its inbox.
            unsafe {
                lane.drain(|posting| {
                    drained.push(posting);
                    if drained.len() == CHUNK_TICKETS {
                        stale += insert_live(wheel, slots, *tick, drained);
                    }
                });
            }
            // Lane by lane: only within a lane does what follows tell that a posting has ended.
            stale += insert_live(wheel, slots, *tick, drained);
        }
        shared.counters.stale.add(stale);
    }

    fn advance<F: Fire>(&mut self, now: Tick, dispatcher: &Dispatcher, fire: &StdArc<F>) -> Progress {
        let Self { index, shared, slots, wheel, underway, .. } = self;
        let mut hand_over = |due: &mut Vec<DueChunk>| {
            shared.counters.handed_over.add(due.len() as u64);
            let handover = StdArc::new(Handover::new(*index, core::mem::take(due)));
            dispatcher.dispatch(fire, &handover);
            if !dispatcher.is_inline() {
                underway.push(handover);
            }
        };
        let held = wheel.len();
        let mut handed = 0;
        let mut due = Vec::new();
        let is_live = |ticket: &Ticket| slots.control(ticket.index).is_live(ticket.stamp);
        let progress = wheel.advance(now, TURN_BUDGET, is_live, |chunk| {
            handed += chunk.len();
            due.push(DueChunk::new(chunk));
            if due.len() == HANDOVER_CHUNKS {
                hand_over(&mut due);
            }
        });
        if !due.is_empty() {
            hand_over(&mut due);
        }
        shared.counters.stale.add((held - wheel.len() - handed) as u64);
        progress
    }

    fn look_after_slow_chunks<F: Fire>(&mut self, now: Tick, dispatcher: &Dispatcher, fire: &StdArc<F>) {
        if now.0.saturating_sub(self.looked_at.0) >= self.look_interval {
            self.looked_at = now;
            self.underway.look(dispatcher, fire);
        }
    }

    /// A slice of the sweep, if one is wanted. False while there is more of it to do.
    fn sweep(&mut self) -> bool {
        let wanted = &self.shared.sweep_wanted;
        // Ordering: Relaxed. See `want_sweep`.
        if !wanted.load(Ordering::Relaxed) {
            return true;
        }
        let held = self.wheel.len();
        let slots = &self.slots;
        let done = self.wheel.sweep(SWEEP_CHUNKS, |ticket| slots.control(ticket.index).is_live(ticket.stamp));
        self.shared.counters.stale.add((held - self.wheel.len()) as u64);
        if done {
            wanted.store(false, Ordering::Relaxed);
        }
        done
    }
}

/// Moves the live ones of `postings` into the wheel as tickets; how many were stale.
///
/// Most timers are cancelled before their shard first sees them, so most postings end here. All states are read before
/// the first ticket is placed: the loads overlap. A posting that is followed by one for the same slot has ended for
/// certain, and is not looked at: a thread that schedules and cancels uses one slot again and again, and reading its word
/// each time would take the line away from it.
fn insert_live(
    wheel: &mut TicketWheel<RADIX_BITS>,
    slots: &Slots,
    tick: TickLength,
    postings: &mut Vec<Posting>,
) -> u64 {
    let before = postings.len();
    let mut kept = 0;
    for at in 0..before {
        let posting = postings[at];
        let superseded = postings.get(at + 1).is_some_and(|next| next.index == posting.index);
        if !superseded && slots.control(posting.index).is_live(posting.stamp) {
            postings[kept] = posting;
            kept += 1;
        }
    }
    for posting in &postings[..kept] {
        wheel.insert(posting.into_ticket(tick));
    }
    postings.clear();
    (before - kept) as u64
}
