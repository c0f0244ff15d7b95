//! The lifetime of the entries of an expiry map.

use core::time::Duration;

/// The time for which the entries of an [`ExpiryMap`](super::ExpiryMap) live. A `Lifetime` also says whether reading an
/// entry prolongs its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub(super) time_to_live: Duration,
    pub(super) is_refreshed: bool,
}

impl Lifetime {
    /// Lets an entry live for `time_to_live` after it was inserted or refreshed.
    #[must_use]
    pub const fn of(time_to_live: Duration) -> Self {
        Self { time_to_live, is_refreshed: false }
    }

    /// Lets each [`get`](super::ExpiryMap::get) and [`read`](super::ExpiryMap::read) refresh the entry that it finds.
    #[must_use]
    pub const fn refreshed_on_access(self) -> Self {
        Self { is_refreshed: true, ..self }
    }
}
