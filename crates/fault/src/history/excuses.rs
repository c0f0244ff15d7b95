//! The excuses of a fault: the duplicates, and the losses of timers delivered at most once, that it explains.
//!
//! A delivery is repeated if the store has not learned of its end when its lease has ended. A holder renews its leases
//! at each third of their length, so it takes a holder that is dead, or an outage of two thirds, to end a lease. Half a
//! lease is asked for here, since the history does not say when the last renewal was. An outage that began more than a
//! lease after the delivery comes too late: the end was stored long before.
//!
//! | cause | the delivery is repeated if |
//! |---|---|
//! | `Kill` | its node was killed within a lease from its start, and half a lease passed before the repetition |
//! | all others, together | the node, its network or the servers were out for half a lease, from a lease before the start of the delivery up to the repetition |
//! | `Server`, `Failover` with losses that the terms permit | the loss may have met the answer to its end |
//! | `Failover`, if it may lose ends | the delivery began within a second before it, or within it |
//! | `Pause` of the node that repeats | the node was stopped between its last look at the lease and the handler's first line: one delivery for each pause |
//!
//! The outage of a fault is longer than the fault: see [`Excuses::aftermath`].

use super::terms::Terms;
use super::{Cause, Delivery, Fault, Moment};

/// The greatest lateness of a claim that waits for nothing but the machine.
const BUSY: Moment = 2_000_000;

/// How far a replica is behind its primary at most, on a machine that is busy, and how long a handler runs at most.
const BEHIND: Moment = 1_000_000;

/// The time after a pause within which a handler begins that was about to begin before the pause.
const AT_ONCE: Moment = 1_000_000;

pub(super) struct Excuses<'a> {
    terms: &'a Terms,
    faults: &'a [Fault],
    /// The number of limited excuses that each fault has given.
    taken: Vec<usize>,
}

/// The time that the spans cover together.
fn covered(mut spans: Vec<(Moment, Moment)>) -> Moment {
    spans.sort_unstable();
    let (mut end, mut sum) = (0, 0);
    for (from, until) in spans {
        sum += until.saturating_sub(from.max(end));
        end = end.max(until);
    }
    sum
}

fn is_of(fault: &Fault, node: &str) -> bool {
    fault.node.as_deref().is_none_or(|hit| hit == node)
}

impl<'a> Excuses<'a> {
    pub(super) fn new(terms: &'a Terms, faults: &'a [Fault]) -> Self {
        Self { terms, faults, taken: vec![0; faults.len()] }
    }

    /// The time after a fault in which its effects go on. A client waits for a reply that does not come, and TCP pauses
    /// between its attempts for as long as a cut has lasted.
    fn aftermath(&self, fault: &Fault) -> Moment {
        match fault.cause {
            Cause::Kill | Cause::Pause => 0,
            Cause::Server | Cause::Failover => self.terms.response,
            Cause::Network => self.terms.response + (fault.until - fault.from),
        }
    }

    /// The reason why a delivery was repeated.
    pub(super) fn of_duplicate(&mut self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        self.killed(first, again)
            .or_else(|| self.out(first, again))
            .or_else(|| self.forgotten(first))
            .or_else(|| self.not_at_the_replica(first, again))
            .or_else(|| self.resumed(first, again))
    }

    fn killed(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let lease = self.terms.lease;
        let is_meant = |fault: &&Fault| {
            fault.cause == Cause::Kill
                && fault.node.as_ref() == Some(&first.node)
                && (first.begun..=again.begun.min(first.begun + lease)).contains(&fault.from)
                && first.begun + lease / 2 <= again.begun
        };
        self.faults.iter().find(is_meant).map(|fault| fault.cause)
    }

    /// The fault with the longest part, if the node of the first delivery was out for long enough.
    fn out(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let lease = self.terms.lease;
        let span = |fault: &Fault| {
            let from = fault.from.max(first.begun.saturating_sub(lease));
            (from, (fault.until + self.aftermath(fault)).min(again.begun).max(from))
        };
        let meant = self.faults.iter().filter(|fault| {
            fault.cause != Cause::Kill && is_of(fault, &first.node) && fault.from <= first.begun + lease
        });
        let spans: Vec<_> = meant.map(|fault| (span(fault), fault.cause)).collect();
        let is_enough = covered(spans.iter().map(|(span, _)| *span).collect()) >= lease / 2;
        let longest = spans.into_iter().max_by_key(|((from, until), _)| until - from);
        longest.filter(|_| is_enough).map(|(_, cause)| cause)
    }

    /// Servers that have lost the end of the delivery, as the terms permit.
    fn forgotten(&self, first: &Delivery) -> Option<Cause> {
        let lease = self.terms.lease;
        let windows = self.terms.lossy.iter().filter(|(from, until)| {
            (from.saturating_sub(lease)..=until.saturating_add(lease)).contains(&first.begun)
        });
        let fault = |(from, until): &(Moment, Moment)| {
            let is_meant = |fault: &&Fault| {
                matches!(fault.cause, Cause::Server | Cause::Failover)
                    && fault.from <= *until
                    && *from <= fault.until
            };
            self.faults.iter().find(is_meant)
        };
        windows.filter_map(fault).map(|fault| fault.cause).next()
    }

    /// A failover to a replica that did not have the end of the delivery yet.
    fn not_at_the_replica(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let is_meant = |fault: &&Fault| {
            fault.cause == Cause::Failover
                && (fault.from.saturating_sub(BEHIND)..=fault.until).contains(&first.begun)
                && fault.from <= again.begun
        };
        self.faults.iter().find(is_meant).filter(|_| self.terms.loses_ends).map(|fault| fault.cause)
    }

    fn resumed(&mut self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let is_meant = |fault: &Fault| {
            fault.cause == Cause::Pause
                && fault.node.as_ref() == Some(&again.node)
                && fault.until - fault.from >= self.terms.lease / 2
                && (fault.from..=fault.until).contains(&first.begun)
                && (fault.from..=fault.until + AT_ONCE).contains(&again.begun)
        };
        let place =
            (0..self.faults.len()).find(|place| self.taken[*place] == 0 && is_meant(&self.faults[*place]))?;
        self.taken[place] += 1;
        Some(Cause::Pause)
    }

    /// Whether the servers may have lost the claim before this delivery, as the terms permit. Its timer is delivered at
    /// most once.
    pub(super) fn is_claim_forgotten(&self, first: &Delivery) -> bool {
        let lossy = |(from, until): &(Moment, Moment)| {
            (*from..=until.saturating_add(self.terms.lease)).contains(&first.begun)
        };
        self.terms.lossy.iter().any(lossy)
    }

    /// Takes timers that are delivered at most once and were not delivered, each with the moments between which it was
    /// due. Returns the number of those that a fault explains, and the other timers.
    ///
    /// A claim takes such a timer out of the store. It is lost if the answer is, or if the node dies, or stands still
    /// for a lease, before it calls the handler.
    pub(super) fn of_losses<T>(&mut self, mut lost: Vec<((Moment, Moment), T)>) -> (usize, Vec<T>) {
        lost.sort_by_key(|(due, _)| *due);
        self.taken.fill(0);
        let mut places: Vec<usize> = (0..self.faults.len()).collect();
        // The fault that ends first has the fewest timers to choose from.
        places.sort_by_key(|place| self.faults[*place].until);
        let (mut excused, mut rest) = (0, Vec::new());
        for (due, timer) in lost {
            let room = |place: usize| match self.faults[place].node {
                Some(_) => self.taken[place] < self.terms.workers,
                None => true,
            };
            let place =
                places.iter().copied().find(|place| self.meets(&self.faults[*place], due) && room(*place));
            match place {
                Some(place) => {
                    self.taken[place] += 1;
                    excused += 1;
                }
                None => rest.push(timer),
            }
        }
        (excused, rest)
    }

    fn meets(&self, fault: &Fault, (from, until): (Moment, Moment)) -> bool {
        let Terms { lease, ttl, .. } = self.terms;
        let ends_no_lease = fault.cause == Cause::Pause && fault.until - fault.from < lease / 2;
        // A timer in the shard of a node that was away before has waited for another node to take the shard.
        let is_away = |other: &&Fault| {
            other.from < fault.from && fault.from <= other.until + self.aftermath(other) + ttl + BUSY
        };
        let late = if self.faults.iter().any(|other| is_away(&other)) { ttl + BUSY } else { BUSY };
        !ends_no_lease
            && fault.from <= until.saturating_add(late)
            && from <= fault.until + self.aftermath(fault)
    }
}
