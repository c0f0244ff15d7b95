//! Notices steps of the store's clock, which are sudden changes of its time. For this, the store's clock is compared
//! with a steady clock, which cannot be set.

use core::time::Duration;
use tourbillon::Timestamp;
use tourbillon_words::UtcMillis;

/// A difference of more than this time between the store's clock and the steady clock counts as a step of the store's
/// clock. The difference is measured since the last comparison of the two clocks. The permitted drift between the
/// clocks is added to this time.
const LEAST: Duration = Duration::from_millis(500);
/// The inverse of the permitted drift between the store's clock and the steady clock. The drift may be 200 parts per
/// million of the time since the last comparison. Even the clocks of two machines without synchronisation drift apart
/// more slowly, so a greater difference is not drift.
const DRIFT: u32 = 5_000;
/// The longest time between two readings of the steady clock that count as readings of the same moment. The store's
/// clock is read between these two readings. If more time passes between them, all clocks are read again.
const ONE_MOMENT: Duration = Duration::from_millis(20);
/// The number of attempts to read the store's clock and the steady clock at the same moment.
const READINGS: usize = 8;

/// The times that the store's clock and the steady clock showed at their last comparison. `None` before the first
/// comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Option<(UtcMillis, Timestamp)>);

/// A step of the store's clock: a sudden change of its time, ahead or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The moment that the store's clock would show if it had not stepped.
    pub(crate) from: UtcMillis,
    /// The moment that the store's clock shows after its step.
    pub(crate) to: UtcMillis,
}

impl Step {
    pub(crate) fn is_back(self) -> bool {
        self.to < self.from
    }
}

impl Steps {
    /// Compares the store's clock with the steady clock. Returns the step of the store's clock after the last
    /// comparison, or `None` if the store's clock has not stepped.
    pub(crate) fn compare(
        &mut self,
        store: impl Fn() -> UtcMillis,
        steady: impl Fn() -> Timestamp,
    ) -> Option<Step> {
        // If the thread was interrupted between the readings, the difference would look like a step. So the clocks are
        // read again.
        let (shown, at) = (0..READINGS).find_map(|_| {
            let (before, shown, after) = (steady(), store(), steady());
            (after - before <= ONE_MOMENT).then_some((shown, before))
        })?;
        // If no attempt has succeeded, the last comparison stays. So the next comparison still sees the step.
        let (last, then) = self.0.replace((shown, at))?;
        let passed = at - then;
        let from = last + passed;
        // A difference of moments is never negative: one of the two differences is zero.
        let parted = (shown - from).max(from - shown);
        (parted > LEAST + passed / DRIFT).then_some(Step { from, to: shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    const START: u64 = 1_700_000_000_000;

    /// Compares the two clocks once for each pair in `shown`, and returns the noticed steps of the store's clock, in
    /// seconds. A pair has the milliseconds that the store's clock shows, and the milliseconds that the steady clock
    /// shows at the same time.
    fn steps(shown: &[(u64, u64)]) -> Vec<i64> {
        let mut steps = Steps::default();
        let seen = shown.iter().filter_map(|(store, steady)| {
            let store = || UtcMillis::from_millis(START + store);
            steps.compare(store, || Timestamp::from_nanos(steady * 1_000_000))
        });
        let seconds = |step: Step| {
            let millis = (step.to - step.from).max(step.from - step.to).as_millis() + 500;
            let size = i64::try_from(millis / 1_000).unwrap();
            if step.is_back() { -size } else { size }
        };
        seen.map(seconds).collect()
    }

    #[test]
    fn a_step_in_either_direction_is_seen_once_with_its_size() {
        const DECADE: u64 = 315_360_000_000;
        let ahead =
            [(100_000, 5_000), (101_000, 6_000), (DECADE + 102_000, 7_000), (DECADE + 103_000, 8_000)];
        assert_eq!(steps(&ahead), [315_360_000]);
        let for_ten_seconds =
            [(100_000, 5_000), (DECADE + 101_000, 6_000), (111_000, 16_000), (112_000, 17_000)];
        assert_eq!(steps(&for_ten_seconds), [315_360_000, -315_360_000]);
        assert_eq!(steps(&[(3_600_000, 0), (0, 0), (5_000, 5_000)]), [-3_600]);
    }

    #[test]
    fn drift_and_jitter_are_no_steps() {
        const DAY: u64 = 86_400_000;
        assert_eq!(steps(&[(0, 0), (400, 0), (DAY, DAY), (DAY + 300, DAY)]), [0; 0]);
        assert_eq!(steps(&[(0, 0), (DAY + 10_000, DAY)]), [0; 0], "ten seconds within a day");
        assert_eq!(steps(&[(0, 0), (DAY + 60_000, DAY)]), [60]);
    }

    #[test]
    fn a_thread_that_sleeps_between_two_readings_has_seen_no_step() {
        let mut steps = Steps::default();
        let steady = Cell::new(0_u64);
        let read = || Timestamp::from_nanos(steady.get());
        let interrupted = || {
            steady.set(steady.get() + 60_000_000_000);
            UtcMillis::from_millis(START)
        };
        assert_eq!(steps.compare(|| UtcMillis::from_millis(START), read), None);
        assert_eq!(steps.compare(interrupted, read), None);
    }
}
