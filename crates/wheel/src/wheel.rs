//! The wheel of timers with payloads: a wheel of tickets, and the table of the timers that the tickets name.

use crate::id::TimerId;
use crate::tick::Tick;
use crate::ticket::{CHUNK_TICKETS, Ticket};
use crate::tickets::{Progress, RADIX_BITS, TicketWheel};
use alloc::vec::Vec;

/// A timer that came due.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// The timer's id, which is stale now.
    pub id: TimerId,
    /// The tick at which the timer was due. If the timer was moved, the field has the tick that the last move set.
    pub tick: Tick,
    /// The payload that was inserted with the timer.
    pub payload: T,
}

/// A hierarchical timing wheel of timers with payloads, with a radix of `2^BITS` slots.
///
/// # Examples
///
/// ```
/// use tourbillon_wheel::{Progress, Tick, Wheel};
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
///
/// An idle timeout that is moved to a later tick keeps its id:
///
/// ```
/// use tourbillon_wheel::{Tick, Wheel};
///
/// let mut wheel = Wheel::<&str>::new(Tick(0));
/// let idle = wheel.insert(Tick(30), "connection 17");
/// assert!(wheel.reschedule(idle, Tick(55)));
/// assert_eq!(wheel.next_expiry(), Some(Tick(55)));
/// assert_eq!(wheel.cancel(idle), Some("connection 17"));
/// assert!(!wheel.reschedule(idle, Tick(60)));
/// ```
#[derive(Debug)]
pub struct Wheel<T, const BITS: u32 = RADIX_BITS> {
    tickets: TicketWheel<Look, BITS>,
    timers: Vec<Timer<T>>,
    free: Vec<u32>,
    /// Due tickets whose timers an advance has not fired yet.
    due: Vec<Look>,
    live: usize,
    /// The number of timers that ended or were moved while stale tickets outnumbered the live tickets. It paces the
    /// sweep.
    ended: u32,
}

/// A ticket of the wheel, a request to check a timer. It means: "Check timer `index` at `tick`, if the timer still
/// waits for the ticket with this `stamp`."
#[derive(Clone, Copy, Debug)]
struct Look {
    tick: Tick,
    index: u32,
    stamp: u32,
}

impl Ticket for Look {
    #[inline]
    fn tick(&self) -> Tick {
        self.tick
    }
}

/// A slot of the table of timers. An insert, a cancel or a firing touches only one cache line of the table, the line of
/// the timer's slot.
#[derive(Debug)]
struct Timer<T> {
    marks: Marks,
    payload: Option<T>,
}

/// Distinguishes the present timer and ticket of a slot from earlier timers and tickets of the slot.
#[derive(Clone, Copy, Debug)]
struct Marks {
    /// Changes when a timer ends, which makes earlier ids stale.
    generation: u32,
    /// Changes when a timer ends or is moved, which makes earlier tickets stale.
    stamp: u32,
}

impl Marks {
    const FIRST: Self = Self { generation: 0, stamp: 0 };

    #[inline]
    fn note_moved(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
    }

    #[inline]
    fn note_ended(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.note_moved();
    }
}

impl<T> Timer<T> {
    /// Returns whether the timer in this slot waits for the ticket `look`. A vacant slot waits for no ticket, because
    /// its stamp changed when its timer ended.
    #[inline]
    fn awaits(&self, look: &Look) -> bool {
        self.marks.stamp == look.stamp
    }

    /// Ends the timer, and returns its payload. Returns `None` if the slot is vacant.
    #[inline]
    fn end(&mut self) -> Option<T> {
        let payload = self.payload.take()?;
        self.marks.note_ended();
        Some(payload)
    }
}

/// The number of due tickets for which a wheel keeps memory between two advances.
const MOST_DUE: usize = 1_024;

/// The number of stale tickets that the wheel tolerates in addition to a share of the pending timers.
const STALE_SLACK: usize = 1_024;
/// The number of timers that end or are moved before the wheel sweeps a chunk of tickets. So the wheel sweeps eight
/// tickets for each such timer. While a sweep checks `n` live tickets, at most `n / 8` of them become stale behind the
/// sweep. So at most `2 * n` tickets for `7/8 * n` timers remain, which keeps the bound of [`Wheel::tickets`].
const ENDED_PER_CHUNK: u32 = 4;

impl<T, const BITS: u32> Wheel<T, BITS> {
    /// Makes an empty wheel whose position is `position`: later ticks are in the future.
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

    /// Inserts a timer for `tick`. A timer whose tick is not after [`position`](Self::position) fires on the next
    /// advance.
    ///
    /// # Panics
    ///
    /// Panics when 2^32 timers are pending, or as many tickets are in the wheel.
    ///
    /// # Time complexity
    ///
    /// O(1), amortised over the growth of the tables.
    pub fn insert(&mut self, tick: Tick, payload: T) -> TimerId {
        let (index, marks) = match self.free.pop() {
            Some(index) => {
                let timer = &mut self.timers[index as usize];
                timer.payload = Some(payload);
                (index, timer.marks)
            }
            None => {
                let index = u32::try_from(self.timers.len()).expect("fewer than 2^32 timers pending");
                self.timers.push(Timer { marks: Marks::FIRST, payload: Some(payload) });
                (index, Marks::FIRST)
            }
        };
        // The id is made before the ticket: so two words are held in registers at a time, not three.
        let id = TimerId::new(index, marks.generation.into());
        self.live += 1;
        self.tickets.insert(Look { tick, index, stamp: marks.stamp });
        id
    }

    /// Moves a pending timer to `tick`, earlier or later; its id stays valid. Returns `false` and does nothing if the
    /// id is stale.
    ///
    /// If the new tick is not after [`position`](Self::position), the timer fires on the next advance. If the closure
    /// of another timer's firing moves a timer that is due too, the moved timer does not fire in this advance. When the
    /// closure is called for a timer, that timer has ended and its id is stale; the closure can
    /// [`insert`](Self::insert) it again.
    ///
    /// The earlier ticket stays in the wheel as a stale ticket, and counts towards the bound of
    /// [`tickets`](Self::tickets). A timer that is moved at each request costs a ticket at each request. A program can
    /// instead keep the deadline beside the timer and compare it when the timer fires: that costs one ticket for each
    /// timeout. The example `event_loop` of `tourbillon` does that.
    ///
    /// # Time complexity
    ///
    /// O(1), sweeping included, amortised over the growth of the slots.
    #[must_use = "a stale id moves nothing"]
    pub fn reschedule(&mut self, id: TimerId, tick: Tick) -> bool {
        let index = id.index();
        let Some(timer) = self.timers.get_mut(index as usize) else { return false };
        if timer.payload.is_none() || !id.is_of(timer.marks.generation.into()) {
            return false;
        }
        timer.marks.note_moved();
        let stamp = timer.marks.stamp;
        self.tickets.insert(Look { tick, index, stamp });
        self.sweep_a_little();
        true
    }

    /// Cancels a pending timer. Returns its payload, or `None` if the id is stale.
    ///
    /// # Time complexity
    ///
    /// O(1), sweeping included.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let index = id.index();
        let timer = self.timers.get_mut(index as usize)?;
        if id != TimerId::new(index, timer.marks.generation.into()) {
            return None;
        }
        let payload = timer.end()?;
        self.note_ended(index);
        Some(payload)
    }

    /// Returns the payload of a pending timer; `None` if the id is stale.
    ///
    /// # Time complexity
    ///
    /// O(1).
    #[must_use]
    pub fn get(&self, id: TimerId) -> Option<&T> {
        let timer = self.timers.get(id.index() as usize)?;
        if id.is_of(timer.marks.generation.into()) { timer.payload.as_ref() } else { None }
    }

    /// Returns a mutable reference to the payload of a pending timer; `None` if the id is stale.
    #[must_use]
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let timer = self.timers.get_mut(id.index() as usize)?;
        if id.is_of(timer.marks.generation.into()) { timer.payload.as_mut() } else { None }
    }

    /// Returns the pending timers, in no order.
    ///
    /// # Time complexity
    ///
    /// O(n) for the whole iteration, where n is the greatest number of timers that were ever pending at a time.
    pub fn iter(&self) -> impl Iterator<Item = (TimerId, &T)> {
        let timers = (0..).zip(&self.timers);
        timers.filter_map(|(index, timer)| {
            Some((TimerId::new(index, timer.marks.generation.into()), timer.payload.as_ref()?))
        })
    }

    /// Frees slot `index`, whose timer has ended.
    #[inline]
    fn note_ended(&mut self, index: u32) {
        self.free.push(index);
        self.live -= 1;
        self.sweep_a_little();
    }

    /// Sweeps a little if stale tickets outnumber the live tickets by far. Called when a timer has ended or was moved.
    /// Timers that fire count, too: the fewer live tickets are left, the sooner stale tickets outnumber the live
    /// tickets.
    #[inline]
    fn sweep_a_little(&mut self) {
        if self.tickets.len() > 2 * self.live + STALE_SLACK {
            self.sweep_at_times();
        }
    }

    /// At every few calls, checks a chunk (a group) of tickets and drops the stale tickets.
    #[cold]
    fn sweep_at_times(&mut self) {
        self.ended = self.ended.wrapping_add(1);
        if self.ended.is_multiple_of(ENDED_PER_CHUNK) {
            let timers = &self.timers;
            self.tickets.sweep(CHUNK_TICKETS, |look| timers[look.index as usize].awaits(look));
        }
    }

    /// Advances the wheel to tick `to`, and fires the due timers in no particular order.
    ///
    /// `fire` gets the wheel, too, and may insert and cancel timers. If `fire` inserts a timer for a tick that has
    /// passed, the timer fires on the next advance. So a timer that re-arms itself cannot hold this advance up.
    ///
    /// At most `budget` tickets, stale tickets included, are fired or moved between levels. In addition, the call moves
    /// some tickets of the next coarse slots to finer levels ahead of time. After [`Progress::BudgetSpent`], another
    /// call continues. If `to` is before the position, the position stays as it is.
    ///
    /// # Time complexity
    ///
    /// O(1) for each ticket and O(levels) for each occupied slot passed; empty time costs nothing.
    #[inline]
    pub fn advance(&mut self, to: Tick, budget: usize, fire: impl FnMut(&mut Self, Expired<T>)) -> Progress {
        if self.due.is_empty() && self.tickets.passes_quietly(to) {
            return Progress::Settled;
        }
        self.advance_and_fire(to, budget, fire)
    }

    /// Does the work of [`advance`](Self::advance).
    fn advance_and_fire(
        &mut self,
        to: Tick,
        budget: usize,
        mut fire: impl FnMut(&mut Self, Expired<T>),
    ) -> Progress {
        let Self { tickets, timers, due, .. } = self;
        let is_live = |look: &Look| timers[look.index as usize].awaits(look);
        let progress = tickets.advance_into(to, budget, is_live, &mut *due);
        // Tickets are taken from `due` one by one. So if `fire` unwinds, the rest fires on the next advance.
        while let Some(look) = self.due.pop() {
            let timer = &mut self.timers[look.index as usize];
            if !timer.awaits(&look) {
                continue;
            }
            let id = TimerId::new(look.index, timer.marks.generation.into());
            if let Some(payload) = timer.end() {
                self.note_ended(look.index);
                fire(self, Expired { id, tick: look.tick, payload });
            }
        }
        if self.due.capacity() > MOST_DUE {
            self.due = Vec::new();
        }
        progress
    }

    /// Returns the tick at which to call [`advance`](Self::advance) next; `None` if nothing is pending.
    ///
    /// The tick is never after the tick of the first timer. The tick is earlier in two cases: if hundreds of timers
    /// before the first timer were cancelled or moved, or if thousands of timers must move to a finer level ahead of
    /// time.
    ///
    /// # Time complexity
    ///
    /// O(levels), and O(1) for each dropped ticket. The call drops stale tickets that stand before the first live
    /// ticket, some 250 tickets at most.
    #[must_use]
    pub fn next_expiry(&mut self) -> Option<Tick> {
        if self.live == 0 {
            return None;
        }
        if !self.due.is_empty() {
            return Some(self.position());
        }
        let timers = &self.timers;
        self.tickets.drop_stale_first(|look| timers[look.index as usize].awaits(look));
        self.tickets.wake_tick()
    }

    /// Returns the tick to which the wheel was advanced last.
    #[must_use]
    pub fn position(&self) -> Tick {
        self.tickets.position()
    }

    /// Returns the number of pending timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Returns whether no timer is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the number of tickets in the wheel, including the stale tickets of cancelled and moved timers. The
    /// number is at most `2.5 * len + 2,048`.
    #[must_use]
    pub fn tickets(&self) -> usize {
        self.tickets.len()
    }

    /// Returns the tick at which the wheel of tickets has work to do next. Stale tickets count as work, too.
    #[cfg(test)]
    pub(crate) fn wake_tick(&self) -> Option<Tick> {
        self.tickets.wake_tick()
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.tickets.check_invariants();
        assert_eq!(self.live, self.timers.iter().filter(|timer| timer.payload.is_some()).count());
        assert_eq!(self.live + self.free.len(), self.timers.len());
    }
}
