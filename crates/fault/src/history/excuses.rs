//! Decides which repeated deliveries a fault explains. Also decides which losses of at-most-once timers a fault
//! explains.
//!
//! A delivery is repeated if its lease expires before the store has recorded the end of the delivery. A node renews its
//! leases after each third of their length. So a lease expires only if its node is dead, or cannot reach the store for
//! two thirds of a lease. The check here requires only an outage of half a lease, since the history does not show when
//! the node last renewed the lease. An outage that began more than a lease after the start of the delivery explains
//! nothing, because the store had recorded the end of the delivery long before.
//!
//! | cause | the delivery is repeated if |
//! |---|---|
//! | `Kill` | its node was killed within a lease from its start, or while the request was on its way, and half a lease passed before the repetition |
//! | all others, together | the node, its network or the servers were out for half a lease, from a lease before the start of the delivery up to the repetition |
//! | `Server`, `Failover` with losses that the terms permit | the loss may have erased the end of the delivery |
//! | `Failover`, if [`Terms::loses_ends`], and `Crash` | the delivery began during the fault, within a second before it, or within a third of a lease after it |
//! | `Pause` of the node that repeats | the node was stopped after it last checked the lease and before the handler's first line. Each pause explains only one delivery |
//!
//! An outage lasts longer than the fault that caused it: see [`Excuses::aftermath`].

use super::terms::Terms;
use super::{Cause, Delivery, Fault, Moment};

/// The longest time from a timer's due moment until a node on a busy machine claims the timer (takes it for delivery),
/// in microseconds.
const BUSY: Moment = 2_000_000;

/// The longest time by which a replica lags behind its primary on a busy machine, in microseconds. The same bound holds
/// for two other times. The first is the time from PostgreSQL's answer to a call until its file contains the call's
/// change, if the answer does not wait for the disk. The second is the time that a handler takes.
const BEHIND: Moment = 1_000_000;

/// The longest time from the kill of a node until a busy receiver has read the last callback that the node had sent, in
/// microseconds.
const IN_FLIGHT: Moment = 500_000;

/// The longest time from the end of a node's pause to the start of a handler that the pause held up, in microseconds.
const AT_ONCE: Moment = 1_000_000;

pub(super) struct Excuses<'a> {
    terms: &'a Terms,
    faults: &'a [Fault],
    /// The number of repeated deliveries or lost timers that each fault has explained so far, in the order of `faults`.
    /// If a node runs on after a pause and repeats a delivery, the pause explains only one repeated delivery. A fault
    /// of a node explains at most as many lost timers as the node can deliver at a time ([`Terms::workers`]).
    taken: Vec<usize>,
}

/// Returns the total time that the spans cover. Time that several spans share counts once.
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

    /// Returns how long a fault still has effects after its end. After a lost reply, a client waits for its timeout.
    /// After a cut, TCP may wait as long as the cut lasted before it tries again.
    fn aftermath(&self, fault: &Fault) -> Moment {
        match fault.cause {
            Cause::Kill | Cause::Pause => 0,
            Cause::Server | Cause::Crash | Cause::Failover => self.terms.response,
            Cause::Network => self.terms.response + (fault.until - fault.from),
        }
    }

    /// Returns the kind of the fault that explains the delivery `again`, a repetition of `first`; `None` if no fault
    /// explains it.
    pub(super) fn of_duplicate(&mut self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        self.killed(first, again)
            .or_else(|| self.outage(first, again))
            .or_else(|| self.forgotten(first))
            .or_else(|| self.not_written(first, again))
            .or_else(|| self.resumed(first, again))
    }

    fn killed(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let lease = self.terms.lease;
        let is_meant = |fault: &&Fault| {
            fault.cause == Cause::Kill
                && fault.node.as_ref() == Some(&first.node)
                && (first.begun.saturating_sub(IN_FLIGHT)..=again.begun.min(first.begun + lease))
                    .contains(&fault.from)
                && first.begun + lease / 2 <= again.begun
        };
        self.faults.iter().find(is_meant).map(|fault| fault.cause)
    }

    /// Considers the outages that may have kept a node from renewing its lease of the timer during the delivery
    /// `first`: outages of the node, of its network, or of the servers. Returns the kind of the longest outage. Returns
    /// `None` if all outages together were shorter than half of [`Terms::lease`], since such outages cannot have made
    /// the lease end.
    fn outage(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
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

    /// Returns the kind of a fault by which the servers may have lost the record that the delivery `first` has ended.
    /// Returns `None` if there was no such fault, or if the run's settings do not permit the loss.
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

    /// Returns the kind of a fault by which the servers may have lost one of two changes: the claim with which a node
    /// took the timer for the delivery `first`, or the record that this delivery has ended. The fault is a failover to
    /// a replica that did not have the change, or a kill of PostgreSQL before it wrote the change.
    ///
    /// If the servers lose a claim, its node learns of the loss only when it next renews its leases, at most a third of
    /// a lease after the fault. Until then, the node may still begin deliveries of the claimed timers.
    fn not_written(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let is_meant = |fault: &&Fault| {
            (fault.cause == Cause::Crash || fault.cause == Cause::Failover && self.terms.loses_ends)
                && (fault.from.saturating_sub(BEHIND)..=fault.until + self.terms.lease / 3)
                    .contains(&first.begun)
                && fault.from <= again.begun
        };
        self.faults.iter().find(is_meant).map(|fault| fault.cause)
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

    /// Returns whether the servers may have lost the removal of an at-most-once timer before `first`, a delivery of the
    /// timer, and the run's settings permit the loss. Without such a loss, a second delivery is a violation.
    pub(super) fn is_removal_forgotten(&self, first: &Delivery) -> bool {
        let lossy = |(from, until): &(Moment, Moment)| {
            (*from..=until.saturating_add(self.terms.lease)).contains(&first.begun)
        };
        self.terms.lossy.iter().any(lossy)
    }

    /// An at-most-once timer was absent from the store at the moment `absent`, although `delivery` of the timer began
    /// later. Returns whether the call of the handler can have been under way at that moment.
    ///
    /// A node takes such a timer out of the store, waits for the store's answer, and then calls the handler. The answer
    /// comes within the time for which the node waits for it, or else the node does not call the handler. A pause of
    /// the node in between delays the call.
    pub(super) fn is_call_under_way(&self, absent: Moment, delivery: &Delivery) -> bool {
        let until = absent.saturating_add(self.terms.response + BUSY);
        let is_meant = |fault: &Fault| {
            fault.cause == Cause::Pause
                && fault.node.as_ref() == Some(&delivery.node)
                && fault.from <= until
                && absent <= fault.until
                && delivery.begun <= fault.until + BUSY
        };
        delivery.begun <= until || self.faults.iter().any(is_meant)
    }

    /// Excuses at-most-once timers that were never delivered. Each item of `lost` has the earliest and the latest
    /// moment at which the timer can have become due. Returns the number of timers that a fault explains, and the
    /// timers that no fault explains.
    ///
    /// A node takes an at-most-once timer out of the store before it calls the handler. The timer is lost in two cases:
    /// the store's answer to the removal is lost or late, or the node is killed before it calls the handler.
    pub(super) fn of_losses<T>(&mut self, mut lost: Vec<((Moment, Moment), T)>) -> (usize, Vec<T>) {
        lost.sort_by_key(|(due, _)| *due);
        self.taken.fill(0);
        let mut places: Vec<usize> = (0..self.faults.len()).collect();
        // Faults that end first come first: they can excuse the fewest timers.
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
        // Returns whether the fault `other` came shortly before this fault. Then a node may have been away. Its shard
        // had to wait until another node took the shard over, and its leased timers had to wait for the ends of their
        // leases. So timers were late.
        let away = ttl.max(lease);
        let is_away = |other: &&Fault| {
            other.from < fault.from && fault.from <= other.until + self.aftermath(other) + away + BUSY
        };
        let late = if self.faults.iter().any(|other| is_away(&other)) { away + BUSY } else { BUSY };
        !ends_no_lease
            && fault.from <= until.saturating_add(late)
            && from <= fault.until + self.aftermath(fault)
    }
}
