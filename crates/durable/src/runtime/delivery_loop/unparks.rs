//! Unparks the timers of kinds that have a handler now. They were parked while no runtime had a handler for their kind.
//!
//! The calls run beside the other work of the loop, so neither a claim nor another kind waits for them. The store may
//! answer such a call late or by an error. For example, somebody else may hold one of the timers for minutes.
//!
//! | a kind | becomes | by |
//! |---|---|---|
//! | waits | at the store | a free place among the calls, once the pause is over |
//! | at the store | done | the answer that no further timer is parked for the kind |
//! | at the store | waits, as the first | the answer that further timers may be parked for the kind |
//! | at the store | waits, as the last | an error, a panic of the store. A pause begins |
//! | waits | done | the error that the store is closed, the stop of the runtime |

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

/// The greatest number of calls at a time. Other calls need the store's connections, too.
const AT_ONCE: usize = 4;

/// A call that unparks timers of one kind.
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

/// What the answers of the store have said since the loop last asked.
#[derive(Default)]
pub(super) struct Unparked {
    /// Whether timers are pending again.
    pub(super) has_timers: bool,
    pub(super) errors: Vec<StoreError>,
}

/// The kinds whose timers are still to be unparked, and the calls that unpark timers.
pub(super) struct Unparks {
    store: Arc<dyn TimerStore>,
    waiting: VecDeque<&'static str>,
    calls: FuturesUnordered<Unpark>,
    /// The end of the pause after an error. No call begins during the pause.
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

    /// Returns whether the timers of a kind are still to be unparked.
    pub(super) fn is_in_progress(&self) -> bool {
        !self.waiting.is_empty() || !self.calls.is_empty()
    }

    /// Returns the end of the pause, if a kind waits for it.
    pub(super) fn first_rest(&self) -> Option<Instant> {
        self.rest.filter(|_| !self.waiting.is_empty())
    }

    /// Begins no further call, and forgets the calls at the store.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        self.calls = FuturesUnordered::new();
    }

    /// Takes what the answers have said since the last call.
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
        Unpark { kind, call: Call::new(async move { store.apply(vec![op], Durability::Volatile).await }) }
    }

    /// Notes the answer to a call for a kind.
    fn note(&mut self, kind: &'static str, outcomes: &[Outcome]) {
        self.backoff.reset();
        let [Outcome::Unparked(count)] = *outcomes else { return };
        self.unparked.has_timers |= count > 0;
        if count >= REAP {
            self.waiting.push_front(kind);
        }
    }
}
