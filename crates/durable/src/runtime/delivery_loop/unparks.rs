//! Unparks the timers that were parked because the runtime had no handler for their kind. The runtime does this at its
//! start, for the kinds for which it has handlers.
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
//! | waits | done | the error that the store is closed, or the stop of the runtime |

use super::backoff::Backoff;
use super::call::Call;
use crate::handler::Verdict;
use crate::runtime::shared::REAP;
use crate::store::{Durability, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
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
    waiting: VecDeque<&'static str>,
    calls: FuturesUnordered<Unpark>,
    /// The moment at which the pause after a failed [`Unpark`] call ends. No further `Unpark` call begins during the
    /// pause. `None` if there is no pause.
    rest: Option<Instant>,
    backoff: Backoff,
    unparked: Unparked,
}

impl Unparks {
    pub(super) fn new(
        store: Arc<dyn TimerStore>,
        kinds: impl Iterator<Item = &'static str>,
        lease: Duration,
    ) -> Self {
        Self {
            store,
            waiting: kinds.collect(),
            calls: FuturesUnordered::new(),
            rest: None,
            backoff: Backoff::new(lease),
            unparked: Unparked::default(),
        }
    }

    /// Returns true until all kinds of timers are unparked: an [`Unpark`] call must still begin for one of the kinds,
    /// or the store has not answered such a call yet.
    pub(super) fn is_in_progress(&self) -> bool {
        !self.waiting.is_empty() || !self.calls.is_empty()
    }

    /// Returns the moment at which the pause after a failed [`Unpark`] call ends, so that the next `Unpark` call
    /// begins. Returns `None` if there is no pause, or if no kind of timers must still be unparked.
    pub(super) fn first_rest(&self) -> Option<Instant> {
        self.rest.filter(|_| !self.waiting.is_empty())
    }

    /// Drops the futures of all unanswered [`Unpark`] calls, and begins no further `Unpark` calls.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        self.calls = FuturesUnordered::new();
    }

    /// Removes and returns the results of the [`Unpark`] calls that were answered since the last call of this method.
    pub(super) fn take_unparked(&mut self) -> Unparked {
        core::mem::take(&mut self.unparked)
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        self.rest = self.rest.filter(|rest| *rest > Instant::now());
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
                    if error.kind() == StoreErrorKind::Closed {
                        self.waiting.clear();
                    } else {
                        self.waiting.push_back(kind);
                        // Calls that fail one after the other within a pause do not lengthen the pause.
                        let rest = self.rest.unwrap_or_else(|| Instant::now() + self.backoff.next());
                        self.rest = Some(rest);
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
