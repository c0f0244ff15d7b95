//! Says by the tables of the module [`schedule`](super) what happens to each instant of a schedule. The oracle has a
//! list of all instants that have come, and no spans.

use super::progress::SLACK;
use super::*;
use std::collections::BTreeMap;

pub(super) const SECOND: u64 = 1_000;

/// The state of an instant that has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// It has no decision yet. It is late if its decision comes too long after its due moment, or after the change of
    /// the jitter by which it came, in milliseconds.
    Undecided { sooner: u64 },
    /// It is missed, and waits for its occurrence.
    Waits,
    /// It waits for the end of the last occurrence.
    Queued,
    /// Its occurrence was being stored when the answer was lost, or the process died.
    Storing,
    /// It has its occurrence, or was left out.
    Over,
}

/// The oracle: the rules of schedules, applied to each instant of a list.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) schedule: Schedule,
    pub(super) offset: u64,
    pub(super) created: u64,
    /// No instant up to this moment comes any more.
    pub(super) floor: u64,
    pub(super) fates: BTreeMap<u64, Fate>,
    pub(super) last_decided: Option<u64>,
    pub(super) is_paused: bool,
    pub(super) fired: u64,
    pub(super) missed: u64,
    pub(super) skipped: u64,
}

impl Oracle {
    /// Returns the instants of a rule that are after one moment, and not after another one.
    pub(super) fn instants(&self, schedule: &Schedule, after: u64, until: u64) -> Vec<u64> {
        let start = schedule.start.map(UtcMillis::as_millis);
        let all: Vec<u64> = match &schedule.plan {
            Plan::Every(period) => {
                let anchor = start.unwrap_or(self.created);
                let first = after.saturating_sub(anchor) / period;
                (first..).map(|nth| anchor + nth * period).take_while(|instant| *instant <= until).collect()
            }
            Plan::Cron { expression, .. } => {
                let seconds: Vec<u64> = match expression.split(' ').next().unwrap() {
                    "0,7,30" => vec![0, 7, 30],
                    "*/10" => vec![0, 10, 20, 30, 40, 50],
                    "59" => vec![59],
                    other => panic!("{other}"),
                };
                let all = after / SECOND..=until / SECOND;
                all.filter(|second| seconds.contains(&(second % 60))).map(|second| second * SECOND).collect()
            }
            Plan::Monthly { .. } => Vec::new(),
        };
        let end = schedule.end.map_or(u64::MAX, UtcMillis::as_millis);
        let is_within = |instant: &u64| *instant > after && *instant <= until.min(end);
        all.into_iter()
            .filter(|instant| is_within(instant) && start.is_none_or(|start| *instant >= start))
            .collect()
    }

    pub(super) fn has(&self, schedule: &Schedule, instant: u64) -> bool {
        self.instants(schedule, instant - 1, instant) == [instant]
    }

    pub(super) fn next(&self) -> Option<u64> {
        let first = self.floor.max(self.schedule.start.map_or(0, UtcMillis::as_millis));
        self.instants(&self.schedule, self.floor, first + 90 * SECOND).first().copied()
    }

    /// Returns the moment whose instant is due at `now`.
    pub(super) fn come(&self, now: u64) -> u64 {
        now.saturating_sub(self.offset)
    }

    /// Lets instants come, unless the schedule is paused.
    pub(super) fn let_come(&mut self, until: u64, sooner: u64) {
        if !self.is_paused {
            for instant in self.instants(&self.schedule, self.floor, until) {
                assert_eq!(self.fates.insert(instant, Fate::Undecided { sooner }), None);
            }
            self.floor = self.floor.max(until);
        }
    }

    /// Follows a clock that was ahead until now: instants after now come again.
    pub(super) fn follow_clock(&mut self, now: u64) {
        let latest = now + u64::try_from(SLACK.as_millis()).unwrap();
        self.last_decided = self.last_decided.filter(|last| *last <= latest);
        if self.floor > latest {
            self.floor = self.come(now).max(self.created).max(self.last_decided.unwrap_or(0));
            let _again = self.fates.split_off(&(self.floor + 1));
        }
    }

    pub(super) fn all(&self, is: impl Fn(Fate) -> bool) -> Vec<u64> {
        self.fates.iter().filter(|(_, fate)| is(**fate)).map(|(instant, _)| *instant).collect()
    }

    pub(super) fn end(&mut self, instant: u64) {
        let _former = self.fates.insert(instant, Fate::Over);
    }

    pub(super) fn miss(&mut self, instant: u64) {
        self.end(instant);
        self.missed += 1;
    }

    pub(super) fn skip(&mut self, instant: u64) {
        self.end(instant);
        self.skipped += 1;
    }

    /// Decides about each instant that has come. Returns the instants that get occurrences.
    pub(super) fn decide(&mut self, now: u64, is_under_way: bool) -> Vec<u64> {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        let mut fire = Vec::new();
        let allow = self.schedule.overlap == Overlap::Allow;
        let is_free = |fire: &Vec<u64>| allow || !is_under_way && fire.is_empty();
        let waits = |oracle: &Self| oracle.all(|fate| fate == Fate::Waits);
        if let Some(queued) = self.all(|fate| fate == Fate::Queued).first().copied()
            && is_free(&fire)
            && waits(self).first().is_none_or(|missed| queued < *missed)
        {
            fire.push(queued);
            self.end(queued);
        }
        let grace = u64::try_from(self.schedule.grace.as_millis()).unwrap();
        let is_late = |instant: u64, fate: Fate, offset: u64| matches!(fate, Fate::Undecided { sooner } if sooner.max(instant + offset) + grace < now);
        let mut on_time = Vec::new();
        for (instant, fate) in self.fates.clone() {
            if is_late(instant, fate, self.offset) {
                let _undecided = self.fates.insert(instant, Fate::Waits);
                self.last_decided = self.last_decided.max(Some(instant));
            } else if let Fate::Undecided { .. } = fate {
                on_time.push(instant);
            }
        }
        let kept = match self.schedule.missed {
            Missed::Skip => 0,
            Missed::Once if !on_time.is_empty() && is_free(&fire) => 0,
            Missed::Once => 1,
            Missed::All => usize::MAX,
        };
        let missed = waits(self);
        for instant in &missed[..missed.len().saturating_sub(kept)] {
            self.miss(*instant);
        }
        for instant in waits(self) {
            if is_free(&fire) {
                fire.push(instant);
                self.end(instant);
            }
        }
        for instant in on_time {
            self.last_decided = self.last_decided.max(Some(instant));
            if is_free(&fire) {
                fire.push(instant);
                self.end(instant);
            } else if self.schedule.overlap == Overlap::QueueOne
                && self.all(|fate| fate == Fate::Queued).is_empty()
            {
                let _undecided = self.fates.insert(instant, Fate::Queued);
            } else {
                self.skip(instant);
            }
        }
        self.fired += fire.len() as u64;
        fire
    }

    /// Decides as [`decide`](Self::decide) does. Only the occurrences of the instants `stored` are stored, and those of
    /// the instants `storing` may be stored.
    pub(super) fn decide_in_part(&mut self, now: u64, is_under_way: bool, stored: &[u64], storing: &[u64]) {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        let (before, last) = (self.fates.clone(), self.last_decided);
        let fire = self.decide(now, is_under_way);
        self.fired -= (fire.len() - stored.len()) as u64;
        self.last_decided = last;
        for (instant, fate) in before {
            let is_left_out = self.fates[&instant] == Fate::Over && !fire.contains(&instant);
            let fate_after = match fate {
                _ if storing.contains(&instant) => Fate::Storing,
                _ if is_left_out || stored.contains(&instant) => Fate::Over,
                // An instant that is neither counted nor stored waits as before.
                _ => fate,
            };
            let _decided = self.fates.insert(instant, fate_after);
            let is_decided = fate != fate_after;
            self.last_decided = self.last_decided.max(is_decided.then_some(instant));
        }
    }

    /// Decides as [`decide`](Self::decide) does. The process dies before it stores the occurrences.
    pub(super) fn decide_and_die(&mut self, now: u64, is_under_way: bool) {
        let fire = self.decide(now, is_under_way);
        self.fired -= fire.len() as u64;
        self.fates.extend(fire.into_iter().map(|instant| (instant, Fate::Storing)));
    }

    pub(super) fn pause(&mut self, now: u64) {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        self.is_paused = true;
    }

    pub(super) fn resume(&mut self, now: u64) {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        // The instants of the pause never come.
        self.floor = self.floor.max(self.come(now));
        self.is_paused = false;
    }

    pub(super) fn change(&mut self, after: Schedule, offset: u64, now: u64) {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        let (before, passed) = (self.schedule.clone(), self.come(now));
        let is_same = before.plan == after.plan
            && (before.start == after.start || !matches!(after.plan, Plan::Every(_)));
        for (instant, fate) in self.fates.clone() {
            let is_in = self.has(&after, instant);
            match fate {
                Fate::Queued if !is_in => self.skip(instant),
                Fate::Undecided { .. } | Fate::Waits if !is_in || !is_same => self.miss(instant),
                _ => {}
            }
        }
        (self.schedule, self.offset) = (after, offset);
        self.floor = self.floor.max(passed);
        if is_same {
            self.let_come(self.come(now), now);
        }
        self.floor = self.floor.max(self.come(now));
    }
}
