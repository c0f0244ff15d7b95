//! Keeps the receivers, buffers and open claims of all queues under one lock.

use super::buffers::Buffers;
use super::coming::ON_THE_WAY;
use super::endings::Endings;
use super::open_claims::{OpenClaims, OpenEntry};
use super::receivers::{Queue, Receivers};
use crate::delivery::parked_index::ParkedIndex;
use crate::delivery::permits::Wanted;
use crate::delivery::reason::Reason;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The limits of a fetch's spare timers (timers beyond the number that the waiting receivers want). The number of spare
/// timers is at most the first value times the largest request of a waiting receiver. It is also at most the second
/// value.
const SPARE: (usize, usize) = (7, 350);

/// The queues of all namespaces. Each queue has waiting receivers, a buffer of fetched timers, and open claims.
#[derive(Debug)]
pub(crate) struct PullQueues {
    state: Mutex<State>,
    pub(super) endings: Arc<Endings>,
    pub(super) parked: Arc<ParkedIndex>,
    /// True if other nodes share the store. Timers of the queues may then be parked at other nodes.
    pub(super) has_others: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) is_closed: bool,
    pub(super) receivers: Receivers,
    pub(super) buffers: Buffers,
    pub(super) claims: OpenClaims,
}

impl State {
    /// Wakes as many timers in a queue's buffer as the queue's receivers want, in the order of their due moments. The
    /// woken timers look for a receiver again. Wakes none while further timers of the same fetch are on their way,
    /// because one of them may be due earlier. Returns the number of woken timers.
    pub(super) fn hand_out(&mut self, reason: &Reason) -> usize {
        if self.buffers.is_assembled(reason) { self.hand_out_now(reason) } else { 0 }
    }

    /// Does the same as [`hand_out`](Self::hand_out), but does not wait for timers on their way.
    pub(super) fn hand_out_now(&mut self, reason: &Reason) -> usize {
        let Some(queue) = self.receivers.queue_mut(reason) else { return 0 };
        let woken = self.buffers.wake(reason, queue.wants().saturating_sub(queue.awaited(Instant::now())));
        queue.note_woken(woken);
        woken
    }
}

impl PullQueues {
    pub(crate) fn new(parked: Arc<ParkedIndex>, most_open: usize, has_others: bool) -> Self {
        let state = State {
            is_closed: false,
            receivers: Receivers::default(),
            buffers: Buffers::default(),
            claims: OpenClaims::new(most_open),
        };
        Self { state: Mutex::new(state), endings: Arc::default(), parked, has_others }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many parked timers of a queue the unparker may make due again for the waiting receivers.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let mut state = self.lock();
        let State { is_closed, receivers, buffers, claims } = &mut *state;
        let Some(queue) = receivers.queue(reason).filter(|_| !*is_closed) else { return Wanted::Nothing };
        let (asked, free) = (queue.wants(), claims.free_at(reason));
        let (unparked, fetched) = (queue.coming, buffers.coming(reason));
        if free < asked {
            claims.starve(reason);
        }
        let wants = asked.min(free);
        let coming = [unparked, fetched].into_iter().filter(|coming| coming.at(now) > 0);
        let until = coming.filter_map(|coming| coming.until).min();
        let parks_until = buffers.parks_until(reason, now);
        match (wants.saturating_sub(queue.awaited(now) + fetched.at(now)), until) {
            // If the expected timers do not arrive, no event tells the unparker. So the unparker asks again once they
            // no longer count.
            (0, Some(until)) if wants > 0 => Wanted::At(until),
            (0, _) => Wanted::Nothing,
            (timers, _) => parks_until.map_or(Wanted::Now(timers), Wanted::At),
        }
    }

    /// Makes the unparker check whether parked timers of a queue may go to its receivers now. If other nodes share the
    /// store, the check takes place even if this node knows no parked timer of the queue.
    pub(crate) fn look_at(&self, reason: &Reason) {
        match self.has_others {
            true => self.parked.want_if_free(reason),
            false => self.parked.look_at(reason),
        }
    }

    // --- Beside other nodes ---

    /// Begins a fetch of at least `wanted` timers of a queue. Returns the greatest number of timers that the fetch may
    /// take. From now on, this number of timers counts as on the way to the queue, because timers may arrive before the
    /// store's answer.
    pub(crate) fn begin_fetch(&self, reason: &Reason, wanted: usize) -> usize {
        let mut state = self.lock();
        // Each fetch may make a buffer, so unused buffers are removed at each fetch.
        state.buffers.forget_unused();
        let largest = state.receivers.queue(reason).map_or(0, Queue::largest);
        // The namespace could not open claims for more timers, so more timers would be parked again.
        let free = state.claims.free_at(reason);
        let spare = largest.saturating_mul(SPARE.0).min(SPARE.1).min(free.saturating_sub(wanted));
        let most = wanted + spare;
        if !state.is_closed {
            state.buffers.begin_fetch(reason, most);
        }
        most
    }

    /// Ends a fetch that was permitted to take `most` timers of a queue and took `taken`.
    pub(crate) fn end_fetch(&self, reason: &Reason, most: usize, taken: usize) {
        let mut state = self.lock();
        state.buffers.end_fetch(reason, taken, most.saturating_sub(taken));
        state.hand_out(reason);
    }

    /// Returns whether the receivers of a queue should get timers soon: timers are on their way to the queue, or have
    /// found a receiver but are not handed over yet.
    pub(super) fn awaits(&self, reason: &Reason) -> bool {
        self.lock().receivers.queue(reason).is_some_and(|queue| queue.awaited(Instant::now()) > 0)
    }

    /// Returns the queues at which receivers wait, each with the number of its receivers.
    pub(crate) fn receivers(&self) -> Vec<(Reason, u64)> {
        let state = self.lock();
        state.receivers.awaited().map(|(reason, queue)| (reason.clone(), queue.len() as u64)).collect()
    }

    /// Returns the queues at which receivers wait for timers.
    pub(crate) fn awaited(&self) -> Vec<Reason> {
        self.lock().receivers.awaited().map(|(reason, _)| reason.clone()).collect()
    }

    /// Notes that a node has parked a timer for the queue `reason`. If a receiver waits at the queue, makes the
    /// unparker fetch the timer from the store. If `reason` is `None`, any queue may have such a timer, because a
    /// node's report may be lost or the shards of this node have changed. In this case, the unparker fetches timers for
    /// each queue at which a receiver waits.
    pub(crate) fn heard(&self, reason: Option<&Reason>) {
        match reason {
            Some(reason) => {
                self.parked.heard(reason);
                let is_awaited = self.lock().receivers.queue(reason).is_some_and(|queue| queue.len() > 0);
                if is_awaited {
                    self.parked.want(reason);
                }
            }
            None => {
                self.parked.heard_all();
                self.awaited().iter().for_each(|reason| self.parked.want(reason));
            }
        }
    }

    /// Informs the receivers of a queue that no timer is parked for the queue. A receiver that does not want to wait
    /// then leaves. Does nothing if timers are on their way to the queue.
    pub(crate) fn nothing_is_parked(&self, reason: &Reason) {
        let (state, now) = (self.lock(), Instant::now());
        let coming = state.buffers.coming(reason).at(now);
        if let Some(queue) = state.receivers.queue(reason).filter(|queue| coming + queue.awaited(now) == 0) {
            queue.send_nothing();
        }
    }

    /// Notes that parked timers of a queue are about to become due again. `timers` is their number. Until they arrive,
    /// no further timers become due for the same receivers.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().receivers.queue_mut(reason) {
            queue.coming.more(timers, ON_THE_WAY);
        }
    }

    /// Corrects an earlier call of [`expect`](Self::expect): the store made fewer timers due again than expected.
    /// `timers` is the difference.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().receivers.queue_mut(reason) {
            queue.coming.fewer(timers);
        }
    }

    /// Returns the number of open claims.
    pub(crate) fn open(&self) -> usize {
        self.lock().claims.len()
    }

    /// Ends the waits of all receivers, and ends all open claims. The handler of each claimed timer gets a message if a
    /// receiver has already got the claim.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = (state.receivers.close(), state.claims.close(), state.buffers.close());
        drop(state);
        left.1.values().for_each(OpenEntry::stop);
        // The values are dropped outside of the lock, because the drop makes handlers notice that nobody can end their
        // claims, and they then take the lock.
        drop(left);
    }
}
