//! Keeps the data that the delivery loop needs from one claim of timers to the next claim.

use super::backoff::Backoff;
use crate::runtime::catch_up::CatchUp;
use crate::runtime::settings::Settings;

/// The data that the delivery loop keeps from one claim to the next claim. With this data the loop limits the rate of
/// late deliveries, chooses the pauses after failed claims, and numbers the claims.
pub(super) struct Claims {
    pub(super) catch_up: CatchUp,
    /// The pauses after failed claims of timers.
    pub(super) backoff: Backoff,
    /// The number of the last claim. If the answer to the claim is lost, the store finds the claim's timers by this
    /// number.
    number: u64,
    /// True if the last claim took parked timers (set aside for a reason) for a caller of
    /// [`Timers::fetch`](crate::Timers::fetch). False if it took due timers in the normal way. The two kinds of claims
    /// take turns.
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
