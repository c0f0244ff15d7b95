//! Unparks the timers that were parked because the runtime had no handler for their kind. The runtime does this at its
//! start, for the kinds for which it has handlers. On a store that several processes may share, the runtime repeats
//! this now and then, because another process without the handlers may park further timers.
//!
//! The calls run beside the other work of the loop. So claims do not wait for them, and a kind does not wait for the
//! calls of another kind. The store may answer such a call late or with an error. For example, another transaction may
//! lock one of the timers for minutes.
//!
//! | a kind that | becomes | by |
//! |---|---|---|
//! | waits | at the store | a new call, if fewer than [`AT_ONCE`] calls are at the store and there is no pause |
//! | is at the store | done | the answer that no further timer is parked for the kind |
//! | is at the store | the first that waits | the answer that further timers may be parked for the kind |
//! | is at the store | the last that waits | an error, or a panic of the store. A pause begins |
//! | is at the store | done | the error that the store refuses the call ([`StoreErrorKind::Limit`]) |
//! | waits | done | the error that the store is closed, or the stop of the runtime |
//! | is done | waits | the end of the time [`AGAIN`] since all kinds are done, if the store may be shared |

use super::backoff::Backoff;
use super::call::Call;
use crate::runtime::shared::REAP;
use crate::store::{Durability, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use crate::verdict::Verdict;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The greatest number of unanswered [`Unpark`] calls, which make parked (set aside) timers pending again. Each call
/// may occupy a connection to the store. So the limit leaves connections for the other calls of the delivery loop.
const AT_ONCE: usize = 4;

/// The time after which a runtime on a store that several processes may share unparks the timers of its kinds again.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// A call to the store that *unparks* the timers of one kind. These timers were parked (set aside), because the runtime
/// had no handler for their kind. The call makes them pending again, so that they are claimed when they are due.
struct Unpark {
    kind: &'static str,
    call: Call<Vec<Outcome>>,
}

impl Future for Unpark {
    type Output = (&'static str, Result<Vec<Outcome>, StoreError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let kind = self.kind;
        Pin::new(&mut self.call).poll(context).map(|result| (kind, result))
    }
}

/// The results of [`Unpark`] calls, which make parked (set aside) timers pending again. The results are collected here
/// until the delivery loop takes them.
#[derive(Default)]
pub(super) struct Unparked {
    /// True if timers are pending again, so that the delivery loop must claim due timers.
    pub(super) has_timers: bool,
    pub(super) errors: Vec<StoreError>,
}

/// Makes the [`Unpark`] calls to the store. Such a call is for one kind of timers. It makes the timers pending again
/// that were parked (set aside) because the runtime had no handler for their kind. `waiting` has the kinds for which a
/// call must still begin.
pub(super) struct Unparks {
    store: Arc<dyn TimerStore>,
    kinds: Vec<&'static str>,
    waiting: VecDeque<&'static str>,
    calls: FuturesUnordered<Unpark>,
    /// The moment at which the pause after a failed [`Unpark`] call ends. No further `Unpark` call begins during the
    /// pause. `None` if there is no pause.
    rest: Option<Instant>,
    backoff: Backoff,
    /// The time between two rounds of [`Unpark`] calls. `None` if there is a single round.
    every: Option<Duration>,
    /// The moment at which the next round begins. `None` during a round, and after the last round.
    next_round: Option<Instant>,
    unparked: Unparked,
}

impl Unparks {
    pub(super) fn new(
        store: Arc<dyn TimerStore>,
        kinds: impl Iterator<Item = &'static str>,
        lease: Duration,
        every: Option<Duration>,
    ) -> Self {
        let kinds: Vec<_> = kinds.collect();
        Self {
            store,
            waiting: kinds.iter().copied().collect(),
            kinds,
            calls: FuturesUnordered::new(),
            rest: None,
            backoff: Backoff::new(lease),
            every,
            next_round: None,
            unparked: Unparked::default(),
        }
    }

    /// Returns true until all kinds of timers are unparked: an [`Unpark`] call must still begin for one of the kinds,
    /// or the store has not answered such a call yet.
    pub(super) fn is_in_progress(&self) -> bool {
        !self.waiting.is_empty() || !self.calls.is_empty()
    }

    /// Returns the moment at which the next [`Unpark`] call begins: the end of the pause after a failed call, or the
    /// start of the next round. Returns `None` if no call waits for a moment.
    pub(super) fn first_rest(&self) -> Option<Instant> {
        self.rest.filter(|_| !self.waiting.is_empty()).or(self.next_round)
    }

    /// Drops the futures of all unanswered [`Unpark`] calls, and begins no further `Unpark` calls.
    pub(super) fn stop(&mut self) {
        self.end_rounds();
        self.calls = FuturesUnordered::new();
    }

    fn end_rounds(&mut self) {
        self.waiting.clear();
        (self.every, self.next_round) = (None, None);
    }

    /// Removes and returns the results of the [`Unpark`] calls that were answered since the last call of this method.
    pub(super) fn take_unparked(&mut self) -> Unparked {
        core::mem::take(&mut self.unparked)
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let now = Instant::now();
        self.rest = self.rest.filter(|rest| *rest > now);
        if self.next_round.is_some_and(|round| round <= now) {
            self.next_round = None;
            self.waiting.extend(&self.kinds);
        }
        self.poll_calls(context);
        if !self.is_in_progress() && self.next_round.is_none() {
            self.next_round = self.every.map(|every| now + every);
        }
    }

    fn poll_calls(&mut self, context: &mut Context<'_>) {
        loop {
            while self.rest.is_none()
                && self.calls.len() < AT_ONCE
                && let Some(kind) = self.waiting.pop_front()
            {
                self.calls.push(self.unpark(kind));
            }
            let Poll::Ready(Some((kind, result))) = self.calls.poll_next_unpin(context) else { return };
            match result {
                Ok(outcomes) => self.note(kind, &outcomes),
                Err(error) => {
                    match error.kind() {
                        StoreErrorKind::Closed => self.end_rounds(),
                        // The store would refuse the same call each time.
                        StoreErrorKind::Limit => {}
                        _ => {
                            self.waiting.push_back(kind);
                            // Calls that fail one after the other within a pause do not lengthen the pause.
                            let rest = self.rest.unwrap_or_else(|| Instant::now() + self.backoff.next());
                            self.rest = Some(rest);
                        }
                    }
                    self.unparked.errors.push(error);
                }
            }
        }
    }

    fn unpark(&self, kind: &'static str) -> Unpark {
        let (store, op) = (Arc::clone(&self.store), Op::Unpark(Verdict::reason_for_unknown(kind), REAP));
        // If a crash undoes the unpark, the next start of a runtime repeats it.
        Unpark { kind, call: Call::new(async move { store.apply(vec![op], Durability::Volatile).await }) }
    }

    /// Records the store's answer to an [`Unpark`] call for this kind of timers. One call unparks at most [`REAP`]
    /// timers. If the call has unparked this number, there may be further parked timers of this kind, so another call
    /// follows.
    fn note(&mut self, kind: &'static str, outcomes: &[Outcome]) {
        self.backoff.reset();
        let [Outcome::Unparked(count)] = *outcomes else { return };
        self.unparked.has_timers |= count > 0;
        if count >= REAP {
            self.waiting.push_front(kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;
    use crate::store::{IfPresent, MemoryStore};
    use crate::timer::{Timer, TimerId};
    use core::task::Waker;
    use tourbillon_words::UtcMillis;

    /// Tests a timer that another process has parked after the start of this runtime.
    #[test]
    fn a_timer_that_is_parked_later_is_unparked_by_a_later_round() {
        let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::default());
        let (kinds, every) = (["mail"].into_iter(), Duration::from_millis(1));
        let lease = Duration::from_secs(30);
        let mut unparks = Unparks::new(Arc::clone(&store), kinds, lease, Some(every));
        let mut context = Context::from_waker(Waker::noop());
        unparks.poll(&mut context);
        assert!(!unparks.is_in_progress() && !unparks.take_unparked().has_timers);
        let state = State::Parked(Verdict::reason_for_unknown("mail"));
        let timer = Timer { state, ..Timer::new(TimerId::fresh(), "mail", UtcMillis::ZERO) };
        let place = vec![Op::Place(Box::new(timer), IfPresent::Reject)];
        crate::executor::block_on(store.apply(place, Durability::Volatile)).unwrap();
        let begun = Instant::now();
        while !unparks.take_unparked().has_timers {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(unparks.first_rest().unwrap().saturating_duration_since(Instant::now()));
            unparks.poll(&mut context);
        }
        unparks.stop();
        assert_eq!(unparks.first_rest(), None);
    }
}
