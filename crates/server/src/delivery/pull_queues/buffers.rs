//! Keeps the buffer of each queue, in which fetched timers wait for a receiver.

use super::coming::{Coming, ON_THE_WAY};
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use tokio::sync::oneshot;
use tourbillon_durable::UtcMillis;

/// The longest expected time of a fetch, which takes timers of a queue from the store. Only the store's answer tells
/// how many timers the fetch brings. Until the answer, but at most for this time, the greatest possible number of
/// timers counts as on the way to the queue.
const LONGEST_FETCH: Duration = Duration::from_secs(30);

/// The longest time for which timers of a fetch wait in the buffer for the other timers of the same fetch, so that the
/// timer that is due first goes to a receiver first.
pub(super) const ASSEMBLY: Duration = Duration::from_millis(100);

/// The time for which no fetch from a queue begins after timers have left its buffer without a receiver. In this time
/// the store parks these timers. A fetch could miss them, and find timers that are due later instead.
const PARKING: Duration = Duration::from_millis(50);

/// The key of a timer in a buffer: the timer's due moment, and a number that makes the key unique.
pub(super) type BufferKey = (UtcMillis, u64);

/// The buffers of all queues. A buffer has the timers of one queue that were fetched from the store and now wait in
/// memory for a receiver. The key of a buffer is the [`Reason::Queue`] with the name of its queue.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    by_reason: HashMap<Reason, Buffer>,
    next: u64,
}

/// The timers of one queue that were fetched from the store and now wait in memory for a receiver.
#[derive(Debug, Default)]
struct Buffer {
    /// The number of fetched timers that have not arrived at this node's handler.
    coming: Coming,
    /// Whether a fetch is under way.
    is_fetching: bool,
    /// The number of timers that may have come from the fetch under way, before the store's answer.
    early: Coming,
    /// The number of timers of the last answered fetch that have not arrived.
    missing: Coming,
    /// The moment until which the store may still be parking timers that have left this buffer.
    parks_until: Option<Instant>,
    /// The channels that wake the waiting timers, ordered by the timers' due moments.
    waiting: BTreeMap<BufferKey, oneshot::Sender<()>>,
}

impl Buffers {
    /// Makes a unique key for a timer that is due at `due`.
    pub(super) fn key(&mut self, due: UtcMillis) -> BufferKey {
        let number = self.next;
        self.next += 1;
        (due, number)
    }

    /// Notes that a fetch begins, which takes timers of a queue from the store. `most` is the greatest number of timers
    /// that the fetch can bring. From now on, this number of timers counts as on the way to the queue.
    pub(super) fn begin_fetch(&mut self, reason: &Reason, most: usize) {
        let buffer = self.by_reason.entry(reason.clone()).or_default();
        buffer.coming.more(most, LONGEST_FETCH);
        (buffer.is_fetching, buffer.early) = (true, Coming::default());
    }

    /// Removes all buffers. The timers in the buffers stop waiting once the returned value is dropped. The numbers in
    /// the keys of timers do not start again, so [`key`](Self::key) still returns only unused keys.
    pub(super) fn close(&mut self) -> impl Sized + use<> {
        core::mem::take(&mut self.by_reason)
    }

    /// Removes the buffer of each queue for which no timer waits in the buffer, and no timer that was fetched from the
    /// store is on its way to this node's handler.
    pub(super) fn forget_unused(&mut self) {
        let now = Instant::now();
        self.by_reason.retain(|_, buffer| {
            buffer.coming.at(now) > 0 || !buffer.waiting.is_empty() || buffer.parks_until(now).is_some()
        });
    }

    /// Notes that a fetch of a queue's timers from the store has ended. `taken` is the number of fetched timers, and
    /// `fewer` the number of expected timers that the fetch did not bring.
    pub(super) fn end_fetch(&mut self, reason: &Reason, taken: usize, fewer: usize) {
        if let Some(buffer) = self.by_reason.get_mut(reason) {
            let missing = taken.saturating_sub(buffer.early.at(Instant::now()));
            (buffer.is_fetching, buffer.early) = (false, Coming::default());
            // A timer of an earlier fetch that has never arrived must not hold up the timers of this fetch.
            buffer.missing = Coming::default();
            buffer.missing.more(missing, ASSEMBLY);
            buffer.coming.fewer(fewer);
            // The store has answered, so the fetched timers must arrive soon. A lost timer must not count for the rest
            // of `LONGEST_FETCH`.
            buffer.coming.more(0, ON_THE_WAY);
        }
    }

    /// Returns the number of fetched timers on their way to a queue, and the moment until which they are expected.
    pub(super) fn coming(&self, reason: &Reason) -> Coming {
        self.by_reason.get(reason).map_or_else(Coming::default, |buffer| buffer.coming)
    }

    /// If the queue expects fetched timers, counts an arriving timer as one of them. Returns whether the timer was
    /// counted.
    pub(super) fn has_come(&mut self, reason: &Reason) -> bool {
        let buffer = self.by_reason.get_mut(reason);
        let Some(buffer) = buffer.filter(|buffer| buffer.coming.at(Instant::now()) > 0) else { return false };
        buffer.coming.fewer(1);
        match buffer.missing.at(Instant::now()) {
            0 if buffer.is_fetching => buffer.early.more(1, ASSEMBLY),
            0 => {}
            _ => buffer.missing.fewer(1),
        }
        true
    }

    /// Returns whether a queue's buffer has got all timers of the fetches that have brought timers. If not, a timer
    /// that is due earlier may still arrive.
    pub(super) fn is_assembled(&self, reason: &Reason) -> bool {
        let now = Instant::now();
        let buffer = self.by_reason.get(reason);
        buffer.is_none_or(|buffer| buffer.missing.at(now) == 0 && buffer.early.at(now) == 0)
    }

    /// Returns the moment until which a fetch from a queue should wait, because the store may still be parking timers
    /// that have left the queue's buffer.
    pub(super) fn parks_until(&self, reason: &Reason, now: Instant) -> Option<Instant> {
        self.by_reason.get(reason)?.parks_until(now)
    }

    /// Notes that the timer with this key leaves the buffer of its queue to be parked. Returns the timers of this
    /// buffer that are due later. They stop waiting once the returned value is dropped. If they stayed, a receiver
    /// could get them before the timer that is being parked.
    pub(super) fn park_from(&mut self, reason: &Reason, key: BufferKey) -> impl Sized + use<> {
        self.by_reason.get_mut(reason).map(|buffer| {
            buffer.parks_until = Some(Instant::now() + PARKING);
            buffer.waiting.split_off(&key)
        })
    }

    /// Puts a timer into the buffer of its queue. The returned channel gets a message when a receiver comes to the
    /// queue.
    pub(super) fn enter(&mut self, reason: &Reason, key: BufferKey) -> oneshot::Receiver<()> {
        let (sender, woken) = oneshot::channel();
        self.by_reason.entry(reason.clone()).or_default().waiting.insert(key, sender);
        woken
    }

    /// Removes a timer from the buffer of its queue. Returns whether the timer was in the buffer.
    pub(super) fn leave(&mut self, reason: &Reason, key: BufferKey) -> bool {
        self.by_reason.get_mut(reason).is_some_and(|buffer| buffer.waiting.remove(&key).is_some())
    }

    /// Wakes at most `most` timers in the buffer of a queue, in the order of their due moments. Returns the number of
    /// timers that it woke.
    pub(super) fn wake(&mut self, reason: &Reason, most: usize) -> usize {
        let mut woken = 0;
        while woken < most
            && let Some(buffer) = self.by_reason.get_mut(reason)
            && let Some((_, waiting)) = buffer.waiting.pop_first()
        {
            // If the wait of a timer has just ended, the message fails, and the next timer is woken instead.
            woken += usize::from(waiting.send(()).is_ok());
        }
        woken
    }

    /// Returns whether all buffers are empty.
    #[cfg(test)]
    pub(super) fn are_empty(&self) -> bool {
        self.by_reason.values().all(|buffer| buffer.waiting.is_empty())
    }
}

impl Buffer {
    fn parks_until(&self, now: Instant) -> Option<Instant> {
        self.parks_until.filter(|until| now < *until)
    }
}
