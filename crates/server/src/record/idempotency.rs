//! Remembers the idempotency keys of requests. Refuses a key that an earlier, different request has used.
//!
//! The id of a timer is derived from its idempotency key. While a timer is stored, and for an hour after its end, the
//! store creates no second timer with its id. So a repeated request never creates a second timer, even after a restart.
//!
//! This module refuses a key that comes with a different request. It compares the *fingerprints* of the two requests,
//! which are hashes. The fingerprint of a stored timer is stored with the timer, even if the timer is parked or dead.
//! For an hour after a request, and for an hour after a delivery, a skip or a cancellation of its timer, the
//! fingerprint is also in the memory of the process that made it. If the timer has ended and its fingerprint is not in
//! memory, a request with its key is answered with `repeated`, even if the request differs from the first request. The
//! answer names no key of the timer then, because the ended timer may have had another key. Such a request is not
//! remembered. This happens in these cases:
//!
//! - after a restart, and at a node that has not ended the timer
//! - more than an hour after the timer's request, if the timer was replaced
//! - if the memory is full. It then forgets the oldest fingerprint of the namespace with the most fingerprints.
//!
//! A remembered request passes all limits, because the store only repeats its first answer. So the memory of a request
//! must not last longer than the store's memory of the timer's id:
//!
//! - A request that has kept another timer has made none, and the store has no id to remember. Such a request is
//!   remembered only to refuse other requests.
//! - The store removes a timer that is delivered at most once when its delivery begins. So the hour starts then.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_api::{NewTimer, Problem, ProblemKind};
use tourbillon_durable::timer::TimerId;
use uuid::Uuid;

/// The time for which the fingerprint (a hash) of a request is remembered. The store remembers the ids of ended timers
/// for the same time.
const WINDOW: Duration = Duration::from_secs(3_600);
/// The greatest number of remembered fingerprints, about 16 MB. Beyond this number, the [`AT_ONCE`] oldest fingerprints
/// of the namespace with the most fingerprints are forgotten.
const MOST: usize = 100_000;
const AT_ONCE: usize = 100;

/// The UUID namespace of the fingerprints, which are UUIDs of version 5.
const FINGERPRINTS: Uuid = Uuid::from_u128(0x58a1_6c43_8f0e_4b7d_8a2b_1e64_90d3_77c5);

/// Returns the fingerprint, a hash, of a request to create a timer. Equal requests have the same fingerprint, even
/// after a restart and in later versions.
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

/// A remembered request with an idempotency key.
#[derive(Debug)]
struct Remembered {
    fingerprint: u128,
    /// The request's key in [`Inner::order`].
    place: u64,
    /// Whether the request has made a timer, whose id the store remembers.
    has_made_timer: bool,
}

#[derive(Debug, Default)]
struct Inner {
    /// The ids of the timers that the running requests create.
    under_way: HashSet<u128>,
    /// The remembered requests, by the id of the timer that the request created.
    known: HashMap<u128, Remembered>,
    /// The ids of the timers in `known`, each with its namespace and the moment from which it is remembered, in the
    /// order in which they were last added to `known`.
    order: BTreeMap<u64, (Instant, u128, Arc<str>)>,
    /// The keys of the map `order`, by namespace.
    by_namespace: HashMap<Arc<str>, BTreeSet<u64>>,
    /// The greatest key that the map `order` has had.
    last: u64,
}

impl Inner {
    fn get(&self, id: u128) -> Option<&Remembered> {
        let remembered = self.known.get(&id)?;
        let (added, ..) = self.order.get(&remembered.place)?;
        (added.elapsed() <= WINDOW).then_some(remembered)
    }

    /// Returns the remembered fingerprint of the request that created the timer with this id.
    fn known(&self, id: u128) -> Option<u128> {
        self.get(id).map(|remembered| remembered.fingerprint)
    }

    /// Remembers a request for the time [`WINDOW`] from the moment `since` on.
    fn remember(
        &mut self,
        namespace: &str,
        id: u128,
        fingerprint: u128,
        has_made_timer: bool,
        since: Instant,
    ) {
        if let Some(former) = self.known.get(&id) {
            self.forget(former.place);
        }
        self.last += 1;
        let namespace = match self.by_namespace.get_key_value(namespace) {
            Some((namespace, _)) => Arc::clone(namespace),
            None => namespace.into(),
        };
        self.known.insert(id, Remembered { fingerprint, place: self.last, has_made_timer });
        self.by_namespace.entry(Arc::clone(&namespace)).or_default().insert(self.last);
        self.order.insert(self.last, (since, id, namespace));
        while let Some(entry) = self.order.first_entry().filter(|entry| entry.get().0.elapsed() > WINDOW) {
            let place = *entry.key();
            self.forget(place);
        }
        if self.known.len() > MOST {
            self.make_room();
        }
    }

    /// Forgets the oldest fingerprints of the namespace with the most fingerprints. Forgets several at once, because
    /// the search for the namespace looks at each namespace.
    fn make_room(&mut self) {
        let most = self.by_namespace.values().max_by_key(|all| all.len());
        let oldest: Vec<_> = most.into_iter().flatten().take(AT_ONCE).copied().collect();
        oldest.into_iter().for_each(|place| self.forget(place));
    }

    fn forget(&mut self, place: u64) {
        let Some((_, id, namespace)) = self.order.remove(&place) else { return };
        self.known.remove(&id);
        if let Some(all) = self.by_namespace.get_mut(&namespace) {
            all.remove(&place);
            if all.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
    }
}

/// A running request with an idempotency key. Other requests with the key are refused until this value is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    all: Idempotency,
    namespace: Box<str>,
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
    pub(crate) fn enter(&self, namespace: &str, id: u128, fingerprint: u128) -> Result<Entered, Problem> {
        let mut inner = self.lock();
        let known = inner.known(id);
        if known.is_some_and(|known| known != fingerprint) {
            return Err(mismatch());
        }
        let is_known = inner.get(id).is_some_and(|remembered| remembered.has_made_timer);
        if !inner.under_way.insert(id) {
            let detail = "a request with this idempotency key is under way";
            return Err(Problem::new(ProblemKind::IdempotencyInProgress, detail).with_retry_after_ms(1_000));
        }
        Ok(Entered { all: self.clone(), namespace: namespace.into(), id, fingerprint, is_known })
    }

    /// Remembers the fingerprint of the request that created a timer. Called when the timer may have ended.
    pub(super) fn ended(&self, namespace: &str, id: TimerId, fingerprint: Option<u128>) {
        if let Some(fingerprint) = fingerprint {
            self.lock().remember(namespace, id.as_u128(), fingerprint, true, Instant::now());
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

    /// Checks a request whose timer had already been created. `stored` is the fingerprint that is stored with the
    /// timer, or `None` if the timer has ended. Returns whether the fingerprint of the request that created the timer
    /// is still known. Fails if it is known and differs from the fingerprint of this request.
    pub(crate) fn repeated(&self, stored: Option<u128>) -> Result<bool, Problem> {
        let mut inner = self.all.lock();
        // The timer may have ended after this request has begun. Its fingerprint is then in memory.
        let first = stored.or_else(|| inner.known(self.id));
        if first.is_some_and(|first| first != self.fingerprint) {
            return Err(mismatch());
        }
        // After the timer's end, a repetition must not prolong the memory. The store forgets the timer's id an hour
        // after the end. Later the request would create a timer, and as a known request it would pass all limits.
        if let Some(first) = stored {
            inner.remember(&self.namespace, self.id, first, true, Instant::now());
        }
        Ok(first.is_some())
    }

    /// Returns whether an equal request has created the timer before. The store then repeats the answer to that request
    /// and creates no timer, so limits do not apply.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Remembers the fingerprint of this request. Called once the request is fulfilled. `has_made_timer` says whether
    /// the request has created a timer.
    pub(crate) fn remember(&self, has_made_timer: bool) {
        let mut inner = self.all.lock();
        inner.remember(&self.namespace, self.id, self.fingerprint, has_made_timer, Instant::now());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.all.lock().under_way.remove(&self.id);
    }
}

/// Makes the problem for an idempotency key that a different request has used.
fn mismatch() -> Problem {
    Problem::new(ProblemKind::IdempotencyMismatch, "another request had this idempotency key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_fingerprints_is_bounded() {
        let all = Idempotency::default();
        for id in 0..MOST as u128 + 10 {
            all.enter("n", id, id).unwrap().remember(true);
            all.enter("n", id, id).unwrap().remember(true);
        }
        let (order, under_way) = {
            let inner = all.lock();
            (inner.order.len(), inner.under_way.len())
        };
        // The first fingerprint beyond the greatest number has made room for a hundred.
        assert_eq!((all.len(), order, under_way), (MOST - 100 + 10, MOST - 100 + 10, 0));
        assert!(all.enter("n", 0, 1).is_ok(), "the oldest fingerprint is forgotten");
        assert_eq!(all.enter("n", 100, 0).unwrap_err().kind, ProblemKind::IdempotencyMismatch);
    }

    #[test]
    fn a_namespace_with_many_fingerprints_takes_no_places_of_other_namespaces() {
        let all = Idempotency::default();
        let remember = |namespace: &str, id| all.enter(namespace, id, id).unwrap().remember(true);
        let known = |id| all.lock().known(id);
        remember("small", 0);
        (1..=MOST as u128).for_each(|id| remember("great", id));
        assert_eq!((known(0), known(1), known(101)), (Some(0), None, Some(101)));
        (0..100).for_each(|id| remember("small", u128::MAX - id));
        assert_eq!(
            (known(0), known(u128::MAX), known(101), known(201)),
            (Some(0), Some(u128::MAX), None, Some(201))
        );
        assert_eq!(all.lock().by_namespace.len(), 2);
    }

    #[test]
    fn a_request_that_cannot_be_compared_does_not_take_the_place_of_the_first_request() {
        let all = Idempotency::default();
        let is_refused = |repeated: Result<bool, Problem>| {
            repeated.is_err_and(|problem| problem.kind == ProblemKind::IdempotencyMismatch)
        };
        let other = all.enter("n", 1, 2).unwrap();
        assert!(!other.repeated(None).unwrap(), "nobody knows the first request");
        assert_eq!(all.len(), 0);
        assert!(is_refused(other.repeated(Some(1))));
        // The timer ends after the request has begun.
        all.ended("n", TimerId::from_u128(1), Some(1));
        assert!(is_refused(other.repeated(None)));
        drop(other);
        assert!(all.enter("n", 1, 1).unwrap().repeated(None).unwrap());
    }

    #[test]
    fn a_repetition_after_the_end_of_a_timer_prolongs_no_memory() {
        let all = Idempotency::default();
        all.ended("n", TimerId::from_u128(1), Some(1));
        let entry = || {
            let inner = all.lock();
            let place = inner.known[&1].place;
            (place, inner.order[&place].0)
        };
        let before = entry();
        assert!(all.enter("n", 1, 1).unwrap().repeated(None).unwrap());
        assert_eq!(entry(), before);
    }

    #[test]
    fn no_request_passes_limits_for_longer_than_the_store_knows_its_timer() {
        let all = Idempotency::default();
        let is_known = |id, fingerprint| all.enter("n", id, fingerprint).map(|entered| entered.is_known());
        all.enter("n", 1, 1).unwrap().remember(false);
        assert!(!is_known(1, 1).unwrap(), "it has kept another timer");
        assert_eq!(is_known(1, 2).unwrap_err().kind, ProblemKind::IdempotencyMismatch);
        all.ended("n", TimerId::from_u128(2), Some(2));
        assert!(is_known(2, 2).unwrap());
    }

    #[test]
    fn a_key_is_in_one_request_at_a_time() {
        let all = Idempotency::default();
        let first = all.enter("n", 1, 1).unwrap();
        assert_eq!(all.enter("n", 1, 1).unwrap_err().kind, ProblemKind::IdempotencyInProgress);
        drop(first);
        assert!(all.enter("n", 1, 2).is_ok(), "nothing was fulfilled");
    }
}
