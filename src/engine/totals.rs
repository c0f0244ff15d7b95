//! The total counts of an engine's timers.

/// The total counts of an engine's timers. The first four fields count one-shots. The last two fields count owned
/// timers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) scheduled: u64,
    pub(crate) cancelled: u64,
    pub(crate) fired: u64,
    pub(crate) returned: u64,
    pub(crate) created: u64,
    pub(crate) destroyed: u64,
}

impl Totals {
    /// Returns the number of owned timers that exist.
    pub(crate) fn owned(self) -> u64 {
        self.created.saturating_sub(self.destroyed)
    }

    pub(crate) fn pending(self) -> u64 {
        self.scheduled.saturating_sub(self.cancelled + self.fired + self.returned)
    }
}
