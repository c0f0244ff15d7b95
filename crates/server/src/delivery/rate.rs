//! Limits the rate of a namespace's deliveries by evenly spaced slots (the generic cell rate algorithm).
//!
//! Each slot permits one delivery, and each delivery takes the next slot. A slot stays valid for 50 ms after its
//! moment, so the whole rate is used even if unparked timers arrive a little late. The number of deliveries that
//! begin within any span of time is bounded. The bound is the number that the rate permits in a span 50 ms longer, plus
//! one.

use core::time::Duration;
use std::time::Instant;

/// The longest time after a slot's moment for which a delivery can still take the slot. A slot is the permission for
/// one delivery to begin at the slot's moment.
const LAG: Duration = Duration::from_millis(50);
/// The longest time before a slot's moment for which a delivery can already take the slot. The delivery then waits in
/// memory until the slot's moment. A slot is the permission for one delivery to begin at that moment.
const LEAD: Duration = Duration::from_millis(10);

/// The slots of a namespace, at a constant rate. A slot is the permission for one delivery to begin at the slot's
/// moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// The time between the moments of two consecutive slots. Each slot permits one delivery.
    step: Duration,
    /// The moment of the first slot that no delivery has taken. Each slot permits one delivery.
    next: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self { step: Duration::from_secs(1) / per_second.max(1), next: now }
    }

    pub(crate) fn set(&mut self, per_second: u32) {
        self.step = Duration::from_secs(1) / per_second.max(1);
    }

    fn next_at(&self, now: Instant) -> Instant {
        // On some systems an `Instant` cannot be earlier than the start of the machine.
        self.next.max(now.checked_sub(LAG).unwrap_or(now))
    }

    /// Takes the next slot, which permits one delivery. Returns the time until the slot's moment, at which the delivery
    /// may begin. If that time is longer than [`LEAD`], returns `None` and takes no slot.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Duration> {
        let slot = self.next_at(now);
        let rest = slot.saturating_duration_since(now);
        (rest <= LEAD).then(|| {
            self.next = slot + self.step;
            rest
        })
    }

    /// Returns the number of slots that deliveries can take now. Each slot permits one delivery. If there are none,
    /// fails with the moment from which a delivery can take a slot.
    pub(crate) fn free(&self, now: Instant) -> Result<usize, Instant> {
        let slot = self.next_at(now);
        // Without a span, the slot is later than `now + LEAD`. So `slot - LEAD` is later than `now`, and the
        // subtraction cannot fail.
        let Some(span) = (now + LEAD).checked_duration_since(slot) else { return Err(slot - LEAD) };
        // At more than a thousand million deliveries per second, the step is rounded down to zero.
        let slots = span.as_nanos() / self.step.as_nanos().max(1) + 1;
        Ok(usize::try_from(slots).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_the_rate_and_a_twentieth() {
        for per_second in [1, 10, 100, 5_000] {
            let begin = Instant::now();
            let mut rate = Rate::new(per_second, begin);
            let mut taken = Vec::new();
            // Deliveries arrive without a pause, after a second without any delivery.
            let mut now = begin + Duration::from_secs(1);
            while now < begin + Duration::from_secs(4) {
                if let Some(rest) = rate.take(now) {
                    taken.push(now + rest);
                } else {
                    assert!(rate.free(now).is_err());
                }
                now += Duration::from_micros(100);
            }
            let most = (0..taken.len())
                .map(|at| {
                    taken[at..]
                        .iter()
                        .take_while(|other| **other < taken[at] + Duration::from_secs(1))
                        .count()
                })
                .max()
                .unwrap();
            let per_second = per_second as usize;
            assert!((per_second..=per_second + per_second / 20 + 1).contains(&most), "{per_second}: {most}");
        }
    }

    #[test]
    fn a_late_delivery_does_not_lower_the_rate() {
        let begin = Instant::now();
        let mut rate = Rate::new(100, begin);
        let mut taken = 0;
        for ms in (0..1_000).step_by(17) {
            let now = begin + Duration::from_millis(ms);
            while rate.take(now).is_some() {
                taken += 1;
            }
        }
        assert!((98..=103).contains(&taken), "{taken}");
    }

    #[test]
    fn the_free_slots_are_those_that_can_be_taken() {
        let begin = Instant::now();
        let mut rate = Rate::new(1_000, begin);
        let now = begin + Duration::from_secs(1);
        let free = rate.free(now).unwrap();
        assert!((0..free).all(|_| rate.take(now).is_some()) && rate.take(now).is_none());
        let again = rate.free(now).unwrap_err();
        assert!(rate.take(again).is_some());
    }
}
