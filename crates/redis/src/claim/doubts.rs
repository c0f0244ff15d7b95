//! Remembers claims whose answers were lost. Such a claim may have leased timers, so a later claim asks for these
//! leases once the servers answer again.

use crate::layout::Shard;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::state::Token;
use tourbillon_durable::timer::TimerId;

/// The greatest number of entries ([`Doubt`]) that are remembered. Beyond this number, the oldest entries are
/// forgotten.
const MOST: usize = 4_096;

/// A claim whose answer was lost, and a shard in which the claim may have leased timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) token: Token,
    pub(super) shard: Shard,
    /// The timers that the claim has returned to the runtime, although one of its answers was lost: the other scripts
    /// of the claim have leased these timers. Their deliveries may be under way, so the runtime must not get them
    /// again.
    pub(super) returned: Vec<TimerId>,
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
        for shard in shards {
            // A claim may lose the answers of several scripts in one shard.
            if !all.iter().any(|doubt| doubt.token == token && doubt.shard == shard) {
                all.push(Doubt { token, shard, returned: Vec::new() });
            }
        }
        // The timers of a forgotten entry are late, but not lost: they are pending again when their leases end.
        let too_many = all.len().saturating_sub(MOST);
        all.drain(..too_many);
    }

    /// Returns whether an answer of the claim with the token `token` was lost.
    pub(super) fn has(&self, token: Token) -> bool {
        self.all().iter().any(|doubt| doubt.token == token)
    }

    /// Returns the shards in which a claim with a lost answer may have leased timers.
    pub(super) fn shards(&self) -> Vec<Shard> {
        self.all().iter().map(|doubt| doubt.shard).collect()
    }

    /// Returns the entries ([`Doubt`]) for which `is_meant` is true. They stay until [`resolve`](Self::resolve) removes
    /// them, because the claim that asks for their timers may fail.
    pub(super) fn those(&self, is_meant: impl Fn(&Doubt) -> bool) -> Vec<Doubt> {
        self.all().iter().filter(|doubt| is_meant(doubt)).cloned().collect()
    }

    /// Notes that the claim with the token `token` returns these timers to the runtime.
    pub(super) fn note_returned(&self, token: Token, timers: impl Iterator<Item = TimerId> + Clone) {
        let mut all = self.all();
        for doubt in all.iter_mut().filter(|doubt| doubt.token == token) {
            doubt.returned.extend(timers.clone());
        }
    }

    /// Removes the entries ([`Doubt`]) of the claim with this token in `shards`, because the runtime gets the timers
    /// that the claim has leased there.
    pub(super) fn resolve(&self, token: Token, shards: &[Shard]) {
        self.all().retain(|doubt| doubt.token != token || !shards.contains(&doubt.shard));
    }

    /// Forgets all claims with lost answers, because they belong to another deployment.
    pub(super) fn clear(&self) {
        self.all().clear();
    }
}
