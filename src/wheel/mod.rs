//! A hierarchical timing wheel for one thread: no clock, no atomics, no unsafe code.
//!
//! It is the structure that each shard of the engine drives, and it is useful by itself inside an event loop:
//! [`next_expiry`](Wheel::next_expiry) gives the poll timeout, [`advance`](Wheel::advance) fires what is due. It needs
//! `alloc` only (`default-features = false`).
//!
//! The wheel stores 16-byte *tickets*, never the timers themselves. Cancelling therefore touches the timer's own
//! entry and nothing else; its ticket is recognised as stale when it is the next to wake for, when a slot is spread, when it
//! comes due, or by a sweep that begins once stale tickets outnumber the live ones. Tickets held are at most
//! `2.5 * live + 2,048`.

mod level;
mod slot;
#[cfg(all(test, not(tourbillon_loom)))]
mod tests;
mod tickets;

pub(crate) use slot::Chunk;
pub use tickets::Progress;
pub(crate) use tickets::TicketWheel;

use crate::limits::RADIX_BITS;
use crate::tick::Tick;
use crate::ticket::{Ticket, TimerId};
use alloc::vec::Vec;

/// A timer that came due.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// Its id, stale from now on.
    pub id: TimerId,
    /// The tick that it was inserted for.
    pub tick: Tick,
    /// What was inserted with it.
    pub payload: T,
}

/// A hierarchical timing wheel with a radix of `2^BITS` slots.
///
/// # Examples
///
/// ```
/// use tourbillon::{Tick, wheel::{Progress, Wheel}};
///
/// let mut wheel = Wheel::<&str>::new(Tick(0));
/// let soon = wheel.insert(Tick(10), "soon");
/// let later = wheel.insert(Tick(1 << 40), "later");
///
/// assert_eq!(wheel.next_expiry(), Some(Tick(10)));
/// assert_eq!(wheel.cancel(later), Some("later"));
///
/// let mut fired = Vec::new();
/// let progress = wheel.advance(Tick(12), usize::MAX, |_wheel, timer| fired.push(timer.payload));
/// assert_eq!(progress, Progress::Settled);
/// assert_eq!(fired, ["soon"]);
/// assert_eq!(wheel.cancel(soon), None);
/// ```
#[derive(Debug)]
pub struct Wheel<T, const BITS: u32 = RADIX_BITS> {
    tickets: TicketWheel<BITS>,
    timers: Vec<Timer<T>>,
    free: Vec<u32>,
    /// Chunks that are due and were not yet fired.
    due: Vec<Chunk>,
    live: usize,
    ended: u32,
}

/// A place for a timer: one line for an insert, a cancel or a firing to touch.
#[derive(Debug)]
struct Timer<T> {
    generation: u32,
    payload: Option<T>,
}

/// Stale tickets that are let be, however few timers live.
const STALE_SLACK: usize = 1_024;
/// Timers that end for each chunk's worth of tickets swept, eight tickets for each: while a sweep looks at `n` live
/// tickets at most `n / 8` timers end behind it, and `2 * n` tickets for `7/8 * n` timers keep the bound.
const ENDED_PER_CHUNK: u32 = 4;

impl<T, const BITS: u32> Wheel<T, BITS> {
    /// An empty wheel that stands at `position`: every later tick is ahead of it.
    #[must_use]
    pub fn new(position: Tick) -> Self {
        Self {
            tickets: TicketWheel::new(position),
            timers: Vec::new(),
            free: Vec::new(),
            due: Vec::new(),
            live: 0,
            ended: 0,
        }
    }

    /// Arms a timer for `tick`. One that is not after [`position`](Self::position) fires on the next advance.
    ///
    /// # Panics
    ///
    /// When 2^32 timers are pending.
    ///
    /// # Time complexity
    ///
    /// O(1), amortised over the growth of the tables.
    pub fn insert(&mut self, tick: Tick, payload: T) -> TimerId {
        let index = if let Some(index) = self.free.pop() {
            self.timers[index as usize].payload = Some(payload);
            index
        } else {
            let index = u32::try_from(self.timers.len()).expect("fewer than 2^32 timers pending");
            self.timers.push(Timer { generation: 0, payload: Some(payload) });
            index
        };
        let generation = self.timers[index as usize].generation;
        self.live += 1;
        self.tickets.insert(Ticket { tick, index, stamp: generation });
        TimerId::new(index, generation.into())
    }

    /// Takes a pending timer back: its payload, or `None` when the id is stale.
    ///
    /// # Time complexity
    ///
    /// O(1), sweeping included.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let generation = self.timers.get(id.index() as usize)?.generation;
        if id.is_of(generation.into()) { self.release(id.index(), generation) } else { None }
    }

    /// Ends a generation: the payload goes to the caller, the index to the free list. Every few ends sweep a little;
    /// those of timers that fire do too, since they leave fewer to outnumber.
    fn release(&mut self, index: u32, generation: u32) -> Option<T> {
        let timer = self.timers.get_mut(index as usize)?;
        if timer.generation != generation {
            return None;
        }
        let payload = timer.payload.take()?;
        timer.generation = generation.wrapping_add(1);
        self.free.push(index);
        self.live -= 1;
        self.ended = self.ended.wrapping_add(1);
        if self.ended.is_multiple_of(ENDED_PER_CHUNK) && self.tickets.len() > 2 * self.live + STALE_SLACK {
            let timers = &self.timers;
            self.tickets.sweep(1, |ticket| timers[ticket.index as usize].generation == ticket.stamp);
        }
        Some(payload)
    }

    /// Moves to tick `to` and fires what is due, in no particular order within the call.
    ///
    /// `fire` gets the wheel too: it may insert and cancel. What it inserts for a tick that has passed fires on the
    /// next advance, so a timer that re-arms itself cannot hold this one up.
    ///
    /// At most `budget` tickets are fired or moved between levels, stale ones included, and a share of the next coarse
    /// slots is spread ahead. With [`Progress::BudgetSpent`] call again to go on. A `to` before the position is no
    /// error and moves nothing.
    ///
    /// # Time complexity
    ///
    /// O(1) for each ticket and O(levels) for each occupied slot passed; empty time costs nothing.
    pub fn advance(
        &mut self,
        to: Tick,
        budget: usize,
        mut fire: impl FnMut(&mut Self, Expired<T>),
    ) -> Progress {
        let Self { tickets, timers, due, .. } = self;
        let is_live = |ticket: &Ticket| timers[ticket.index as usize].generation == ticket.stamp;
        let progress = tickets.advance(to, budget, is_live, |chunk| due.push(chunk));
        // One ticket at a time from `due`: should `fire` unwind, the rest fires on the next advance.
        while let Some(chunk) = self.due.last_mut() {
            let Some(ticket) = chunk.pop() else {
                self.due.pop();
                continue;
            };
            if let Some(payload) = self.release(ticket.index, ticket.stamp) {
                let id = TimerId::new(ticket.index, ticket.stamp.into());
                fire(self, Expired { id, tick: ticket.tick, payload });
            }
        }
        progress
    }

    /// The tick at which to call [`advance`](Self::advance) next, `None` when nothing is pending.
    ///
    /// It is never after the first timer. It may be before it when hundreds of timers before that one were cancelled, or
    /// when thousands want to be moved ahead of their time.
    ///
    /// # Time complexity
    ///
    /// O(levels), and what it takes to drop the tickets of cancelled timers that stand first: each is dropped once, and at
    /// most some 250 by one call.
    #[must_use]
    pub fn next_expiry(&mut self) -> Option<Tick> {
        if self.live == 0 {
            return None;
        }
        if !self.due.is_empty() {
            return Some(self.position());
        }
        let timers = &self.timers;
        self.tickets.drop_stale_first(|ticket| timers[ticket.index as usize].generation == ticket.stamp);
        self.tickets.wake_tick()
    }

    /// The tick that was last advanced to.
    #[must_use]
    pub fn position(&self) -> Tick {
        self.tickets.position()
    }

    /// Pending timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no timer is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Tickets held, those of cancelled timers included.
    #[must_use]
    pub fn tickets(&self) -> usize {
        self.tickets.len()
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        self.tickets.check_invariants();
        assert_eq!(self.live, self.timers.iter().filter(|timer| timer.payload.is_some()).count());
        assert_eq!(self.live + self.free.len(), self.timers.len());
    }
}
