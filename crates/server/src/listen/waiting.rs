//! Limits the number of connections whose requests wait, in total and for each token.

use crate::share::Shares;
use crate::state::TokenHash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places for connections whose requests wait for events, with each token's share. This lock may be taken under the
/// lock of an [`Activity`](super::activity::Activity). No other lock is taken under this lock.
#[derive(Debug)]
pub(super) struct WaitingPlaces(Mutex<Shares<Option<TokenHash>>>);

/// A connection's place among the connections whose requests wait. Dropping the value frees the place.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    places: Arc<WaitingPlaces>,
    token: Option<TokenHash>,
}

impl WaitingPlaces {
    pub(super) fn new(most: usize) -> Self {
        Self(Mutex::new(Shares::new(most)))
    }

    /// Takes a place for a connection. Returns `None` if too many connections wait, in total or for the token.
    pub(super) fn take(self: &Arc<Self>, token: Option<TokenHash>) -> Option<WaitingPlace> {
        self.lock().take(&token, 1).then(|| WaitingPlace { places: Arc::clone(self), token })
    }

    #[cfg(test)]
    pub(super) fn are_free(&self) -> bool {
        self.lock().are_gone()
    }

    fn lock(&self) -> MutexGuard<'_, Shares<Option<TokenHash>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.places.lock().give_back(&self.token, 1);
    }
}
