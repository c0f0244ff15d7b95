//! The moment of the next check, at which the ticket that is out is due. The state holds it to a unit, the extra word
//! to the nanosecond.
//!
//! For the layout see the [protocol](super).

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::tick::Timestamp;
use crate::lockfree::state::{
    FLAGS, GENERATION_SHIFT, OWNED, QUEUED, SEQUENCE, SEQUENCE_SHIFT, next_sequence, vacant,
};

const CHECK_SHIFT: u32 = GENERATION_SHIFT;
/// The count for a check in this unit or later, whose exact unit is unknown.
const CHECK_MAX: u64 = u64::MAX >> CHECK_SHIFT;
const UNIT_SHIFT: u32 = 20;
const OFFSET: u32 = (1 << UNIT_SHIFT) - 1;

/// The extra word of a timer, used only where its state does not suffice: its generation, and its check to the
/// nanosecond.
#[derive(Debug)]
pub(crate) struct Extra {
    generation: AtomicU64,
    check: AtomicU32,
}

/// The unit from which checks are counted. It is shortly before the engine's start, so that the count lasts for 36
/// years whatever the clock shows. All checks before the engine's start are long past, and count as one check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u64);

impl Origin {
    /// The origin for an engine that starts at `start`. No deadline from `start` on is past.
    pub(crate) fn before(start: Timestamp) -> Self {
        Self((start.as_nanos() >> UNIT_SHIFT).saturating_sub(2))
    }

    /// The unit of a deadline. It is zero for deadlines before the origin, since no check is known to be in time for
    /// them.
    #[inline(always)]
    fn unit_of(self, deadline: u64) -> u64 {
        (deadline >> UNIT_SHIFT).saturating_sub(self.0)
    }

    /// The first unit whose deadlines are known to be not before `check`.
    fn unit_after(self, check: u64) -> u64 {
        let first = u64::from(self.0 > 0);
        check.div_ceil(1 << UNIT_SHIFT).saturating_sub(self.0).clamp(first, CHECK_MAX)
    }

    /// Whether a check at that moment counts as long past, as all checks before the start do.
    fn is_past(self, check: u64) -> bool {
        self.0 > 0 && check.div_ceil(1 << UNIT_SHIFT) <= self.0 + 1
    }

    /// The last check that the count can express. Timers with a later deadline are checked then.
    pub(super) fn last_check(self) -> u64 {
        (self.0 + CHECK_MAX - 1).min(u64::MAX >> UNIT_SHIFT) << UNIT_SHIFT
    }

    /// Whether the ticket that is out is due in time for `deadline`, as far as the state shows.
    #[inline(always)]
    pub(super) fn is_covered(self, state: u64, deadline: u64) -> bool {
        state & FLAGS == OWNED | QUEUED && check_of(state) <= self.unit_of(deadline).min(CHECK_MAX - 1)
    }

    /// The state of a timer with a queued ticket for `check`, given its state before.
    pub(super) fn queued(self, state: u64, check: u64) -> u64 {
        let sequence = next_sequence(state) & SEQUENCE;
        self.unit_after(check) << CHECK_SHIFT | sequence | OWNED | QUEUED
    }

    /// The start of the unit in which the ticket that is out is due: a moment that is not after that ticket. `None` if
    /// no ticket is out, or if its unit is unknown.
    pub(super) fn unit_of_check(self, state: u64) -> Option<u64> {
        let check = check_of(state);
        if state & QUEUED == 0 || check == CHECK_MAX {
            return None;
        }
        Some((check + self.0).saturating_sub(1) << UNIT_SHIFT)
    }

    /// The moment for which a ticket must be queued to be in time for `deadline`, given a state that does not cover the
    /// deadline. `None` if the ticket that is out is in time. `extra` fetches the timer's extra word, where it is
    /// needed.
    ///
    /// The new ticket must not be later than the ticket that is out, which others may rely on (O3). If both are in the
    /// same unit and the exact check is not known, the start of the unit is early enough for all.
    #[inline]
    pub(super) fn check_for<'a>(
        self,
        state: u64,
        deadline: u64,
        extra: impl FnOnce() -> &'a Extra,
    ) -> Option<u64> {
        let unit = deadline >> UNIT_SHIFT;
        let is_in_other_unit = self.unit_after(deadline) != check_of(state);
        if state & QUEUED == 0 || is_in_other_unit || check_of(state) == CHECK_MAX {
            return Some(deadline.min(self.last_check()));
        }
        if self.is_past(deadline) {
            return Some(0);
        }
        // Ordering: Relaxed. A check that was read is checked against the state.
        let check = extra().check.load(Ordering::Relaxed);
        if check >> UNIT_SHIFT != tag_of(state) >> UNIT_SHIFT {
            return Some(unit << UNIT_SHIFT);
        }
        (check & OFFSET >= offset_of(deadline)).then_some(deadline)
    }
}

fn check_of(state: u64) -> u64 {
    state >> CHECK_SHIFT
}

/// The first sequence of a slot's new owner. It is far from the sequences of earlier owners, whose tickets may still be
/// out for the same deadlines.
pub(super) fn first_sequence(generation: u64) -> u64 {
    // 2^16 over the golden ratio, and odd.
    generation.wrapping_mul(40_503) << SEQUENCE_SHIFT & SEQUENCE
}

/// The low bits of the sequence, at their position in an extra word.
fn tag_of(state: u64) -> u32 {
    (((state & SEQUENCE) >> SEQUENCE_SHIFT) as u32) << UNIT_SHIFT
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits")]
fn offset_of(deadline: u64) -> u32 {
    deadline as u32 & OFFSET
}

impl Extra {
    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn new() -> Self {
        Self { generation: AtomicU64::new(0), check: AtomicU32::new(0) }
    }

    // Ordering in this type: Relaxed. The generation was written before the timer became an owned timer (S2), and does
    // not change until the slot is no longer an owned timer's. A check that was read is checked against the state.
    pub(super) fn begin(&self, generation: u64, at_rest: u64) {
        self.generation.store(generation, Ordering::Relaxed);
        // No check is known: no queued timer has this tag before the sequence has gone round.
        self.check.store(tag_of(at_rest), Ordering::Relaxed);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The state of the slot after its timer has been vacated.
    pub(super) fn vacated(&self) -> u64 {
        vacant(self.generation() + 1)
    }

    /// Notes the exact check of a timer that the caller queued. If another thread has queued the timer again since the
    /// load, the tag shows it.
    pub(super) fn note(&self, state: u64, deadline: u64) {
        self.check.store(tag_of(state) | offset_of(deadline.saturating_sub(1)), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    const UNIT: u64 = 1 << UNIT_SHIFT;
    const YEAR: u64 = 365 * 24 * 3_600 * 1_000_000_000;

    /// Within 36 years from any start, a covered deadline is checked in time or is long past, and a deadline one unit
    /// after the check is covered.
    #[test]
    fn looks_are_known_for_decades_from_the_start_on() {
        let ahead = [0, 1, UNIT - 1, UNIT, UNIT + 1, 2 * UNIT, YEAR, 35 * YEAR];
        for start in [0, 1, UNIT, 3 * UNIT - 1, 57 * YEAR + 12_345, 500 * YEAR] {
            let origin = Origin::before(Timestamp::from_nanos(start));
            for check in ahead.map(|ahead| start + ahead) {
                let state = origin.queued(0, check);
                for later in ahead {
                    assert!(origin.is_covered(state, check + UNIT + later), "{start} {check} {later}");
                    let deadline = check.saturating_sub(later);
                    assert!(
                        !origin.is_covered(state, deadline) || check <= deadline,
                        "{start} {check} {later}"
                    );
                }
                assert!(!origin.is_covered(state, 0) || check == 0, "{start} {check}");
            }
            // Long past: checked, sooner or later, before any deadline that the check covers.
            let state = origin.queued(0, start / 2);
            assert!(origin.is_covered(state, start + UNIT) && start / 2 <= start);
        }
    }

    /// Beyond that range no check is known, and the last check that is known comes before the deadline.
    #[test]
    fn looks_beyond_are_unknown() {
        for start in [0, 57 * YEAR, 560 * YEAR] {
            let origin = Origin::before(Timestamp::from_nanos(start));
            assert!(origin.last_check() >= start + (if start > 540 * YEAR { 20 } else { 36 }) * YEAR);
            assert!(origin.is_covered(origin.queued(0, origin.last_check()), u64::MAX));
        }
        let state = Origin::before(Timestamp::ZERO).queued(0, 40 * YEAR);
        assert!(!Origin::before(Timestamp::ZERO).is_covered(state, 41 * YEAR));
    }
}
