//! Keeps the receivers that wait at each queue, and counts the timers on their way to these receivers.

use super::coming::{Coming, ON_THE_WAY};
use super::tally::Tally;
use crate::delivery::reason::Reason;
use crate::share::free_for;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use tokio::sync::mpsc;
use tourbillon_api::Claim;
use tourbillon_durable::UtcMillis;

/// The greatest number of receivers that wait at all queues together.
const MOST_WAITING: usize = 10_000;

/// A message to a receiver.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is on its way from a timer to a receiver, and nowhere stored"
)]
pub(super) enum Got {
    /// A claim for the receiver, and the due moment of the claim's timer.
    Claim(Claim, UtcMillis),
    /// The message that no node has parked timers of the queue.
    Nothing,
}

/// The receivers of all queues.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    by_reason: HashMap<Reason, Queue>,
    /// The number of receivers of each namespace that have not left. Below it: the number of all receivers that have
    /// not left.
    by_namespace: Tally,
    all: usize,
    next: u64,
}

/// The receivers that wait at a queue. `coming` counts the timers that were unparked for them and have not arrived.
#[derive(Debug, Default)]
pub(super) struct Queue {
    receivers: VecDeque<Receiver>,
    pub(super) coming: Coming,
    /// The number of timers that have found a receiver, but are not handed over yet.
    pub(super) arriving: usize,
}

#[derive(Debug)]
struct Receiver {
    number: u64,
    max: usize,
    /// The number of timers that the receiver still wants: `max`, less the number of timers that it has got.
    wants: usize,
    sender: mpsc::UnboundedSender<Got>,
}

impl Receivers {
    /// Returns whether another receiver of this namespace may wait.
    pub(super) fn may_enter(&self, namespace: &str) -> bool {
        free_for(self.by_namespace.get(namespace), MOST_WAITING.saturating_sub(self.all)) > 0
    }

    /// Adds a receiver that wants at most `max` timers. Returns its number, by which [`leave`](Self::leave) finds the
    /// receiver.
    pub(super) fn enter(
        &mut self,
        reason: &Reason,
        namespace: &str,
        max: usize,
        sender: mpsc::UnboundedSender<Got>,
    ) -> u64 {
        let number = self.next;
        (self.next, self.all) = (number + 1, self.all + 1);
        self.by_namespace.add(namespace);
        let queue = self.by_reason.entry(reason.clone()).or_default();
        queue.receivers.push_back(Receiver { number, max, wants: max, sender });
        number
    }

    /// Removes a receiver that leaves. A receiver that has got all timers it wanted is no longer in its queue, but
    /// still counted.
    pub(super) fn leave(&mut self, reason: &Reason, namespace: &str, number: u64) {
        self.all -= 1;
        self.by_namespace.remove(namespace);
        if let Some(queue) = self.by_reason.get_mut(reason) {
            queue.receivers.retain(|receiver| receiver.number != number);
            if queue.receivers.is_empty() {
                self.by_reason.remove(reason);
            }
        }
    }

    /// Takes all queues away. Their receivers still count until they leave.
    pub(super) fn close(&mut self) -> HashMap<Reason, Queue> {
        core::mem::take(&mut self.by_reason)
    }

    pub(super) fn queue(&self, reason: &Reason) -> Option<&Queue> {
        self.by_reason.get(reason)
    }

    pub(super) fn queue_mut(&mut self, reason: &Reason) -> Option<&mut Queue> {
        self.by_reason.get_mut(reason)
    }

    /// Returns the queues at which receivers wait.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (&Reason, &Queue)> {
        self.by_reason.iter().filter(|(_, queue)| !queue.receivers.is_empty())
    }

    /// Returns whether all receivers have left.
    #[cfg(test)]
    pub(super) fn are_gone(&self) -> bool {
        self.all == 0 && self.by_namespace.is_empty()
    }

    /// Puts a single receiver in place of all receivers of a queue.
    #[cfg(test)]
    pub(super) fn replace(&mut self, reason: &Reason, wants: usize, sender: mpsc::UnboundedSender<Got>) {
        let queue = self.by_reason.entry(reason.clone()).or_default();
        queue.receivers = VecDeque::from([Receiver { number: 0, max: wants, wants, sender }]);
    }
}

impl Queue {
    /// Returns the number of receivers that want more timers.
    pub(super) fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Returns the number of timers that all receivers of this queue still want.
    pub(super) fn wants(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.wants).sum()
    }

    /// Returns the largest number of timers that a waiting receiver has asked for.
    pub(super) fn largest(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.max).max().unwrap_or(0)
    }

    /// Returns the number of timers that the receivers will get soon: timers on their way, and timers that are about to
    /// be handed over.
    pub(super) fn awaited(&self, now: Instant) -> usize {
        self.coming.at(now) + self.arriving
    }

    /// Counts timers as on their way after they were woken in the buffer.
    pub(super) fn note_woken(&mut self, timers: usize) {
        if timers > 0 {
            self.coming.more(timers, ON_THE_WAY);
        }
    }

    /// Hands a claim to the receiver that has waited longest. Returns whether a receiver got the claim.
    pub(super) fn hand_over(&mut self, claim: &Claim, due: UtcMillis) -> bool {
        while let Some(receiver) = self.receivers.front_mut() {
            let is_there = receiver.sender.send(Got::Claim(claim.clone(), due)).is_ok();
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

    /// Tells all receivers of this queue that no node has parked timers of the queue.
    pub(super) fn send_nothing(&self) {
        for receiver in &self.receivers {
            let _has_gone = receiver.sender.send(Got::Nothing);
        }
    }
}
