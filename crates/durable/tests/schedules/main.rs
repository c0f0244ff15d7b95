//! Tests schedules in stores, on a manual clock.

mod calendar;
mod failures;
mod lost;
mod missed;
mod overlaps;
mod races;
mod sums;

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::plan::Plan;
use tourbillon_durable::policy::{Backoff, Policy};
use tourbillon_durable::schedule::{
    Missed, Overlap, Schedule, ScheduleEvent, ScheduleFault, ScheduleKey, ScheduleView, Schedules, Template,
};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Filter, IfPresent, Limit, MemoryStore, Op, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_durable::{Durable, UtcMillis, Verdict};

const PATIENCE: Duration = Duration::from_secs(20);
/// The moment 2026-03-28T12:00:00Z, in milliseconds since the start of 1970.
const NOON: u64 = 1_774_699_200_000;
const MINUTE: u64 = 60_000;

/// The delivered occurrences, each with the minute for which it was scheduled, the minute of its delivery, and its id.
/// Minutes count from the start of the test.
type Seen = Arc<Mutex<Vec<(u64, u64, TimerId)>>>;

struct World {
    clock: ManualClock,
    store: Arc<dyn TimerStore>,
    schedules: Schedules,
    events: Arc<Mutex<Vec<String>>>,
    /// The occurrences whose events the observer has got.
    told: Arc<Mutex<Vec<TimerId>>>,
    seen: Seen,
    /// The verdict that the handler returns. `None` for success.
    verdict: Arc<Mutex<Option<Verdict>>>,
    durable: Option<Durable>,
}

fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(NOON).as_nanos()));
    clock
}

impl World {
    fn new() -> Self {
        let clock = clock();
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Self::on(clock, store, Seen::default())
    }

    fn on(clock: ManualClock, store: Arc<dyn TimerStore>, seen: Seen) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let (kept, made) = (Arc::clone(&events), Arc::clone(&told));
        let schedules = Schedules::observed(Arc::clone(&store), move |at, event| {
            assert_eq!((&*at.namespace, &*at.key), ("shop", "report"));
            match event {
                ScheduleEvent::Fired { id, .. } => made.lock().unwrap().push(*id),
                _ => kept.lock().unwrap().push(format!("{event:?}")),
            }
        });
        let verdict = Arc::new(Mutex::new(None));
        let (deliveries, answer, now) = (Arc::clone(&seen), Arc::clone(&verdict), clock.clone());
        let builder = Durable::builder_on(Arc::clone(&store)).clock(clock.clone()).bytes_handler(
            "mail",
            move |body, delivery| {
                assert_eq!((&*body, &*delivery.namespace), (&b"hello"[..], "shop"));
                assert!(delivery.labels.iter().any(|label| **label == *"schedule:report"));
                let now = UtcMillis::from_nanos(tourbillon::Clock::true_now(&now).as_nanos());
                let minute = |at: UtcMillis| at.as_millis().saturating_sub(NOON) / MINUTE;
                deliveries.lock().unwrap().push((minute(delivery.scheduled), minute(now), delivery.id));
                let verdict = answer.lock().unwrap().clone().unwrap_or(Verdict::Done);
                async move { verdict }
            },
        );
        let durable = Some(schedules.add_to(builder).start().unwrap());
        Self { clock, store, schedules, events, told, seen, verdict, durable }
    }

    fn settle(&self) {
        assert!(self.durable.as_ref().unwrap().handle().await_idle(PATIENCE));
    }

    fn advance(&self, minutes: u64) {
        self.clock.advance(Duration::from_millis(minutes * MINUTE));
        self.settle();
    }

    fn put(&self, schedule: Schedule) -> ScheduleView {
        self.schedules.put(&at(), schedule, template()).unwrap().1
    }

    fn view(&self) -> ScheduleView {
        self.schedules.get(&at()).unwrap()
    }

    /// Returns the minutes for which the delivered occurrences were scheduled, from the start of the test.
    fn minutes(&self) -> Vec<u64> {
        self.seen.lock().unwrap().iter().map(|(scheduled, ..)| *scheduled).collect()
    }

    /// Returns the numbers of instants that got occurrences, were missed, and were skipped.
    fn counts(&self) -> (u64, u64, u64) {
        let progress = self.view().progress;
        (progress.fired, progress.missed, progress.skipped)
    }

    /// Replaces a part of the schedule's stored payload, as if a program of another version had stored it.
    fn replace_in_payload(&self, from: &str, to: &str) {
        let schedules = Filter { kind: Some(Schedules::KIND.into()), ..Default::default() };
        let listed = pollster::block_on(self.store.list(schedules, None, 9)).unwrap();
        let timer = listed.timers.into_iter().next().unwrap();
        let text = String::from_utf8(timer.payload.0.to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        let payload = Payload(text.replace(from, to).into_bytes().into());
        let replacement = Timer { payload, id: TimerId::fresh(), ..timer };
        let op = Op::Place(Box::new(replacement), IfPresent::Replace);
        drop(pollster::block_on(self.store.apply(vec![op], Default::default())).unwrap());
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    /// Ends the runtime and closes the store.
    fn stop(mut self) {
        drop(self.durable.take().unwrap().shutdown(PATIENCE));
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

fn template() -> Template {
    let policy = Policy { backoff: Backoff::Fixed(Duration::from_secs(90)), ..Policy::default() };
    Template { kind: "mail".into(), payload: Payload((*b"hello").into()), labels: vec!["x".into()], policy }
}

fn each_minute() -> Schedule {
    Schedule::new(Plan::Every(MINUTE))
}

fn cron(expression: &str, zone: &str) -> Schedule {
    Schedule::new(Plan::Cron { expression: expression.into(), zone: zone.into(), skip_gaps: false })
}

#[test]
fn occurrences_come_at_their_instants_and_the_view_says_so() {
    let world = World::new();
    let made = world.put(each_minute());
    assert_eq!(made.due, Some(UtcMillis::from_millis(NOON + MINUTE)));
    world.advance(1);
    world.advance(1);
    assert_eq!(world.minutes(), [1, 2]);
    let view = world.view();
    assert_eq!((view.progress.fired, view.progress.missed, view.progress.skipped), (2, 0, 0));
    assert_eq!(view.progress.last_scheduled, Some(UtcMillis::from_millis(NOON + 2 * MINUTE)));
    assert_eq!(view.progress.last_fired, view.progress.last_scheduled);
    assert_eq!((view.due, view.overdue), (Some(UtcMillis::from_millis(NOON + 3 * MINUTE)), Duration::ZERO));
    assert!(world.schedules.remove(&at()).unwrap());
    assert!(!world.schedules.remove(&at()).unwrap());
    world.advance(5);
    assert_eq!(world.minutes(), [1, 2]);
    assert!(matches!(world.schedules.get(&at()), Err(ScheduleFault::NotFound)));
}

#[test]
fn a_paused_schedule_makes_nothing_and_goes_on_with_the_next_instant() {
    let world = World::new();
    world.put(each_minute());
    let paused = world.schedules.pause(&at()).unwrap();
    assert_eq!((paused.progress.paused.is_some(), paused.due), (true, None));
    world.advance(3);
    assert!(world.minutes().is_empty());
    let resumed = world.schedules.resume(&at()).unwrap();
    assert_eq!(resumed.due, Some(UtcMillis::from_millis(NOON + 4 * MINUTE)));
    world.advance(1);
    assert_eq!((world.minutes(), world.view().progress.missed), (vec![4], 0));
    // A change of a paused schedule does not resume it.
    world.schedules.pause(&at()).unwrap();
    assert!(world.put(Schedule::new(Plan::Every(MINUTE / 2))).progress.paused.is_some());
    world.advance(3);
    assert_eq!(world.minutes(), [4]);
}

#[test]
fn a_trigger_makes_an_occurrence_and_leaves_the_plan_as_it_is() {
    let world = World::new();
    world.put(each_minute());
    world.schedules.pause(&at()).unwrap();
    let id = world.schedules.trigger(&at()).unwrap();
    world.settle();
    assert_eq!(world.seen.lock().unwrap().last(), Some(&(0, 0, id)));
    world.schedules.resume(&at()).unwrap();
    world.schedules.trigger(&at()).unwrap();
    world.settle();
    world.advance(1);
    assert_eq!(world.minutes(), [0, 0, 1]);
    assert_eq!((world.view().progress.asked, world.view().progress.fired), (2, 1));
}

#[test]
fn a_backfill_makes_the_occurrences_of_a_range_once() {
    let world = World::new();
    world.put(each_minute());
    world.advance(1);
    let from = UtcMillis::from_millis(NOON - 5 * MINUTE - 1);
    let until = UtcMillis::from_millis(NOON + 60 * MINUTE);
    assert_eq!(world.schedules.count(&at(), from, until, 100).unwrap(), 66);
    let step = world.schedules.backfill(&at(), from, until, 4, None).unwrap();
    assert_eq!((step.stored, step.repeated), (4, 0));
    assert_eq!(step.next, Some(UtcMillis::from_millis(NOON - 2 * MINUTE + 1)));
    let rest = world.schedules.backfill(&at(), step.next.unwrap(), until, 100, None).unwrap();
    // Minutes -1 and 0 get occurrences. Minute 1 has an occurrence already. Later minutes have not come yet.
    assert_eq!((rest.stored, rest.repeated, rest.next), (2, 1, None));
    let again = world.schedules.backfill(&at(), from, until, 100, None).unwrap();
    assert_eq!((again.stored, again.repeated), (0, 7));
    world.settle();
    let ids: std::collections::BTreeSet<_> = world.seen.lock().unwrap().iter().map(|(.., id)| *id).collect();
    assert_eq!((world.minutes().len(), ids.len()), (7, 7));
    assert_eq!(world.view().progress.asked, 6);
}

/// A backfill leaves out the instants that the schedule itself still decides about.
#[test]
fn a_backfill_leaves_out_the_instants_that_wait() {
    let mut world = World::new();
    world.put(Schedule { missed: Missed::All, ..each_minute() });
    *world.verdict.lock().unwrap() = Some(Verdict::Snooze(UtcMillis::from_millis(NOON + 60 * MINUTE)));
    world.advance(1);
    drop(world.durable.take().unwrap().shutdown(PATIENCE));
    world.clock.advance(Duration::from_millis(3 * MINUTE + MINUTE / 2));
    let world = World::on(world.clock.clone(), Arc::clone(&world.store), Arc::clone(&world.seen));
    world.settle();
    // Minutes 2 to 4 wait for the end of the occurrence of minute 1. Minutes 5 and 6 have no decision yet.
    let mut world = world;
    drop(world.durable.take().unwrap().shutdown(PATIENCE));
    world.clock.advance(Duration::from_millis(2 * MINUTE));
    let from = UtcMillis::from_millis(NOON - MINUTE);
    let until = UtcMillis::from_millis(NOON + 60 * MINUTE);
    let step = world.schedules.backfill(&at(), from, until, 100, None).unwrap();
    // Minutes -1 and 0 are before the creation, and minute 1 has its occurrence.
    assert_eq!((step.stored, step.repeated, step.waiting, step.next), (2, 1, 5, None));
    let other = Some(TimerId::fresh());
    let refused = world.schedules.backfill(&at(), from, until, 100, other);
    assert!(matches!(refused, Err(ScheduleFault::NotFound)), "another schedule has the name");
}

#[test]
fn a_backfill_makes_no_occurrence_before_its_due_moment() {
    let world = World::new();
    let window = Duration::from_secs(3_000);
    world.put(Schedule { jitter: window, ..Schedule::new(Plan::Every(60 * MINUTE)) });
    let jitter = at().jitter(window);
    assert!(jitter > Duration::from_secs(60), "{jitter:?}");
    world.clock.advance(Duration::from_millis(60 * MINUTE) + jitter / 2);
    let (from, until) = (UtcMillis::from_millis(NOON + 1), UtcMillis::MAX);
    let step = world.schedules.backfill(&at(), from, until, 100, None).unwrap();
    assert_eq!((step.stored, step.waiting, step.next), (0, 0, None));
    world.clock.advance(jitter);
    world.settle();
    assert_eq!((world.minutes(), world.counts()), (vec![60], (1, 0, 0)));
}

#[test]
fn an_expression_that_is_refused_parks_its_schedule_and_nothing_else() {
    let world = World::new();
    world.put(cron("* * * * *", "Europe/Zurich"));
    world.replace_in_payload("* * * * *", "61 * * * *");
    world.advance(2);
    let view = world.view();
    let fault = view.progress.fault.clone().unwrap();
    assert!(fault.contains("61 * * * *"), "{fault}");
    assert_eq!((view.due, world.minutes()), (None, vec![]));
    assert_eq!(world.events().len(), 1);
    assert!(matches!(world.schedules.resume(&at()), Err(ScheduleFault::Plan(_))));
    // A valid rule repairs the schedule.
    assert_eq!(world.put(cron("* * * * *", "Europe/Zurich")).progress.fault, None);
    world.advance(1);
    assert_eq!(world.minutes(), [3]);
}

/// Another machine may know the zone, and this one may find its file later.
#[test]
fn a_schedule_in_a_zone_that_is_unknown_here_is_late_and_goes_on() {
    let world = World::new();
    let other = ScheduleKey::new("shop", "other");
    world.put(Schedule {
        missed: Missed::All,
        overlap: Overlap::Allow,
        ..cron("* * * * *", "Europe/Zurich")
    });
    world.replace_in_payload("Zurich", "Atlantis");
    world.advance(2);
    let view = world.view();
    assert_eq!((view.progress.fault, world.minutes(), world.events()), (None, vec![], vec![]));
    assert!(view.failure.is_some_and(|error| error.contains("Europe/Atlantis")));
    assert_eq!(view.overdue, Duration::from_millis(MINUTE));
    assert!(matches!(world.schedules.resume(&at()), Err(ScheduleFault::Plan(_))));
    let put = world.schedules.put(&other, cron("* * * * *", "Europe/Atlantis"), template());
    assert!(matches!(put, Err(ScheduleFault::Plan(_))));
    world.replace_in_payload("Atlantis", "Zurich");
    world.advance(1);
    let mut minutes = world.minutes();
    minutes.sort_unstable();
    assert_eq!((minutes, world.view().failure), (vec![1, 2, 3], None));
}

#[test]
fn a_schedule_that_cannot_be_read_waits_for_its_repair() {
    let world = World::new();
    world.put(each_minute());
    world.replace_in_payload("\"progress\"", "\"other\"");
    world.advance(2);
    let counts = pollster::block_on(world.store.counts()).unwrap();
    assert_eq!((counts.of(Phase::Dead), counts.of(Phase::Pending)), (0, 1));
    assert!(world.schedules.get(&at()).is_err());
    world.put(each_minute());
    world.advance(1);
    assert_eq!(world.minutes(), [3]);
}

#[test]
fn a_schedule_that_has_ended_stays_to_be_seen() {
    let world = World::new();
    let end = Some(UtcMillis::from_millis(NOON + 2 * MINUTE));
    world.put(Schedule { end, ..each_minute() });
    world.advance(1);
    world.advance(1);
    world.advance(5);
    assert_eq!((world.minutes(), world.events()), (vec![1, 2], vec!["Ended".to_owned()]));
    let view = world.view();
    assert_eq!((view.due, view.overdue, view.progress.fired), (None, Duration::ZERO, 2));
    let start = Some(UtcMillis::from_millis(NOON + 20 * MINUTE));
    let wrong = Schedule { start, end, ..each_minute() };
    assert!(matches!(world.schedules.put(&at(), wrong, template()), Err(ScheduleFault::EndBeforeStart)));
}

#[test]
fn the_jitter_follows_from_the_key() {
    let window = Duration::from_secs(600);
    let jitters: std::collections::BTreeSet<_> =
        (0..100).map(|n| ScheduleKey::new("shop", n.to_string()).jitter(window)).collect();
    assert!(jitters.len() > 95 && jitters.iter().all(|jitter| *jitter < window), "{jitters:?}");
    assert!(jitters.iter().any(|jitter| *jitter < window / 4));
    assert!(jitters.iter().any(|jitter| *jitter > window * 3 / 4));
    let world = World::new();
    let jittered = world.put(Schedule { jitter: window, ..Schedule::new(Plan::Every(60 * MINUTE)) });
    let jitter = at().jitter(window);
    assert_eq!(jittered.due, Some(UtcMillis::from_millis(NOON + 60 * MINUTE) + jitter));
    world.clock.advance(Duration::from_millis(60 * MINUTE) + jitter - Duration::from_millis(2));
    world.settle();
    assert!(world.minutes().is_empty());
    world.clock.advance(Duration::from_millis(3));
    world.settle();
    assert_eq!(world.minutes(), [60]);
    // The jitter moves the due moment of the occurrence, so the occurrence is not late.
    let lateness = world.durable.as_ref().unwrap().handle().stats().lateness;
    assert_eq!(lateness.count, 2, "of the decision and the occurrence");
    assert!(lateness.max <= Duration::from_millis(1), "{lateness:?}");
}

#[test]
fn schedules_of_one_key_in_two_namespaces_have_jitters_of_their_own() {
    let window = Duration::from_secs(600);
    let jitter = |namespace: &str| ScheduleKey::new(namespace, "report").jitter(window);
    let jitters: std::collections::BTreeSet<_> = (0..100).map(|n| jitter(&format!("shop{n}"))).collect();
    assert!(jitters.len() > 95, "{jitters:?}");
    assert_eq!(jitter("shop"), jitter("shop"));
}

#[test]
fn the_misfire_and_the_jitter_of_the_template_do_not_count() {
    let world = World::new();
    let policy = Policy {
        jitter: Duration::from_secs(3_000),
        misfire: tourbillon_durable::policy::Misfire::Within(Duration::ZERO),
        ..template().policy
    };
    world.schedules.put(&at(), each_minute(), Template { policy, ..template() }).unwrap();
    world.clock.advance(Duration::from_millis(MINUTE + 5_000));
    world.settle();
    assert_eq!(world.minutes(), [1], "neither skipped nor put off");
}

#[test]
fn a_namespace_with_a_limit_has_no_more_schedules() {
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock()));
    let schedules = Schedules::new(store);
    let put = |namespace: &str, key: &str, most| {
        schedules.put_within(&ScheduleKey::new(namespace, key), each_minute(), template(), most)
    };
    for key in ["a", "b"] {
        assert!(put("shop", key, 2).unwrap().0);
    }
    assert!(matches!(put("shop", "c", 2), Err(ScheduleFault::Full(2))));
    assert!(!put("shop", "b", 2).unwrap().0);
    assert!(put("shop2", "c", 1).unwrap().0);
    schedules.pause(&ScheduleKey::new("shop", "a")).unwrap();
    assert_eq!([schedules.number_in("shop").unwrap(), schedules.number_in("sho").unwrap()], [2, 0]);
    assert!(schedules.remove(&ScheduleKey::new("shop", "a")).unwrap());
    assert!(put("shop", "c", 2).unwrap().0);
}

/// Tests the limit of a namespace while a schedule makes a decision. The decision has stored the schedule's next timer,
/// and the delivery of the former timer has not ended.
#[test]
fn a_schedule_counts_once_while_the_delivery_of_its_former_timer_goes_on() {
    let clock = clock();
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock.clone()));
    let schedules = Schedules::new(Arc::clone(&store));
    let put = |key: &str, most| {
        schedules.put_within(&ScheduleKey::new("shop", key), each_minute(), template(), most)
    };
    assert!(put("a", 2).unwrap().0);
    clock.advance(Duration::from_millis(MINUTE));
    let by = Claimant { incarnation: 1, lease: PATIENCE };
    let claimed = pollster::block_on(store.claim(by, 1, Limit { timers: 1, bytes: u64::MAX }, None)).unwrap();
    assert_eq!(claimed.leased.len(), 1);
    assert!(!put("a", 2).unwrap().0);
    let counts = pollster::block_on(store.counts()).unwrap();
    assert_eq!((counts.of(Phase::Leased), counts.of(Phase::Pending)), (1, 1));
    assert_eq!(schedules.number_in("shop").unwrap(), 1);
    assert!(matches!(put("b", 1), Err(ScheduleFault::Full(1))));
    assert!(put("b", 2).unwrap().0);
    assert!(matches!(put("c", 2), Err(ScheduleFault::Full(2))));
}

#[test]
fn lists_are_of_one_namespace_and_paged() {
    let store: Arc<dyn TimerStore> = Arc::new(MemoryStore::new(clock()));
    let schedules = Schedules::new(store);
    for n in 0..7 {
        for namespace in ["a", "ab"] {
            schedules.put(&ScheduleKey::new(namespace, format!("k{n}")), each_minute(), template()).unwrap();
        }
    }
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let page = schedules.list("a", "k", cursor, 3).unwrap();
        assert!(page.schedules.len() <= 3);
        keys.extend(page.schedules.into_iter().map(|view| (view.at.namespace, view.at.key)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (0..7).map(|n| ("a".into(), format!("k{n}").into())).collect();
    assert_eq!(keys, expected);
    for wrong in [String::new(), "k".repeat(129), "a\u{1f}b".to_owned(), "a\0b".to_owned()] {
        assert!(matches!(schedules.get(&ScheduleKey::new("a", wrong)), Err(ScheduleFault::Key)));
    }
}

#[test]
fn a_template_that_the_store_would_refuse_is_refused_with_its_schedule() {
    let schedules = Schedules::new(Arc::new(MemoryStore::new(clock())));
    let at = ScheduleKey::new("a", "k");
    let labelled = |labels: &[String]| Template {
        labels: labels.iter().map(|label| label.as_str().into()).collect(),
        ..template()
    };
    let of_kind = |kind: String| Template { kind: kind.into(), ..template() };
    let nine: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    for template in [
        labelled(&["a\0b".to_owned()]),
        labelled(&["l".repeat(65)]),
        labelled(&nine),
        of_kind("a\0b".to_owned()),
        of_kind("k".repeat(65)),
        of_kind("k".repeat(70_000)),
    ] {
        let refused = schedules.put(&at, each_minute(), template);
        assert!(matches!(refused, Err(ScheduleFault::Store(error)) if error.kind() == StoreErrorKind::Limit));
    }
    assert!(matches!(schedules.get(&at), Err(ScheduleFault::NotFound)));
    assert!(schedules.put(&at, each_minute(), labelled(&vec!["l".repeat(64); 9])).is_ok(), "one label");
}
