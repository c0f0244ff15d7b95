//! The hierarchical wheel of tickets. It takes tickets, and hands out due tickets in chunks.
//!
//! # Layout
//!
//! With a radix of 256 (`BITS` = 8) and `position` the last tick whose tickets were handed out:
//!
//! ```text
//! level   a slot is        its ring reaches (two revolutions)
//!   0          1 tick             511 ticks
//!   1        256 ticks        131 071 ticks
//!   2     65 536 ticks     33 554 431 ticks
//!   ...
//!   7       2^56 ticks     the last tick of all: nothing is beyond the wheel, and nothing wraps
//! ```
//!
//! # Invariants
//!
//! W1. A ticket stands in the slot of its tick, at a level whose ring reaches it.          (`check_invariants`)
//! W2. An occupied slot begins after `position`: coarse slots are emptied before they begin. (`check_invariants`)
//! W3. No slot of the finest level is occupied before `fine_from`, and no occupied slot of a coarse level begins before
//!     `coarse_from`. (`check_invariants`)
//! W4. `wake_tick` is never after the first ticket. It is after `position` while no ticket is overdue.
//!     (`check_invariants`)
//! W5. `fine_from` and `coarse_from` are after `position`. `quiet_until` is not after them, and is 0 while a ticket is
//!     overdue. (`check_invariants`)
//!
//! # Cascades
//!
//! A coarse slot must be spread over the next finer level before it begins. The spreading may start one revolution of
//! the finer level earlier, since a ring holds two revolutions. Each `advance` therefore moves a share of the next
//! coarse slots' tickets, in proportion to the time that passed. `wake_tick` asks for enough turns (calls of `advance`)
//! to finish a large slot, so that no single tick pays for the slot. A small slot (at most [`SPREAD_CHUNKS`]) needs no
//! turns of its own.
//!
//! The wheel follows G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 7. Two ideas
//! are new here: tickets in place of timers, and the second revolution.
//!
//! # Cost
//!
//! `insert` is O(1). `advance` is O(1) for each ticket handed out or moved, and O(levels) for each occupied slot that
//! the wheel passes. A ticket moves at most once per level. Empty time costs nothing.

use crate::blocks::{BLOCK_TICKETS, Blocks};
use crate::level::Level;
use crate::outlet::{Chunks, Outlet, hand_out};
use crate::sampling::Sampling;
use crate::slot::{Slot, retain_live};
use crate::sweep::SweepCursor;
use crate::tick::Tick;
use crate::ticket::{CHUNK_TICKETS, Ticket, low_bits};
use alloc::vec::Vec;

/// The result of an advance: it says whether the advance has handed out all due tickets.
///
/// Either all due tickets were handed out, or some are left. There is no third outcome, so a `match` needs no other
/// arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "work that is left must be asked for again"]
pub enum Progress {
    /// All due tickets (requests to check timers) have been handed out.
    Settled,
    /// The budget was spent before all due tickets were handed out. The next advance continues where this advance
    /// stopped.
    BudgetSpent,
}

/// The default number of bits of the radix. With 8 bits, a revolution of a level has `2^8` slots.
///
/// Compared with 6 bits, tickets cascade through fewer levels. The price is 8 KiB for each level in use.
pub(crate) const RADIX_BITS: u32 = 8;

/// The greatest number of chunks (groups of tickets) of a coarse slot that one call of `spread` moves to finer levels:
/// about 60 µs of work.
pub(crate) const SPREAD_CHUNKS: u64 = 128;

/// The number of ticks between two checks for coarse slots whose tickets must move to finer levels. While such a slot
/// has more than [`SPREAD_CHUNKS`] chunks, each advance checks.
const SPREAD_EVERY: u64 = 8;

/// The greatest number of tickets with which a coarse slot is not spread ahead of time. Its tickets move to finer
/// levels when the slot begins.
const FEW_TICKETS: usize = 8 * CHUNK_TICKETS;

/// The greatest number of tickets in a wheel. So the number of a slot's tickets fits a word of 32 bits.
const MOST_TICKETS: usize = u32::MAX as usize;

/// The number of tickets after which a call of `drop_stale_first` stops checking. The call may check up to 32 more
/// tickets.
pub(crate) const FIRST_LOOKS: usize = 256;

/// A hierarchical timing wheel of bare tickets, with a radix of `2^BITS` slots (`BITS` is 5 to 10).
///
/// This wheel is for programs that have a table of timers of their own: connections, slots of a lock-free slab. The
/// wheel keeps a copy of each [`Ticket`] and hands it out when its tick has come. A timer that ends earlier leaves its
/// ticket in the wheel. Such a ticket is *stale*: the closure `is_live` returns false for the ticket. The wheel drops
/// stale tickets when it moves tickets to a finer level, and in [`sweep`](Self::sweep). If hardly any ticket is stale,
/// the wheel searches only one of eight chunks that it moves.
///
/// Several calls take a closure `is_live`. It returns whether a ticket's timer still waits for the ticket. If it
/// returns `false`, the ticket is dropped and never handed out. The returned value may be out of date in one direction
/// only: `is_live` may return `true` for a stale ticket. This does no harm to the wheel. The owner therefore has to
/// check the tickets that `advance` hands out.
///
/// [`Wheel`](crate::Wheel) is this wheel together with a table of timers.
///
/// # Panics
///
/// A wheel holds 2^32 - 1 tickets at most. If a wheel has this number, [`insert`](Self::insert) panics. Otherwise, the
/// calls do not panic by themselves. If one of the closures panics, tickets that the call was moving are lost or
/// duplicated, and [`len`](Self::len) is wrong from then on. Everything else stays as it was.
///
/// # Examples
///
/// ```
/// use tourbillon_wheel::{Progress, Tick, TicketWheel};
///
/// // A connection's deadline; tickets name the connection. A request that is answered leaves its ticket behind.
/// let mut deadlines = [Some(Tick(30)), Some(Tick(300))];
/// let mut wheel = TicketWheel::<(Tick, usize)>::new(Tick(0));
/// for (connection, deadline) in deadlines.iter().enumerate() {
///     wheel.insert((deadline.unwrap(), connection));
/// }
/// deadlines[0] = None;
///
/// let is_live = |&(tick, connection): &(Tick, usize)| deadlines[connection] == Some(tick);
/// wheel.drop_stale_first(is_live);
/// assert_eq!((wheel.len(), wheel.wake_tick()), (1, Some(Tick(300))));
///
/// let mut due = Vec::new();
/// let progress = wheel.advance(Tick(301), usize::MAX, is_live, |chunk| due.extend(chunk));
/// assert_eq!((progress, due), (Progress::Settled, vec![(Tick(300), 1)]));
/// ```
#[derive(Debug)]
pub struct TicketWheel<T, const BITS: u32 = RADIX_BITS> {
    position: u64,
    /// An advance to any earlier tick has no work: until then no ticket is due, and no coarse slot must be spread.
    quiet_until: u64,
    /// Tickets that were inserted after the last advance, and were already due when they were inserted.
    overdue: Slot,
    /// Overdue tickets that earlier advances left over. The next advance hands them out before the tickets in
    /// `overdue`.
    late: Slot,
    levels: Vec<Level<BITS>>,
    /// The tickets of all near slots and the overdue tickets. A slot is *near* if a ticket stores all bits in which the
    /// ticks of the slot differ, and *far* otherwise. If tickets store their whole ticks, all slots are near.
    blocks: Blocks<T>,
    /// The tickets of all far slots (see `blocks`), with their whole ticks.
    far: Blocks<(Tick, T)>,
    /// A buffer for tickets that move from a slot to other slots. Between two calls its contents have no meaning.
    moving: Vec<T>,
    /// A buffer for tickets that move from a far slot (see `blocks`) to other slots.
    moving_far: Vec<(Tick, T)>,
    /// A lower bound for the ticks of the finest level's tickets. The wheel advances up to this tick without a search
    /// of the finest level.
    fine_from: u64,
    /// A lower bound for the ticks at which occupied coarse slots begin. The wheel advances up to this tick without a
    /// search of the coarse levels.
    coarse_from: u64,
    /// The tick of the last check for coarse slots whose tickets must move to finer levels.
    spread_at: u64,
    /// Whether a coarse slot may have more than [`FEW_TICKETS`]. If not, no slot is spread ahead of time.
    is_large: bool,
    /// Whether the last check found a coarse slot too large to move to finer levels at once. If true, each advance
    /// moves a further part of such a slot.
    crowded: bool,
    sampling: Sampling,
    len: usize,
    sweep: SweepCursor,
}

impl<T: Ticket, const BITS: u32> TicketWheel<T, BITS> {
    /// Makes an empty wheel whose position is `position`: later ticks are in the future. The wheel allocates memory
    /// when its first ticket is inserted.
    #[must_use]
    pub fn new(position: Tick) -> Self {
        Self {
            position: position.0,
            quiet_until: u64::MAX,
            overdue: Slot::EMPTY,
            late: Slot::EMPTY,
            levels: Vec::new(),
            blocks: Blocks::new(),
            far: Blocks::new(),
            moving: Vec::new(),
            moving_far: Vec::new(),
            fine_from: u64::MAX,
            coarse_from: u64::MAX,
            spread_at: position.0,
            is_large: false,
            crowded: false,
            sampling: Sampling::default(),
            len: 0,
            sweep: SweepCursor::default(),
        }
    }

    /// Returns the number of tickets in the wheel, including stale tickets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the wheel holds no ticket.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the tick that the wheel has reached. All tickets in the levels for this tick and earlier ticks have been
    /// handed out.
    #[must_use]
    pub fn position(&self) -> Tick {
        Tick(self.position)
    }

    /// Adds a ticket. A ticket whose tick is not after [`position`](Self::position) is handed out by the next advance.
    ///
    /// The wheel does not compare tickets: a ticket that is inserted twice is handed out twice.
    ///
    /// # Panics
    ///
    /// Panics if the wheel holds 2^32 - 1 tickets already.
    ///
    /// # Time complexity
    ///
    /// O(1), amortised over the growth of the first segment and of the list of segments. The first ticket of a level
    /// allocates the level's ring: 8 KiB with a radix of 256.
    #[inline]
    pub fn insert(&mut self, ticket: T) {
        const { assert!(T::TICK_BITS == u64::BITS, "`insert_at` takes tickets that do not have their whole ticks") }
        self.insert_at(ticket.tick(), ticket);
    }

    /// Works like [`insert`](Self::insert), for tickets that have the low bits of their tick only
    /// ([`Ticket::TICK_BITS`]). `tick` is the ticket's whole tick.
    ///
    /// # Panics
    ///
    /// Panics if the wheel holds 2^32 - 1 tickets already. In builds with debug assertions, also panics if the low bits
    /// of `tick` differ from the ticket's. In other builds such a ticket is handed out at a tick other than `tick`, and
    /// [`wake_tick`](Self::wake_tick) may return too early a tick.
    ///
    /// # Time complexity
    ///
    /// The same as of [`insert`](Self::insert).
    #[inline]
    pub fn insert_at(&mut self, tick: Tick, ticket: T) {
        debug_assert!((tick.0 ^ ticket.tick().0) & low_bits::<T>() == 0, "a ticket of another tick");
        assert!(self.len < MOST_TICKETS, "fewer than 2^32 tickets in the wheel");
        self.len += 1;
        self.place(tick.0, ticket);
    }

    #[inline]
    fn place(&mut self, tick: u64, ticket: T) {
        if tick <= self.position {
            self.overdue.push(&mut self.blocks, tick, ticket);
            self.quiet_until = 0;
            return;
        }
        let depth = Level::<BITS>::depth_for(tick, self.position);
        if depth >= self.levels.len() {
            self.add_levels(depth);
        }
        self.place_at(depth, tick, ticket);
    }

    /// Adds a ticket for `tick` to level `depth`, whose ring reaches the tick.
    #[inline]
    fn place_at(&mut self, depth: usize, tick: u64, ticket: T) {
        let level = &mut self.levels[depth];
        let (begin, tickets) = if Level::<BITS>::is_near::<T>(depth) {
            level.push(&mut self.blocks, tick, ticket)
        } else {
            level.push(&mut self.far, tick, (Tick(tick), ticket))
        };
        // Words that keep their values are not stored: an insert of a cold timer waits until its stores are done.
        if begin < self.quiet_until {
            self.quiet_until = begin;
        }
        if depth == 0 {
            if begin < self.fine_from {
                self.fine_from = begin;
            }
            return;
        }
        if begin < self.coarse_from {
            self.coarse_from = begin;
        }
        if tickets > FEW_TICKETS && !self.is_large {
            self.begin_spreading();
        }
    }

    #[cold]
    fn begin_spreading(&mut self) {
        self.is_large = true;
        self.spread_at = self.position;
        self.quiet_until = 0;
    }

    #[cold]
    fn add_levels(&mut self, depth: usize) {
        while self.levels.len() <= depth {
            self.levels.push(Level::new(self.levels.len()));
        }
    }

    /// Returns the tick at which [`advance`](Self::advance) has work to do next; `None` if the wheel holds no ticket.
    ///
    /// Usually that is the tick of the first ticket, stale or live. The tick is earlier if a large coarse slot must be
    /// spread ahead of time. If tickets are overdue, the tick is the position.
    ///
    /// # Time complexity
    ///
    /// O(levels) searches of a bitmap of `2^BITS / 32` words.
    #[must_use]
    pub fn wake_tick(&self) -> Option<Tick> {
        if !self.overdue.is_empty() || !self.late.is_empty() {
            return Some(Tick(self.position));
        }
        let mut wake = None::<u64>;
        for (depth, level) in self.levels.iter().enumerate() {
            let Some(number) = level.first_occupied(self.position) else { continue };
            let mut at = level.slot(number).earliest();
            if depth > 0 {
                // The slot after this slot is checked as well: it may need its turns before the first ticket of this
                // slot is due.
                for crowded in [number, number + 1] {
                    let chunks = level.slot(crowded).chunk_count() as u64;
                    if chunks > SPREAD_CHUNKS {
                        let from = level.spread_from(crowded, chunks.div_ceil(SPREAD_CHUNKS) + SPREAD_EVERY);
                        at = at.min(from.max(self.position + 1));
                    }
                }
            }
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
        wake.map(Tick)
    }

    /// Drops the stale tickets before the first live ticket, so that no thread is woken for a stale ticket. Returns the
    /// tick of the first dropped ticket, or `None` if no ticket was dropped.
    ///
    /// A program calls this method before [`wake_tick`](Self::wake_tick). While tickets are overdue, the method drops
    /// nothing: the next advance is due at once.
    ///
    /// # Time complexity
    ///
    /// O(levels) for each occupied slot that the call searches. One call checks some 300 tickets at most. If more
    /// tickets are stale, the next call continues with them.
    pub fn drop_stale_first(&mut self, mut is_live: impl FnMut(&T) -> bool) -> Option<Tick> {
        if !self.overdue.is_empty() || !self.late.is_empty() {
            return None;
        }
        let mut first_dropped = None;
        let mut looks = FIRST_LOOKS;
        while looks > 0 {
            let Some((tick, depth, number)) = self.first_slot() else { break };
            let Self { levels, blocks, far, moving, moving_far, .. } = self;
            let look = |slot: &mut Slot| {
                let step = if Level::<BITS>::is_near::<T>(depth) {
                    slot.drop_stale_first(blocks, looks, &mut is_live, moving)
                } else {
                    slot.drop_stale_first(far, looks, &mut |(_, ticket)| is_live(ticket), moving_far)
                };
                (step, slot.earliest())
            };
            let (step, earliest) = levels[depth].with_slot(number, look);
            self.len -= step.dropped;
            if step.dropped > 0 {
                first_dropped.get_or_insert(Tick(tick));
            }
            if step.is_live && earliest == tick {
                break;
            }
            looks = looks.saturating_sub(step.looked_at.max(1));
        }
        first_dropped
    }

    /// Finds the slot with the earliest ticket. Returns that ticket's tick, and the slot's level and number.
    fn first_slot(&self) -> Option<(u64, usize, u64)> {
        let first = |(depth, level): (usize, &Level<BITS>)| {
            let number = level.first_occupied(self.position)?;
            Some((level.slot(number).earliest(), depth, number))
        };
        self.levels.iter().enumerate().filter_map(first).min()
    }

    /// Advances the wheel to tick `to`. Calls `expired` with the tickets that are due at `to` or before, in chunks of 1
    /// to [`CHUNK_TICKETS`](crate::CHUNK_TICKETS) tickets and in no particular order.
    ///
    /// At most `budget` tickets are handed out or moved between levels. In addition, the call moves some tickets of the
    /// next coarse slots to finer levels ahead of time. After [`Progress::BudgetSpent`], another call continues.
    /// `is_live` is called for tickets that are moved, not for tickets that are handed out.
    ///
    /// If `to` is before the position, the call only hands out overdue tickets: after a clock stepped back, the wheel
    /// waits until the clock has caught up. A ticket that was already due when it was inserted is handed out after the
    /// tickets of the levels. If the budget ends before, the next advance hands that ticket out first. So neither kind
    /// of ticket can starve the other.
    ///
    /// # Time complexity
    ///
    /// O(1) for each ticket handed out or moved, and O(levels) for each occupied slot passed. A ticket moves at most
    /// once per level. Empty time costs nothing.
    #[inline]
    pub fn advance(
        &mut self,
        to: Tick,
        budget: usize,
        is_live: impl FnMut(&T) -> bool,
        expired: impl FnMut(Vec<T>),
    ) -> Progress {
        if self.passes_quietly(to) {
            return Progress::Settled;
        }
        self.advance_into(to, budget, is_live, Chunks::to(expired))
    }

    /// Moves the position to `to`, and returns true. If there is work on the way there, does nothing and returns false.
    #[inline]
    pub(crate) fn passes_quietly(&mut self, to: Tick) -> bool {
        let is_quiet = to.0 < self.quiet_until;
        if is_quiet {
            self.position = self.position.max(to.0);
        }
        is_quiet
    }

    /// Does the work of [`advance`](Self::advance).
    #[inline(always)]
    pub(crate) fn advance_into(
        &mut self,
        to: Tick,
        budget: usize,
        mut is_live: impl FnMut(&T) -> bool,
        outlet: impl Outlet<T>,
    ) -> Progress {
        let progress = self.hand_out_into(to, budget, &mut is_live, outlet);
        // If the budget was spent before, the position is still before `to`.
        if self.position >= to.0 {
            self.spread(is_live);
        }
        progress
    }

    /// Does the first half of [`advance`](Self::advance): hands out the due tickets. The second half moves tickets of
    /// coarse slots to finer levels ahead of time. The caller fires the timers and then calls [`spread`](Self::spread).
    /// So no due timer waits for work on tickets that are due later.
    #[inline]
    pub fn hand_out_until(
        &mut self,
        to: Tick,
        budget: usize,
        is_live: impl FnMut(&T) -> bool,
        expired: impl FnMut(Vec<T>),
    ) -> Progress {
        if self.passes_quietly(to) {
            return Progress::Settled;
        }
        self.hand_out_into(to, budget, is_live, Chunks::to(expired))
    }

    #[inline(always)]
    fn hand_out_into(
        &mut self,
        to: Tick,
        budget: usize,
        mut is_live: impl FnMut(&T) -> bool,
        mut outlet: impl Outlet<T>,
    ) -> Progress {
        self.quiet_until = 0;
        let mut budget = budget;
        if !self.hand_out_late(&mut budget, &mut outlet) {
            return Progress::BudgetSpent;
        }
        // This is done only if some budget is left. Otherwise overdue tickets could use up each budget before the
        // levels get a share.
        if budget > 0 && !self.overdue.is_empty() {
            self.late = core::mem::replace(&mut self.overdue, Slot::EMPTY);
        }
        loop {
            let tick = self.fine_from.min(self.coarse_from);
            // The bounds are after the position, unless the position is the last tick of all.
            if tick > to.0 || tick <= self.position {
                break;
            }
            // All ticks before `tick` are done. Coarse slots that begin at `tick` are spread first, the coarsest of
            // them first.
            self.position = tick - 1;
            if tick == self.coarse_from && !self.cascade_into(tick, &mut budget, &mut is_live) {
                return Progress::BudgetSpent;
            }
            if tick == self.fine_from && !self.expire(tick, &mut budget, &mut outlet) {
                return Progress::BudgetSpent;
            }
            self.position = tick;
        }
        self.position = self.position.max(to.0);
        let settled = self.hand_out_late(&mut budget, &mut outlet) && self.overdue.is_empty();
        if !settled {
            return Progress::BudgetSpent;
        }
        self.note_quiet();
        Progress::Settled
    }

    /// Computes the tick up to which the wheel advances without work. No ticket may be overdue.
    fn note_quiet(&mut self) {
        let spread = match (self.crowded, self.is_large) {
            (true, _) => 0,
            (false, true) => self.spread_at.saturating_add(SPREAD_EVERY),
            (false, false) => u64::MAX,
        };
        self.quiet_until = self.fine_from.min(self.coarse_from).min(spread);
    }

    /// Does the second half of [`advance`](Self::advance): moves a share of the next coarse slots' tickets to finer
    /// levels, in proportion to the ticks that have passed after the last such move. A program may put the call off for
    /// a few ticks. Without the call, a coarse slot is emptied all at once, at the tick at which the slot begins.
    ///
    /// # Time complexity
    ///
    /// O(levels), and O(1) for each ticket moved: some 4,096 at most of each level.
    pub fn spread(&mut self, mut is_live: impl FnMut(&T) -> bool) {
        let passed = self.position - self.spread_at;
        if !self.is_large || !(self.crowded || passed >= SPREAD_EVERY) {
            return;
        }
        self.spread_at = self.position;
        self.spread_ahead(passed, &mut is_live);
        self.is_large = self.coarse_from < u64::MAX;
        if self.overdue.is_empty() && self.late.is_empty() {
            self.note_quiet();
        }
    }

    /// Moves the tickets of the coarse slots that begin at `tick` to finer levels. Returns false if the budget ran out
    /// before the end.
    #[cold]
    fn cascade_into(&mut self, tick: u64, budget: &mut usize, is_live: &mut impl FnMut(&T) -> bool) -> bool {
        for depth in (1..self.levels.len()).rev() {
            let Some(number) = self.levels[depth].first_occupied(self.position) else { continue };
            if self.levels[depth].start_of(number) != tick {
                continue;
            }
            while !self.levels[depth].slot(number).is_empty() {
                if *budget == 0 {
                    return false;
                }
                *budget -= self.cascade_chunk(depth, number, *budget, is_live);
            }
        }
        let begins = |level: &Level<BITS>| level.first_occupied(tick).map(|number| level.start_of(number));
        self.coarse_from = self.levels.iter().skip(1).filter_map(begins).min().unwrap_or(u64::MAX);
        true
    }

    /// Moves a chunk of at most `limit` tickets of a coarse slot to the slots where the tickets belong now. If
    /// [`Sampling`] chooses the chunk, drops its stale tickets first. Returns the number of tickets in the chunk.
    fn cascade_chunk(
        &mut self,
        depth: usize,
        number: u64,
        limit: usize,
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> usize {
        if !Level::<BITS>::is_near::<T>(depth) {
            return self.cascade_far_chunk(depth, number, limit, is_live);
        }
        let Self { levels, blocks, .. } = self;
        let mut chunk = core::mem::take(&mut self.moving);
        chunk.clear();
        let limit = limit.min(CHUNK_TICKETS);
        let looked_at = levels[depth].with_slot(number, |slot| slot.take(blocks, limit, &mut chunk));
        self.drop_stale_of(&mut chunk, is_live);
        let Self { levels, blocks, .. } = self;
        if let ([finest, coarse, ..], 1) = (&mut levels[..], depth) {
            // The finest level reaches each ticket of a slot that is moved.
            let mut first = u64::MAX;
            for &ticket in &chunk {
                first = first.min(finest.push(blocks, coarse.tick_of(number, &ticket), ticket).0);
            }
            self.fine_from = self.fine_from.min(first);
            self.quiet_until = self.quiet_until.min(first);
        } else {
            for &ticket in &chunk {
                self.place(self.levels[depth].tick_of(number, &ticket), ticket);
            }
        }
        self.moving = chunk;
        looked_at
    }

    /// Does the work of [`cascade_chunk`](Self::cascade_chunk) for a far slot, which stores whole ticks.
    #[cold]
    fn cascade_far_chunk(
        &mut self,
        depth: usize,
        number: u64,
        limit: usize,
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> usize {
        let Self { levels, far, .. } = self;
        let mut chunk = core::mem::take(&mut self.moving_far);
        chunk.clear();
        let limit = limit.min(CHUNK_TICKETS);
        let looked_at = levels[depth].with_slot(number, |slot| slot.take(far, limit, &mut chunk));
        self.drop_stale_of(&mut chunk, &mut |(_, ticket)| is_live(ticket));
        for &(tick, ticket) in &chunk {
            self.place(tick.0, ticket);
        }
        self.moving_far = chunk;
        looked_at
    }

    /// Drops the stale tickets of a chunk that moves to a finer level, if [`Sampling`] chooses the chunk.
    #[inline]
    fn drop_stale_of<S: Ticket>(&mut self, chunk: &mut Vec<S>, is_live: &mut impl FnMut(&S) -> bool) {
        let searched = chunk.len();
        if searched > 0 && self.sampling.takes_next() {
            let dropped = retain_live(chunk, is_live);
            self.sampling.note(dropped, searched);
            self.len -= dropped;
        }
    }

    /// Hands out the tickets of `tick`, and finds the next tick that has tickets. Returns false if the budget ran out
    /// before the last ticket.
    #[inline(always)]
    fn expire(&mut self, tick: u64, budget: &mut usize, outlet: &mut impl Outlet<T>) -> bool {
        let Self { levels, blocks, len, .. } = self;
        let Some(level) = levels.first_mut() else { return true };
        let count = level.slot(tick).len();
        if (1..=BLOCK_TICKETS.min(*budget)).contains(&count) {
            let block = level.take_slot(tick).only_block();
            outlet.add(blocks.get(block), count);
            blocks.free(block);
            *budget -= count;
            *len -= count;
            outlet.flush();
        }
        while !level.slot(tick).is_empty() {
            if *budget == 0 {
                return false;
            }
            level.with_slot(tick, |slot| hand_out(slot, blocks, len, budget, outlet));
            outlet.flush();
        }
        self.fine_from = level.first_occupied(tick).unwrap_or(u64::MAX);
        true
    }

    fn hand_out_late(&mut self, budget: &mut usize, outlet: &mut impl Outlet<T>) -> bool {
        let Self { late, blocks, len, .. } = self;
        while !late.is_empty() {
            if *budget == 0 {
                return false;
            }
            hand_out(late, blocks, len, budget, outlet);
            outlet.flush();
        }
        true
    }

    /// Moves a part of the next coarse slots' tickets to finer levels, ahead of time. `passed` is the number of ticks
    /// that have passed after the last such move.
    fn spread_ahead(&mut self, passed: u64, is_live: &mut impl FnMut(&T) -> bool) {
        self.crowded = false;
        for depth in 1..self.levels.len() {
            let level = &self.levels[depth];
            let Some(number) = level.first_occupied(self.position) else { continue };
            if !level.fits_finer_level(number, self.position) {
                continue;
            }
            if level.slot(number).len() <= FEW_TICKETS {
                continue;
            }
            let chunks = level.slot(number).chunk_count() as u64;
            self.crowded |= chunks > SPREAD_CHUNKS;
            let left = level.start_of(number) - self.position;
            let share = chunks.saturating_mul(passed).div_ceil(left).min(SPREAD_CHUNKS);
            for _ in 0..share {
                self.cascade_chunk(depth, number, usize::MAX, is_live);
            }
        }
    }

    /// Sweeps a part of the wheel: checks `tickets` tickets, or up to a chunk's worth more, and drops the stale
    /// tickets. Returns `true` if the call ended a pass over the whole wheel. Otherwise the next call continues the
    /// pass.
    ///
    /// A program may call other methods between two parts of a pass. A whole pass checks each ticket that was in the
    /// wheel when the pass began, except for tickets that [`advance`](Self::advance) or [`spread`](Self::spread) has
    /// moved meanwhile. These calls drop stale tickets themselves.
    ///
    /// # Time complexity
    ///
    /// O(1) for each checked ticket, and O(slots) for a whole pass over empty slots.
    pub fn sweep(&mut self, tickets: usize, mut is_live: impl FnMut(&T) -> bool) -> bool {
        let mut left = tickets;
        while left > 0 {
            let Self { levels, blocks, far, overdue, late, .. } = self;
            let step = self.sweep.step(levels, blocks, far, [overdue, late], &mut is_live);
            let Some((looked_at, dropped)) = step else {
                self.sweep = SweepCursor::default();
                return true;
            };
            self.len -= dropped;
            left = left.saturating_sub(looked_at);
        }
        false
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let Self { levels, blocks, far, position, .. } = self;
        let levels_by_depth = || levels.iter().enumerate();
        let held: usize = levels_by_depth()
            .map(|(depth, level)| {
                if Level::<BITS>::is_near::<T>(depth) {
                    level.check_invariants(blocks, *position)
                } else {
                    level.check_invariants(far, *position)
                }
            })
            .sum();
        let overdue = self.overdue.tickets(blocks).len() + self.late.tickets(blocks).len();
        assert_eq!(held + overdue, self.len);
        for (depth, level) in levels.iter().enumerate() {
            let begin = level.first_occupied(*position).map(|number| level.start_of(number));
            let from = if depth > 0 { self.coarse_from } else { self.fine_from };
            assert!(begin.is_none_or(|begin| begin >= from), "a slot that time would pass over");
        }
        let first = self.fine_from.min(self.coarse_from);
        assert!(first > *position || *position == u64::MAX, "a slot that an advance would not look for");
        assert!(self.quiet_until <= first && (overdue == 0 || self.quiet_until == 0));
        if let Some(Tick(wake)) = self.wake_tick() {
            assert!(wake > *position || overdue > 0);
            let mut ticks = levels_by_depth().flat_map(|(depth, level)| {
                if Level::<BITS>::is_near::<T>(depth) {
                    level.ticks(blocks, *position)
                } else {
                    level.ticks(far, *position)
                }
            });
            assert!(ticks.all(|tick| wake <= tick), "woken after the first ticket");
        } else {
            assert_eq!(self.len, 0);
        }
    }

    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.blocks.heap_bytes()
            + self.far.heap_bytes()
            + self.levels.iter().map(Level::heap_bytes).sum::<usize>()
    }
}
