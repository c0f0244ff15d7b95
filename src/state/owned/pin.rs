//! When the ticket that is out is looked at: in the state to a unit, in the pin to the nanosecond.
//!
//! The layout is the [protocol](super)'s.

use crate::state::{FLAGS, GENERATION_SHIFT, LISTED, OWNED, SEQUENCE, SEQUENCE_SHIFT, next_sequence, vacant};
use crate::sync::{AtomicU32, Ordering};

const LOOK_SHIFT: u32 = GENERATION_SHIFT;
/// Some look from here on, nobody knows which.
const LOOK_MAX: u64 = u64::MAX >> LOOK_SHIFT;
/// The last look that is known; farther timers are looked at then.
pub(super) const LAST_LOOK: u64 = (LOOK_MAX - 1) << UNIT_SHIFT;
const UNIT_SHIFT: u32 = 20;
const OFFSET: u32 = (1 << UNIT_SHIFT) - 1;

/// What of a timer is touched only where its state does not tell: its generation, and its look to the nanosecond.
#[derive(Debug)]
pub(crate) struct Pin {
    generation: AtomicU32,
    look: AtomicU32,
}

/// The moment, in units, from which on a deadline is known to be not before `look`.
fn unit_after(look: u64) -> u64 {
    look.div_ceil(1 << UNIT_SHIFT).min(LOOK_MAX)
}

fn look_of(state: u64) -> u64 {
    state >> LOOK_SHIFT
}

/// Whether the ticket that is out is looked at in time for `deadline`, as far as the state tells.
#[inline(always)]
pub(super) fn is_covered(state: u64, deadline: u64) -> bool {
    state & FLAGS == OWNED | LISTED && look_of(state) <= (deadline >> UNIT_SHIFT).min(LOOK_MAX - 1)
}

/// The state after a ticket for `deadline` was decided on.
pub(super) fn listed(state: u64, deadline: u64) -> u64 {
    let sequence = next_sequence(state) & SEQUENCE;
    unit_after(deadline) << LOOK_SHIFT | sequence | OWNED | LISTED
}

/// The sequence that an owner of a slot begins with: far from those of the owners before, whose tickets may be out for
/// the same deadlines.
pub(super) fn first_sequence(generation: u32) -> u64 {
    // 2^16 over the golden ratio, and odd.
    u64::from(generation.wrapping_mul(40_503)) << SEQUENCE_SHIFT & SEQUENCE
}

/// The low bits of the sequence, in their place in a pin.
fn tag_of(state: u64) -> u32 {
    (((state & SEQUENCE) >> SEQUENCE_SHIFT) as u32) << UNIT_SHIFT
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits")]
fn offset_of(deadline: u64) -> u32 {
    deadline as u32 & OFFSET
}

impl Pin {
    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn new() -> Self {
        Self { generation: AtomicU32::new(0), look: AtomicU32::new(0) }
    }

    // Ordering in this type: Relaxed. The generation was written before the timer became an owned one (O5), and does not
    // change until it is none; what is read of the look is checked against the state.
    pub(super) fn begin(&self, generation: u32, at_rest: u64) {
        self.generation.store(generation, Ordering::Relaxed);
        // Nothing is known of a look: no listed timer has this tag before the sequence has gone round.
        self.look.store(tag_of(at_rest), Ordering::Relaxed);
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The state of the slot once its timer is no more.
    pub(super) fn vacated(&self) -> u64 {
        vacant(self.generation().wrapping_add(1))
    }

    /// Notes the exact look of a timer that the caller listed. Should somebody have listed it again meanwhile, the tag
    /// tells.
    pub(super) fn note(&self, state: u64, deadline: u64) {
        self.look.store(tag_of(state) | offset_of(deadline.saturating_sub(1)), Ordering::Relaxed);
    }

    /// For when a ticket must be posted to be in time for `deadline`, given a state that does not cover it; `None` if the
    /// ticket that is out is in time.
    ///
    /// It must not be later than the one that is out, which others may rely on (O3). Where both are in the same unit and
    /// the exact look is not known, the begin of the unit is early enough for all.
    pub(super) fn look_for(&self, state: u64, deadline: u64) -> Option<u64> {
        let unit = deadline >> UNIT_SHIFT;
        if state & LISTED == 0 || unit_after(deadline) != look_of(state) || look_of(state) == LOOK_MAX {
            return Some(deadline.min(LAST_LOOK));
        }
        let look = self.look.load(Ordering::Relaxed);
        if look >> UNIT_SHIFT != tag_of(state) >> UNIT_SHIFT {
            return Some(unit << UNIT_SHIFT);
        }
        (look & OFFSET >= offset_of(deadline)).then_some(deadline)
    }
}
