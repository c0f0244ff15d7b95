//! The queues from which receivers fetch timers by long polls.
//!
//! A timer with a queue goes to the receiver that has waited longest, and is parked if no receiver waits. A new
//! receiver has parked timers unparked, as many as it asks for. After the hand-over, the future of the handler keeps
//! the timer's lease until the receiver acknowledges or refuses the timer, or its time is over.
//!
//! ```text
//!   timer is due ── a receiver waits ──► open claim ── ack ──► done
//!       │    ▲                            │   │  └──── nack, time over ──► failed: again after the pause
//!       │    └───── unpark ◄──────┐       │   └─── renew: more time, up to an hour in all
//!       └── none waits ──► parked ┴───────┘ the receiver has gone before it got the claim; the service stops
//! ```
//!
//! # Beside other nodes
//! The timers of a queue are parked in shards of all nodes. So a new receiver has them *fetched*: the queue claims them
//! at any node ([`Timers::fetch`](tourbillon_durable::Timers::fetch)), and a park at any node makes the nodes with
//! receivers fetch again. A fetch takes more than the receivers ask for if many timers are parked, since a larger fetch
//! costs the server less for each timer. A fetched timer without a receiver waits in the queue's *buffer* for the next
//! receiver, the longest due first, and is parked again after a second. A receiver that does not want to wait is sent
//! away as soon as a fetch has found nothing.
//!
//! ```text
//!   fetched ── a receiver waits ──► open claim
//!      │                             ▲   │ another timer was quicker, or the receiver has gone
//!      │                             │   ▼
//!      └─────── none waits ────────► buffer ── a second is over, the service stops ──► parked: all nodes learn
//! ```
//!
//! A timer looks for a receiver and enters the buffer under one lock. So no timer waits in the buffer beside a receiver
//! that asks for more timers than are about to be handed over. If such a timer goes away instead, it wakes the first
//! timer in the buffer.
//!
//! # The end of a claim
//! An `ack` and a `nack` are answered once the store has the end of the delivery. The claim is *ending* until then:
//!
//! ```text
//!   open ── ack, nack ──► ending ── the store has this end ──► answered: done
//!                           │  ├─── the lease was lost, or another end came first ──► answered: the claim had ended
//!                           │  ├─── the store did not answer ──► answered: the outcome is not known
//!                           │  └─── the handler was dropped ──► this process has no such claim
//!                           └── the same end again ──► waits for the same answer; another end: the claim has ended
//! ```
//!
//! A caller that has waited for 8 s gets the answer that the outcome is not known. The end goes on.
//!
//! # Shares
//! A namespace has a share ([`free_for`](crate::share::free_for)) of the open claims and of the receivers that wait.
//!
//! No wake-up is lost between a timer that is about to be parked and a new receiver: see
//! [`ParkedIndex`](super::parked_index).

mod arrival;
mod claim;
mod poll;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use claim::OpenClaim;
pub(super) use state::ended;
pub(crate) use state::{ClaimRequest, EndTicket, PullQueues};

use super::parked_index::ParkedIndex;
use super::permits::Wanted;
use super::reason::Reason;
use core::time::Duration;
use state::{Buffer, Coming, Got, ON_THE_WAY, Queue};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The time within which a fetch ends.
const LONGEST_FETCH: Duration = Duration::from_secs(30);
/// The timers that a fetch takes beyond the requests of receivers: a multiple of the largest request, and a limit.
const SPARE: (usize, usize) = (7, 350);

impl PullQueues {
    pub(crate) fn new(parked: Arc<ParkedIndex>, most_open: usize, has_others: bool) -> Self {
        Self { state: Mutex::default(), parked, most_open, has_others }
    }

    /// The number of parked timers of a queue for which there is room at its receivers.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let mut state = self.lock();
        let Some(queue) = state.by_reason.get(reason).filter(|_| !state.is_closed) else {
            return Wanted::Nothing;
        };
        let free = match reason {
            Reason::Queue(namespace, _) => state.free(namespace, self.most_open),
            _ => 0,
        };
        let (asked, arriving, unparked) = (queue.wants(), queue.arriving, queue.coming);
        let fetched = state.buffers.get(reason).map_or_else(Coming::default, |buffer| buffer.coming);
        if free < asked {
            state.starved.insert(reason.clone());
        }
        let wants = asked.min(free);
        let coming = [unparked, fetched].into_iter().filter(|coming| coming.at(now) > 0);
        let until = coming.filter_map(|coming| coming.until).min();
        match (wants.saturating_sub(arriving + unparked.at(now) + fetched.at(now)), until) {
            (0, Some(until)) if wants > 0 => Wanted::At(until),
            (0, _) => Wanted::Nothing,
            (timers, _) => Wanted::Now(timers),
        }
    }

    // --- Beside other nodes ---

    /// Notes that a fetch begins, whose timers may come before its answer. Returns the greatest number that it takes.
    pub(crate) fn begin_fetch(&self, reason: &Reason, wanted: usize) -> usize {
        let now = Instant::now();
        let mut state = self.lock();
        let is_of_use = |buffer: &Buffer| buffer.coming.at(now) > 0 || !buffer.waiting.is_empty();
        state.buffers.retain(|_, buffer| is_of_use(buffer));
        let receivers = state.by_reason.get(reason).into_iter().flat_map(|queue| &queue.receivers);
        let largest = receivers.map(|receiver| receiver.max).max().unwrap_or(0);
        // Timers for which the namespace may not open a claim would be parked again.
        let free = match reason {
            Reason::Queue(namespace, _) => state.free(namespace, self.most_open),
            _ => 0,
        };
        let spare = largest.saturating_mul(SPARE.0).min(SPARE.1).min(free.saturating_sub(wanted));
        let most = wanted + spare;
        if !state.is_closed {
            state.buffers.entry(reason.clone()).or_default().coming.more(most, LONGEST_FETCH);
        }
        most
    }

    /// Notes that a fetch has taken `taken` timers, of at most `most`.
    pub(crate) fn end_fetch(&self, reason: &Reason, most: usize, taken: usize) {
        if let Some(buffer) = self.lock().buffers.get_mut(reason) {
            buffer.coming.fewer(most.saturating_sub(taken));
            buffer.coming.more(0, ON_THE_WAY);
        }
    }

    /// Whether timers that were unparked for the receivers of a queue have not arrived, or are about to be handed over.
    pub(super) fn awaits(&self, reason: &Reason) -> bool {
        let state = self.lock();
        state.by_reason.get(reason).is_some_and(|queue| queue.coming.at(Instant::now()) + queue.arriving > 0)
    }

    /// The numbers of receivers that wait, by queue.
    pub(crate) fn receivers(&self) -> Vec<(Reason, u64)> {
        let state = self.lock();
        let queues = state.by_reason.iter().filter(|(_, queue)| !queue.receivers.is_empty());
        queues.map(|(reason, queue)| (reason.clone(), queue.receivers.len() as u64)).collect()
    }

    /// The queues at which receivers wait.
    pub(crate) fn awaited(&self) -> Vec<Reason> {
        let state = self.lock();
        let awaited = state.by_reason.iter().filter(|(_, queue)| !queue.receivers.is_empty());
        awaited.map(|(reason, _)| reason.clone()).collect()
    }

    /// Takes the news that any node has parked a timer for this reason. Without a reason, such news may have been
    /// missed.
    pub(crate) fn heard(&self, reason: Option<&Reason>) {
        match reason {
            Some(reason) => {
                self.parked.heard(reason);
                let is_awaited =
                    self.lock().by_reason.get(reason).is_some_and(|queue| !queue.receivers.is_empty());
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
        let coming = state.buffers.get(reason).map_or(0, |buffer| buffer.coming.at(now));
        let is_coming = |queue: &Queue| coming + queue.coming.at(now) + queue.arriving > 0;
        if let Some(queue) = state.by_reason.get(reason).filter(|queue| !is_coming(queue)) {
            for receiver in &queue.receivers {
                let _has_gone = receiver.sender.send(Got::Nothing);
            }
        }
    }

    /// Notes that this number of timers is about to be unparked for a queue.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().by_reason.get_mut(reason) {
            queue.coming.more(timers, ON_THE_WAY);
        }
    }

    /// Notes that this number of expected timers was not unparked.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().by_reason.get_mut(reason) {
            queue.coming.fewer(timers);
        }
    }

    /// The number of open claims.
    pub(crate) fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Sends all receivers away and gives the timers of open claims back.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let (queues, open) = (core::mem::take(&mut state.by_reason), core::mem::take(&mut state.open));
        let buffers = core::mem::take(&mut state.buffers);
        for open in open.values() {
            state.change(&open.namespace, |tenant| tenant.open = tenant.open.saturating_sub(1));
        }
        drop(state);
        // Dropped outside of the lock: the handlers see that nobody can end their claims any more, and take the lock.
        drop((queues, open, buffers));
    }
}
