//! Policies of a repeating task for long runs and for panics.

/// Decides whether an instant (a planned run) that comes during another run of the task gets its own run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Instants (planned runs) that come during a run of the task get no run.
    #[default]
    Skip,
    /// The last instant (planned run) that comes during a run of the task gets its own run afterwards.
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
