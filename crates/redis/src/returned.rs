//! Timers that are delivered at most once, stored again: each return has one effect, whatever becomes of its answers.
//!
//! A timer that is delivered at most once has no lease while its handler runs: the claim has ended it. If it is not
//! delivered after all, or its handler snoozes or parks it, the process stores it again ([`Op::Return`]). An answer
//! that is lost leaves the process in doubt, and it sends the return again. The timer itself does not say whether the
//! first one arrived: another process may have claimed it meanwhile, which ends it. A second effect would be a second
//! delivery.
//!
//! # Layout
//! The *mark* of a return is the timer's id and the token of its claim, 32 bytes. A claim leases a timer once, so no
//! two returns have one mark. A mark is a member of the ids of ended timers ([`Part::Recent`]) of the return's shard,
//! with the moment from which on it counts as forgotten. The *shard* of a return is that of the timer's key, or of its
//! id without a key. It does not depend on what is stored: a timer that comes back without its key, which is another
//! timer's by now, is stored there as well, with a note in the shard of its id.
//!
//! # States
//! Of a return, in its shard:
//!
//! | state | the mark | a commit of the return |
//! |---|---|---|
//! | open | absent, and the time is before `until` | stores the timer and the mark: applied |
//! | applied | present | changes nothing: `Repeated` |
//! | over | any, and the time is `until` or later | changes nothing: `Repeated` while the mark is present, `Stale` then |
//!
//! `until` is [`AGAIN`] after the first attempt that may have had an effect. The process keeps that moment for each
//! return until the caller knows the outcomes of the batch, so all attempts have the same `until`. The mark stays
//! [`KEPT`] longer than that. No other transition exists: nothing removes a mark before its time.
//!
//! # Invariants
//! R1. The commit that stores the timer writes the mark, in one script, and only if the mark is absent and `until` is
//!     ahead. So a return has one effect at most.
//! R2. While a commit of the return can have an effect, the mark of an earlier effect is there: a commit has none from
//!     `until` on, and the mark is there until later, by the clock of the same shard. A failover may bring another
//!     clock; the two may differ by [`KEPT`].
//! R3. A mark is there for at most [`AGAIN`] and [`KEPT`], 10 minutes, so the number of marks is bounded by the number
//!     of returns in that time.
//!
//! # Races
//! - *The answer is lost, and the return is sent again.* The second one finds the mark: `Repeated`, whether the timer
//!   is still stored, leased, or claimed and ended by another process.
//! - *The first request arrives late, after the second one.* It finds the mark. Nobody reads its answer.
//! - *The first request arrives late, in a cluster.* It may find that its reservation is void. The second one has the
//!   mark then.
//! - *Both arrive at the same time.* One script is first.
//! - *The key is another timer's when the first one arrives, and free when the second one does, or the reverse.* The
//!   shard is the same, and so the mark.
//! - *Somebody else creates a timer of the same id meanwhile.* The return finds it and answers `Repeated`, as it does
//!   without a doubt. A request that arrives late still has one effect at most.
//! - *The return is one of a batch of which another operation fails.* The caller repeats the batch. The moment is kept
//!   until the whole batch is answered.
//! - *The server is away for longer than five minutes, and had perhaps received the first attempt.* The answer is
//!   `Stale`: the timer is stored, or else lost. Attempts that surely had no effect do not count.
//! - *The process ends before the answer.* Nobody repeats.
//!
//! [`Op::Return`]: tourbillon_durable::store::Op::Return
//! [`Part::Recent`]: crate::layout::Part::Recent

use crate::layout::Shard;
use crate::stored::{id_bytes, token_bytes};
use core::time::Duration;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, OnceLock, PoisonError};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Refusal, Token};
use tourbillon_durable::store::{Op, Outcome};
use tourbillon_durable::timer::TimerId;

/// The time after its first attempt in which a return may have its effect.
pub(crate) const AGAIN: Duration = Duration::from_secs(300);
/// The time for which a mark stays after no commit of its return can have an effect any more.
pub(crate) const KEPT: Duration = Duration::from_secs(300);
/// The number of returns without an answer from which on old ones are forgotten.
const MANY: usize = 4_096;

/// What a commit has found of its return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Doubted {
    /// The return had its effect before.
    Applied,
    /// The time is over.
    Late,
}

/// A return: one timer that is stored again once.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) shard: Shard,
    pub(crate) mark: Vec<u8>,
    /// From this moment on no commit of the return has an effect.
    pub(crate) until: UtcMillis,
    id: TimerId,
    refused: OnceLock<Outcome>,
}

impl Returned {
    pub(crate) fn new(id: TimerId, token: Token, shard: Shard, since: UtcMillis) -> Self {
        let mark = [&id_bytes(id)[..], &token_bytes(token)].concat();
        Self { shard, mark, until: since + AGAIN, id, refused: OnceLock::new() }
    }

    /// From this moment on the mark counts as forgotten.
    pub(crate) fn forgotten(&self) -> UtcMillis {
        self.until + KEPT
    }

    /// Notes that the return has no effect any more.
    pub(crate) fn refuse(&self, doubted: Doubted) {
        let _first = self.refused.set(match doubted {
            Doubted::Applied => Outcome::Repeated(self.id),
            Doubted::Late => Outcome::Refused(Refusal::Stale),
        });
    }

    /// The outcome of a return that has no effect any more.
    pub(crate) fn refused(&self) -> Option<Outcome> {
        self.refused.get().cloned()
    }
}

/// The name of a return: its timer, and the token of the claim.
type Name = (TimerId, Token);

/// Returns that may have had an effect without their caller's knowledge, each with the moment of its first attempt.
#[derive(Debug, Default)]
pub(crate) struct Returning(Mutex<HashMap<Name, UtcMillis>>);

/// The returns of one batch, and whether each of them is at its first attempt.
pub(crate) type Batch = Vec<(Name, bool)>;

impl Returning {
    /// Notes the returns of a batch, before any of them is sent.
    pub(crate) fn begin(&self, ops: &[Op], now: UtcMillis) -> Batch {
        let mut batch = Batch::new();
        for op in ops {
            let Op::Return(timer, token) = op else { continue };
            let name = (timer.id, *token);
            let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if since.len() >= MANY {
                // A repetition comes sooner: these were given up.
                since.retain(|_, since| *since + AGAIN + KEPT > now);
            }
            let is_new = match since.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(now);
                    true
                }
                Entry::Occupied(_) => false,
            };
            batch.push((name, is_new));
        }
        batch
    }

    /// Forgets the returns of a batch whose outcomes the caller knows: all of them, or those at their first attempt.
    pub(crate) fn end(&self, batch: Batch, only_first: bool) {
        for (name, is_first) in batch {
            if is_first || !only_first {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            }
        }
    }

    /// The moment of the first attempt.
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
        let (returning, name) = (Returning::default(), (TimerId::from_u128(1), TOKEN));
        let at = UtcMillis::from_millis;
        let first = returning.begin(&[op(1)], at(10));
        // Nothing has reached the server.
        returning.end(first, true);
        assert_eq!(returning.since(name), None);
        drop(returning.begin(&[op(1)], at(20)));
        // The second attempt surely had no effect, and nothing is known of the first one.
        let second = returning.begin(&[op(1)], at(30));
        returning.end(second, true);
        assert_eq!(returning.since(name), Some(at(20)));
        let third = returning.begin(&[op(1), Op::Cancel(name.0.into(), None)], at(40));
        assert_eq!(returning.since(name), Some(at(20)));
        returning.end(third, false);
        assert_eq!(returning.since(name), None);
    }

    #[test]
    fn returns_that_were_given_up_are_forgotten() {
        let (returning, at) = (Returning::default(), UtcMillis::from_millis);
        let many: Vec<Op> = (0..MANY as u128).map(op).collect();
        drop(returning.begin(&many, at(0)));
        let young = at(0) + (AGAIN + KEPT - Duration::from_millis(1));
        drop(returning.begin(&[op(1 << 64)], young));
        assert!(returning.since((TimerId::from_u128(0), TOKEN)).is_some(), "it may still be repeated");
        drop(returning.begin(&[op(2 << 64)], at(0) + AGAIN + KEPT));
        assert_eq!(returning.0.lock().unwrap().len(), 2);
    }
}
