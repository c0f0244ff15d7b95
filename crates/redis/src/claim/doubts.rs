//! Remembers claims whose answers were lost. Such a claim may have leased timers, so a later claim asks for these
//! leases once the servers answer again.

use crate::layout::Shard;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::state::Token;

/// The greatest number of entries ([`Doubt`]) that are remembered. Beyond this number, the oldest entries are
/// forgotten.
const MOST: usize = 4_096;

/// A claim whose answer was lost, and a shard in which the claim may have leased timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) token: Token,
    pub(super) shard: Shard,
}

#[derive(Default)]
pub(super) struct Doubts(Mutex<Vec<Doubt>>);

impl Doubts {
    fn all(&self) -> MutexGuard<'_, Vec<Doubt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the claim with the token `token`, whose answer was lost, may have leased timers in `shards`.
    pub(super) fn add(&self, token: Token, shards: impl IntoIterator<Item = Shard>) {
        let mut all = self.all();
        all.extend(shards.into_iter().map(|shard| Doubt { token, shard }));
        // The timers of a forgotten entry are late, but not lost: they are pending again when their leases end.
        let too_many = all.len().saturating_sub(MOST);
        all.drain(..too_many);
    }

    /// Returns the shards in which a claim with a lost answer may have leased timers.
    pub(super) fn shards(&self) -> Vec<Shard> {
        self.all().iter().map(|doubt| doubt.shard).collect()
    }

    /// Removes and returns the entries ([`Doubt`]) of all shards for which `answers` is true.
    pub(super) fn take(&self, answers: impl Fn(Shard) -> bool) -> Vec<Doubt> {
        self.all().extract_if(.., |doubt| answers(doubt.shard)).collect()
    }

    /// Removes the entries ([`Doubt`]) of the claim with this token, after the claim has failed. If the claim's outcome
    /// is unknown, the runtime itself asks all shards for the timers that the claim has leased, so no later claim needs
    /// to ask.
    pub(super) fn forget(&self, token: Token) {
        self.all().retain(|doubt| doubt.token != token);
    }

    /// Forgets all claims with lost answers, because they belong to another deployment.
    pub(super) fn clear(&self) {
        self.all().clear();
    }
}
