//! Finds a receiver for a due timer. If no receiver waits, a timer that was fetched from the store for receivers may
//! wait in the queue's buffer.

use super::buffers::{ASSEMBLY, BufferKey};
use super::claim::OpenClaim;
use super::queues::{PullQueues, State};
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::oneshot;
use tourbillon_api::Claim;
use tourbillon_durable::UtcMillis;

/// The longest time for which a fetched timer waits in memory for a receiver.
pub(super) const BUFFERED: Duration = Duration::from_secs(1);

/// A due pull timer that looks for a receiver at its queue.
#[derive(Debug)]
pub(crate) struct Arrival<'d> {
    pub(super) queues: &'d Arc<PullQueues>,
    pub(super) reason: &'d Reason,
    pub(super) namespace: &'d str,
    pub(super) key: BufferKey,
    /// The moment until which the timer may wait in the buffer. `None` if the timer may not wait, because it was not
    /// fetched for receivers.
    pub(super) buffered_until: Option<tokio::time::Instant>,
    pub(super) counted: Counted,
}

/// The count to which a due timer belongs at present. A queue has several counts of timers. The unparker (the task that
/// makes parked timers due again) subtracts these counts from the number of timers that the queue's receivers want, so
/// that it does not make too many timers due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The count of timers that were made due again or fetched from the store, and are on their way to the queue.
    Coming,
    /// The count of timers on their way to the queue, as for `Coming`. The timer has waited in the queue's buffer. The
    /// timer was woken because a receiver waits at the queue, and now looks for a receiver again.
    Woken,
    /// The count of timers that have found a receiver, and are about to be handed over.
    Arriving,
    /// None of the counts.
    Nowhere,
}

/// The result of a due timer's search for a receiver.
pub(super) enum Found {
    /// A receiver waits, and the namespace has not reached its limit of open claims (receivers' holds on timers). So
    /// the timer can be handed over.
    Receiver,
    /// The timer waits in the queue's buffer, at most until this moment. The channel gets a message when a receiver
    /// comes.
    Buffered(oneshot::Receiver<()>, tokio::time::Instant),
    Nobody,
}

impl PullQueues {
    /// Begins the search for a receiver of a due timer. `reason` is the [`Reason::Queue`] with the name of the timer's
    /// queue.
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
    /// Returns whether a receiver waits for the timer, and the timer's namespace has not reached its limit of open
    /// claims (receivers' holds on timers). If the timer was fetched for receivers and no receiver waits, the call
    /// waits for a receiver, and keeps the timer in the queue's buffer. This wait ends at the latest one second after
    /// the timer's arrival.
    pub(crate) async fn is_awaited(&mut self) -> bool {
        loop {
            match self.find() {
                Found::Receiver => return true,
                Found::Nobody => return false,
                Found::Buffered(mut woken, until) => {
                    let mut buffered = BufferedArrival { arrival: self, has_left: false };
                    let ended = loop {
                        let assembled = until.min(tokio::time::Instant::now() + ASSEMBLY);
                        match tokio::time::timeout_at(assembled, &mut woken).await {
                            // Some of the timers on their way may never arrive.
                            Err(_) if assembled < until => buffered.arrival.hand_out_now(),
                            ended => break ended,
                        }
                    };
                    let was_there = buffered.leave();
                    drop(buffered);
                    if was_there {
                        let parked = self.queues.lock().buffers.park_from(self.reason, self.key);
                        drop(parked);
                        return false;
                    }
                    // A receiver may have woken the timer at the moment of the timeout. There is no message if the
                    // queues are closed, or if a timer that is due earlier is parked again.
                    let is_woken = match ended {
                        Ok(message) => message.is_ok(),
                        Err(_) => woken.try_recv().is_ok(),
                    };
                    if !is_woken {
                        return false;
                    }
                    self.counted = Counted::Woken;
                }
            }
        }
    }

    pub(super) fn find(&mut self) -> Found {
        let mut state = self.queues.lock();
        let is_new = self.counted == Counted::Coming;
        self.leave(&mut state);
        let has_room = !state.is_closed && state.claims.free(self.namespace) > 0;
        let is_fetched = self.buffered_until.is_some();
        let queue = state.receivers.queue_mut(self.reason).filter(|queue| queue.len() > 0);
        match (queue, has_room) {
            // A fetched timer enters the buffer first, where the timer that is due first is woken first. Later it may
            // wait for the next receiver if enough other timers are about to be handed over.
            (Some(queue), true) if is_fetched && (is_new || queue.arriving >= queue.wants()) => {}
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
        let woken = state.buffers.enter(self.reason, self.key);
        state.hand_out(self.reason);
        Found::Buffered(woken, until)
    }

    /// Wakes timers in the buffer of this timer's queue for the receivers, even if further timers are on their way.
    fn hand_out_now(&self) {
        let _woken = self.queues.lock().hand_out_now(self.reason);
    }

    /// Hands the timer to the receiver that has waited longest. Returns `None` if no receiver waits, or if the
    /// namespace has reached its limit of open claims. `is_once` is true if the timer is delivered at most once.
    pub(crate) fn hand_over(&mut self, claim: &Claim, is_once: bool) -> Option<OpenClaim> {
        let mut state = self.queues.lock();
        self.leave(&mut state);
        // Other timers may have opened claims since this timer found a receiver, so the limit is checked again.
        if state.is_closed || state.claims.free(self.namespace) == 0 {
            state.claims.starve(self.reason);
            return None;
        }
        if !state.receivers.queue_mut(self.reason)?.hand_over(claim, self.key.0) {
            return None;
        }
        // The receiver's poll needs the lock before it returns the claim. So the receiver cannot use the claim before
        // the claim is open.
        let requests = state.claims.open(&claim.claim, self.namespace, is_once);
        Some(OpenClaim { queues: Arc::clone(self.queues), name: claim.claim.as_str().into(), requests })
    }

    /// Removes the timer from the count that `counted` names. If the timer was fetched and has just arrived, sets the
    /// moment until which it may wait in the buffer.
    fn leave(&mut self, state: &mut State) {
        let counted = core::mem::replace(&mut self.counted, Counted::Nowhere);
        // A delivery does not show whether its timer was fetched. So while fetched timers are expected, each arriving
        // timer counts as a fetched timer.
        if counted == Counted::Coming && state.buffers.has_come(self.reason) {
            self.buffered_until = Some(tokio::time::Instant::now() + BUFFERED);
            return;
        }
        // The last receiver to leave removes the queue with its counts, and a new receiver makes a new queue. So a
        // count may be zero before the subtraction.
        let Some(queue) = state.receivers.queue_mut(self.reason) else { return };
        match counted {
            Counted::Coming | Counted::Woken => queue.coming.fewer(1),
            Counted::Arriving => queue.arriving = queue.arriving.saturating_sub(1),
            Counted::Nowhere => {}
        }
    }
}

/// Removes the timer from the queue's counts. If the timer has found a receiver but was not handed over, the receiver
/// can get another timer, so the next timer in the queue's buffer is woken.
impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let was_arriving = self.counted == Counted::Arriving;
        if self.counted != Counted::Nowhere {
            let mut state = self.queues.lock();
            self.leave(&mut state);
            if was_arriving {
                state.hand_out(self.reason);
            }
        }
    }
}

/// A timer that waits in its queue's buffer. Dropping this value removes the timer from the buffer.
struct BufferedArrival<'a, 'd> {
    arrival: &'a Arrival<'d>,
    has_left: bool,
}

impl BufferedArrival<'_, '_> {
    /// Removes the timer from its queue's buffer. Returns false if the timer was no longer in the buffer. In this case,
    /// the timer was woken because a receiver waits, or the queues are closed.
    fn leave(&mut self) -> bool {
        self.has_left = true;
        self.arrival.queues.lock().buffers.leave(self.arrival.reason, self.arrival.key)
    }
}

/// Removes the timer from the buffer. If the timer was just woken because a receiver waits, the timer has already left
/// the buffer, but does not go to the receiver. In this case, the next timer in the buffer is woken for the receiver.
impl Drop for BufferedArrival<'_, '_> {
    fn drop(&mut self) {
        if !self.has_left && !self.leave() {
            let mut state = self.arrival.queues.lock();
            if let Some(queue) = state.receivers.queue_mut(self.arrival.reason) {
                queue.coming.fewer(1);
            }
            state.hand_out(self.arrival.reason);
        }
    }
}
