//! The lifetime of entries.

use core::time::Duration;

/// The lifetime of the entries of an [`ExpiryMap`](super::ExpiryMap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub(super) time_to_live: Duration,
    pub(super) is_refreshed: bool,
}

impl Lifetime {
    /// An entry lives for `time_to_live` after it was inserted or refreshed.
    #[must_use]
    pub const fn of(time_to_live: Duration) -> Self {
        Self { time_to_live, is_refreshed: false }
    }

    /// Each [`get`](super::ExpiryMap::get) and [`read`](super::ExpiryMap::read) refreshes the entry that it finds.
    #[must_use]
    pub const fn refreshed_on_access(self) -> Self {
        Self { is_refreshed: true, ..self }
    }
}
