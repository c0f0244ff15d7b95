//! Limits a rate by evenly spaced slots (the generic cell rate algorithm).
//!
//! Each slot permits one event, such as a delivery, and each event takes the next slot. A [`Window`] is the time around
//! a slot's moment at which an event can take the slot. Within any span of time, the number of events is at most the
//! rate multiplied by the sum of the span and the window's lag, plus one.

use core::time::Duration;
use std::time::Instant;

/// The time around a slot's moment at which an event can take the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The longest time after a slot's moment at which an event can still take the slot. A lag lets late events use the
    /// whole rate.
    pub(crate) lag: Duration,
    /// The longest time before a slot's moment at which an event can take the slot, and then wait for this moment.
    pub(crate) lead: Duration,
}

/// The slots of a namespace, at a constant rate. A slot is the permission for one event at a certain moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// The time between the moments of two consecutive slots.
    step: Duration,
    /// The moment of the first slot that no event has taken.
    next: Instant,
}

impl Rate {
    /// Makes slots from the moment `first` on.
    pub(crate) fn new(per_second: u32, first: Instant) -> Self {
        Self { step: step(per_second), next: first }
    }

    /// Changes the rate. A higher rate also moves the next slot to an earlier moment.
    pub(crate) fn set(&mut self, per_second: u32) {
        let step = step(per_second);
        let sooner = self.step.saturating_sub(step);
        self.next = self.next.checked_sub(sooner).unwrap_or(self.next);
        self.step = step;
    }

    /// Returns whether the next free slot is later than `since`.
    pub(crate) fn is_used_since(&self, since: Instant) -> bool {
        self.next > since
    }

    fn next_at(&self, now: Instant, window: Window) -> Instant {
        // On some systems an `Instant` cannot be earlier than the start of the machine.
        self.next.max(now.checked_sub(window.lag).unwrap_or(now))
    }

    /// Takes the next slot. Returns the time until the slot's moment, at which the event may begin. If no event can
    /// take a slot now, fails with the time after which an event can.
    pub(crate) fn take(&mut self, now: Instant, window: Window) -> Result<Duration, Duration> {
        let slot = self.next_at(now, window);
        let rest = slot.saturating_duration_since(now);
        match rest.checked_sub(window.lead).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(wait),
            None => {
                self.next = slot + self.step;
                Ok(rest)
            }
        }
    }

    /// Returns the moment of the slot that an event has taken last.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.next.checked_sub(self.step)
    }

    /// Gives back a slot whose event did not take place, for the next event. A slot that no event could take any more
    /// has passed without an event, like a slot that nobody wanted. So no span of time gets more events than without
    /// this call.
    pub(crate) fn give_back(&mut self, slot: Instant, now: Instant, window: Window) {
        if now <= slot + window.lag {
            self.next = self.next.checked_sub(self.step).unwrap_or(self.next);
        }
    }

    /// Returns the number of slots that events can take now. If there are none, fails with the moment from which an
    /// event can take a slot.
    pub(crate) fn free(&self, now: Instant, window: Window) -> Result<usize, Instant> {
        let slot = self.next_at(now, window);
        // If this subtraction gives `None`, the slot is later than `now + lead`. So `slot - lead` cannot underflow.
        let Some(span) = (now + window.lead).checked_duration_since(slot) else {
            return Err(slot - window.lead);
        };
        // At more than a thousand million events per second, the step is rounded down to zero.
        let slots = span.as_nanos() / self.step.as_nanos().max(1) + 1;
        Ok(usize::try_from(slots).unwrap_or(usize::MAX))
    }
}

/// Returns the time between two slots. A rate of 0 counts as 1.
pub(crate) fn step(per_second: u32) -> Duration {
    Duration::from_secs(1) / per_second.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { lag: Duration::from_millis(50), lead: Duration::from_millis(10) };

    #[test]
    fn no_second_has_more_than_the_rate_and_a_twentieth() {
        for per_second in [1, 10, 100, 5_000] {
            let begin = Instant::now();
            let mut rate = Rate::new(per_second, begin);
            let mut taken = Vec::new();
            // Deliveries arrive without a pause, after a second without any delivery.
            let mut now = begin + Duration::from_secs(1);
            while now < begin + Duration::from_secs(4) {
                if let Ok(rest) = rate.take(now, WINDOW) {
                    taken.push(now + rest);
                } else {
                    assert!(rate.free(now, WINDOW).is_err());
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
    fn a_rate_that_is_raised_holds_at_once() {
        let begin = Instant::now();
        let mut rate = Rate::new(1, begin);
        assert!(rate.take(begin, WINDOW).is_ok());
        let later = begin + Duration::from_millis(2);
        assert!(rate.take(later, WINDOW).is_err());
        rate.set(1_000);
        assert!(rate.take(later, WINDOW).is_ok());
    }

    /// Half of the events give their slots back at once, and others a second later.
    #[test]
    fn a_slot_that_is_given_back_in_time_goes_to_the_next_event() {
        for (rest, most) in [(Duration::ZERO, 95..=105), (Duration::from_secs(1), 48..=55)] {
            let begin = Instant::now();
            let mut rate = Rate::new(100, begin);
            let (mut used, mut number, mut given_back) = (0, 0, std::collections::VecDeque::new());
            for ms in 0..1_000 {
                let now = begin + Duration::from_millis(ms);
                while given_back.front().is_some_and(|(at, _)| *at <= now) {
                    let (_, slot) = given_back.pop_front().unwrap();
                    rate.give_back(slot, now, WINDOW);
                }
                while rate.take(now, WINDOW).is_ok() {
                    number += 1;
                    match number % 2 {
                        0 => used += 1,
                        _ => given_back.push_back((now + rest, rate.last().unwrap())),
                    }
                    if rest.is_zero()
                        && let Some((_, slot)) = given_back.pop_front()
                    {
                        rate.give_back(slot, now, WINDOW);
                    }
                }
            }
            assert!(most.contains(&used), "{rest:?}: {used}");
        }
    }

    #[test]
    fn a_late_delivery_does_not_lower_the_rate() {
        let begin = Instant::now();
        let mut rate = Rate::new(100, begin);
        let mut taken = 0;
        for ms in (0..1_000).step_by(17) {
            let now = begin + Duration::from_millis(ms);
            while rate.take(now, WINDOW).is_ok() {
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
        let free = rate.free(now, WINDOW).unwrap();
        assert!((0..free).all(|_| rate.take(now, WINDOW).is_ok()) && rate.take(now, WINDOW).is_err());
        let again = rate.free(now, WINDOW).unwrap_err();
        assert!(rate.take(again, WINDOW).is_ok());
    }
}
