//! Policies of a repeating task for long runs and for panics.

/// Decides about the planned runs of a task whose moments come while an earlier run is still under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Runs whose moments come during another run are not made.
    #[default]
    Skip,
    /// If moments come during another run, the task runs once more, for the last of these moments. It does so as soon
    /// as the other run has ended.
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
