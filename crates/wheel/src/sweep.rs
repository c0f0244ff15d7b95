//! The way of a sweep for stale tickets through the slots of a wheel.

use crate::blocks::Blocks;
use crate::level::Level;
use crate::slot::{Slot, SweepNext, SweepStep};
use crate::tick::Tick;
use crate::ticket::Ticket;

/// The slot that the sweep for stale tickets checks next. `depth` is the number of the slot's level, counted from the
/// finest level. After all levels, the sweep checks the overdue tickets.
#[derive(Debug, Default)]
pub(crate) struct SweepCursor {
    depth: usize,
    ring_index: u64,
    /// The number of the slot's full blocks that the sweep has not checked yet. `None` before the sweep has begun the
    /// slot.
    unswept: Option<u32>,
}

impl SweepCursor {
    /// Checks a block of the cursor's slot, or of the first occupied slot after it, and drops stale tickets. Returns
    /// the numbers of checked and dropped tickets, or `None` when the sweep has passed the whole wheel.
    pub(crate) fn step<T: Ticket, const BITS: u32>(
        &mut self,
        levels: &mut [Level<BITS>],
        blocks: &mut Blocks<T>,
        far: &mut Blocks<(Tick, T)>,
        overdue: [&mut Slot; 2],
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> Option<(usize, usize)> {
        let step = self.step_in_levels(levels, blocks, far, is_live);
        let SweepStep { looked_at, dropped, next } = match step {
            Some(step) => step,
            // The overdue tickets come after the levels.
            None => {
                let slot = overdue.into_iter().nth(usize::try_from(self.ring_index).ok()?)?;
                slot.sweep_step(blocks, self.unswept, is_live)
            }
        };
        self.unswept = match next {
            SweepNext::Full(unswept) => Some(unswept),
            SweepNext::LastBlock => None,
            SweepNext::Slot => {
                self.ring_index += 1;
                None
            }
        };
        Some((looked_at, dropped))
    }

    /// Does the work of [`step`](Self::step) in the levels. Returns `None` when the sweep has passed all levels.
    fn step_in_levels<T: Ticket, const BITS: u32>(
        &mut self,
        levels: &mut [Level<BITS>],
        blocks: &mut Blocks<T>,
        far: &mut Blocks<(Tick, T)>,
        is_live: &mut impl FnMut(&T) -> bool,
    ) -> Option<SweepStep> {
        while let Some(level) = levels.get_mut(self.depth) {
            while self.ring_index < level.ring_len() as u64 {
                if !level.slot(self.ring_index).is_empty() {
                    let sweep = |slot: &mut Slot| {
                        if Level::<BITS>::is_near::<T>(self.depth) {
                            slot.sweep_step(blocks, self.unswept, is_live)
                        } else {
                            slot.sweep_step(far, self.unswept, &mut |(_, ticket)| is_live(ticket))
                        }
                    };
                    return Some(level.with_slot(self.ring_index, sweep));
                }
                self.ring_index += 1;
                self.unswept = None;
            }
            *self = Self { depth: self.depth + 1, ..Self::default() };
        }
        None
    }
}
