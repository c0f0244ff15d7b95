//! Policies of a repeating task for long runs and for panics.

/// Decides which planned runs are made if their moments come during another run of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Runs whose moments come during another run are not made.
    #[default]
    Skip,
    /// Of the runs whose moments come during another run, only the last is made, after that run.
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
