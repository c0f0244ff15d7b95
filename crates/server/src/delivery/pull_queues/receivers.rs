//! Keeps the receivers that wait at each queue, and counts the timers on their way to these receivers.

use super::coming::{Coming, ON_THE_WAY};
use crate::delivery::reason::Reason;
use crate::share::Shares;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use tokio::sync::mpsc;
use tourbillon_api::Claim;
use tourbillon_durable::UtcMillis;

/// The greatest number of receivers that wait at all queues together.
const MOST_WAITING: usize = 10_000;

/// A message to a receiver that waits at a queue.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is on its way from a timer to a receiver, and nowhere stored"
)]
pub(super) enum Got {
    /// A claim, and the due moment of its timer.
    Claim(Claim, UtcMillis),
    /// No timer of the queue is parked at any node: no timer waits in the store for a receiver.
    Nothing,
}

/// The receivers that wait at all queues, and how many of them each namespace has.
#[derive(Debug)]
pub(super) struct Receivers {
    by_reason: HashMap<Reason, Queue>,
    /// The number of receivers of each namespace. A receiver counts until [`leave`](Receivers::leave) is called for it.
    by_namespace: Shares<Box<str>>,
    /// The number that identifies the next receiver.
    next: u64,
}

/// The receivers that wait at one queue, and the numbers of timers that they should get soon.
#[derive(Debug, Default)]
pub(super) struct Queue {
    receivers: VecDeque<Receiver>,
    /// The number of timers on their way to the queue. These timers were parked and are due again but have not arrived
    /// at their handler, or they were woken in the queue's buffer but have not looked for a receiver since.
    pub(super) coming: Coming,
    /// The number of timers that have found a receiver, but are not handed over yet.
    pub(super) arriving: usize,
}

#[derive(Debug)]
struct Receiver {
    number: u64,
    max: usize,
    /// The number of further timers that the receiver wants: `max`, minus the number of timers that it has got.
    wants: usize,
    sender: mpsc::UnboundedSender<Got>,
}

impl Default for Receivers {
    fn default() -> Self {
        Self { by_reason: HashMap::new(), by_namespace: Shares::new(MOST_WAITING), next: 0 }
    }
}

impl Receivers {
    /// Adds a receiver that wants at most `max` timers. Returns the receiver's number, for [`leave`](Self::leave).
    /// Returns `None` if no further receiver of this namespace may wait.
    pub(super) fn enter(
        &mut self,
        reason: &Reason,
        namespace: &str,
        max: usize,
        sender: mpsc::UnboundedSender<Got>,
    ) -> Option<u64> {
        if !self.by_namespace.take(namespace, 1) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let queue = self.by_reason.entry(reason.clone()).or_default();
        queue.receivers.push_back(Receiver { number, max, wants: max, sender });
        Some(number)
    }

    /// Removes a receiver from its queue, and from the numbers of receivers that [`enter`](Self::enter) limits.
    /// Must be called for each receiver, even if the receiver has got all its timers and is therefore no longer in the
    /// queue.
    pub(super) fn leave(&mut self, reason: &Reason, namespace: &str, number: u64) {
        self.by_namespace.give_back(namespace, 1);
        if let Some(queue) = self.by_reason.get_mut(reason) {
            queue.receivers.retain(|receiver| receiver.number != number);
            // Clients choose the names of queues. So queues without receivers must not stay in memory.
            if queue.receivers.is_empty() {
                self.by_reason.remove(reason);
            }
        }
    }

    /// Removes all queues. The receivers of these queues stay in the numbers that [`enter`](Self::enter) limits, until
    /// [`leave`](Self::leave) is called for each of them.
    pub(super) fn close(&mut self) -> HashMap<Reason, Queue> {
        core::mem::take(&mut self.by_reason)
    }

    pub(super) fn queue(&self, reason: &Reason) -> Option<&Queue> {
        self.by_reason.get(reason)
    }

    pub(super) fn queue_mut(&mut self, reason: &Reason) -> Option<&mut Queue> {
        self.by_reason.get_mut(reason)
    }

    /// Returns the queues at which receivers wait, each with the [`Reason::Queue`] that contains the queue's name.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (&Reason, &Queue)> {
        self.by_reason.iter().filter(|(_, queue)| !queue.receivers.is_empty())
    }

    /// Returns whether all receivers have left their queues.
    #[cfg(test)]
    pub(super) fn are_gone(&self) -> bool {
        self.by_namespace.are_gone()
    }

    /// Replaces all receivers of a queue by a single receiver.
    #[cfg(test)]
    pub(super) fn replace(&mut self, reason: &Reason, wants: usize, sender: mpsc::UnboundedSender<Got>) {
        let queue = self.by_reason.entry(reason.clone()).or_default();
        queue.receivers = VecDeque::from([Receiver { number: 0, max: wants, wants, sender }]);
    }
}

impl Queue {
    /// Returns the number of receivers in this queue that want more timers.
    pub(super) fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Returns the number of timers that the receivers of this queue still want, all together.
    pub(super) fn wants(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.wants).sum()
    }

    /// Returns the greatest number of timers for which one waiting receiver has asked.
    pub(super) fn largest(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.max).max().unwrap_or(0)
    }

    /// Returns the number of timers that this queue's receivers should get soon: the timers on their way to the queue
    /// (`coming`), and the timers that have found a receiver but are not handed over yet (`arriving`).
    pub(super) fn awaited(&self, now: Instant) -> usize {
        self.coming.at(now) + self.arriving
    }

    /// Notes that timers were woken in the queue's buffer, where they waited for a receiver. `timers` is their number.
    /// From now on, these timers count as on their way to this queue's receivers.
    pub(super) fn note_woken(&mut self, timers: usize) {
        if timers > 0 {
            self.coming.more(timers, ON_THE_WAY);
        }
    }

    /// Hands a claim to the receiver that has waited longest. Returns whether a receiver got the claim.
    pub(super) fn hand_over(&mut self, claim: &Claim, due: UtcMillis) -> bool {
        while let Some(receiver) = self.receivers.front_mut() {
            // A receiver that goes away closes its channel some time before it leaves the queue. The claim then goes to
            // the next receiver.
            let is_there = receiver.sender.send(Got::Claim(claim.clone(), due)).is_ok();
            // The subtraction cannot overflow: a request asks for at least one timer, and a receiver that wants no more
            // is removed.
            receiver.wants -= usize::from(is_there);
            if !is_there || receiver.wants == 0 {
                self.receivers.pop_front();
            }
            if is_there {
                return true;
            }
        }
        false
    }

    /// Informs all receivers of this queue that no timer of the queue is parked at any node: no timer waits in the
    /// store for a receiver.
    pub(super) fn send_nothing(&self) {
        for receiver in &self.receivers {
            let _has_gone = receiver.sender.send(Got::Nothing);
        }
    }
}
