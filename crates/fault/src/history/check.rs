//! The check of a history: the invariants I1 to I7 and I10 of the store's design.

use super::excuses::Excuses;
use super::lives::{Answered, Life, Lives, Withdrawn};
use super::terms::Terms;
use super::{Cause, Delivery, Id, Moment, Record};
use core::fmt;
use std::collections::{BTreeMap, HashMap};

/// The state of a timer in the store at the end.
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
    /// I2: a delivery began before the due moment; by how many microseconds.
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
    /// I7: the store's count of timers, and the number of its timers, which differs.
    Counts(u64, u64),
}

/// The result of a check.
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
    /// Timers to be delivered at most once that were not delivered, since a fault met their deliveries.
    pub never: u64,
    /// Dead timers.
    pub dead: u64,
    /// The times from due moments to the starts of their deliveries.
    pub lateness: Lateness,
    /// The greatest time from the start of a delivery to its due moment, in microseconds: the difference between the
    /// servers' clocks.
    pub earliness: u64,
    /// The rules that are broken.
    pub broken: Vec<Broken>,
}

/// How late deliveries began, in microseconds: of a thousand, 500, 990, 999 and all were not later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The maximum.
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
    /// The lateness of each delivery.
    late: Vec<u64>,
    /// Timers to be delivered at most once that were not delivered, and the moments between which they were due.
    lost_once: Vec<((Moment, Moment), Id)>,
}

impl Judge<'_> {
    /// Whether the effect of the call may be lost.
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
        // A timer that was created before a loss may be created again after it.
        let mut repeated = life.created.iter().skip(1).zip(&life.created);
        if repeated.any(|(_, before)| !self.is_lossy(*before)) {
            self.is_broken(Broken::CreatedTwice(id));
        }
        // The occurrences of a series have ids of their own, which no call has named.
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

    /// I2.
    fn moments(&mut self, id: Id, life: &Life) {
        let placed = life.place.as_ref().map_or(0, |place| place.due);
        for delivery in &life.deliveries {
            let (due, begun) = (delivery.due.max(placed) * 1_000, delivery.begun + self.terms.wall);
            self.late.push(begun.saturating_sub(due));
            self.findings.earliness = self.findings.earliness.max(due.saturating_sub(begun));
            if begun + self.terms.tolerance * 1_000 < due {
                self.is_broken(Broken::Early(id, due - begun));
            }
        }
    }

    /// I4.
    fn duplicates(&mut self, id: Id, life: &Life, is_once: bool) {
        for (nth, delivery) in life.deliveries.iter().enumerate() {
            let before = life.deliveries[..nth].iter();
            let first = before.rev().find(|before| before.is_done || before.attempt == delivery.attempt);
            let Some(first) = first else { continue };
            let cause = self.excuses.of_duplicate(first, delivery);
            if let Some(cause) = cause {
                *self.findings.duplicates.entry(cause).or_default() += 1;
            }
            if is_once && !self.excuses.is_claim_forgotten(first) {
                self.is_broken(Broken::Twice(id));
            } else if cause.is_none() {
                self.is_broken(Broken::Doubled(id));
            }
        }
    }

    /// I3 and I5.
    fn withdrawals(&mut self, id: Id, life: &Life, is_once: bool, is_stored: bool) {
        for (call, how) in &life.withdrawn {
            let begun_after =
                |at: Moment| life.deliveries.iter().filter(|delivery| delivery.begun > at).count();
            let after = begun_after(call.at);
            let is_revived = match how {
                // A claim has taken the timer out of the store, and its answer is on the way for a lease at most.
                Withdrawn::Absent if is_once => begun_after(call.at.saturating_add(self.terms.lease)) > 0,
                Withdrawn::Surely | Withdrawn::Absent => after > 0,
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

    /// I6.
    fn series(&mut self, id: Id, first: Option<&Life>, instants: &BTreeMap<u64, Vec<&Delivery>>) {
        for (at, deliveries) in instants {
            if deliveries.iter().any(|delivery| delivery.id != deliveries[0].id) {
                self.is_broken(Broken::InstantTwice(id, *at));
            }
        }
        let Some(place) = first.and_then(|life| life.place.as_ref()) else { return };
        let Some((every, last)) = place.series else { return };
        // A series whose creation was kept goes on to all of its later instants.
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
