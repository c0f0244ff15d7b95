//! Policies of a repeating task for long runs and for panics.

/// Decides whether a planned run is made if its moment comes while an earlier run of the task is still under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// The planned run is not made.
    #[default]
    Skip,
    /// The planned run is made as soon as the earlier run has ended. If the moments of several planned runs come during
    /// the earlier run, only the last of them is made.
    QueueOne,
}

/// Decides whether a repeating task goes on after a panic. In both cases the engine counts and reports the panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// After a panic, the task runs again at its next planned moment.
    #[default]
    GoOn,
    /// After a panic, the task ends.
    Stop,
}
