//! Policies of a repeating task for long runs and for panics.

/// Decides about instants that come while a run is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// These instants get no run.
    #[default]
    Skip,
    /// The last of these instants gets its run when the present run has ended.
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
