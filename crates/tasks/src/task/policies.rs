//! Policies of a repeating task for long runs and for panics.

/// Decides about instants that come while a run is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Instants that come during a run get no run.
    #[default]
    Skip,
    /// The last instant that comes during a run gets its own run, when the present run has ended.
    QueueOne,
}

/// Decides about a task that panicked. In both cases the engine counts and reports the panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// The task runs again at its next instant.
    #[default]
    GoOn,
    /// The task ends.
    Stop,
}
