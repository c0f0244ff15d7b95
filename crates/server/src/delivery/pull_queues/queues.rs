//! The queues of all namespaces: receivers, buffers and open claims under one lock.

use super::buffers::Buffers;
use super::coming::ON_THE_WAY;
use super::endings::Endings;
use super::open_claims::OpenClaims;
use super::receivers::{Queue, Receivers};
use crate::delivery::parked_index::ParkedIndex;
use crate::delivery::permits::Wanted;
use crate::delivery::reason::Reason;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The timers that a fetch takes beyond the requests of receivers: a multiple of the largest request, and a limit.
const SPARE: (usize, usize) = (7, 350);

/// The queues of all namespaces: the receivers that wait at them, and the claims that are open.
#[derive(Debug)]
pub(crate) struct PullQueues {
    state: Mutex<State>,
    pub(super) endings: Arc<Endings>,
    pub(super) parked: Arc<ParkedIndex>,
    /// Other nodes park timers of the same queues.
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
    /// Wakes the first timer in a buffer, if a receiver waits.
    pub(super) fn wake_one(&mut self, reason: &Reason) {
        if let Some(queue) = self.receivers.queue_mut(reason).filter(|queue| queue.len() > 0) {
            queue.note_woken(self.buffers.wake(reason, 1));
        }
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

    /// The number of parked timers of a queue for which there is room at its receivers.
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
        match (wants.saturating_sub(queue.awaited(now) + fetched.at(now)), until) {
            (0, Some(until)) if wants > 0 => Wanted::At(until),
            (0, _) => Wanted::Nothing,
            (timers, _) => Wanted::Now(timers),
        }
    }

    // --- Beside other nodes ---

    /// Notes that a fetch begins, whose timers may come before its answer. Returns the greatest number that it takes.
    pub(crate) fn begin_fetch(&self, reason: &Reason, wanted: usize) -> usize {
        let mut state = self.lock();
        state.buffers.forget_unused();
        let largest = state.receivers.queue(reason).map_or(0, Queue::largest);
        // Timers for which the namespace may not open a claim would be parked again.
        let free = state.claims.free_at(reason);
        let spare = largest.saturating_mul(SPARE.0).min(SPARE.1).min(free.saturating_sub(wanted));
        let most = wanted + spare;
        if !state.is_closed {
            state.buffers.begin_fetch(reason, most);
        }
        most
    }

    /// Notes how many timers a fetch has taken, of the greatest number.
    pub(crate) fn end_fetch(&self, reason: &Reason, most: usize, taken: usize) {
        self.lock().buffers.end_fetch(reason, most.saturating_sub(taken));
    }

    /// Whether timers that were unparked for the receivers of a queue have not arrived, or are about to be handed over.
    pub(super) fn awaits(&self, reason: &Reason) -> bool {
        self.lock().receivers.queue(reason).is_some_and(|queue| queue.awaited(Instant::now()) > 0)
    }

    /// The numbers of receivers that wait, by queue.
    pub(crate) fn receivers(&self) -> Vec<(Reason, u64)> {
        let state = self.lock();
        state.receivers.awaited().map(|(reason, queue)| (reason.clone(), queue.len() as u64)).collect()
    }

    /// The queues at which receivers wait.
    pub(crate) fn awaited(&self) -> Vec<Reason> {
        self.lock().receivers.awaited().map(|(reason, _)| reason.clone()).collect()
    }

    /// Takes the news that any node has parked a timer for this reason. Without a reason, such news may have been
    /// missed.
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

    /// Tells the receivers of a queue that nothing is parked for it: receivers that do not want to wait go.
    pub(crate) fn nothing_is_parked(&self, reason: &Reason) {
        let (state, now) = (self.lock(), Instant::now());
        let coming = state.buffers.coming(reason).at(now);
        if let Some(queue) = state.receivers.queue(reason).filter(|queue| coming + queue.awaited(now) == 0) {
            queue.send_nothing();
        }
    }

    /// Notes that this number of timers is about to be unparked for a queue.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().receivers.queue_mut(reason) {
            queue.coming.more(timers, ON_THE_WAY);
        }
    }

    /// Notes that this number of expected timers was not unparked.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().receivers.queue_mut(reason) {
            queue.coming.fewer(timers);
        }
    }

    /// The number of open claims.
    pub(crate) fn open(&self) -> usize {
        self.lock().claims.len()
    }

    /// Sends all receivers away and gives the timers of open claims back.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = (state.receivers.close(), state.claims.close(), state.buffers.close());
        drop(state);
        // Dropped outside of the lock: the handlers see that nobody can end their claims any more, and take the lock.
        drop(left);
    }
}
