//! Tests the runtime on the store in memory and a manual clock.

mod batch;
mod crowds;
mod events;
mod handlers;
mod keys;
mod park;
mod series;
mod snooze;
mod times;
mod waits;
#[path = "../support/world.rs"]
mod world;

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::MemoryStore;
use tourbillon_durable::{Changed, Durable, Kind, Rejection, Spec, UtcMillis, Verdict};
use world::{Note, PATIENCE, START, Seen, World, eventually, secs};

const DAY: Duration = Duration::from_secs(86_400);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}

#[test]
fn a_timer_is_delivered_when_it_is_due_and_not_before() {
    let world = World::done();
    let id = world.schedule(Spec::new(Note(1)).after(30 * DAY).key("order 1"));
    world.advance(30 * DAY);
    assert_eq!(world.seen(), [0_u64; 0], "the store's time was rounded down when the timer was accepted");
    world.advance(Duration::from_millis(1));
    assert_eq!(world.seen(), [1]);
    let Seen { delivery, at, .. } = world.seen.lock().unwrap()[0].clone();
    assert_eq!((delivery.id, delivery.attempt, delivery.delivery), (id, 1, 1));
    assert_eq!(delivery.key.as_deref(), Some("order 1"));
    assert!(at >= delivery.due);
    assert_eq!(block_on(world.timers().get(id)).unwrap(), None, "what has ended is gone");
}

#[test]
fn a_hundred_years_pass() {
    let world = World::done();
    for year in (0..100).rev() {
        world.schedule(Spec::new(Note(year)).after(365 * DAY * u32::try_from(year).unwrap()));
    }
    for _ in 0..101 {
        world.advance(365 * DAY);
    }
    assert_eq!(world.seen(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_failure_is_tried_again_after_the_pause_until_the_attempts_are_used_up() {
    let world = World::new(|_, _| Verdict::Retry { error: "no".into(), after: None });
    let ladder = Backoff::Ladder(vec![secs(10), secs(100)]);
    let id = world.schedule(Spec::new(Note(1)).backoff(ladder).attempts(3));
    world.advance(secs(1));
    assert_eq!(world.seen(), [1]);
    world.advance(secs(9));
    assert_eq!(world.seen().len(), 1);
    world.advance(secs(1));
    assert_eq!(world.seen().len(), 2);
    world.advance(secs(99));
    assert_eq!(world.seen().len(), 2);
    world.advance(secs(1));
    assert_eq!(world.seen().len(), 3);
    world.advance(100 * DAY);
    assert_eq!(world.seen().len(), 3);
    assert_eq!(world.count(Phase::Dead), 1);
    let timer = block_on(world.timers().get(id)).unwrap().unwrap();
    assert_eq!((timer.failures, timer.last_error.as_deref()), (3, Some("no")));
    let attempts: Vec<u32> = world.seen.lock().unwrap().iter().map(|seen| seen.delivery.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(block_on(world.timers().replay(id)).unwrap(), Changed::Changed);
    world.settle();
    assert_eq!(world.seen().len(), 4);
    let stats = world.timers().stats();
    assert_eq!((stats.delivered, stats.retried, stats.dead, stats.done), (4, 3, 1, 0));
}

#[test]
fn handlers_answer_in_four_ways() {
    let world = World::new(|number, delivery| match number {
        0 => Verdict::Done,
        1 => Verdict::Dead("never".into()),
        2 if delivery.delivery == 1 && delivery.attempt == 1 && delivery.lateness < secs(50) => {
            Verdict::Snooze(UtcMillis::from_millis(START + 100_000))
        }
        _ => Verdict::Done,
    });
    for number in 0..3 {
        world.schedule(Spec::new(Note(number)));
    }
    world.advance(secs(1));
    let seen = world.numbers();
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!((world.count(Phase::Dead), world.count(Phase::Pending)), (1, 1));
    world.advance(secs(98));
    assert_eq!(world.seen().len(), 3);
    world.advance(secs(60));
    assert_eq!(world.seen().len(), 4);
}

#[test]
fn a_timer_is_delivered_at_most_once_on_demand() {
    let world = World::new(|_, _| Verdict::Retry { error: "no".into(), after: None });
    world.schedule(Spec::new(Note(1)).at_most_once());
    world.advance(secs(1));
    world.advance(DAY);
    assert_eq!(world.seen(), [1]);
    assert_eq!(world.count(Phase::Pending) + world.count(Phase::Dead), 0);
}

#[test]
fn what_is_out_of_bounds_is_refused_and_handed_back() {
    let world = World::done();
    let refused = |spec| world.timers().schedule_blocking(spec).unwrap_err().reason;
    let note = || Spec::new(Note(1));
    assert!(matches!(refused(note().after(Duration::MAX)), Rejection::DueTooFar));
    assert!(matches!(refused(note().at(UtcMillis::MAX)), Rejection::DueTooFar));
    assert!(matches!(refused(note().key("k".repeat(256))), Rejection::TooLong("the key")));
    assert!(matches!(refused(note().namespace("n".repeat(65))), Rejection::TooLong("the namespace")));
    assert!(matches!(refused(note().key("a\0b")), Rejection::ZeroByte("the key")));
    assert!(matches!(refused(note().namespace("a\0b")), Rejection::ZeroByte("the namespace")));
    assert!(matches!(refused(note().label("b").label("a\0b")), Rejection::ZeroByte("a label")));
    assert!(matches!(refused(note().trace("a\0b")), Rejection::ZeroByte("the trace context")));
    let labels = (0..9).fold(note(), |spec, n| spec.label(n.to_string()));
    assert!(matches!(refused(labels), Rejection::TooLong("the list of labels")));
    let equal = (0..9).fold(note(), |spec, _| spec.label("a"));
    assert!(world.timers().schedule_blocking(equal).is_ok(), "equal labels count as one");
    let cron = Plan::Cron { expression: "nonsense".into(), zone: "UTC".into(), skip_gaps: false };
    assert!(matches!(refused(note().repeat(cron, MissedInstants::Skip)), Rejection::Plan(_)));
    #[derive(Debug, Serialize, Deserialize)]
    struct Long(String);
    impl Kind for Long {
        const NAME: &'static str = "note";
    }
    let long = world.timers().schedule_blocking(Spec::new(Long("x".repeat(70_000)))).unwrap_err();
    assert!(matches!(long.reason, Rejection::PayloadTooLong(70_002)));
    assert_eq!(long.payload.0.len(), 70_000);
    assert!(matches!(
        Durable::builder(MemoryStore::default())
            .handler(|_: Note, _| async {})
            .handler(|_: Long, _| async {})
            .start(),
        Err(tourbillon_durable::StartError::DuplicateKind("note"))
    ));
    assert!(matches!(
        Durable::builder(MemoryStore::default()).bytes_handler("a\0b", async |_, _| {}).start(),
        Err(tourbillon_durable::StartError::ZeroByteInKind("a\0b"))
    ));
}

#[test]
fn a_clock_that_steps_back_makes_nothing_early() {
    let world = World::done();
    world.schedule(Spec::new(Note(1)).after(secs(100)));
    world.advance(secs(50));
    world.clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(START - 86_400_000).as_nanos()));
    world.settle();
    world.advance(secs(86_400));
    assert_eq!(world.seen(), [0_u64; 0]);
    world.advance(secs(101));
    assert_eq!(world.seen(), [1]);
}
