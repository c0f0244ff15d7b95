//! Checks a history against invariants that every store promises. [`Broken`] has a variant for each kind of violation.

use super::excuses::Excuses;
use super::lives::{Answered, Life, Lives, Withdrawn};
use super::terms::Terms;
use super::{Cause, Delivery, Id, Moment, Record};
use core::fmt;
use std::collections::{BTreeMap, HashMap};

/// The state of a timer that the store still has at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The timer is pending, leased to a node, or parked.
    Alive,
    /// All attempts to deliver the timer have failed. The store keeps the timer as a record.
    Dead,
}

/// The store's content at the end of a run, when no timer is due any more.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// The state of each stored timer, by the timer's id.
    pub stored: HashMap<Id, Stored>,
    /// The number of stored timers according to the store's own counters.
    pub counted: u64,
    /// Descriptions of the damage that the store's check of its own data has found.
    pub faults: Vec<String>,
}

/// A violation of an invariant that every store promises.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// The store acknowledged the timer, but the timer was not delivered, and the store does not have it any more.
    Lost(Id),
    /// At the end of the run, the timer is still pending, leased to a node, or parked, although every timer should have
    /// ended. Also reported for a stored timer that no record of the run names.
    Stuck(Id),
    /// A delivery of the timer began before the timer's due moment. The number is the difference in microseconds.
    Early(Id, u64),
    /// A delivery of the timer began after a client had withdrawn the timer, by cancelling or replacing it.
    Revived(Id),
    /// The store still has the timer, although a client has withdrawn the timer, by cancelling or replacing it.
    Kept(Id),
    /// The timer was delivered again, and no fault of the run explains the repetition.
    Doubled(Id),
    /// The timer was delivered twice, although its policy is at most once.
    Twice(Id),
    /// Two calls with the same id have both created the timer.
    CreatedTwice(Id),
    /// The store kept the timer under different ids at different deliveries. So the store had several timers, although
    /// clients created a single timer.
    Renamed(Id),
    /// The timer exists, although no client's call can have stored it.
    Phantom(Id),
    /// Two timers of the series with this id were delivered for the same instant of the series. The number is the
    /// instant, in milliseconds of UTC.
    InstantTwice(Id, u64),
    /// No delivery has succeeded for an instant of the series with this id. The number is the instant, in milliseconds
    /// of UTC.
    InstantMissing(Id, u64),
    /// The store's check of its own data has found the damage that the text describes.
    Structure(String),
    /// The store's counters and its content disagree. The first value is the number of timers according to the
    /// counters. The second value is the number of stored timers.
    Counts(u64, u64),
}

/// The result of checking a history: counts, and the violations of invariants.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The number of calls that clients made.
    pub calls: u64,
    /// The number of timers that the store acknowledged.
    pub acknowledged: u64,
    /// The number of deliveries that the receiver got.
    pub deliveries: u64,
    /// The number of repeated deliveries, by the kind of the fault that explains the repetition.
    pub duplicates: BTreeMap<Cause, u64>,
    /// The number of acknowledged timers that the servers lost. Only losses that the run's settings permit are counted
    /// here.
    pub lost_by_terms: u64,
    /// The number of cancelled or replaced timers for which the servers lost the cancellation or replacement. Such a
    /// timer is still stored, or is delivered later. Only losses that the run's settings permit are counted here.
    pub revived_by_terms: u64,
    /// The number of at-most-once timers that a fault has kept from being delivered.
    pub never: u64,
    /// The number of dead timers in the store at the end of the run.
    pub dead: u64,
    /// How long after their due moments the deliveries began.
    pub lateness: Lateness,
    /// How long before its due moment the earliest delivery began, in microseconds. The value is above zero only if
    /// clocks differ.
    pub earliness: u64,
    /// The violations of invariants that the check has found.
    pub broken: Vec<Broken>,
}

/// How long after their due moments the deliveries began, as percentiles in microseconds. If a call stored or moved the
/// timer only after its due moment, the time counts from the answer to the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The median of the lateness.
    pub p50: u64,
    /// The 99th percentile of the lateness.
    pub p99: u64,
    /// The 99.9th percentile of the lateness.
    pub p999: u64,
    /// The greatest lateness.
    pub most: u64,
}

impl Lateness {
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |share: usize| {
            let rank = (times.len() * share).div_ceil(1_000).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        Self { p50: at(500), p99: at(990), p999: at(999), most: at(1_000) }
    }
}

impl Findings {
    /// Returns the number of violations for which `is_meant` returns true.
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
            Self::Renamed(id) => write!(f, "timer {id:x} was delivered under several ids of the store"),
            Self::Phantom(id) => write!(f, "timer {id:x} exists, although nothing has stored it"),
            Self::InstantTwice(id, at) => write!(f, "series {id:x} has the instant {at} twice"),
            Self::InstantMissing(id, at) => write!(f, "series {id:x} lacks the instant {at}"),
            Self::Structure(fault) => write!(f, "the structure: {fault}"),
            Self::Counts(counted, stored) => write!(f, "{counted} timers are counted, {stored} are stored"),
        }
    }
}

/// Checks the records of a run against the invariants. `terms` are the losses that the run's settings permit. `end` is
/// the store's content after the run.
#[must_use]
pub fn check(records: impl IntoIterator<Item = Record>, terms: &Terms, end: &End) -> Findings {
    let lives = Lives::of(records);
    let findings = Findings { calls: lives.calls, deliveries: lives.deliveries, ..Findings::default() };
    let excuses = Excuses::new(terms, &lives.faults);
    let mut judge = Judge { terms, end, excuses, findings, late: Vec::new(), lost_once: Vec::new() };
    let mut series: BTreeMap<Id, BTreeMap<u64, Vec<&Delivery>>> = BTreeMap::new();
    for (id, life) in &lives.timers {
        judge.timer(*id, life);
        for delivery in &life.deliveries {
            if let Some(id) = delivery.series {
                series.entry(id).or_default().entry(delivery.scheduled).or_default().push(delivery);
            }
        }
        if life.acknowledged.is_some() && life.place.as_ref().is_some_and(|place| place.series.is_some()) {
            series.entry(*id).or_default();
        }
    }
    for (id, instants) in series {
        judge.series(id, lives.timers.get(&id), &instants);
    }
    let mut findings = judge.end();
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
    excuses: Excuses<'a>,
    findings: Findings,
    /// How late each delivery began, in microseconds.
    late: Vec<u64>,
    /// The at-most-once timers that were never delivered, each with the earliest and the latest moment at which the
    /// timer can have become due.
    lost_once: Vec<((Moment, Moment), Id)>,
}

impl Judge<'_> {
    /// Returns whether the run's settings permit that the servers lose the effect of `call`.
    fn is_lossy(&self, call: Answered) -> bool {
        self.terms.lossy.iter().any(|(from, until)| *from <= call.at && call.asked <= *until)
    }

    fn is_broken(&mut self, broken: Broken) {
        self.findings.broken.push(broken);
    }

    fn end(mut self) -> Findings {
        let (excused, lost) = self.excuses.of_losses(self.lost_once);
        self.findings.never = excused as u64;
        self.findings.broken.extend(lost.into_iter().map(Broken::Lost));
        self.findings.lateness = Lateness::of(self.late);
        self.findings
    }

    fn timer(&mut self, id: Id, life: &Life) {
        let stored = self.end.stored.get(&id);
        self.moments(id, life);
        if life.deliveries.iter().any(|delivery| delivery.stored != life.deliveries[0].stored) {
            self.is_broken(Broken::Renamed(id));
        }
        // If the terms permit that the servers have lost an earlier creation, a second creation is right.
        let mut repeated = life.created.iter().skip(1).zip(&life.created);
        if repeated.any(|(_, before)| !self.is_lossy(*before)) {
            self.is_broken(Broken::CreatedTwice(id));
        }
        // Later occurrences of a series have ids that no call has named.
        let is_occurrence =
            life.deliveries.iter().any(|delivery| delivery.series.is_some_and(|series| series != id));
        let exists = stored.is_some() || !life.deliveries.is_empty();
        if exists && life.acknowledged.is_none() && !life.has_doubt && !is_occurrence {
            self.is_broken(Broken::Phantom(id));
        }
        let is_once = life.place.as_ref().is_some_and(|place| place.is_once);
        self.duplicates(id, life, is_once);
        self.withdrawals(id, life, is_once, stored.is_some());
        if stored == Some(&Stored::Alive) {
            self.is_broken(Broken::Stuck(id));
        }
        let Some(acknowledged) = life.acknowledged else { return };
        self.findings.acknowledged += 1;
        let is_over = stored.is_some()
            || life.may_be_withdrawn()
            || life.deliveries.iter().any(|delivery| delivery.is_done || is_once);
        if is_over {
            return;
        }
        if self.is_lossy(acknowledged) {
            self.findings.lost_by_terms += 1;
        } else if is_once {
            let due = life.place.as_ref().map_or(0, |place| place.due * 1_000);
            let due = due.saturating_sub(self.terms.wall);
            self.lost_once.push(((due.max(life.asked), due.max(acknowledged.at)), id));
        } else {
            self.is_broken(Broken::Lost(id));
        }
    }

    /// Checks that no delivery of a timer began before its due moment ([`Broken::Early`]). Collects how late the
    /// deliveries began. If a call stored or moved the timer only after its due moment, the lateness counts from the
    /// answer to the call.
    fn moments(&mut self, id: Id, life: &Life) {
        for delivery in &life.deliveries {
            let due = delivery.due.max(life.due_at(delivery.begun)) * 1_000;
            let begun = delivery.begun + self.terms.wall;
            let changed = life.last_change(delivery.begun) + self.terms.wall;
            self.late.push(begun.saturating_sub(due.max(changed)));
            self.findings.earliness = self.findings.earliness.max(due.saturating_sub(begun));
            if begun + self.terms.tolerance * 1_000 < due {
                self.is_broken(Broken::Early(id, due - begun));
            }
        }
    }

    /// Finds repeated deliveries of a timer. A repetition that no fault explains is a violation ([`Broken::Doubled`]).
    /// A repeated delivery of an at-most-once timer is a violation, too ([`Broken::Twice`]), unless a fault made the
    /// servers forget that the timer was removed before its first delivery.
    fn duplicates(&mut self, id: Id, life: &Life, is_once: bool) {
        for (nth, delivery) in life.deliveries.iter().enumerate() {
            let before = life.deliveries[..nth].iter();
            let first = before.rev().find(|before| before.is_done || before.attempt == delivery.attempt);
            let Some(first) = first else { continue };
            let cause = self.excuses.of_duplicate(first, delivery);
            if let Some(cause) = cause {
                *self.findings.duplicates.entry(cause).or_default() += 1;
            }
            if is_once && !self.excuses.is_removal_forgotten(first) {
                self.is_broken(Broken::Twice(id));
            } else if cause.is_none() {
                self.is_broken(Broken::Doubled(id));
            }
        }
    }

    /// Checks that no delivery began after a client had withdrawn the timer ([`Broken::Revived`]), and that the store
    /// no longer has the timer ([`Broken::Kept`]).
    fn withdrawals(&mut self, id: Id, life: &Life, is_once: bool, is_stored: bool) {
        for (call, how) in &life.withdrawn {
            let begun_after =
                |at: Moment| life.deliveries.iter().filter(|delivery| delivery.begun > at).count();
            let after = begun_after(call.at);
            let is_revived = match how {
                // A node takes the timer out of the store just before it calls the handler.
                Withdrawn::Absent if is_once => life.deliveries.iter().any(|delivery| {
                    delivery.begun > call.at && !self.excuses.is_call_under_way(call.at, delivery)
                }),
                Withdrawn::Surely | Withdrawn::Absent => after > 0,
                // The withdrawal found the timer in the store, so the removal before the call fails.
                Withdrawn::InFlight if is_once => after > 0,
                Withdrawn::InFlight => after > 1,
                Withdrawn::Perhaps => false,
            };
            let is_kept = is_stored && *how == Withdrawn::Surely;
            if !is_revived && !is_kept {
                continue;
            }
            if self.is_lossy(*call) {
                self.findings.revived_by_terms += 1;
            } else if is_revived {
                self.is_broken(Broken::Revived(id));
            } else {
                self.is_broken(Broken::Kept(id));
            }
        }
    }

    /// Checks that a delivery has succeeded for each instant of a series ([`Broken::InstantMissing`]), and that no two
    /// timers were delivered for the same instant ([`Broken::InstantTwice`]).
    fn series(&mut self, id: Id, first: Option<&Life>, instants: &BTreeMap<u64, Vec<&Delivery>>) {
        for (at, deliveries) in instants {
            if deliveries.iter().any(|delivery| delivery.id != deliveries[0].id) {
                self.is_broken(Broken::InstantTwice(id, *at));
            }
        }
        let Some(place) = first.and_then(|life| life.place.as_ref()) else { return };
        let Some((every, last)) = place.series else { return };
        // Only a series that was surely stored and never withdrawn must deliver all of its instants.
        let may_end = first.is_some_and(|life| {
            life.may_be_withdrawn() || life.acknowledged.is_none_or(|call| self.is_lossy(call))
        });
        if may_end {
            return;
        }
        let mut at = place.due;
        while at <= last {
            let is_done = instants
                .get(&at)
                .is_some_and(|deliveries| deliveries.iter().any(|delivery| delivery.is_done));
            if !is_done {
                self.is_broken(Broken::InstantMissing(id, at));
            }
            at += every.max(1);
        }
    }
}
