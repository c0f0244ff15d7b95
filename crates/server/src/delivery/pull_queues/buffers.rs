//! The buffers: fetched timers that wait for a receiver.

use super::coming::{Coming, ON_THE_WAY};
use crate::delivery::reason::Reason;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use tokio::sync::oneshot;
use tourbillon_durable::UtcMillis;

/// The time within which a fetch ends.
const LONGEST_FETCH: Duration = Duration::from_secs(30);

/// The due moment of a timer in a buffer, and a number that makes the key unique.
pub(super) type BufferKey = (UtcMillis, u64);

/// The buffers of all queues.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    by_reason: HashMap<Reason, Buffer>,
    next: u64,
}

/// The buffer of a queue.
#[derive(Debug, Default)]
struct Buffer {
    /// The fetched timers that have not come yet.
    coming: Coming,
    /// The senders that wake the timers that wait, by the due moments of these.
    waiting: BTreeMap<BufferKey, oneshot::Sender<()>>,
}

impl Buffers {
    /// The key of a timer that may enter a buffer.
    pub(super) fn key(&mut self, due: UtcMillis) -> BufferKey {
        let number = self.next;
        self.next += 1;
        (due, number)
    }

    /// Notes that a fetch of at most `most` timers begins.
    pub(super) fn begin_fetch(&mut self, reason: &Reason, most: usize) {
        self.by_reason.entry(reason.clone()).or_default().coming.more(most, LONGEST_FETCH);
    }

    /// Takes all buffers away. Later keys stay unique.
    pub(super) fn close(&mut self) -> impl Sized + use<> {
        core::mem::take(&mut self.by_reason)
    }

    /// Forgets the buffers without timers.
    pub(super) fn forget_unused(&mut self) {
        let now = Instant::now();
        self.by_reason.retain(|_, buffer| buffer.coming.at(now) > 0 || !buffer.waiting.is_empty());
    }

    /// Notes that a fetch has ended, `fewer` timers below the greatest number.
    pub(super) fn end_fetch(&mut self, reason: &Reason, fewer: usize) {
        if let Some(buffer) = self.by_reason.get_mut(reason) {
            buffer.coming.fewer(fewer);
            buffer.coming.more(0, ON_THE_WAY);
        }
    }

    /// The fetched timers of a queue that have not come yet.
    pub(super) fn coming(&self, reason: &Reason) -> Coming {
        self.by_reason.get(reason).map_or_else(Coming::default, |buffer| buffer.coming)
    }

    /// Counts a timer as fetched, if fetched timers are expected. Returns whether it is.
    pub(super) fn has_come(&mut self, reason: &Reason) -> bool {
        let buffer = self.by_reason.get_mut(reason);
        let Some(buffer) = buffer.filter(|buffer| buffer.coming.at(Instant::now()) > 0) else { return false };
        buffer.coming.fewer(1);
        true
    }

    /// Puts a timer into the buffer of its queue. The receiver of the channel is woken for a receiver of the queue.
    pub(super) fn enter(&mut self, reason: &Reason, key: BufferKey) -> oneshot::Receiver<()> {
        let (sender, woken) = oneshot::channel();
        self.by_reason.entry(reason.clone()).or_default().waiting.insert(key, sender);
        woken
    }

    /// Takes a timer out of the buffer. Returns whether it was there.
    pub(super) fn leave(&mut self, reason: &Reason, key: BufferKey) -> bool {
        self.by_reason.get_mut(reason).is_some_and(|buffer| buffer.waiting.remove(&key).is_some())
    }

    /// Wakes at most `most` timers in the buffer, the longest due first. Returns their number.
    pub(super) fn wake(&mut self, reason: &Reason, most: usize) -> usize {
        let mut woken = 0;
        while woken < most
            && let Some(buffer) = self.by_reason.get_mut(reason)
            && let Some((_, waiting)) = buffer.waiting.pop_first()
        {
            woken += usize::from(waiting.send(()).is_ok());
        }
        woken
    }

    /// Whether no timer waits in any buffer.
    #[cfg(test)]
    pub(super) fn are_empty(&self) -> bool {
        self.by_reason.values().all(|buffer| buffer.waiting.is_empty())
    }
}
