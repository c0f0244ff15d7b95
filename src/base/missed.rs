//! The policy for moments of a repeating timer that were missed.

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
