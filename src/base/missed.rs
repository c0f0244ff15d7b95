//! The policy for moments of a repeating timer that were missed.

#[cfg(feature = "async")]
use core::time::Duration;

/// Decides how to treat missed moments of a repeating timer. An `Interval` misses ticks if it is not polled in time. A
/// repeating task misses moments if the engine or its workers are late.
///
/// An example with a period of 50: the moment 100 is handled late, at 230.
///
/// | policy | moments after it |
/// |---|---|
/// | [`Burst`](Self::Burst) | 150 and 200 at once, 250, 300 |
/// | [`Delay`](Self::Delay) | 280, 330, 380 |
/// | [`Skip`](Self::Skip) | 250, 300, 350 |
///
/// The default depends on the repeating timer. An interval bursts by default, as an interval of tokio does. The period
/// of an interval may be shorter than a tick of the engine, and then all its moments come in bunches. A repeating task
/// skips by default; its period is at least a tick. A burst after a stall would come when the program has most to catch
/// up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The repeating timer makes up for all missed moments, one after the other, without a pause.
    Burst,
    /// The repeating timer leaves the missed moments out. Its next moment is one period after the time at which it
    /// handled the late moment.
    Delay,
    /// The repeating timer leaves the missed moments out. Its next moment is a whole number of periods after the moment
    /// that was handled late.
    Skip,
}

#[cfg(feature = "async")]
impl Missed {
    /// Returns the time from a moment of a repeating timer to the next one. The moment is taken `late` after it was
    /// due. It counts as missed if `late` is more than `limit`. The period must not be zero.
    pub(crate) fn until_next(self, late: Duration, limit: Duration, period: Duration) -> Duration {
        match self {
            Self::Delay if late > limit => late.saturating_add(period),
            Self::Skip if late > limit => {
                let into = late.as_nanos() % period.as_nanos();
                // Less than the period, whose seconds are a `u64`.
                let whole = u64::try_from(into / 1_000_000_000).unwrap_or(u64::MAX);
                let part = u32::try_from(into % 1_000_000_000).unwrap_or(0);
                late.saturating_add(period - Duration::new(whole, part))
            }
            _ => period,
        }
    }
}
