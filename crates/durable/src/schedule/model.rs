//! Tests the progress of a schedule over random steps against an oracle. The oracle moves by the moments at which the
//! schedule asks for its next decision.

use super::oracle::{Fate, Oracle, SECOND};
use super::*;
use std::collections::BTreeMap;

/// A small generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()].clone()
    }
}

fn at(millis: u64) -> UtcMillis {
    UtcMillis::from_millis(millis)
}

/// The plans of this test: fixed periods, and calendars whose instants are the seconds of a minute in this list.
fn plans() -> Vec<Plan> {
    let cron = |seconds: &str| Plan::cron(format!("{seconds} * * * * *"), "UTC").unwrap();
    vec![
        Plan::Every(5 * SECOND),
        Plan::Every(10 * SECOND),
        Plan::Every(15 * SECOND),
        cron("0,7,30"),
        cron("*/10"),
        cron("59"),
    ]
}

/// A schedule under test, and the oracle that says what it must do.
struct Model {
    random: Random,
    oracle: Oracle,
    progress: Progress,
    now: u64,
    is_under_way: bool,
    /// The moment of the next decision.
    wake: Option<u64>,
    log: Vec<String>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let schedule = Schedule {
            missed: random.one_of(&[Missed::Skip, Missed::Once, Missed::All]),
            overlap: random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Allow]),
            grace: Duration::from_millis(random.one_of(&[0, 500, 3 * SECOND, 30 * SECOND])),
            start: random.one_of(&[None, Some(at(0)), Some(at(130 * SECOND))]),
            ..Schedule::new(random.one_of(&plans()))
        };
        let now = 100 * SECOND + random.below(20 * SECOND);
        let progress = Progress::new(TimerId::from_u128(7), &schedule, at(now)).unwrap();
        let oracle = Oracle {
            schedule,
            offset: 0,
            created: now,
            floor: now,
            fates: BTreeMap::new(),
            last_decided: None,
            is_paused: false,
            fired: 0,
            missed: 0,
            skipped: 0,
        };
        let wake = progress.wake(Duration::ZERO, at(now)).map(UtcMillis::as_millis);
        let mut model = Self { random, oracle, progress, now, is_under_way: false, wake, log: Vec::new() };
        model.check();
        model
    }

    fn offset(&self) -> Duration {
        Duration::from_millis(self.oracle.offset)
    }

    fn schedule(&self) -> Schedule {
        self.oracle.schedule.clone()
    }

    fn moments(&self) -> instants::ScheduleInstants {
        instants::ScheduleInstants::new(&self.schedule(), self.progress.created).unwrap()
    }

    /// Completes the decision whose occurrences are being stored. The store may fail at one of them. Returns whether
    /// the decision is complete.
    fn complete(&mut self) -> bool {
        let storing = self.progress.storing.clone();
        let (mut fired, mut missed, mut failed) = (Vec::new(), Vec::new(), None);
        for instant in storing {
            match self.random.below(6) {
                0 => {
                    failed = Some(instant);
                    break;
                }
                1 | 2 => {
                    missed.push(instant);
                    self.oracle.miss(instant.as_millis());
                }
                _ => {
                    fired.push(instant);
                    self.oracle.end(instant.as_millis());
                    self.oracle.fired += 1;
                }
            }
        }
        self.log.push(format!("{} completed: {fired:?} {missed:?} {failed:?}", self.now));
        self.progress.note_completed(&fired, &missed, failed);
        assert_eq!(self.progress.storing.last().copied(), failed, "{self}");
        self.check();
        failed.is_none()
    }

    /// Lets the schedule decide in a store that carries out only a part of the decision.
    fn decide_in_part(&mut self) {
        let (schedule, offset, now) = (self.schedule(), self.offset(), at(self.now));
        let is_under_way = self.is_under_way;
        let decision = self.progress.decide(&schedule, offset, now, is_under_way).unwrap();
        // The oracle decides about all instants at once.
        let is_whole = decision.wake.is_none_or(|wake| wake > now);
        if !self.progress.storing.is_empty() || decision.fire.is_empty() || !is_whole {
            return self.decide();
        }
        let number = usize::try_from(self.random.below(decision.fire.len() as u64 + 1)).unwrap();
        let (stored, others) = decision.fire.split_at(number);
        let unknown = others.first().copied().filter(|_| self.random.below(2) == 0);
        let millis =
            |instants: &[UtcMillis]| instants.iter().map(|instant| instant.as_millis()).collect::<Vec<_>>();
        let way = self.random.below(3);
        self.log.push(format!("{now} in part {way} {stored:?} {unknown:?}: {decision:?}"));
        match way {
            0 => {
                self.progress = decision.storing(now);
                self.oracle.decide_and_die(self.now, is_under_way);
                self.is_under_way = true;
            }
            1 => {
                let parts = (stored, unknown);
                self.progress = decision.in_part(&self.moments(), &self.progress, parts, offset, now);
                let storing = millis(unknown.as_slice());
                self.oracle.decide_in_part(self.now, is_under_way, &millis(stored), &storing);
                self.is_under_way |= !stored.is_empty() || unknown.is_some();
            }
            _ => {
                // A change has replaced the state, and the decision's transaction has stored the occurrences.
                let before = self.progress.clone();
                let fired = millis(&decision.fire);
                self.oracle.decide_in_part(self.now, is_under_way, &fired, &[]);
                let mut after = self.schedule();
                if self.random.below(2) == 0 {
                    after.missed = self.random.one_of(&[Missed::Skip, Missed::Once, Missed::All]);
                    after.overlap = self.random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Allow]);
                    self.progress = before.changed((&schedule, offset), (&after, offset), now).unwrap();
                    self.oracle.change(after, self.oracle.offset, self.now);
                } else if self.random.below(2) == 0 {
                    self.progress.paused = Some(now);
                    self.progress = self.progress.resumed(&schedule, offset, now).unwrap();
                    self.oracle.pause(self.now);
                    self.oracle.resume(self.now);
                }
                let (missed, skipped) = (self.progress.missed, self.progress.skipped);
                let moments = self.moments();
                let told =
                    self.progress.note_decided(&moments, &before, &decision, &decision.fire, offset, now);
                let counted = (self.progress.missed - missed, self.progress.skipped - skipped);
                assert_eq!(told, counted, "{self}");
                assert_eq!(told, (decision.missed, decision.skipped), "{self}");
                self.is_under_way = true;
            }
        }
        self.wake = Some(self.now + self.random.one_of(&[0, SECOND, 5 * SECOND]));
        self.check();
    }

    fn decide(&mut self) {
        if !self.progress.storing.is_empty() && !self.complete() {
            self.wake = Some(self.now + SECOND);
            return;
        }
        let before = self.is_under_way;
        let (mut fired, mut wake) = (Vec::new(), Some(at(self.now)));
        while wake.is_some_and(|wake| wake <= at(self.now)) {
            let (schedule, is_under_way) = (&self.oracle.schedule, self.is_under_way);
            let decision = self.progress.decide(schedule, self.offset(), at(self.now), is_under_way).unwrap();
            self.log.push(format!("{} under way {is_under_way}: {decision:?}", self.now));
            self.is_under_way = is_under_way || !decision.fire.is_empty();
            fired.extend(decision.fire.iter().map(|instant| instant.as_millis()));
            assert_eq!(decision.progress.missed - self.progress.missed, decision.missed);
            assert_eq!(decision.progress.skipped - self.progress.skipped, decision.skipped);
            (self.progress, wake) = (decision.progress, decision.wake);
        }
        let expected = self.oracle.decide(self.now, before);
        assert_eq!(fired, expected, "{self}");
        self.wake = wake.map(UtcMillis::as_millis);
        let next = self.oracle.next().map(|next| next + self.oracle.offset);
        let waits = self.oracle.all(|fate| matches!(fate, Fate::Waits | Fate::Queued));
        if waits.is_empty() {
            assert_eq!(self.wake, next, "{self}");
        } else {
            let latest = next.unwrap_or(u64::MAX).min(self.now + 30 * SECOND);
            assert!(self.wake.is_some_and(|wake| wake <= latest), "{:?} {latest} {self}", self.wake);
        }
        self.check();
    }

    /// Compares the progress with the oracle.
    fn check(&mut self) {
        let Progress { fired, missed, skipped, queued, catch_up, undecided, storing, next, .. } =
            &self.progress;
        let oracle = &self.oracle;
        let counts = (oracle.fired, oracle.missed, oracle.skipped);
        assert_eq!((*fired, *missed, *skipped), counts, "{self}");
        let listed = |spans: Vec<CatchUp>| {
            let instants = |span: CatchUp| {
                oracle.instants(&oracle.schedule, span.next.as_millis() - 1, span.last.as_millis())
            };
            spans.into_iter().flat_map(instants).collect::<Vec<_>>()
        };
        let queued: Vec<_> = queued.iter().map(|queued| queued.as_millis()).collect();
        assert_eq!(queued, oracle.all(|fate| fate == Fate::Queued), "{self}");
        assert_eq!(listed(catch_up.clone()), oracle.all(|fate| fate == Fate::Waits), "{self}");
        let undecided = undecided.iter().map(|span| span.span()).collect();
        let of_oracle = oracle.all(|fate| matches!(fate, Fate::Undecided { .. }));
        assert_eq!(listed(undecided), of_oracle, "{self}");
        assert_eq!(next.map(UtcMillis::as_millis), oracle.next(), "{self}");
        let mut storing: Vec<_> = storing.iter().map(|instant| instant.as_millis()).collect();
        storing.sort_unstable();
        assert_eq!(storing, oracle.all(|fate| fate == Fate::Storing), "{self}");
        assert_eq!(self.progress.storing_since.is_some(), !storing.is_empty(), "{self}");
    }

    /// Checks the progress after a change or a resume, which asks for the next decision.
    fn check_change(&mut self) {
        self.check();
        let wake = self.progress.wake(self.offset(), at(self.now));
        self.wake = wake.map(UtcMillis::as_millis);
        let followed = self.progress.followed(&self.schedule(), self.offset(), at(self.now)).unwrap();
        assert_eq!(followed, None, "the clock was never ahead: {self}");
    }

    fn change(&mut self, after: Schedule, offset: u64) {
        self.log.push(format!("{} changed to {after:?} {offset}", self.now));
        let before = (&self.oracle.schedule, self.offset());
        let after_offset = Duration::from_millis(offset);
        self.progress = self.progress.changed(before, (&after, after_offset), at(self.now)).unwrap();
        self.oracle.change(after, offset, self.now);
        self.check_change();
    }

    fn pause(&mut self) {
        self.log.push(format!("{} paused", self.now));
        self.progress.paused = Some(at(self.now));
        self.oracle.pause(self.now);
        self.wake = None;
    }

    fn resume(&mut self) {
        self.log.push(format!("{} resumed", self.now));
        self.progress = self.progress.resumed(&self.schedule(), self.offset(), at(self.now)).unwrap();
        self.oracle.resume(self.now);
        self.check_change();
    }

    /// Lets the clock be ahead for a while, in which a decision may be made.
    fn be_ahead(&mut self) {
        // The oracle has one state for each instant, and an instant that is being stored may come again.
        if !self.progress.storing.is_empty() {
            return;
        }
        let ahead = 10 * SECOND + self.random.below(200 * SECOND);
        self.log.push(format!("{} ahead by {ahead}", self.now));
        self.now += ahead;
        if !self.oracle.is_paused && self.random.below(4) > 0 {
            self.decide();
        }
        self.now -= ahead;
        self.log.push(format!("{} back", self.now));
        if self.oracle.is_paused {
            return;
        }
        if let Some(followed) = self.progress.followed(&self.schedule(), self.offset(), at(self.now)).unwrap()
        {
            self.progress = followed;
            self.oracle.follow_clock(self.now);
        }
        let wake = self.progress.wake(self.offset(), at(self.now));
        self.wake = wake.map(UtcMillis::as_millis);
    }

    fn change_something(&mut self) {
        let (after, offset) = (self.schedule(), self.oracle.offset);
        match self.random.below(6) {
            0 => {
                let missed = self.random.one_of(&[Missed::Skip, Missed::Once, Missed::All]);
                self.change(Schedule { missed, ..after }, offset);
            }
            1 => {
                let overlap = self.random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Allow]);
                self.change(Schedule { overlap, ..after }, offset);
            }
            2 => {
                let offset = self.random.one_of(&[0, 3 * SECOND, 25 * SECOND]);
                self.change(after, offset);
            }
            3 => {
                let plan = self.random.one_of(&plans());
                self.change(Schedule { plan, ..after }, offset);
            }
            4 => {
                let start = self.random.one_of(&[None, Some(at(0)), Some(at(self.now + 20 * SECOND))]);
                let end = after.end.filter(|end| start.is_none_or(|start| start <= *end));
                self.change(Schedule { start, end, ..after }, offset);
            }
            _ => {
                let back = self.random.below(40 * SECOND);
                let end = self.random.one_of(&[None, Some(self.now + back), Some(self.now - back)]);
                let end = end.map(at).filter(|end| after.start.is_none_or(|start| start <= *end));
                self.change(Schedule { end, ..after }, offset);
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 if !self.oracle.is_paused => {
                // The schedule decides when it asked to, or a little late.
                let Some(wake) = self.wake else { return };
                self.now = self.now.max(wake.min(self.now + 90 * SECOND));
                self.now += self.random.one_of(&[0, 0, 1, 400, 2 * SECOND]);
                if self.random.below(4) == 0 { self.decide_in_part() } else { self.decide() }
            }
            0..=9 => self.now += self.random.below(120 * SECOND),
            10 if !self.oracle.is_paused => self.decide_in_part(),
            11 if !self.oracle.is_paused => {
                // The store fails, so the decision is lost.
                let (schedule, is_under_way) = (self.schedule(), self.is_under_way);
                let _lost = self.progress.decide(&schedule, self.offset(), at(self.now), is_under_way);
                self.now += SECOND;
            }
            10..=12 => self.is_under_way = false,
            13..=14 if self.oracle.is_paused => self.resume(),
            13..=14 => self.pause(),
            15 => self.be_ahead(),
            _ => self.change_something(),
        }
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}: {:#?} {:?} {:#?}", self.now, self.log, self.progress, self.oracle)
    }
}

#[test]
fn each_instant_gets_what_the_rules_say() {
    for seed in 0..4_000 {
        let mut model = Model::new(seed);
        for _ in 0..60 {
            model.step();
        }
        if model.oracle.is_paused {
            model.resume();
        }
        while !model.progress.storing.is_empty() {
            model.decide();
        }
        model.decide();
    }
}

/// A change of the rules of a time zone makes a stored next instant wrong.
#[test]
fn a_next_instant_that_is_none_is_computed_anew() {
    let plan = Plan::cron("0 9 * * *", "UTC").unwrap();
    let schedule = Schedule { missed: Missed::Skip, ..Schedule::new(plan) };
    let hour = 3_600 * SECOND;
    let progress = Progress::new(TimerId::from_u128(7), &schedule, at(hour)).unwrap();
    assert_eq!(progress.next, Some(at(9 * hour)));
    for stale in [8, 10] {
        let stale = Progress { next: Some(at(stale * hour)), ..progress.clone() };
        let followed = stale.followed(&schedule, Duration::ZERO, at(2 * hour)).unwrap().unwrap();
        assert_eq!(followed, progress);
        let early = stale.decide(&schedule, Duration::ZERO, at(8 * hour), false).unwrap();
        assert_eq!((early.fire, early.wake), (vec![], Some(at(9 * hour))));
        let on_time = stale.decide(&schedule, Duration::ZERO, at(9 * hour), false).unwrap();
        assert_eq!((on_time.fire, on_time.wake), (vec![at(9 * hour)], Some(at(33 * hour))));
    }
}

/// A decision has stored its occurrences, and a change that it did not see has replaced its state.
#[test]
fn occurrences_of_a_lost_decision_count_once() {
    let queue = Overlap::QueueOne;
    for (missed, overlap, fire, left_out) in [
        (Missed::All, queue, &[10_u64][..], 0_u64),
        (Missed::Once, queue, &[50], 4),
        (Missed::Once, Overlap::Allow, &[50], 4),
        (Missed::All, Overlap::Allow, &[10, 20, 30, 40, 50], 0),
    ] {
        let schedule =
            Schedule { missed, overlap, start: Some(at(0)), ..Schedule::new(Plan::Every(10 * SECOND)) };
        let other = Schedule { plan: Plan::Every(7 * SECOND), ..schedule.clone() };
        let progress = Progress::new(TimerId::from_u128(7), &schedule, at(5 * SECOND)).unwrap();
        let (now, zero) = (at(55 * SECOND), Duration::ZERO);
        // The grace makes the instant of second 50 late as well.
        let schedule = Schedule { grace: Duration::from_secs(1), ..schedule };
        let decision = progress.decide(&schedule, zero, now, false).unwrap();
        let fired: Vec<_> = fire.iter().map(|second| at(second * SECOND)).collect();
        assert_eq!((&decision.fire, decision.missed), (&fired, left_out));
        // Another call has only counted, has paused and resumed, or has changed the plan.
        let paused = Progress { paused: Some(now), ..progress.clone() };
        let resumed = paused.resumed(&schedule, zero, now).unwrap();
        let changed = progress.changed((&schedule, zero), (&other, zero), now).unwrap();
        let waiting = 5 - left_out - fired.len() as u64;
        for (mut present, plan, waiting) in [
            (progress.clone(), &schedule, waiting),
            (paused, &schedule, waiting),
            (resumed, &schedule, waiting),
            (changed, &other, 0),
        ] {
            let moments = instants::ScheduleInstants::new(plan, present.created).unwrap();
            let _told = present.note_decided(&moments, &progress, &decision, &fired, zero, now);
            let waits: u64 = present.undecided.iter().map(|span| span.span().count(&moments)).sum();
            // Of the former plan, the instants that got no occurrences are missed.
            let number = fired.len() as u64;
            let counts = (present.fired, present.missed, present.skipped, waits);
            assert_eq!(counts, (number, 5 - number - waiting, 0, waiting), "{missed:?} {present:?}");
            assert_eq!(present.last_occurrence, decision.progress.last_occurrence);
        }
    }
}

/// The ids of occurrences tell for 50 minutes whether the occurrences were stored.
#[test]
fn the_store_knows_what_it_has_stored_for_a_while() {
    let schedule = Schedule { start: Some(at(0)), ..Schedule::new(Plan::Every(10 * SECOND)) };
    let progress = Progress::new(TimerId::from_u128(7), &schedule, at(5 * SECOND)).unwrap();
    let now = 10 * SECOND;
    let storing = progress.decide(&schedule, Duration::ZERO, at(now), false).unwrap().storing(at(now));
    assert_eq!((storing.fired, &storing.storing[..]), (0, &[at(now)][..]));
    let minute = 60 * SECOND;
    for (later, is_known) in
        [(0, true), (50 * minute, true), (50 * minute + 1, false), (3_000 * minute, false)]
    {
        assert_eq!(storing.knows_stored(at(now + later)), is_known, "{later}");
    }
    // The store's clock was ahead at the decision.
    assert!(storing.knows_stored(at(now - SECOND)) && !storing.knows_stored(at(now - SECOND - 1)));
}
