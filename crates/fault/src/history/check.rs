//! The check of a history: the invariants I1 to I7 and I10 of the store's design.

use super::lives::{Life, Lives, Withdrawn};
use super::{Cause, Delivery, Fault, Id, Moment, Record};
use core::fmt;
use std::collections::{BTreeMap, HashMap};

/// How long before a fault a delivery may have begun whose end the fault has prevented, and how long after it what it
/// has delayed may still be under way: far more than on a machine that is not busy.
const SLACK: u64 = 30_000_000;

/// What a run may do, by its settings.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Times within which what was acknowledged may be lost: the servers' settings, or the policy, permit it.
    pub lossy: Vec<(Moment, Moment)>,
    /// The microseconds from the start of 1970 to that of the monotonic clock.
    pub wall: u64,
    /// The milliseconds by which a delivery may seem early, since the server's clock is not the machine's.
    pub tolerance: u64,
}

/// What a store has of a timer at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Pending, leased or parked.
    Alive,
    /// Dead, with its record.
    Dead,
}

/// The store at the end, when nothing is due any more.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// The timers.
    pub stored: HashMap<Id, Stored>,
    /// The number of timers that the store counts.
    pub counted: u64,
    /// The faults of the store's structure.
    pub faults: Vec<String>,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// I1: a timer was acknowledged, and is neither delivered nor stored.
    Lost(Id),
    /// I1: a timer is still alive when nothing should be due any more.
    Stuck(Id),
    /// I2: a delivery began before the due moment, by so many microseconds.
    Early(Id, u64),
    /// I3, I5: a delivery began after the timer was withdrawn.
    Revived(Id),
    /// I3: a timer that was withdrawn is stored.
    Kept(Id),
    /// I4: a delivery was repeated without a cause.
    Doubled(Id),
    /// A timer that is delivered at most once was delivered twice.
    Twice(Id),
    /// I10: two calls with one id have created it.
    CreatedTwice(Id),
    /// A call without an effect had one.
    Phantom(Id),
    /// I6: two occurrences of a series have this instant.
    InstantTwice(Id, u64),
    /// I6: a series left this instant out.
    InstantMissing(Id, u64),
    /// I7: a fault of the store's structure.
    Structure(String),
    /// I7: the store counts so many timers, and has so many.
    Counts(u64, u64),
}

/// What a check has found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The number of calls.
    pub calls: u64,
    /// The number of timers that were acknowledged.
    pub acknowledged: u64,
    /// The number of deliveries.
    pub deliveries: u64,
    /// The duplicates by their causes.
    pub duplicates: BTreeMap<Cause, u64>,
    /// Acknowledged timers that are lost as the terms permit.
    pub lost_by_terms: u64,
    /// Withdrawals that are lost as the terms permit: a delivery began after them, or the timer is stored.
    pub revived_by_terms: u64,
    /// Timers to be delivered at most once that were not delivered, in a run with faults.
    pub never: u64,
    /// Dead timers.
    pub dead: u64,
    /// The greatest time from a due moment to the start of its delivery, in microseconds.
    pub lateness: u64,
    /// The greatest time from the start of a delivery to its due moment, in microseconds: what the servers' clocks
    /// differ by.
    pub earliness: u64,
    /// What does not hold.
    pub broken: Vec<Broken>,
}

impl Findings {
    /// The number of findings that this condition picks.
    pub fn count(&self, is_meant: impl Fn(&Broken) -> bool) -> usize {
        self.broken.iter().filter(|broken| is_meant(broken)).count()
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(id) => write!(f, "timer {id:x} is lost"),
            Self::Stuck(id) => write!(f, "timer {id:x} was not delivered in time"),
            Self::Early(id, micros) => write!(f, "timer {id:x} was early by {micros} µs"),
            Self::Revived(id) => write!(f, "timer {id:x} was delivered after it was withdrawn"),
            Self::Kept(id) => write!(f, "timer {id:x} was withdrawn, and is stored"),
            Self::Doubled(id) => write!(f, "timer {id:x} was delivered again without a cause"),
            Self::Twice(id) => write!(f, "timer {id:x}, at most once, was delivered twice"),
            Self::CreatedTwice(id) => write!(f, "timer {id:x} was created twice"),
            Self::Phantom(id) => write!(f, "timer {id:x} exists, although nothing has stored it"),
            Self::InstantTwice(id, at) => write!(f, "series {id:x} has the instant {at} twice"),
            Self::InstantMissing(id, at) => write!(f, "series {id:x} lacks the instant {at}"),
            Self::Structure(fault) => write!(f, "the structure: {fault}"),
            Self::Counts(counted, stored) => write!(f, "{counted} timers are counted, {stored} are stored"),
        }
    }
}

/// Checks a history.
#[must_use]
pub fn check(records: impl IntoIterator<Item = Record>, terms: &Terms, end: &End) -> Findings {
    let lives = Lives::of(records);
    let mut findings = Findings { calls: lives.calls, deliveries: lives.deliveries, ..Findings::default() };
    let judge = Judge { terms, end, faults: &lives.faults };
    let mut series: BTreeMap<Id, BTreeMap<u64, Vec<&Delivery>>> = BTreeMap::new();
    for (id, life) in &lives.timers {
        judge.timer(*id, life, &mut findings);
        for delivery in &life.deliveries {
            if let Some(its) = delivery.series {
                series.entry(its).or_default().entry(delivery.scheduled).or_default().push(delivery);
            }
        }
        if life.acknowledged.is_some() && life.place.as_ref().is_some_and(|place| place.series.is_some()) {
            series.entry(*id).or_default();
        }
    }
    for (id, instants) in series {
        judge.series(id, lives.timers.get(&id), &instants, &mut findings);
    }
    let stored = end.stored.len() as u64;
    if end.counted != stored {
        findings.broken.push(Broken::Counts(end.counted, stored));
    }
    for (id, stored) in &end.stored {
        findings.dead += u64::from(*stored == Stored::Dead);
        if !lives.timers.contains_key(id) {
            findings.broken.push(Broken::Stuck(*id));
        }
    }
    findings.broken.extend(end.faults.iter().cloned().map(Broken::Structure));
    findings
}

struct Judge<'a> {
    terms: &'a Terms,
    end: &'a End,
    faults: &'a [Fault],
}

impl Judge<'_> {
    fn is_lossy(&self, at: Moment) -> bool {
        self.terms.lossy.iter().any(|(from, until)| (*from..=*until).contains(&at))
    }

    fn timer(&self, id: Id, life: &Life, findings: &mut Findings) {
        let stored = self.end.stored.get(&id);
        self.moments(id, life, findings);
        // What was created before a loss is created again after it.
        let repeated = life.created.iter().skip(1).zip(&life.created);
        if repeated.into_iter().any(|(_, before)| !self.is_lossy(*before)) {
            findings.broken.push(Broken::CreatedTwice(id));
        }
        // The occurrences of a series have ids of their own, which no call has named.
        let is_occurrence = life.deliveries.iter().any(|delivery| delivery.series.is_some_and(|of| of != id));
        let exists = stored.is_some() || !life.deliveries.is_empty();
        if exists && life.acknowledged.is_none() && !life.has_doubt && !is_occurrence {
            findings.broken.push(Broken::Phantom(id));
        }
        let is_once = life.place.as_ref().is_some_and(|place| place.is_once);
        self.duplicates(id, life, is_once, findings);
        self.withdrawals(id, life, stored.is_some(), findings);
        if stored == Some(&Stored::Alive) {
            findings.broken.push(Broken::Stuck(id));
        }
        let Some(acknowledged) = life.acknowledged else { return };
        findings.acknowledged += 1;
        let is_over = stored.is_some()
            || life.may_be_withdrawn()
            || life.deliveries.iter().any(|delivery| delivery.is_done || is_once);
        if is_over {
            return;
        }
        if self.is_lossy(acknowledged) {
            findings.lost_by_terms += 1;
        } else if is_once && !self.faults.is_empty() {
            findings.never += 1;
        } else {
            findings.broken.push(Broken::Lost(id));
        }
    }

    /// I2.
    fn moments(&self, id: Id, life: &Life, findings: &mut Findings) {
        let placed = life.place.as_ref().map_or(0, |place| place.due);
        for delivery in &life.deliveries {
            let (due, begun) = (delivery.due.max(placed) * 1_000, delivery.begun + self.terms.wall);
            findings.lateness = findings.lateness.max(begun.saturating_sub(due));
            findings.earliness = findings.earliness.max(due.saturating_sub(begun));
            if begun + self.terms.tolerance * 1_000 < due {
                findings.broken.push(Broken::Early(id, due - begun));
            }
        }
    }

    /// I4.
    fn duplicates(&self, id: Id, life: &Life, is_once: bool, findings: &mut Findings) {
        for (nth, delivery) in life.deliveries.iter().enumerate() {
            let before = life.deliveries[..nth].iter();
            let first = before.rev().find(|before| before.is_done || before.attempt == delivery.attempt);
            let Some(first) = first else { continue };
            let cause = self.cause(first, delivery);
            if let Some(cause) = cause {
                *findings.duplicates.entry(cause).or_default() += 1;
            }
            // A server that has lost a change has perhaps lost that it forgot the timer.
            let is_lost =
                self.terms.lossy.iter().any(|(from, until)| {
                    *from <= delivery.begun && first.begun <= until.saturating_add(SLACK)
                });
            if is_once && !is_lost {
                findings.broken.push(Broken::Twice(id));
            } else if cause.is_none() {
                findings.broken.push(Broken::Doubled(id));
            }
        }
    }

    /// The fault that explains why a delivery was repeated: the first one in the order of causes.
    fn cause(&self, first: &Delivery, again: &Delivery) -> Option<Cause> {
        let explains = |fault: &&Fault| match (&fault.node, fault.cause) {
            (Some(node), Cause::Kill) => {
                *node == first.node
                    && (first.begun..=again.begun).contains(&fault.from)
                    && fault.from - first.begun <= SLACK
            }
            (node, _) => {
                let is_its = node.as_ref().is_none_or(|node| [&first.node, &again.node].contains(&node));
                is_its
                    && fault.from <= again.begun
                    && fault.from <= first.begun.saturating_add(SLACK)
                    && first.begun <= fault.until.saturating_add(SLACK)
            }
        };
        self.faults.iter().filter(explains).map(|fault| fault.cause).min()
    }

    /// I3 and I5.
    fn withdrawals(&self, id: Id, life: &Life, is_stored: bool, findings: &mut Findings) {
        for (at, how) in &life.withdrawn {
            let after = life.deliveries.iter().filter(|delivery| delivery.begun > *at).count();
            let is_revived = match how {
                Withdrawn::Surely | Withdrawn::Absent => after > 0,
                Withdrawn::InFlight => after > 1,
                Withdrawn::Perhaps => false,
            };
            let is_kept = is_stored && *how == Withdrawn::Surely;
            if !is_revived && !is_kept {
                continue;
            }
            if self.is_lossy(*at) {
                findings.revived_by_terms += 1;
            } else if is_revived {
                findings.broken.push(Broken::Revived(id));
            } else {
                findings.broken.push(Broken::Kept(id));
            }
        }
    }

    /// I6.
    fn series(
        &self,
        id: Id,
        first: Option<&Life>,
        instants: &BTreeMap<u64, Vec<&Delivery>>,
        findings: &mut Findings,
    ) {
        for (at, deliveries) in instants {
            if deliveries.iter().any(|delivery| delivery.id != deliveries[0].id) {
                findings.broken.push(Broken::InstantTwice(id, *at));
            }
        }
        let Some(place) = first.and_then(|life| life.place.as_ref()) else { return };
        let Some((every, last)) = place.series else { return };
        let may_end = first.is_some_and(|life| life.may_be_withdrawn() || life.acknowledged.is_none());
        if may_end || !self.terms.lossy.is_empty() {
            return;
        }
        let mut at = place.due;
        while at <= last {
            let is_done = instants.get(&at).is_some_and(|its| its.iter().any(|delivery| delivery.is_done));
            if !is_done {
                findings.broken.push(Broken::InstantMissing(id, at));
            }
            at += every.max(1);
        }
    }
}
