//! Keeps the rate, the pauses and the numbers of claims.

use super::backoff::Backoff;
use crate::runtime::catch_up::CatchUp;
use crate::runtime::settings::Settings;

/// The state that lasts from one claim to the next.
pub(super) struct Claims {
    pub(super) catch_up: CatchUp,
    /// The pauses after claims that failed.
    pub(super) backoff: Backoff,
    /// The number of the last claim. The store can return a claim by its number if the answer was lost.
    number: u64,
    /// Whether the last claim took parked timers for a caller. Otherwise it took due timers.
    pub(super) was_fetch: bool,
}

impl Claims {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            catch_up: CatchUp::new(settings.catch_up_rate, settings.in_turn),
            backoff: Backoff::new(settings.lease),
            number: 0,
            was_fetch: false,
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}
