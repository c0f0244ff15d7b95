//! The policy for moments that were missed.

/// The treatment of the moments of a row that were missed: the ticks of an `Interval` that was not polled in time, and
/// the instants of a repeating task whose engine or workers were late.
///
/// With a period of 50, and the moment 100 that is taken at 230:
///
/// | policy | moments after it |
/// |---|---|
/// | [`Burst`](Self::Burst) | 150 and 200 at once, 250, 300 |
/// | [`Delay`](Self::Delay) | 280, 330, 380 |
/// | [`Skip`](Self::Skip) | 250, 300, 350 |
///
/// There is no default for all rows. An interval bursts unless another policy is set, as an interval of tokio does: its
/// period may be shorter than a tick of the engine, and then all its ticks come in bunches. A repeating task, whose
/// period is at least a tick, skips: after a stall a burst comes when the program has most to catch up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// All of them are made up for, one after the other, without a pause.
    Burst,
    /// They are left out, and the next moment is a period after the late one was taken.
    Delay,
    /// They are left out, and the next moment is in step with the earlier ones.
    Skip,
}
