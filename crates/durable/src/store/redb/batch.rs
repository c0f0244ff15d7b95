//! Collects the answers and due moments of a batch while its requests run, and sends the answers later.

use super::pipe::send;
use super::request::{Done, Pending};
use crate::store::Durability;
use crate::store::error::StoreError;
use core::mem;
use tourbillon_words::UtcMillis;

/// Collects the answers to the requests of a batch. Also stores the earliest due moment of the batch's new pending
/// timers, and the due moment of the next timer in the answers to the batch's claims. From these moments, the store
/// decides whether it must wake its subscribers. A woken subscriber claims again.
pub(super) struct Batch {
    /// The answers that do not wait for the disk.
    answers: Vec<Pending>,
    /// The answers that wait until the changes are on the disk.
    durable: Vec<Pending>,
    /// The answers to requests that failed, and whose changes were undone.
    refusals: Vec<Pending>,
    /// The highest durability for which a request of the batch asks.
    durability: Durability,
    /// The earliest due moment of the pending timers that the batch has stored. `None` without such timers.
    first_due: Option<UtcMillis>,
    /// The moment at which the next timer is due, from the answers to the batch's claims. If the answers differ, this
    /// is the latest moment. `None` if the batch has no claims. `Some(None)` if an answer has no such moment.
    claimed: Option<Option<UtcMillis>>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            answers: Vec::new(),
            durable: Vec::new(),
            refusals: Vec::new(),
            durability: Durability::Volatile,
            first_due: None,
            claimed: None,
        }
    }

    /// Adds the result of a request that has succeeded.
    pub(super) fn add(&mut self, done: Done) {
        self.durability = self.durability.max(done.durability);
        match done.durability {
            Durability::PowerLoss => self.durable.push(done.pending),
            Durability::ProcessCrash | Durability::Volatile => self.answers.push(done.pending),
        }
        if let Some(next_due) = done.next_due {
            // `None` counts as later than all moments.
            let order = |moment: Option<UtcMillis>| moment.map_or((1, None), |at| (0, Some(at)));
            // A subscriber sleeps until the moment in its answer. The latest moment is kept, because the subscriber
            // that sleeps longest must be woken, too.
            self.claimed = Some(match self.claimed {
                Some(other) if order(other) > order(next_due) => other,
                _ => next_due,
            });
        }
    }

    /// Adds the answer of a request that has failed.
    pub(super) fn refuse(&mut self, pending: Pending) {
        self.refusals.push(pending);
    }

    /// Notes the earliest due moment of the pending timers that the batch has stored.
    pub(super) fn note_due(&mut self, first: Option<UtcMillis>) {
        self.first_due = first;
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn has_claims(&self) -> bool {
        self.claimed.is_some()
    }

    /// Takes the answers that wait for the disk.
    pub(super) fn take_durable(&mut self) -> Vec<Pending> {
        mem::take(&mut self.durable)
    }

    /// Gives answers of [`take_durable`](Self::take_durable) back to the batch, because the disk already has the
    /// changes that these answers confirm. The next [`send`](Self::send) sends these answers.
    pub(super) fn put_durable(&mut self, answers: Vec<Pending>) {
        self.durable = answers;
    }

    /// Sends all answers that this batch still has. If `error` is given, each caller gets the error instead of the
    /// result.
    pub(super) fn send(&mut self, error: Option<&StoreError>) {
        for answers in [&mut self.answers, &mut self.durable, &mut self.refusals] {
            send(mem::take(answers), error);
        }
    }

    /// Returns the moment at which the next timer is due, from the answers to the batch's claims. If the answers
    /// differ, returns the latest moment. If the batch has no claims, returns `before`, the moment from earlier
    /// batches.
    pub(super) fn next_due(&self, before: Option<UtcMillis>) -> Option<UtcMillis> {
        self.claimed.unwrap_or(before)
    }

    /// Returns whether the store must wake its subscribers. The answer to a claim tells a subscriber when the next
    /// timer is due, and the subscriber waits until this moment. If this batch has stored a timer that is due earlier,
    /// the store must wake the subscribers. The claim may belong to this batch or to an earlier batch. `before` is the
    /// moment that the answers to the claims of earlier batches contained.
    pub(super) fn is_due_earlier(&self, before: Option<UtcMillis>) -> bool {
        let is_earlier = |than: Option<UtcMillis>| {
            self.first_due.is_some_and(|first| than.is_none_or(|than| first < than))
        };
        is_earlier(before) || self.claimed.is_some_and(is_earlier)
    }
}
