//! The moment of a timer's next check. At this moment the timer's ticket that is *out* (posted and not yet checked) is
//! due. The state holds the moment in units of 2^20 ns, and the extra word holds the nanosecond.
//!
//! The [protocol](super) shows the layout of both words.

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::tick::Timestamp;
use crate::lockfree::state::{
    FLAGS, GENERATION_SHIFT, OWNED, QUEUED, SEQUENCE, SEQUENCE_SHIFT, next_sequence, vacant,
};

const CHECK_SHIFT: u32 = GENERATION_SHIFT;
/// The greatest count of units of 2^20 ns in a timer's state. It stands for a check in this unit or later, at an
/// unknown moment.
const CHECK_MAX: u64 = u64::MAX >> CHECK_SHIFT;
const UNIT_SHIFT: u32 = 20;
const OFFSET: u32 = (1 << UNIT_SHIFT) - 1;

/// The extra word of an owned timer: its generation, and the low bits of the moment of its next check. Threads read the
/// extra word only where the state word does not suffice.
#[derive(Debug)]
pub(crate) struct Extra {
    generation: AtomicU64,
    check: AtomicU32,
}

/// The unit of 2^20 ns from which the moments of checks are counted. This unit is shortly before the engine's start, so
/// that the count lasts for 36 years. All checks before the engine's start have the same count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u64);

impl Origin {
    /// Returns the origin for an engine that starts at `start`. A deadline at `start` or later lies after the origin.
    pub(crate) fn before(start: Timestamp) -> Self {
        Self((start.as_nanos() >> UNIT_SHIFT).saturating_sub(2))
    }

    /// Returns the number of the unit in which a deadline lies, rounded down. Returns zero for a deadline before the
    /// origin.
    #[inline(always)]
    fn unit_of(self, deadline: u64) -> u64 {
        (deadline >> UNIT_SHIFT).saturating_sub(self.0)
    }

    /// Returns the number of the first unit that begins at the moment `check` or later.
    fn unit_after(self, check: u64) -> u64 {
        let first = u64::from(self.0 > 0);
        check.div_ceil(1 << UNIT_SHIFT).saturating_sub(self.0).clamp(first, CHECK_MAX)
    }

    /// Returns whether the moment `check` counts as past. Past moments lie before the engine's start, and all have the
    /// same count.
    fn is_past(self, check: u64) -> bool {
        self.0 > 0 && check.div_ceil(1 << UNIT_SHIFT) <= self.0 + 1
    }

    /// Returns the last moment that the count of units can express. A timer with a later deadline is first checked at
    /// this moment.
    pub(super) fn last_check(self) -> u64 {
        (self.0 + CHECK_MAX - 1).min(u64::MAX >> UNIT_SHIFT) << UNIT_SHIFT
    }

    /// Returns whether `state` shows that the timer's present ticket (a request to check the timer) is due at
    /// `deadline` or before.
    #[inline(always)]
    pub(super) fn is_covered(self, state: u64, deadline: u64) -> bool {
        state & FLAGS == OWNED | QUEUED && check_of(state) <= self.unit_of(deadline).min(CHECK_MAX - 1)
    }

    /// Returns the next state of a timer in `state` when a ticket for `check` is queued.
    pub(super) fn queued(self, state: u64, check: u64) -> u64 {
        let sequence = next_sequence(state) & SEQUENCE;
        self.unit_after(check) << CHECK_SHIFT | sequence | OWNED | QUEUED
    }

    /// Returns a moment shortly before the timer's next check: the start of the check's unit. Returns `None` if the
    /// timer has no ticket, or if the unit is unknown.
    pub(super) fn unit_of_check(self, state: u64) -> Option<u64> {
        let check = check_of(state);
        if state & QUEUED == 0 || check == CHECK_MAX {
            return None;
        }
        Some((check + self.0).saturating_sub(1) << UNIT_SHIFT)
    }

    /// Returns the moment for which the caller must queue a new ticket, so that the ticket is in time for `deadline`.
    /// Returns `None` if the timer's extra word shows that the present ticket is in time. The caller has checked that
    /// the state word does not show this ([`is_covered`](Self::is_covered)). `extra` fetches the extra word.
    ///
    /// The new ticket must not be later than the ticket that is out, on which other threads may rely (O3). If both
    /// tickets are in one unit and the exact check is not known, the start of the unit is early enough for all threads.
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
        // Ordering: Relaxed. The tag in the word is compared with the state.
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

/// Returns the first sequence number for a slot's new owner. The number is far from the numbers of earlier owners,
/// because earlier owners' tickets may still be in a wheel.
pub(super) fn first_sequence(generation: u64) -> u64 {
    // The factor is 2^16 divided by the golden ratio, rounded to an odd number.
    generation.wrapping_mul(40_503) << SEQUENCE_SHIFT & SEQUENCE
}

/// Returns the tag of a state: the low bits of its sequence number, at the tag's position in the extra word.
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

    // Ordering in this type: Relaxed. The generation was written before the timer became an owned timer (S2). It does
    // not change while the slot belongs to an owned timer. The tag of a check is compared with the state.
    pub(super) fn begin(&self, generation: u64, at_rest: u64) {
        self.generation.store(generation, Ordering::Relaxed);
        // This says that no check is known: a queued timer gets this tag only when the sequence has gone round.
        self.check.store(tag_of(at_rest), Ordering::Relaxed);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn vacated(&self) -> u64 {
        vacant(self.generation() + 1)
    }

    /// Stores the exact moment of the next check, after the caller has queued the timer's ticket. If another thread has
    /// queued a later ticket, the stored tag differs from the state's tag. Then the exact moment counts as unknown.
    pub(super) fn note(&self, state: u64, deadline: u64) {
        self.check.store(tag_of(state) | offset_of(deadline.saturating_sub(1)), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    const UNIT: u64 = 1 << UNIT_SHIFT;
    const YEAR: u64 = 365 * 24 * 3_600 * 1_000_000_000;

    /// A timer's state shows for which deadlines the timer's ticket is in time. These are all deadlines one unit or
    /// more after the ticket's check, and no deadline before the check. This holds for 36 years from any start.
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
            // This check is long past. It happens before any deadline that it covers.
            let state = origin.queued(0, start / 2);
            assert!(origin.is_covered(state, start + UNIT) && start / 2 <= start);
        }
    }

    /// A ticket more than 36 years after the start is shown as in time for no deadline. A ticket at the last moment
    /// that the count can express is in time for every later deadline.
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
