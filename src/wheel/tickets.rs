//! The hierarchical wheel of tickets: tickets in, due chunks out.
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
//! W3. `wake_tick` is never after the first ticket, and is after `position`.                (`check_invariants`)
//!
//! # Cascades
//!
//! A coarse slot must be spread over the next finer level before it begins. It may be from one revolution of that
//! level before, since rings hold two. Each `advance` therefore moves a share of the next coarse slots, in proportion
//! to the time that passed, and `wake_tick` asks for turns enough to finish a large one: no single tick pays for it.
//! Small slots (at most [`SPREAD_CHUNKS`]) are left until they begin.
//!
//! After G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 7; tickets in place of
//! timers, and the second revolution, are ours.
//!
//! # Cost
//!
//! `insert` is O(1). `advance` is O(1) for each ticket handed out or moved, at most once per level, and O(levels) for
//! each occupied slot on the way: empty time costs nothing.

use super::level::Level;
use super::slot::{Chunk, Slot, retain_live};
use crate::limits::SPREAD_CHUNKS;
use crate::tick::Tick;
use crate::ticket::Ticket;
use alloc::vec::Vec;

/// Whether an advance reached the tick it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "work that is left must be asked for again"]
pub enum Progress {
    /// Everything due has been handed out.
    Settled,
    /// The budget was spent first; the next advance resumes where this one stopped.
    BudgetSpent,
}

/// Where the sweep of stale tickets stands. Depth counts levels, the coarsest last.
#[derive(Debug, Default)]
struct SweepCursor {
    depth: usize,
    ring_index: u64,
    /// Full chunks of the slot that were not yet looked at; `None` before the slot is begun.
    unswept: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct TicketWheel<const BITS: u32> {
    position: u64,
    /// Tickets that were due when they came.
    overdue: Slot,
    levels: Vec<Level<BITS>>,
    len: usize,
    sweep: SweepCursor,
}

impl<const BITS: u32> TicketWheel<BITS> {
    pub(crate) fn new(position: Tick) -> Self {
        Self {
            position: position.0,
            overdue: Slot::new(),
            levels: Vec::new(),
            len: 0,
            sweep: SweepCursor::default(),
        }
    }

    /// Tickets held, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn position(&self) -> Tick {
        Tick(self.position)
    }

    #[inline]
    pub(crate) fn insert(&mut self, ticket: Ticket) {
        self.len += 1;
        self.place(ticket);
    }

    #[inline]
    fn place(&mut self, ticket: Ticket) {
        if ticket.tick.0 <= self.position {
            self.overdue.push(ticket);
            return;
        }
        let depth = Level::<BITS>::depth_for(ticket.tick.0, self.position);
        if depth >= self.levels.len() {
            self.add_levels(depth);
        }
        self.levels[depth].push(ticket);
    }

    #[cold]
    fn add_levels(&mut self, depth: usize) {
        while self.levels.len() <= depth {
            self.levels.push(Level::new(self.levels.len()));
        }
    }

    /// The tick at which `advance` has something to do next: the first ticket's, or earlier where a large coarse slot
    /// wants to be spread ahead of time.
    pub(crate) fn wake_tick(&self) -> Option<Tick> {
        if !self.overdue.is_empty() {
            return Some(Tick(self.position));
        }
        let mut wake = None::<u64>;
        for (depth, level) in self.levels.iter().enumerate() {
            let Some(number) = level.first_occupied(self.position) else { continue };
            let slot = level.slot(number);
            let mut at = slot.earliest();
            let chunks = slot.chunk_count() as u64;
            if depth > 0 && chunks > SPREAD_CHUNKS {
                let spread_from = level.start_of(number).saturating_sub(chunks.div_ceil(SPREAD_CHUNKS));
                at = at.min(spread_from.max(self.position + 1));
            }
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
        wake.map(Tick)
    }

    /// Hands out what is due at `to` or before, at most `budget` tickets handed out or moved.
    ///
    /// A `to` before the position changes nothing but what was overdue: a clock that steps back is waited for.
    pub(crate) fn advance(
        &mut self,
        to: Tick,
        budget: usize,
        mut is_live: impl FnMut(&Ticket) -> bool,
        mut expired: impl FnMut(Chunk),
    ) -> Progress {
        let from = self.position;
        let mut budget = budget;
        let mut overdue = core::mem::take(&mut self.overdue);
        let settled = self.hand_out(&mut overdue, &mut budget, &mut expired);
        self.overdue = overdue;
        if !settled {
            return Progress::BudgetSpent;
        }
        while let Some(tick) = self.next_event(to.0) {
            // All before `tick` is done; coarse slots that begin with it come down first, coarsest first.
            self.position = tick - 1;
            if !self.cascade_into(tick, &mut budget, &mut is_live) {
                return Progress::BudgetSpent;
            }
            if !self.expire(tick, &mut budget, &mut expired) {
                return Progress::BudgetSpent;
            }
            self.position = tick;
        }
        self.position = self.position.max(to.0);
        self.spread_ahead(self.position - from, &mut is_live);
        Progress::Settled
    }

    /// The first tick up to `to` at which an occupied slot begins.
    fn next_event(&self, to: u64) -> Option<u64> {
        self.levels
            .iter()
            .filter_map(|level| level.first_occupied(self.position).map(|number| level.start_of(number)))
            .min()
            .filter(|&tick| tick <= to)
    }

    /// Empties the coarse slots that begin at `tick`. False when the budget ran out before.
    fn cascade_into(
        &mut self,
        tick: u64,
        budget: &mut usize,
        is_live: &mut impl FnMut(&Ticket) -> bool,
    ) -> bool {
        for depth in (1..self.levels.len()).rev() {
            let Some(number) = self.levels[depth].first_occupied(self.position) else { continue };
            if self.levels[depth].start_of(number) != tick {
                continue;
            }
            while !self.levels[depth].slot(number).is_empty() {
                if *budget == 0 {
                    return false;
                }
                let moved = self.cascade_chunk(depth, number, is_live);
                *budget = budget.saturating_sub(moved);
            }
        }
        true
    }

    /// Moves one chunk of a coarse slot to where its tickets belong now, dropping stale ones; how many it looked at.
    fn cascade_chunk(
        &mut self,
        depth: usize,
        number: u64,
        is_live: &mut impl FnMut(&Ticket) -> bool,
    ) -> usize {
        let Some(mut chunk) = self.levels[depth].with_slot(number, Slot::take_chunk) else { return 0 };
        let looked_at = chunk.len();
        self.len -= retain_live(&mut chunk, is_live);
        for ticket in chunk {
            self.place(ticket);
        }
        looked_at
    }

    /// Hands out the tickets of `tick`. False when the budget ran out before.
    fn expire(&mut self, tick: u64, budget: &mut usize, expired: &mut impl FnMut(Chunk)) -> bool {
        let Some(level) = self.levels.first_mut() else { return true };
        let mut slot = level.with_slot(tick, core::mem::take);
        let settled = self.hand_out(&mut slot, budget, expired);
        if !settled {
            self.levels[0].with_slot(tick, |place| *place = slot);
        }
        settled
    }

    fn hand_out(&mut self, slot: &mut Slot, budget: &mut usize, expired: &mut impl FnMut(Chunk)) -> bool {
        while *budget > 0 {
            let Some(mut chunk) = slot.take_chunk() else { return true };
            if chunk.len() > *budget {
                slot.put_back(chunk.split_off(*budget));
            }
            *budget -= chunk.len();
            self.len -= chunk.len();
            expired(chunk);
        }
        slot.is_empty()
    }

    /// Moves this turn's share of the next coarse slots down, `passed` ticks after the last turn.
    fn spread_ahead(&mut self, passed: u64, is_live: &mut impl FnMut(&Ticket) -> bool) {
        for depth in 1..self.levels.len() {
            let level = &self.levels[depth];
            let Some(number) = level.first_occupied(self.position) else { continue };
            if !level.fits_finer_level(number, self.position) {
                continue;
            }
            let chunks = level.slot(number).chunk_count() as u64;
            if chunks <= SPREAD_CHUNKS / 16 {
                continue;
            }
            let left = level.start_of(number) - self.position;
            let share = chunks.saturating_mul(passed).div_ceil(left).min(SPREAD_CHUNKS);
            for _ in 0..share {
                self.cascade_chunk(depth, number, is_live);
            }
        }
    }

    /// Looks at `chunks` more chunks for stale tickets. True when this ended a pass over the whole wheel.
    pub(crate) fn sweep(&mut self, chunks: usize, mut is_live: impl FnMut(&Ticket) -> bool) -> bool {
        for _ in 0..chunks {
            if !self.next_occupied_to_sweep() {
                self.sweep = SweepCursor::default();
                return true;
            }
            let cursor = &mut self.sweep;
            let (dropped, unswept) = self.levels[cursor.depth].with_slot(cursor.ring_index, |slot| {
                slot.sweep_before(cursor.unswept.unwrap_or(usize::MAX), &mut is_live)
            });
            self.len -= dropped;
            cursor.unswept = unswept;
            if unswept.is_none() {
                cursor.ring_index += 1;
            }
        }
        false
    }

    /// Moves the sweep on to an occupied slot. False when there is none left.
    fn next_occupied_to_sweep(&mut self) -> bool {
        let cursor = &mut self.sweep;
        while let Some(level) = self.levels.get(cursor.depth) {
            while cursor.ring_index < level.ring_len() as u64 {
                if !level.slot(cursor.ring_index).is_empty() {
                    return true;
                }
                cursor.ring_index += 1;
                cursor.unswept = None;
            }
            *cursor = SweepCursor { depth: cursor.depth + 1, ..SweepCursor::default() };
        }
        false
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let held: usize = self.levels.iter().map(|level| level.check_invariants(self.position)).sum();
        assert_eq!(held + self.overdue.tickets().count(), self.len);
        if let Some(Tick(wake)) = self.wake_tick() {
            assert!(wake > self.position || !self.overdue.is_empty());
        } else {
            assert_eq!(self.len, 0);
        }
    }
}
