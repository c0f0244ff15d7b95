//! The policies of a repeating task: for long runs, and for panics.

/// The policy for instants that come while a run lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// They have no run.
    #[default]
    Skip,
    /// The last of them has its run when the present run has ended.
    QueueOne,
}

/// The policy for a task that panicked. The engine counts and reports the panic in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// The task runs again at its next instant.
    #[default]
    GoOn,
    /// The task ends.
    Stop,
}
