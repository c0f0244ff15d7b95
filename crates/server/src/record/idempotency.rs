//! Remembers the idempotency keys of requests. Refuses a key that an earlier, different request has used.
//!
//! The id of a timer is derived from its idempotency key. While a timer is stored, and for an hour after its end, the
//! store creates no second timer with its id. So a repeated request never creates a second timer, even after a restart.
//!
//! This module refuses a key that comes with a different request. It compares the *fingerprints* of the two requests,
//! which are hashes. The fingerprint of a stored timer is stored with the timer. For an hour after a request, and for
//! an hour after a delivery or a cancellation of its timer, the fingerprint is also in the memory of the process that
//! made it. If the timer has ended and its fingerprint is not in memory, a request with its key is answered with
//! `repeated`, even if the request differs from the first request. There are three such cases: after a restart, at a
//! node that has not ended the timer, and after a replacement of the timer more than an hour after its request.

use crate::work;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_api::{NewTimer, Problem, ProblemKind};
use tourbillon_durable::timer::TimerId;
use uuid::Uuid;

/// The time for which a fingerprint is remembered. The store remembers the ids of ended timers for the same time.
const WINDOW: Duration = Duration::from_secs(3_600);
/// The greatest number of remembered fingerprints, about 12 MB. Beyond this number, the oldest fingerprints are
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
    /// The fingerprint of each remembered request and its key in `order`, by the id of the timer that the request
    /// created.
    known: HashMap<u128, (u128, u64)>,
    /// The ids of the timers in `known`, each with the moment at which it was last added to `known`, the oldest first.
    order: BTreeMap<u64, (Instant, u128)>,
    /// The last key in `order`.
    last: u64,
}

impl Inner {
    fn remember(&mut self, id: u128, fingerprint: u128) {
        let now = Instant::now();
        self.last += 1;
        if let Some((_, former)) = self.known.insert(id, (fingerprint, self.last)) {
            self.order.remove(&former);
        }
        self.order.insert(self.last, (now, id));
        while let Some(oldest) = self.order.first_entry()
            && (self.known.len() > MOST || now.duration_since(oldest.get().0) > WINDOW)
        {
            self.known.remove(&oldest.remove().1);
        }
    }
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
        if known.is_some_and(|(known, _)| *known != fingerprint) {
            return Err(mismatch());
        }
        let is_known = known.is_some();
        if !inner.under_way.insert(id) {
            let detail = "a request with this idempotency key is under way";
            return Err(Problem::new(ProblemKind::IdempotencyInProgress, detail).with_retry_after_ms(1_000));
        }
        Ok(Entered { all: self.clone(), id, fingerprint, is_known })
    }

    /// Remembers the fingerprint of the request that has created a timer, if the request had an idempotency key. Called
    /// when the timer may have ended. `work` is the stored form of the timer's work.
    pub(super) fn ended(&self, id: TimerId, work: &[u8]) {
        if let Some(fingerprint) = work::head(work).fingerprint {
            self.lock().remember(id.as_u128(), fingerprint);
        }
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
        self.all.lock().remember(self.id, self.fingerprint);
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
