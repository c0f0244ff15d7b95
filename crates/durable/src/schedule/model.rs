//! Tests the progress of a schedule over random steps against an oracle. The oracle has a list of all instants, and
//! decides about each of them by the table of the module [`schedule`](super). It has no spans, and moves by the moments
//! at which the schedule asks for its next decision.

use super::progress::SLACK;
use super::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000;

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

/// The state of an instant that has come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It has no decision yet. It is late if its decision comes too long after its due moment, or after the change of
    /// the jitter by which it came, in milliseconds.
    Undecided { sooner: u64 },
    /// It is missed, and waits for its occurrence.
    Waits,
    /// It waits for the end of the last occurrence.
    Queued,
    /// It has its occurrence, or was left out.
    Over,
}

/// The oracle: the rules of schedules, applied to each instant of a list.
#[derive(Debug)]
struct Oracle {
    schedule: Schedule,
    offset: u64,
    created: u64,
    /// No instant up to this moment comes any more.
    floor: u64,
    fates: BTreeMap<u64, Fate>,
    last_decided: Option<u64>,
    is_paused: bool,
    fired: u64,
    missed: u64,
    skipped: u64,
}

impl Oracle {
    /// Returns the instants of a rule that are after one moment, and not after another one.
    fn instants(&self, schedule: &Schedule, after: u64, until: u64) -> Vec<u64> {
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

    fn has(&self, schedule: &Schedule, instant: u64) -> bool {
        self.instants(schedule, instant - 1, instant) == [instant]
    }

    fn next(&self) -> Option<u64> {
        let first = self.floor.max(self.schedule.start.map_or(0, UtcMillis::as_millis));
        self.instants(&self.schedule, self.floor, first + 90 * SECOND).first().copied()
    }

    /// Returns the moment whose instant is due at `now`.
    fn come(&self, now: u64) -> u64 {
        now.saturating_sub(self.offset)
    }

    /// Lets instants come, unless the schedule is paused.
    fn let_come(&mut self, until: u64, sooner: u64) {
        if !self.is_paused {
            for instant in self.instants(&self.schedule, self.floor, until) {
                assert_eq!(self.fates.insert(instant, Fate::Undecided { sooner }), None);
            }
            self.floor = self.floor.max(until);
        }
    }

    /// Follows a clock that was ahead until now: instants after now come again.
    fn follow_clock(&mut self, now: u64) {
        let latest = now + u64::try_from(SLACK.as_millis()).unwrap();
        self.last_decided = self.last_decided.filter(|last| *last <= latest);
        if self.floor > latest {
            self.floor = self.come(now).max(self.created).max(self.last_decided.unwrap_or(0));
            let _again = self.fates.split_off(&(self.floor + 1));
        }
    }

    fn all(&self, is: impl Fn(Fate) -> bool) -> Vec<u64> {
        self.fates.iter().filter(|(_, fate)| is(**fate)).map(|(instant, _)| *instant).collect()
    }

    fn end(&mut self, instant: u64) {
        let _former = self.fates.insert(instant, Fate::Over);
    }

    fn miss(&mut self, instant: u64) {
        self.end(instant);
        self.missed += 1;
    }

    fn skip(&mut self, instant: u64) {
        self.end(instant);
        self.skipped += 1;
    }

    /// Decides about each instant that has come. Returns the instants that get occurrences.
    fn decide(&mut self, now: u64, is_under_way: bool) -> Vec<u64> {
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

    fn pause(&mut self, now: u64) {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        self.is_paused = true;
    }

    fn resume(&mut self, now: u64) {
        self.follow_clock(now);
        self.let_come(self.come(now), 0);
        // The instants of the pause never come.
        self.floor = self.floor.max(self.come(now));
        self.is_paused = false;
    }

    fn change(&mut self, after: Schedule, offset: u64, now: u64) {
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

    fn decide(&mut self) {
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
        let Progress { fired, missed, skipped, queued, catch_up, undecided, next, .. } = &self.progress;
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
                self.decide();
            }
            0..=9 => self.now += self.random.below(120 * SECOND),
            10 if !self.oracle.is_paused => self.decide(),
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
    let schedule = Schedule {
        missed: Missed::All,
        overlap: Overlap::QueueOne,
        start: Some(at(0)),
        ..Schedule::new(Plan::Every(10 * SECOND))
    };
    let other = Schedule { plan: Plan::Every(7 * SECOND), ..schedule.clone() };
    let progress = Progress::new(TimerId::from_u128(7), &schedule, at(5 * SECOND)).unwrap();
    let now = at(55 * SECOND);
    let decision = progress.decide(&schedule, Duration::ZERO, now, false).unwrap();
    assert_eq!(decision.fire, [at(10 * SECOND)]);
    // Another call has only counted, has paused and resumed, or has changed the plan.
    let paused = Progress { paused: Some(now), ..progress.clone() };
    let resumed = paused.resumed(&schedule, Duration::ZERO, now).unwrap();
    let changed = progress.changed((&schedule, Duration::ZERO), (&other, Duration::ZERO), now).unwrap();
    for (mut present, waiting) in [(progress.clone(), 4), (paused, 4), (resumed, 4), (changed, 0)] {
        let present_plan = if waiting == 0 { &other } else { &schedule };
        let moments = instants::ScheduleInstants::new(present_plan, present.created).unwrap();
        present.note_fired(&moments, &progress, &decision.fire, now);
        present.let_come(&moments, now, None);
        let waits: u64 = present.undecided.iter().map(|span| span.span().count(&moments)).sum();
        // Of the former plan, the instants that got no occurrences are missed.
        let counts = (present.fired, present.missed, present.skipped, waits);
        assert_eq!(counts, (1, 4 - waiting, 0, waiting), "{present:?}");
        assert_eq!(present.last_occurrence, decision.progress.last_occurrence);
    }
}
