//! Judges whether the loop that delivers timers is alive.

use core::time::Duration;
use std::time::Instant;
use tourbillon_durable::Health;

/// The time without a poll of the store after which the loop that delivers timers counts as dead, if timers are due.
const DEAD: Duration = Duration::from_secs(30);

/// The number of claims of the loop that delivers timers, and the moment at which this number last grew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    claims: u64,
    grew: Instant,
}

impl Liveness {
    pub(crate) fn new() -> Self {
        Self { claims: 0, grew: Instant::now() }
    }

    /// Returns the time for which the number of claims of the loop that delivers timers has not grown. `claims` is the
    /// present number.
    pub(super) fn silence(&mut self, claims: u64, now: Instant) -> Duration {
        if self.claims != claims {
            *self = Self { claims, grew: now };
        }
        now.saturating_duration_since(self.grew)
    }

    /// Fails with the reason if the loop that delivers timers waits too long for the store, or does not poll the store
    /// although timers are due. If `running` deliveries are as many as `capacity`, the loop need not poll.
    pub(super) fn judge(
        &mut self,
        health: &Health,
        claims: u64,
        running: usize,
        capacity: usize,
        now: Instant,
    ) -> Result<(), Box<str>> {
        let silent = self.silence(claims, now);
        match health {
            Health::StoreHangs(time) => {
                Err(format!("the loop has waited for the store for {} s", time.as_secs()).into())
            }
            Health::Overdue(time) if *time > DEAD && silent > DEAD && running < capacity => {
                let seconds = silent.as_secs();
                Err(format!("timers are due, and the loop has not polled for {seconds} s").into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Judges the loop that delivers timers. For the time `silent`, the loop has claimed nothing. For the time
    /// `overdue`, a timer has been due.
    fn verdict(silent: Duration, overdue: Duration, running: usize) -> Result<(), Box<str>> {
        let begin = Instant::now();
        let mut liveness = Liveness { claims: 0, grew: begin };
        liveness.judge(&Health::Healthy, 7, running, 10, begin).unwrap();
        // The number of claims has not grown, so there was no poll.
        liveness.judge(&Health::Overdue(overdue), 7, running, 10, begin + silent)
    }

    #[test]
    fn a_loop_that_does_not_poll_although_timers_are_due_is_dead() {
        let reason = verdict(31 * SECOND, 31 * SECOND, 0).unwrap_err();
        assert_eq!(&*reason, "timers are due, and the loop has not polled for 31 s");
        assert!(verdict(31 * SECOND, 31 * SECOND, 9).is_err(), "there is room for a handler");
        for (silent, overdue, running) in [
            (30 * SECOND, 31 * SECOND, 0),
            (31 * SECOND, 30 * SECOND, 0),
            // The greatest number of handlers runs, so the loop need not poll.
            (31 * SECOND, 31 * SECOND, 10),
        ] {
            assert_eq!(verdict(silent, overdue, running), Ok(()), "{silent:?}, {overdue:?}, {running}");
        }
    }

    #[test]
    fn a_loop_that_polls_is_alive_however_late_the_timers_are() {
        let begin = Instant::now();
        let mut liveness = Liveness { claims: 0, grew: begin };
        for claims in 1..10 {
            let now = begin + u32::try_from(claims).unwrap() * 20 * SECOND;
            assert_eq!(liveness.judge(&Health::Overdue(100 * SECOND), claims, 0, 10, now), Ok(()));
        }
        let later = begin + 211 * SECOND;
        assert!(liveness.judge(&Health::Overdue(100 * SECOND), 9, 0, 10, later).is_err());
        assert_eq!(liveness.judge(&Health::Overdue(100 * SECOND), 10, 0, 10, later), Ok(()), "alive again");
    }

    #[test]
    fn a_loop_that_waits_for_the_store_is_dead() {
        let mut liveness = Liveness::new();
        let hangs = Health::StoreHangs(11 * SECOND);
        let reason = liveness.judge(&hangs, 0, 0, 10, Instant::now()).unwrap_err();
        assert_eq!(&*reason, "the loop has waited for the store for 11 s");
    }
}
