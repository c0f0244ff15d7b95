//! Remembers the idempotency keys of requests. Refuses a key that an earlier, different request has used.
//!
//! The id of a timer is derived from its idempotency key. While a timer is stored, and for an hour after its end, the
//! store creates no second timer with its id. So a repeated request never creates a second timer, even after a restart.
//!
//! This module refuses a key that comes with a different request. It compares the *fingerprints* of the two requests,
//! which are hashes. The fingerprint of a stored timer is stored with the timer. The fingerprints of requests from the
//! last hour are also in memory, and a restart loses them. If the timer has ended and its fingerprint is not in memory,
//! a request with its key is answered with `repeated`, even if the request differs from the first request.

use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_api::{NewTimer, Problem, ProblemKind};
use uuid::Uuid;

/// The time for which a fingerprint is remembered. The store remembers the ids of ended timers for the same time.
const WINDOW: Duration = Duration::from_secs(3_600);
/// The greatest number of remembered fingerprints, about 10 MB. Beyond this number, the oldest fingerprints are
/// forgotten.
const MOST: usize = 100_000;

/// The UUID namespace of the fingerprints.
const FINGERPRINTS: Uuid = Uuid::from_u128(0x58a1_6c43_8f0e_4b7d_8a2b_1e64_90d3_77c5);

/// Returns the fingerprint of a request to create a timer. Equal requests have the same fingerprint, even after a
/// restart and in later versions.
pub(crate) fn fingerprint(key: Option<&str>, timer: &NewTimer) -> u128 {
    // `NewTimer` leaves out unset fields. A new field must do so, too. Otherwise the fingerprints of stored timers
    // would no longer match.
    let request = serde_json::to_vec(&(key, timer)).unwrap_or_default();
    Uuid::new_v5(&FINGERPRINTS, &request).as_u128()
}

/// Remembers which requests with idempotency keys are running, and the fingerprints of earlier requests. Instead of a
/// key, this value stores the id of the timer that the request creates, because this id is derived from the key. Clones
/// share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idempotency(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// The ids of the timers that the running requests create.
    under_way: HashSet<u128>,
    /// The fingerprint of each remembered request, by the id of the timer that the request created.
    known: HashMap<u128, u128>,
    /// The ids of the timers in `known`, each with the moment at which it was added to `known`, the oldest first.
    order: VecDeque<(Instant, u128)>,
}

/// A running request with an idempotency key. Other requests with the key are refused until this value is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    all: Idempotency,
    id: u128,
    fingerprint: u128,
    is_known: bool,
}

impl Idempotency {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request with an idempotency key. `id` is the id of the timer that the request creates. This id is
    /// derived from the key. Fails if an earlier request with the key had another fingerprint, or if a request with the
    /// key is running.
    pub(crate) fn enter(&self, id: u128, fingerprint: u128) -> Result<Entered, Problem> {
        let mut inner = self.lock();
        let known = inner.known.get(&id);
        if known.is_some_and(|known| *known != fingerprint) {
            return Err(mismatch());
        }
        let is_known = known.is_some();
        if !inner.under_way.insert(id) {
            let detail = "a request with this idempotency key is under way";
            return Err(Problem::new(ProblemKind::IdempotencyInProgress, detail).with_retry_after_ms(1_000));
        }
        Ok(Entered { all: self.clone(), id, fingerprint, is_known })
    }

    /// Returns the number of remembered fingerprints.
    pub(crate) fn len(&self) -> usize {
        self.lock().known.len()
    }
}

impl Entered {
    pub(crate) fn fingerprint(&self) -> u128 {
        self.fingerprint
    }

    /// Returns whether an equal request was fulfilled before. The store then repeats the first answer and creates no
    /// timer, so limits do not apply.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Remembers the fingerprint of this request. Called once the request is fulfilled.
    pub(crate) fn remember(&self) {
        let now = Instant::now();
        let mut inner = self.all.lock();
        // An id has only one entry in `order`, because the removal of an entry also removes the fingerprint.
        if inner.known.insert(self.id, self.fingerprint).is_none() {
            inner.order.push_back((now, self.id));
        }
        while let Some(&(since, id)) = inner.order.front()
            && (inner.order.len() > MOST || now.duration_since(since) > WINDOW)
        {
            inner.order.pop_front();
            inner.known.remove(&id);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.all.lock().under_way.remove(&self.id);
    }
}

/// Makes the problem for an idempotency key that a different request has used.
pub(crate) fn mismatch() -> Problem {
    Problem::new(ProblemKind::IdempotencyMismatch, "another request had this idempotency key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_fingerprints_is_bounded() {
        let all = Idempotency::default();
        for id in 0..MOST as u128 + 10 {
            all.enter(id, id).unwrap().remember();
            all.enter(id, id).unwrap().remember();
        }
        let (order, under_way) = {
            let inner = all.lock();
            (inner.order.len(), inner.under_way.len())
        };
        assert_eq!((all.len(), order, under_way), (MOST, MOST, 0));
        assert!(all.enter(0, 1).is_ok(), "the oldest fingerprint is forgotten");
        assert_eq!(all.enter(11, 0).unwrap_err().kind, ProblemKind::IdempotencyMismatch);
    }

    #[test]
    fn a_key_is_in_one_request_at_a_time() {
        let all = Idempotency::default();
        let first = all.enter(1, 1).unwrap();
        assert_eq!(all.enter(1, 1).unwrap_err().kind, ProblemKind::IdempotencyInProgress);
        drop(first);
        assert!(all.enter(1, 2).is_ok(), "nothing was fulfilled");
    }
}
