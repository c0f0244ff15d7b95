//! The state of all pull queues: the receivers that wait, the timers on their way to them, and the open claims.

use crate::delivery::parked_index::ParkedIndex;
use crate::delivery::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};
use tourbillon_api::{Claim, Moment, Problem, ProblemKind};
use tourbillon_durable::{UtcMillis, Verdict};

/// The time in which an unparked timer should have arrived.
pub(super) const ON_THE_WAY: Duration = Duration::from_secs(1);

/// The pause after which a receiver may ask again if a limit was reached.
pub(super) const AGAIN_MS: u64 = 1_000;

/// The queues of all namespaces: the receivers that wait at them, and the claims that are open.
#[derive(Debug)]
pub(crate) struct PullQueues {
    pub(super) state: Mutex<State>,
    pub(super) parked: Arc<ParkedIndex>,
    pub(super) most_open: usize,
    /// Other nodes park timers of the same queues.
    pub(super) has_others: bool,
}

impl PullQueues {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) is_closed: bool,
    pub(super) by_reason: HashMap<Reason, Queue>,
    pub(super) open: HashMap<Box<str>, OpenEntry>,
    pub(super) ending: HashMap<Box<str>, Ending>,
    pub(super) waiting: usize,
    pub(super) next_receiver: u64,
    pub(super) tenants: HashMap<Box<str>, Tenant>,
    /// The queues whose receivers could not get all that they asked for, since a namespace had its share of claims.
    pub(super) starved: HashSet<Reason>,
    pub(super) buffers: HashMap<Reason, Buffer>,
    pub(super) next_buffered: u64,
}

/// Timers that are on their way, and the moment until which they are expected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coming {
    pub(super) timers: usize,
    pub(super) until: Option<Instant>,
}

impl Coming {
    pub(super) fn at(&self, now: Instant) -> usize {
        if self.until.is_some_and(|until| now < until) { self.timers } else { 0 }
    }

    pub(super) fn more(&mut self, timers: usize, within: Duration) {
        let now = Instant::now();
        *self = Self { timers: self.at(now) + timers, until: Some(now + within) };
    }

    pub(super) fn fewer(&mut self, timers: usize) {
        self.timers = self.timers.saturating_sub(timers);
    }
}

/// The fetched timers of a queue for which no receiver waits.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The fetched timers that have not come yet.
    pub(super) coming: Coming,
    /// The senders that wake the timers that wait, by the due moments of these.
    pub(super) waiting: BTreeMap<BufferKey, oneshot::Sender<()>>,
}

/// The due moment of a timer in a buffer, and a number that makes the key unique.
pub(super) type BufferKey = (UtcMillis, u64);

/// A message to a receiver.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is on its way from a timer to a receiver, and nowhere stored"
)]
pub(super) enum Got {
    /// A claim, and the due moment of its timer.
    Claim(Claim, UtcMillis),
    /// Nothing is parked for the queue at any node.
    Nothing,
}

/// The open claims and the waiting receivers of a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tenant {
    pub(super) open: usize,
    pub(super) waiting: usize,
}

impl State {
    pub(super) fn tenant(&self, namespace: &str) -> Tenant {
        self.tenants.get(namespace).copied().unwrap_or_default()
    }

    /// Changes the numbers of a namespace, which are forgotten once both are zero.
    pub(super) fn change(&mut self, namespace: &str, change: impl FnOnce(&mut Tenant)) {
        let mut tenant = self.tenant(namespace);
        change(&mut tenant);
        if tenant.open == 0 && tenant.waiting == 0 {
            self.tenants.remove(namespace);
        } else {
            self.tenants.insert(namespace.into(), tenant);
        }
    }

    /// The number of claims that a namespace may open.
    pub(super) fn free(&self, namespace: &str, most_open: usize) -> usize {
        free_for(self.tenant(namespace).open, most_open.saturating_sub(self.open.len()))
    }

    /// Wakes the first timer in a buffer, if a receiver waits.
    pub(super) fn wake_one(&mut self, reason: &Reason) {
        let Some(queue) = self.by_reason.get_mut(reason).filter(|queue| !queue.receivers.is_empty()) else {
            return;
        };
        while let Some(buffer) = self.buffers.get_mut(reason)
            && let Some((_, waiting)) = buffer.waiting.pop_first()
        {
            if waiting.send(()).is_ok() {
                queue.coming.more(1, ON_THE_WAY);
                return;
            }
        }
    }

    /// Removes an open claim.
    pub(super) fn remove(&mut self, claim: &str) -> Option<OpenEntry> {
        let open = self.open.remove(claim)?;
        self.change(&open.namespace, |tenant| tenant.open = tenant.open.saturating_sub(1));
        Some(open)
    }
}

/// The receivers that wait at a queue, and the timers that were unparked for them and have not arrived.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) receivers: VecDeque<Receiver>,
    pub(super) coming: Coming,
    /// The timers that have found a receiver and are not handed over yet.
    pub(super) arriving: usize,
}

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) number: u64,
    pub(super) max: usize,
    /// The rest of `max`.
    pub(super) wants: usize,
    pub(super) sender: mpsc::UnboundedSender<Got>,
}

impl Queue {
    pub(super) fn wants(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.wants).sum()
    }
}

/// A receiver's request about its open claim.
#[derive(Debug)]
pub(crate) enum ClaimRequest {
    /// The delivery's end. The receiver gets its answer once the store has the end.
    End(Verdict, EndTicket),
    /// More time. The sender gets the moment at which the time is over.
    Renew(oneshot::Sender<Moment>),
}

#[derive(Debug)]
pub(super) struct OpenEntry {
    pub(super) namespace: Box<str>,
    pub(super) requests: mpsc::UnboundedSender<ClaimRequest>,
}

/// The outcome of an end that a receiver has asked for; `None` until it is known.
pub(super) type EndAnswer = Option<Result<(), Problem>>;

/// A claim whose end is on its way to the store.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) namespace: Box<str>,
    pub(super) verdict: Verdict,
    pub(super) answer: watch::Receiver<EndAnswer>,
}

/// The right to answer a receiver that has ended a claim. If it is dropped without an answer, the receiver learns that
/// no such claim is open here.
#[derive(Debug)]
pub(crate) struct EndTicket {
    pub(super) queues: Arc<PullQueues>,
    pub(super) claim: Box<str>,
    pub(super) answer: watch::Sender<EndAnswer>,
}

impl EndTicket {
    /// The store has the end.
    pub(crate) fn stored(self) {
        self.answer.send_replace(Some(Ok(())));
    }

    /// The delivery had ended before.
    pub(crate) fn came_late(self) {
        self.answer.send_replace(Some(Err(ended())));
    }

    /// The store did not answer, and is not asked again.
    pub(crate) fn lost(self) {
        let detail =
            "the store did not say whether it has the end; if it has not, the timer is delivered again";
        self.answer.send_replace(Some(Err(unknown(detail))));
    }
}

impl Drop for EndTicket {
    fn drop(&mut self) {
        self.queues.lock().ending.remove(&self.claim);
    }
}

/// The problem of a claim that is not open.
pub(crate) fn ended() -> Problem {
    Problem::new(ProblemKind::ClaimEnded, "it was acknowledged or refused, or its time is over")
}

pub(super) fn unknown(detail: &str) -> Problem {
    Problem::new(ProblemKind::StoreUnavailable, detail).with_unknown_outcome().with_retry_after_ms(AGAIN_MS)
}
