//! Tests schedules and timers under a store's clock that steps ahead for ten seconds, and back.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::{Clock, ClockReport, ManualClock, OnStep, Timestamp};
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::schedule::{
    Missed, Overlap, Schedule, ScheduleEvent, ScheduleKey, Schedules, Template,
};
use tourbillon_durable::store::{Filter, MemoryStore, RedbStore, TimerStore};
use tourbillon_durable::timer::Payload;
use tourbillon_durable::{Changed, Durable, Incident, Spec, UtcMillis, Verdict};

const PATIENCE: Duration = Duration::from_secs(20);
/// The moment 2026-03-28T12:00:00Z, in milliseconds since the start of 1970.
const NOON: u64 = 1_774_699_200_000;
const MINUTE: u64 = 60_000;
const TEN_SECONDS: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3_600);
const DECADE: Duration = Duration::from_secs(3_652 * 86_400);

/// The store's clock. The clock shows `begin` plus the time that has passed. A step of the clock changes `begin`.
#[derive(Clone)]
struct Steps {
    passed: ManualClock,
    /// The moment to which the clock adds the time that has passed, in nanoseconds from the start of 1970 on.
    begin: Arc<AtomicU64>,
    watchers: Arc<Mutex<Vec<Arc<OnStep>>>>,
    /// Whether a step of the clock does not call the clock's subscribers.
    is_silent: bool,
}

impl Clock for Steps {
    fn now(&self) -> Timestamp {
        self.passed.now() + Duration::from_nanos(self.begin.load(SeqCst))
    }

    fn report(&self) -> ClockReport {
        self.passed.report()
    }

    fn subscribe(&self, on_step: OnStep) {
        let on_step = Arc::new(on_step);
        self.watchers.lock().unwrap().push(Arc::clone(&on_step));
        self.passed.subscribe(Box::new(move || on_step()));
    }
}

impl Steps {
    fn at_noon(is_silent: bool) -> Self {
        let begin = Arc::new(AtomicU64::new(noon().as_nanos()));
        Self { passed: ManualClock::new(), begin, watchers: Arc::default(), is_silent }
    }

    fn step(&self, by: Duration, is_ahead: bool) {
        let nanos = u64::try_from(by.as_nanos()).unwrap();
        let _before =
            if is_ahead { self.begin.fetch_add(nanos, SeqCst) } else { self.begin.fetch_sub(nanos, SeqCst) };
        if !self.is_silent {
            self.watchers.lock().unwrap().retain(|on_step| on_step());
        }
    }
}

struct World {
    clock: Steps,
    store: Arc<dyn TimerStore>,
    schedules: Schedules,
    /// The scheduled moments of all delivered occurrences, in seconds after noon.
    seen: Arc<Mutex<Vec<i64>>>,
    /// The lengths of the clock steps that the runtime reported, in seconds.
    steps: Arc<Mutex<Vec<i64>>>,
    followed: Arc<Mutex<Vec<UtcMillis>>>,
    /// The number of events that report an occurrence.
    fired: Arc<AtomicU64>,
    /// The verdict that the handler returns. `None` for success.
    verdict: Arc<Mutex<Option<Verdict>>>,
    durable: Option<Durable>,
}

fn seconds(from: UtcMillis, to: UtcMillis) -> i64 {
    (to.as_millis() as i64 - from.as_millis() as i64).div_euclid(1_000)
}

fn noon() -> UtcMillis {
    UtcMillis::from_millis(NOON)
}

impl World {
    fn new() -> Self {
        let clock = Steps::at_noon(false);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Self::on(store, clock)
    }

    fn on(store: Arc<dyn TimerStore>, clock: Steps) -> Self {
        let followed = Arc::new(Mutex::new(Vec::new()));
        let fired = Arc::new(AtomicU64::new(0));
        let (kept, count) = (Arc::clone(&followed), Arc::clone(&fired));
        let schedules = Schedules::observed(Arc::clone(&store), move |_, event| match event {
            ScheduleEvent::Followed { to, .. } => kept.lock().unwrap().push(*to),
            ScheduleEvent::Fired { .. } => drop(count.fetch_add(1, SeqCst)),
            _ => {}
        });
        let (seen, steps, verdict) = (Arc::default(), Arc::default(), Arc::default());
        let mut world =
            Self { clock, store, schedules, seen, steps, followed, fired, verdict, durable: None };
        world.start();
        world
    }

    fn start(&mut self) {
        let (seen, steps) = (Arc::clone(&self.seen), Arc::clone(&self.steps));
        let answer = Arc::clone(&self.verdict);
        let builder = Durable::builder_on(Arc::clone(&self.store))
            .clock(self.clock.passed.clone())
            .catch_up_rate(None)
            .on_incident(move |incident| {
                if let Incident::ClockStepped { from, to } = incident {
                    steps.lock().unwrap().push(seconds(*from, *to));
                }
            })
            .bytes_handler("mail", move |_, delivery| {
                seen.lock().unwrap().push(seconds(noon(), delivery.scheduled));
                let verdict = answer.lock().unwrap().clone().unwrap_or(Verdict::Done);
                async move { verdict }
            });
        self.durable = Some(self.schedules.add_to(builder).start().unwrap());
        self.settle();
    }

    fn stop(&mut self) {
        drop(self.durable.take().unwrap().shutdown(PATIENCE));
    }

    fn settle(&self) {
        let durable = self.durable.as_ref().unwrap().handle();
        assert!(durable.await_idle(PATIENCE), "{durable:?}");
    }

    /// Lets the time `time` pass on the clocks of the store and the runtime.
    fn pass(&self, time: Duration) {
        self.clock.passed.advance(time);
        if self.durable.is_some() {
            self.settle();
        }
    }

    /// Makes the store's clock step forward (`is_ahead`) or back by the time `by`.
    fn step(&self, by: Duration, is_ahead: bool) {
        self.clock.step(by, is_ahead);
        // After a silent step the runtime does not wake by itself.
        if self.durable.is_some() && !self.clock.is_silent {
            self.settle();
        }
    }

    /// Makes the store's clock step forward by the time `by`, and back again ten seconds later.
    fn be_ahead(&self, by: Duration) {
        self.step(by, true);
        self.pass(TEN_SECONDS);
        self.step(by, false);
    }

    fn put(&self, schedule: Schedule) {
        let template = Template {
            kind: "mail".into(),
            payload: Payload::default(),
            labels: Vec::new(),
            policy: Default::default(),
        };
        self.schedules.put(&at(), schedule, template).unwrap();
    }

    fn next(&self) -> Option<i64> {
        Some(seconds(noon(), self.schedules.get(&at()).unwrap().progress.next?))
    }

    /// Returns the scheduled moments of the delivered occurrences, in seconds after noon. Leaves out moments that are
    /// in the future by the store's clock.
    fn seen(&self) -> Vec<i64> {
        let now = seconds(noon(), self.store.now());
        self.seen.lock().unwrap().iter().copied().filter(|second| *second <= now).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(pollster::block_on(self.store.check()).unwrap(), []);
        }
    }
}

fn at() -> ScheduleKey {
    ScheduleKey::new("shop", "report")
}

fn cron(expression: &str) -> Plan {
    Plan::cron(expression, "UTC").unwrap()
}

/// Converts each minute of a range to seconds.
fn minutes(range: std::ops::RangeInclusive<i64>) -> Vec<i64> {
    range.map(|minute| 60 * minute).collect()
}

#[test]
fn a_clock_that_was_ahead_for_ten_seconds_does_not_silence_schedules() {
    for by in [DECADE, HOUR] {
        for plan in [Plan::Every(MINUTE), cron("* * * * *")] {
            for missed in [Missed::Skip, Missed::Once] {
                let world = World::new();
                world.put(Schedule { missed, ..Schedule::new(plan.clone()) });
                for _ in 0..3 {
                    world.pass(Duration::from_secs(60));
                }
                world.pass(Duration::from_secs(5));
                world.be_ahead(by);
                assert_eq!(world.next(), Some(240), "{by:?} {plan:?} {missed:?}");
                for _ in 0..36 {
                    world.pass(Duration::from_secs(5));
                }
                assert_eq!(world.seen(), minutes(1..=6), "{by:?} {plan:?} {missed:?}");
                let size = by.as_secs() as i64;
                assert_eq!(*world.steps.lock().unwrap(), [size, -size]);
                let stats = world.durable.as_ref().unwrap().handle().stats();
                assert_eq!((stats.clock_steps_ahead, stats.clock_steps_back), ((1, by), (1, by)));
                assert_eq!(*world.followed.lock().unwrap(), [noon() + Duration::from_secs(240)]);
            }
        }
    }
}

/// Tests an hour in which the occurrence of a single instant came while the clock was ahead.
#[test]
fn an_instant_that_had_its_occurrence_while_the_clock_was_ahead_gets_no_second_one() {
    let world = World::new();
    world.put(Schedule { overlap: Overlap::Allow, ..Schedule::new(Plan::Every(MINUTE)) });
    world.pass(Duration::from_secs(65));
    world.be_ahead(HOUR);
    assert_eq!(*world.seen.lock().unwrap(), [60, 3_660]);
    for _ in 0..65 {
        world.pass(Duration::from_secs(60));
    }
    let mut seen = world.seen();
    seen.sort_unstable();
    assert_eq!(seen, minutes(1..=66));
    let progress = world.schedules.get(&at()).unwrap().progress;
    assert_eq!((progress.fired, world.fired.load(SeqCst), progress.ahead), (66, 66, None));
}

/// The occurrence of minute 1 waits for a retry, which fails and is put off while the clock is ahead. In the second
/// case, an occurrence that was made while the clock was ahead is parked.
#[test]
fn an_occurrence_that_was_put_off_while_the_clock_was_ahead_does_not_silence_its_schedule() {
    let retry = Verdict::Retry { error: "no".into(), after: None };
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::Allow] {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            for verdict in [retry.clone(), Verdict::Park("closed".into())] {
                // With this rule, true instants are fired and parked while the clock is ahead.
                if verdict != retry && missed == Missed::All && overlap != Overlap::Allow {
                    continue;
                }
                let world = World::new();
                world.put(Schedule { missed, overlap, ..Schedule::new(Plan::Every(HOUR.as_secs() * 1_000)) });
                if verdict == retry {
                    *world.verdict.lock().unwrap() = Some(verdict.clone());
                    world.pass(HOUR);
                }
                *world.verdict.lock().unwrap() = Some(verdict.clone());
                world.be_ahead(HOUR * 24 * 40);
                *world.verdict.lock().unwrap() = None;
                for _ in 0..3 * 60 {
                    world.pass(Duration::from_secs(60));
                }
                let seen = world.seen();
                let last = if verdict == retry { 4 } else { 3 };
                assert!(
                    (2..=last).all(|hour| seen.contains(&(hour * 3_600))),
                    "{overlap:?} {missed:?} {seen:?}"
                );
            }
        }
    }
}

/// A schedule that looks for the end of its last occurrence looks again soon after a step back.
#[test]
fn a_look_that_was_put_off_while_the_clock_was_ahead_comes_back() {
    let world = World::new();
    let day = HOUR * 24;
    let tenth = Plan::Every(10 * day.as_secs() * 1_000);
    world.put(Schedule { overlap: Overlap::QueueOne, ..Schedule::new(tenth) });
    *world.verdict.lock().unwrap() = Some(Verdict::Snooze(noon() + day * 28));
    world.pass(day * 10);
    world.pass(day * 10);
    world.pass(day);
    assert_eq!(world.seen().len(), 1);
    world.be_ahead(day * 5);
    *world.verdict.lock().unwrap() = None;
    let first = world.schedules.get(&at()).unwrap().progress.last_occurrence;
    let timers = world.durable.as_ref().unwrap().handle();
    if let Some(first) = first {
        drop(pollster::block_on(timers.cancel(first)).unwrap());
    }
    world.pass(Duration::from_secs(60));
    assert!(world.seen().contains(&(20 * 86_400)), "{:?}", world.seen());
}

/// Tests a clock that steps over ten years, with 120 monthly instants. A unit test checks the limit for the number of
/// instants.
#[test]
fn instants_of_which_none_is_to_be_missed_come_again_in_their_time() {
    let world = World::new();
    let monthly = Schedule::new(cron("0 0 1 * *"));
    world.put(Schedule { missed: Missed::All, overlap: Overlap::Allow, ..monthly });
    world.pass(TEN_SECONDS);
    world.be_ahead(DECADE);
    let ahead = world.seen.lock().unwrap().len();
    assert!((119..=121).contains(&ahead), "{ahead}");
    // The first of April.
    assert_eq!(world.next(), Some(3 * 86_400 + 43_200));
}

#[test]
fn a_schedule_that_ended_while_the_clock_was_ahead_goes_on() {
    let world = World::new();
    let end = Some(noon() + HOUR);
    world.put(Schedule { end, missed: Missed::Skip, ..Schedule::new(cron("* * * * *")) });
    world.be_ahead(DECADE);
    assert_eq!(world.next(), Some(60));
    for _ in 0..3 {
        world.pass(Duration::from_secs(60));
    }
    assert_eq!(world.seen(), minutes(1..=3));
}

#[test]
fn a_schedule_that_was_made_while_the_clock_was_ahead_follows_the_present_one() {
    let world = World::new();
    world.step(DECADE, true);
    world.put(Schedule::new(Plan::Every(MINUTE)));
    world.pass(Duration::from_secs(70));
    world.step(DECADE, false);
    assert_eq!(world.next(), Some(130));
    world.pass(Duration::from_secs(60));
    assert_eq!(world.seen(), [130]);
}

#[test]
fn a_start_a_resume_and_a_put_compute_the_plan_by_the_present_clock() {
    let folder = tempfile::tempdir().unwrap();
    for how in ["start", "resume", "put", "put of another overlap"] {
        let clock = Steps::at_noon(false);
        let store = RedbStore::builder().clock(clock.clone()).open(folder.path().join(how)).unwrap();
        let mut world = World::on(Arc::new(store), clock);
        let schedule = Schedule { missed: Missed::Skip, ..Schedule::new(Plan::Every(MINUTE)) };
        world.put(schedule.clone());
        world.pass(Duration::from_secs(65));
        world.step(DECADE, true);
        world.pass(TEN_SECONDS);
        world.stop();
        // The clock goes back while no runtime runs.
        world.step(DECADE, false);
        assert!(world.next().unwrap() > 300_000_000, "{how}");
        match how {
            "start" => world.start(),
            "resume" => {
                world.schedules.pause(&at()).unwrap();
                world.schedules.resume(&at()).unwrap();
            }
            "put" => world.put(schedule),
            _ => world.put(Schedule { overlap: Overlap::Allow, ..schedule }),
        }
        assert_eq!(world.next(), Some(120), "{how}");
    }
}

#[test]
fn a_step_that_no_kernel_announces_is_seen_when_the_program_asks() {
    let clock = Steps::at_noon(true);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let world = World::on(store, clock);
    let timers = world.durable.as_ref().unwrap().handle();
    world.put(Schedule { missed: Missed::Skip, ..Schedule::new(Plan::Every(MINUTE)) });
    world.step(DECADE, true);
    timers.look_at_clock();
    world.settle();
    assert!(world.next().unwrap() > 300_000_000);
    world.step(DECADE, false);
    timers.look_at_clock();
    world.settle();
    assert_eq!(world.next(), Some(60));
    let size = DECADE.as_secs() as i64;
    assert_eq!(*world.steps.lock().unwrap(), [size, -size]);
    timers.look_at_clock();
    world.settle();
    assert_eq!(world.steps.lock().unwrap().len(), 2, "each step once");
}

#[test]
fn timers_that_were_made_while_the_clock_was_ahead_are_found_and_moved() {
    let world = World::new();
    let timers = world.durable.as_ref().unwrap().handle();
    let spec = || Spec::new(Vec::new());
    timers.schedule_bytes_blocking("mail", spec().key("before").after(HOUR)).unwrap();
    world.step(DECADE, true);
    timers.schedule_bytes_blocking("mail", spec().key("single").after(HOUR)).unwrap();
    let minutely = spec().key("series").repeat(Plan::Every(MINUTE), MissedInstants::Skip);
    timers.schedule_bytes_blocking("mail", minutely).unwrap();
    world.pass(TEN_SECONDS);
    world.step(DECADE, false);
    assert_eq!(*world.seen.lock().unwrap(), [3_600], "what was due by the clock is delivered");
    let after = Filter { created_after: Some(world.store.now()), ..Filter::default() };
    let page = pollster::block_on(timers.list(after, None, 10)).unwrap();
    let mut keys: Vec<_> = page.timers.iter().map(|timer| timer.key.as_deref().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["series", "single"]);
    let soon = world.store.now() + Duration::from_secs(30);
    for timer in page.timers {
        assert_eq!(pollster::block_on(timers.move_to(timer.id, soon)).unwrap(), Changed::Changed);
    }
    world.seen.lock().unwrap().clear();
    world.pass(Duration::from_secs(31));
    assert_eq!(world.seen.lock().unwrap().len(), 2);
    // The series has come back to the present time, too.
    world.pass(Duration::from_secs(60));
    assert_eq!(world.seen.lock().unwrap().len(), 3);
}

/// Tests the end of a runtime during the work after a step of the clock. After a step, a runtime computes the next
/// instants of all schedules. With many schedules this work takes long, but delays nothing else.
#[test]
fn a_runtime_ends_while_plans_are_computed_anew() {
    let mut world = World::new();
    let template = || Template {
        kind: "mail".into(),
        payload: Payload::default(),
        labels: vec![],
        policy: Default::default(),
    };
    for n in 0..300 {
        let at = ScheduleKey::new("shop", format!("k{n}"));
        let schedule = Schedule { missed: Missed::Skip, ..Schedule::new(Plan::Every(MINUTE)) };
        world.schedules.put(&at, schedule, template()).unwrap();
    }
    world.step(DECADE, true);
    world.pass(TEN_SECONDS);
    world.clock.step(DECADE, false);
    let begun = Instant::now();
    world.stop();
    assert!(begun.elapsed() < PATIENCE / 2);
    world.start();
    for n in 0..300 {
        let view = world.schedules.get(&ScheduleKey::new("shop", format!("k{n}"))).unwrap();
        assert_eq!(view.progress.next, Some(noon() + Duration::from_secs(60)), "{n}");
    }
}
