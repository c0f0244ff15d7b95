//! A timer that is due, until a receiver has it.

use super::buffers::BufferKey;
use super::claim::OpenClaim;
use super::queues::{PullQueues, State};
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::oneshot;
use tourbillon_api::Claim;
use tourbillon_durable::UtcMillis;

/// The time for which a fetched timer waits for a receiver.
pub(super) const BUFFERED: Duration = Duration::from_secs(1);

/// A timer that is due and looks for a receiver.
#[derive(Debug)]
pub(crate) struct Arrival<'d> {
    pub(super) queues: &'d Arc<PullQueues>,
    pub(super) reason: &'d Reason,
    pub(super) namespace: &'d str,
    pub(super) key: BufferKey,
    /// The moment until which it may wait in the buffer, if it was fetched.
    pub(super) buffered_until: Option<tokio::time::Instant>,
    pub(super) counted: Counted,
}

/// The count that includes a timer, so that no second timer is fetched for the same receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The count of timers on their way.
    Coming,
    /// The same, after it was woken in the buffer.
    Woken,
    /// The count of timers that have found a receiver.
    Arriving,
    Nowhere,
}

/// The result of a search for a receiver.
pub(super) enum Found {
    /// A receiver, and the namespace may open a claim.
    Receiver,
    /// A place in the buffer, where the timer is woken for a receiver.
    Buffered(oneshot::Receiver<()>, tokio::time::Instant),
    Nobody,
}

impl PullQueues {
    /// Takes a timer that is due.
    pub(crate) fn arrive<'d>(
        self: &'d Arc<Self>,
        reason: &'d Reason,
        namespace: &'d str,
        due: UtcMillis,
    ) -> Arrival<'d> {
        let key = self.lock().buffers.key(due);
        Arrival { queues: self, reason, namespace, key, buffered_until: None, counted: Counted::Coming }
    }
}

impl Arrival<'_> {
    /// Waits for a receiver: a fetched timer for a second from its arrival on, any other timer not at all. Returns
    /// whether a receiver waits and the namespace may open a claim.
    pub(crate) async fn is_awaited(&mut self) -> bool {
        loop {
            match self.find() {
                Found::Receiver => return true,
                Found::Nobody => return false,
                Found::Buffered(woken, until) => {
                    let mut buffered = BufferedArrival { arrival: self, has_left: false };
                    let woken = tokio::time::timeout_at(until, woken).await;
                    // A receiver may have woken it at the moment of its timeout: then it is not in the buffer any more.
                    let was_there = buffered.leave();
                    drop(buffered);
                    if matches!(woken, Ok(Err(_))) || was_there {
                        return false;
                    }
                    self.counted = Counted::Woken;
                }
            }
        }
    }

    pub(super) fn find(&mut self) -> Found {
        let mut state = self.queues.lock();
        self.leave(&mut state);
        let has_room = !state.is_closed && state.claims.free(self.namespace) > 0;
        let is_fetched = self.buffered_until.is_some();
        let queue = state.receivers.queue_mut(self.reason).filter(|queue| queue.len() > 0);
        match (queue, has_room) {
            // The timers that are about to be handed over are enough. A fetched timer can wait for the next receiver.
            (Some(queue), true) if is_fetched && queue.arriving >= queue.wants() => {}
            (Some(queue), true) => {
                queue.arriving += 1;
                self.counted = Counted::Arriving;
                return Found::Receiver;
            }
            (Some(_), false) => {
                state.claims.starve(self.reason);
                return Found::Nobody;
            }
            (None, _) => {}
        }
        let until = self.buffered_until.filter(|until| tokio::time::Instant::now() < *until);
        let Some(until) = until.filter(|_| !state.is_closed) else { return Found::Nobody };
        Found::Buffered(state.buffers.enter(self.reason, self.key), until)
    }

    /// Hands the timer to the receiver that has waited longest. Returns `None` if no receiver waits.
    pub(crate) fn hand_over(&mut self, claim: &Claim) -> Option<OpenClaim> {
        let mut state = self.queues.lock();
        self.leave(&mut state);
        if state.is_closed || state.claims.free(self.namespace) == 0 {
            state.claims.starve(self.reason);
            return None;
        }
        if !state.receivers.queue_mut(self.reason)?.hand_over(claim, self.key.0) {
            return None;
        }
        let requests = state.claims.open(&claim.claim, self.namespace);
        Some(OpenClaim { queues: Arc::clone(self.queues), name: claim.claim.as_str().into(), requests })
    }

    /// Takes the timer out of the count in which it is.
    fn leave(&mut self, state: &mut State) {
        let counted = core::mem::replace(&mut self.counted, Counted::Nowhere);
        if counted == Counted::Coming && state.buffers.has_come(self.reason) {
            self.buffered_until = Some(tokio::time::Instant::now() + BUFFERED);
            return;
        }
        let Some(queue) = state.receivers.queue_mut(self.reason) else { return };
        match counted {
            Counted::Coming | Counted::Woken => queue.coming.fewer(1),
            Counted::Arriving => queue.arriving = queue.arriving.saturating_sub(1),
            Counted::Nowhere => {}
        }
    }
}

/// A timer that goes without its receiver leaves the receiver to the first timer in the buffer.
impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let was_arriving = self.counted == Counted::Arriving;
        if self.counted != Counted::Nowhere {
            let mut state = self.queues.lock();
            self.leave(&mut state);
            if was_arriving {
                state.wake_one(self.reason);
            }
        }
    }
}

/// A timer in the buffer, which leaves it when this value is dropped.
struct BufferedArrival<'a, 'd> {
    arrival: &'a Arrival<'d>,
    has_left: bool,
}

impl BufferedArrival<'_, '_> {
    /// Takes the timer from the buffer. Returns whether it was there: otherwise it was woken, or the
    /// queues are closed.
    fn leave(&mut self) -> bool {
        self.has_left = true;
        self.arrival.queues.lock().buffers.leave(self.arrival.reason, self.arrival.key)
    }
}

/// A timer that is given up may have been woken for a receiver, and leaves it to the next timer.
impl Drop for BufferedArrival<'_, '_> {
    fn drop(&mut self) {
        if !self.has_left && !self.leave() {
            let mut state = self.arrival.queues.lock();
            if let Some(queue) = state.receivers.queue_mut(self.arrival.reason) {
                queue.coming.fewer(1);
            }
            state.wake_one(self.arrival.reason);
        }
    }
}
