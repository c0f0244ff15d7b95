//! Finds a receiver for a due timer. If no receiver waits, a fetched timer may wait for a receiver in the queue's
//! buffer.

use super::buffers::BufferKey;
use super::claim::OpenClaim;
use super::queues::{PullQueues, State};
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::oneshot;
use tourbillon_api::Claim;
use tourbillon_durable::UtcMillis;

/// The longest time for which a fetched timer waits for a receiver, in its queue's buffer.
pub(super) const BUFFERED: Duration = Duration::from_secs(1);

/// A due timer on its way to a receiver.
#[derive(Debug)]
pub(crate) struct Arrival<'d> {
    pub(super) queues: &'d Arc<PullQueues>,
    pub(super) reason: &'d Reason,
    pub(super) namespace: &'d str,
    pub(super) key: BufferKey,
    /// The moment until which the timer may wait for a receiver. `None` if the timer was not fetched, since it must not
    /// wait.
    pub(super) buffered_until: Option<tokio::time::Instant>,
    pub(super) counted: Counted,
}

/// Says which count of the queue includes a timer. The counts keep further timers from being unparked for a receiver
/// that a timer already approaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The timer was unparked or fetched, and counts as on its way to the queue.
    Coming,
    /// The timer was woken in the buffer, and counts as on its way to the queue again.
    Woken,
    /// The timer has found a receiver, and counts as about to be handed over.
    Arriving,
    Nowhere,
}

/// The result of a search for a receiver.
pub(super) enum Found {
    /// A receiver waits, and the namespace may open a claim.
    Receiver,
    /// The timer waits in the buffer until this moment. A message on the channel says that a receiver has come.
    Buffered(oneshot::Receiver<()>, tokio::time::Instant),
    Nobody,
}

impl PullQueues {
    /// Begins the search for a receiver for a due timer.
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
    /// Waits for a receiver. A fetched timer waits for at most a second from its arrival on. Any other timer does not
    /// wait. Returns whether a receiver waits and the namespace may open a claim.
    pub(crate) async fn is_awaited(&mut self) -> bool {
        loop {
            match self.find() {
                Found::Receiver => return true,
                Found::Nobody => return false,
                Found::Buffered(woken, until) => {
                    let mut buffered = BufferedArrival { arrival: self, has_left: false };
                    let woken = tokio::time::timeout_at(until, woken).await;
                    // A receiver may have woken the timer at the moment of the timeout. In this case the timer is no
                    // longer in the buffer.
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
            // The timers that are about to be handed over suffice for the receivers. A fetched timer may wait for the
            // next receiver.
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

    /// Hands the timer to the receiver that has waited longest. Returns `None` if no receiver waits, or if the
    /// namespace may not open a claim.
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

    /// Removes the timer from the count that includes it. A fetched timer that has just arrived gets its time in the
    /// buffer.
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

/// A timer may be dropped after it has found a receiver. Then the first timer in the buffer is woken for that receiver.
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

/// A timer that waits in the buffer. Dropping this value removes the timer from the buffer.
struct BufferedArrival<'a, 'd> {
    arrival: &'a Arrival<'d>,
    has_left: bool,
}

impl BufferedArrival<'_, '_> {
    /// Removes the timer from the buffer. Returns false if the timer had left the buffer before: it was woken, or the
    /// queues are closed.
    fn leave(&mut self) -> bool {
        self.has_left = true;
        self.arrival.queues.lock().buffers.leave(self.arrival.reason, self.arrival.key)
    }
}

/// A timer may have been woken for a receiver just before its wait is dropped. Then the next timer in the buffer is
/// woken.
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
