//! Tests the decisions of a schedule over random steps against a simple list of the instants that have come.

use super::progress::less;
use super::*;
use std::collections::BTreeSet;

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

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// A schedule with a fixed period, whose instants are the multiples of the period, and a list of these instants.
struct Model {
    random: Random,
    schedule: Schedule,
    offset: Duration,
    progress: Progress,
    now: u64,
    /// The greatest moment that instants have reached so far, by the jitter of that time.
    reached: u64,
    is_under_way: bool,
    /// The instants that have come and count, whether or not a decision was made about them.
    come: BTreeSet<u64>,
    /// The instants that never come: of a pause, or of the time before a change.
    gone: BTreeSet<u64>,
    fired: BTreeSet<u64>,
    log: Vec<String>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let missed = random.one_of(&[Missed::Skip, Missed::Once, Missed::All]);
        let overlap = random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Allow]);
        let grace = Duration::from_millis(random.one_of(&[0, 500, 3 * SECOND]));
        let schedule = Schedule {
            missed,
            overlap,
            grace,
            start: Some(UtcMillis::ZERO),
            ..Schedule::new(Plan::Every(10 * SECOND))
        };
        let now = 100 * SECOND + random.below(20 * SECOND);
        let progress = Progress::new(TimerId::from_u128(7), &schedule, UtcMillis::from_millis(now)).unwrap();
        let mut model = Self {
            random,
            schedule,
            offset: Duration::ZERO,
            progress,
            now,
            reached: now,
            is_under_way: false,
            come: BTreeSet::new(),
            gone: BTreeSet::new(),
            fired: BTreeSet::new(),
            log: Vec::new(),
        };
        model.gone = model.instants(model.now).collect();
        model
    }

    fn now(&self) -> UtcMillis {
        UtcMillis::from_millis(self.now)
    }

    /// Returns the moment that instants have reached whose occurrences are due by now.
    fn passed(&self) -> u64 {
        less(self.now(), self.offset).as_millis()
    }

    /// Returns the instants of the schedule up to a moment.
    fn instants(&self, moment: u64) -> impl Iterator<Item = u64> + use<> {
        let Plan::Every(period) = self.schedule.plan else { unreachable!() };
        let end = self.schedule.end.map_or(moment, |end| moment.min(end.as_millis()));
        (0..=end / period).map(move |number| number * period)
    }

    /// Lets instants come that have passed by now, or leaves them out during a pause.
    fn let_come(&mut self) {
        self.reached = self.reached.max(self.passed());
        for instant in self.instants(self.passed()) {
            if self.progress.paused {
                if !self.come.contains(&instant) {
                    self.gone.insert(instant);
                }
            } else if !self.gone.contains(&instant) {
                self.come.insert(instant);
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.let_come();
    }

    fn decide(&mut self) {
        let decision =
            self.progress.decide(&self.schedule, self.offset, self.now(), self.is_under_way).unwrap();
        for instant in &decision.fire {
            let instant = instant.as_millis();
            assert!(self.come.contains(&instant), "{instant} has not come: {:#?}", self.log);
            assert!(self.fired.insert(instant), "{instant} gets a second occurrence: {:#?}", self.log);
        }
        self.is_under_way = self.is_under_way || !decision.fire.is_empty();
        self.log.push(format!("{} {:?} {}: {decision:?}", self.now, self.schedule.plan, self.is_under_way));
        assert_eq!(decision.progress.missed - self.progress.missed, decision.missed);
        self.progress = decision.progress;
        if decision.wake.is_some_and(|wake| wake <= self.now()) {
            return self.decide();
        }
        self.check();
    }

    /// Checks that each instant that has come has one outcome.
    fn check(&self) {
        let Progress { fired, missed, skipped, queued, ref catch_up, .. } = self.progress;
        let moments = instants::ScheduleInstants::new(&self.schedule, self.progress.created).unwrap();
        let waiting: u64 = catch_up.iter().map(|span| span.count(&moments)).sum();
        let all = fired + missed + skipped + waiting + u64::from(queued.is_some());
        assert_eq!(all, self.come.len() as u64, "{:?} {:#?} {:#?}", self.progress, self.come, self.log);
        assert_eq!(fired, self.fired.len() as u64);
        let spans: Vec<_> = catch_up.iter().flat_map(|span| [span.next, span.last]).collect();
        assert!(spans.is_sorted() && queued.is_none_or(|queued| self.come.contains(&queued.as_millis())));
    }

    /// Changes the rule or the offset. Of the new rule, the instants before the next instant do not come, unless they
    /// have come already.
    fn change(&mut self, after: Schedule, offset: Duration) {
        self.log.push(format!("{} changed to {after:?} {offset:?}", self.now));
        let before = (&self.schedule, self.offset);
        self.progress = self.progress.changed(before, (&after, offset), self.now()).unwrap();
        (self.schedule, self.offset) = (after, offset);
        let next = self.progress.next.map(UtcMillis::as_millis);
        let mut later = self.instants(self.reached + 60 * SECOND).filter(|instant| *instant > self.reached);
        let is_lost = later.next().is_some_and(|first| next.is_none_or(|next| next > first));
        assert!(!is_lost, "an instant is lost: {:?} {:#?}", self.progress, self.log);
        let earlier = self.instants(next.map_or(u64::MAX, |next| next - 1));
        self.gone.extend(earlier.filter(|instant| !self.come.contains(instant)));
        // With a longer jitter, an instant without a decision comes once more, and later. An instant after the end has
        // been counted as missed.
        let (passed, end) = (self.passed(), self.schedule.end.map(UtcMillis::as_millis));
        let is_later =
            |at: u64| at > passed && next.is_some_and(|next| at >= next) && end.is_none_or(|end| at <= end);
        self.come.retain(|instant| !is_later(*instant));
        self.let_come();
        let followed = self.progress.followed(&self.schedule, self.offset, self.now()).unwrap();
        assert_eq!(followed, None, "the clock was never ahead: {:#?}", self.log);
    }

    fn step(&mut self) {
        let after = self.schedule.clone();
        match self.random.below(16) {
            // The schedule decides on time, or a little late.
            0..=5 => {
                let late = self.random.one_of(&[0, 0, 1, 400, 2 * SECOND]);
                let next = self.progress.next.map_or(self.now, |next| (next + self.offset).as_millis());
                let time = next.saturating_sub(self.now) + late;
                self.pass(time.min(60 * SECOND));
                self.decide();
            }
            6 | 7 => {
                // The process is away.
                let time = self.random.below(120 * SECOND);
                self.pass(time);
                if self.random.below(2) == 0 {
                    self.decide();
                }
            }
            8 | 9 => self.is_under_way = false,
            10 => {
                self.decide();
                self.progress.paused = true;
                let time = self.random.below(60 * SECOND);
                self.pass(time);
                self.log.push(format!("{} resumed", self.now));
                self.progress = self.progress.resumed(&self.schedule, self.offset, self.now()).unwrap();
                self.decide();
            }
            11 => {
                let missed = self.random.one_of(&[Missed::Skip, Missed::Once, Missed::All]);
                self.change(Schedule { missed, ..after }, self.offset);
            }
            12 => {
                let overlap = self.random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Allow]);
                self.change(Schedule { overlap, ..after }, self.offset);
            }
            13 => {
                // docs/known-faults.md describes a longer jitter between two changes of the end.
                if after.end.is_some() {
                    self.decide();
                }
                let offset = Duration::from_millis(self.random.one_of(&[0, 3 * SECOND, 25 * SECOND]));
                self.change(after, offset);
            }
            14 => {
                let plan = Plan::Every(SECOND * self.random.one_of(&[5, 10, 15]));
                self.change(Schedule { plan, ..after }, self.offset);
            }
            _ => {
                let back = self.random.below(40 * SECOND);
                let end = self.random.one_of(&[None, Some(self.now + back), Some(self.now - back)]);
                self.change(Schedule { end: end.map(UtcMillis::from_millis), ..after }, self.offset);
            }
        }
    }
}

#[test]
fn each_instant_gets_its_occurrence_or_is_missed_or_is_skipped_or_waits() {
    for seed in 0..2_000 {
        let mut model = Model::new(seed);
        for _ in 0..60 {
            model.step();
        }
        model.decide();
    }
}
