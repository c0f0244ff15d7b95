//! The protocol of put-backs. A *put-back* stores an at-most-once timer again after its claim. It takes effect at most
//! once, even if its answers are lost.
//!
//! A timer that is delivered at most once has no lease while its handler runs: the claim has ended it. If it is not
//! delivered after all, or its handler snoozes or parks it, the process puts it back ([`Op::Return`]). If an answer is
//! lost, the process sends the put-back again. The timer itself does not say whether the first request arrived: another
//! process may have claimed the timer since, which ends it. A second effect would be a second delivery.
//!
//! # Layout
//! The *mark* of a put-back is the timer's id and the token of its claim, 32 bytes. A claim leases a timer once, so no
//! two put-backs have the same mark. A mark is a member of the set of ended timers' ids ([`Part::Recent`]) in the
//! put-back's shard. Its score is the moment from which the mark counts as forgotten. The *shard* of a put-back is the
//! shard of the timer's key, or of its id if it has no key. It does not depend on the stored data. A timer comes back
//! without its key if another timer has taken the key. Even then it is stored in the same shard, with a redirect in the
//! shard of its id.
//!
//! # States
//! A put-back has these states in its shard:
//!
//! | state | the mark | a commit of the put-back |
//! |---|---|---|
//! | open | absent, and the time is before `until` | stores the timer and the mark: applied |
//! | applied | present | changes nothing: `Repeated` |
//! | over | any, and the time is `until` or later | changes nothing: `Repeated` while the mark is present, `Stale` afterwards |
//!
//! `until` is [`AGAIN`] after the first attempt that may have had an effect. The process keeps that moment for each
//! put-back until the caller knows the outcomes of the batch, so all attempts have the same `until`. The mark stays for
//! [`KEPT`] after `until`. There are no other transitions: nothing removes a mark before its time.
//!
//! # Invariants
//! R1. The commit that stores the timer writes the mark, in one script, and only if the mark is absent and `until` is
//!     ahead. So a put-back has one effect at most.
//! R2. As long as a repeated commit could have an effect, the mark of an earlier effect stays stored. A commit has no
//!     effect from `until` on, and the mark stays for longer. Both moments are by the clock of the same shard. A
//!     failover may bring another clock; the two clocks may differ by [`KEPT`].
//! R3. A mark stays for at most [`AGAIN`] and [`KEPT`] together, 10 minutes. So the number of marks is bounded by the
//!     number of put-backs in that time.
//!
//! # Races
//! - *The answer is lost, and the put-back is sent again.* The second request finds the mark: `Repeated`, whether the
//!   timer is still stored, leased, or claimed and ended by another process.
//! - *The first request arrives late, after the second.* It finds the mark. Nobody reads its answer.
//! - *The first request arrives late, in a cluster.* It may find that its reservation is void. In that case the second
//!   request has written the mark.
//! - *Both arrive at the same time.* One script runs first.
//! - *Another timer has the key when the first request arrives, but not when the second arrives, or the reverse.* The
//!   shard is the same, and so is the mark.
//! - *Another process has created a timer of the same id.* The put-back finds it and answers `Repeated`, as it does
//!   without a lost answer. A request that arrives late still has one effect at most.
//! - *Another operation of the put-back's batch fails.* The caller repeats the batch. The moment of the first attempt
//!   is kept until the whole batch is answered.
//! - *The server is away for longer than five minutes, and may have received the first attempt.* The answer is `Stale`:
//!   the timer is stored, or else lost. Attempts that surely had no effect do not count.
//! - *The server has lost the shard.* The put-back stores the timer. The timer is delivered once the shard is mended.
//! - *The process ends before the answer.* Nobody repeats.
//!
//! [`Op::Return`]: tourbillon_durable::store::Op::Return
//! [`Part::Recent`]: crate::layout::Part::Recent

use crate::layout::{Shard, id_bytes, token_bytes};
use core::time::Duration;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, OnceLock, PoisonError};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Refusal, Token};
use tourbillon_durable::store::{Op, Outcome};
use tourbillon_durable::timer::TimerId;

/// The time for which a [put-back](PutBack) may take effect, counted from the first attempt of the put-back. A put-back
/// stores an at-most-once timer again after its claim.
pub(crate) const AGAIN: Duration = Duration::from_secs(300);
/// The time for which the mark of a [put-back](PutBack) stays stored after the put-back can no longer take effect
/// ([`PutBack::until`]). A request that is repeated in this time finds the mark, which shows that an earlier request
/// took effect.
pub(crate) const KEPT: Duration = Duration::from_secs(300);
/// The number of [put-backs](PutBack) with unknown outcomes at which old put-backs are forgotten.
const MANY: usize = 4_096;

/// The reason why a [put-back](PutBack) has no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PutBackDoubt {
    /// An earlier attempt took effect.
    Applied,
    /// The time in which the put-back may take effect is over.
    Late,
}

/// A put-back: the request to store an at-most-once timer again after its claim. The script that stores the timer also
/// stores `mark`. A repeated request finds the stored `mark`, and has no further effect.
#[derive(Debug)]
pub(crate) struct PutBack {
    pub(crate) shard: Shard,
    pub(crate) mark: Vec<u8>,
    /// The moment from which the put-back can no longer take effect.
    pub(crate) until: UtcMillis,
    id: TimerId,
    refused: OnceLock<Outcome>,
}

impl PutBack {
    pub(crate) fn new(id: TimerId, token: Token, shard: Shard, since: UtcMillis) -> Self {
        let mark = [&id_bytes(id)[..], &token_bytes(token)].concat();
        Self { shard, mark, until: since + AGAIN, id, refused: OnceLock::new() }
    }

    /// Returns the moment from which the server ignores the stored `mark`. Until then, the mark shows that this
    /// put-back has already stored its timer again, so that a repeated request has no further effect.
    pub(crate) fn forgotten(&self) -> UtcMillis {
        self.until + KEPT
    }

    /// Notes why the put-back can no longer store its timer again. Only the first noted reason counts.
    pub(crate) fn refuse(&self, doubt: PutBackDoubt) {
        let _first = self.refused.set(match doubt {
            PutBackDoubt::Applied => Outcome::Repeated(self.id),
            PutBackDoubt::Late => Outcome::Refused(Refusal::Stale),
        });
    }

    /// Returns the outcome of the put-back if it can no longer store its timer again, or `None` while it still can.
    pub(crate) fn refused(&self) -> Option<Outcome> {
        self.refused.get().cloned()
    }
}

/// The name of a [put-back](PutBack): the id of its timer, and the token of the claim that took the timer.
type Name = (TimerId, Token);

/// The [put-backs](PutBack) whose outcomes are unknown, each with the moment of its first attempt.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<HashMap<Name, UtcMillis>>);

/// The [put-backs](PutBack) of a batch of operations, each with a flag that is true if this is the put-back's first
/// attempt.
pub(crate) type Batch = Vec<(Name, bool)>;

impl Attempts {
    /// Records the put-backs of a batch before the batch is sent. A [put-back](PutBack) stores an at-most-once timer
    /// again after its claim.
    pub(crate) fn begin(&self, ops: &[Op], now: UtcMillis) -> Batch {
        let mut batch = Batch::new();
        for op in ops {
            let Op::Return(timer, token) = op else { continue };
            let name = (timer.id, *token);
            let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if since.len() >= MANY {
                // A caller repeats a put-back sooner than this, so older put-backs were given up.
                since.retain(|_, since| *since + AGAIN + KEPT > now);
            }
            let is_new = match since.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(now);
                    true
                }
                // The moment of the earlier attempt stays, because that attempt may still take effect.
                Entry::Occupied(_) => false,
            };
            batch.push((name, is_new));
        }
        batch
    }

    /// Forgets [put-backs](PutBack) of a batch: all of them, or only those at their first attempt if `only_first` is
    /// true.
    pub(crate) fn end(&self, batch: Batch, only_first: bool) {
        for (name, is_first) in batch {
            // With `only_first`, this batch surely had no effect. An earlier attempt may still take effect, so its
            // moment stays.
            if is_first || !only_first {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            }
        }
    }

    /// Returns the moment of the first attempt to put a timer back, that is, to store an at-most-once timer again after
    /// its claim. Returns `None` if no attempt is recorded.
    pub(crate) fn since(&self, name: Name) -> Option<UtcMillis> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::timer::Timer;

    const TOKEN: Token = Token { incarnation: 1, claim: 2 };

    fn op(id: u128) -> Op {
        Op::Return(Box::new(Timer::new(TimerId::from_u128(id), "kind", UtcMillis::ZERO)), TOKEN)
    }

    #[test]
    fn the_first_attempt_counts_until_the_outcome_is_known() {
        let (attempts, name) = (Attempts::default(), (TimerId::from_u128(1), TOKEN));
        let at = UtcMillis::from_millis;
        let first = attempts.begin(&[op(1)], at(10));
        // Nothing has reached the server.
        attempts.end(first, true);
        assert_eq!(attempts.since(name), None);
        drop(attempts.begin(&[op(1)], at(20)));
        // The second attempt surely had no effect, and nothing is known of the first attempt.
        let second = attempts.begin(&[op(1)], at(30));
        attempts.end(second, true);
        assert_eq!(attempts.since(name), Some(at(20)));
        let third = attempts.begin(&[op(1), Op::Cancel(name.0.into(), None)], at(40));
        assert_eq!(attempts.since(name), Some(at(20)));
        attempts.end(third, false);
        assert_eq!(attempts.since(name), None);
    }

    #[test]
    fn returns_that_were_given_up_are_forgotten() {
        let (attempts, at) = (Attempts::default(), UtcMillis::from_millis);
        let many: Vec<Op> = (0..MANY as u128).map(op).collect();
        drop(attempts.begin(&many, at(0)));
        let young = at(0) + (AGAIN + KEPT - Duration::from_millis(1));
        drop(attempts.begin(&[op(1 << 64)], young));
        assert!(attempts.since((TimerId::from_u128(0), TOKEN)).is_some(), "it may still be repeated");
        drop(attempts.begin(&[op(2 << 64)], at(0) + AGAIN + KEPT));
        assert_eq!(attempts.0.lock().unwrap().len(), 2);
    }
}
