//! Tests the ends of deliveries, and dead timers with their replay.

use crate::bench::{Bench, Case, Make, at};
use core::time::Duration;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Backoff, Policy};
use tourbillon_durable::state::{Death, DeathReason, Failure, Phase, Refusal, State};
use tourbillon_durable::store::{IfPresent, Leased, Op, Outcome};
use tourbillon_durable::timer::{Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    ("a delivery that succeeds ends the timer", a_delivery_that_succeeds_ends_the_timer),
    ("a delivery that fails is repeated after a pause", a_delivery_that_fails_is_repeated_after_a_pause),
    ("failures end in death", failures_end_in_death),
    ("the error of a delivery loses its zero bytes", the_error_of_a_delivery_loses_its_zero_bytes),
    ("a delivery that is given back is not counted", a_delivery_that_is_given_back_is_not_counted),
    ("a dead timer is replayed", a_dead_timer_is_replayed),
    ("an occurrence of a schedule keeps its instant", an_occurrence_of_a_schedule_keeps_its_instant),
    ("a dead occurrence of a series keeps its instant", a_dead_occurrence_of_a_series_keeps_its_instant),
    ("a dead timer's key may be another timer's", a_dead_timers_key_may_be_another_timers),
    ("a replaced timer in delivery is not replayed", a_replaced_timer_in_delivery_is_not_replayed),
];

/// Stores a timer with this policy, and claims it.
fn delivered(bench: &Bench, policy: Policy) -> Leased {
    let timer = Timer { policy, ..bench.timer(0) };
    bench.create(&timer);
    bench.the_due()
}

fn ended(id: TimerId, phase: Phase) -> Outcome {
    Outcome::Ended { id, phase, next: None, skipped: 0 }
}

fn failure(error: &str) -> Failure {
    Failure { error: error.into(), ..Failure::default() }
}

fn the_error_of_a_delivery_loses_its_zero_bytes(make: Make<'_>) {
    let bench = Bench::new(make);
    for is_final in [false, true] {
        let Leased { timer, token } = delivered(&bench, Policy::default());
        let failure = Failure { is_final, ..failure("a\0b\0") };
        let phase = if is_final { Phase::Dead } else { Phase::Pending };
        assert_eq!(bench.apply(Op::Fail(timer.id, token, failure)), ended(timer.id, phase));
        let stored = bench.get(timer.id).expect("it is stored");
        assert_eq!(stored.last_error.as_deref(), Some("a\u{fffd}b\u{fffd}"));
    }
}

fn a_delivery_that_succeeds_ends_the_timer(make: Make<'_>) {
    let bench = Bench::new(make);
    for skip in [false, true] {
        let Leased { timer, token } = delivered(&bench, Policy::default());
        let end = || if skip { Op::Skip(timer.id, token) } else { Op::Ack(timer.id, token) };
        assert_eq!(bench.apply(end()), ended(timer.id, Phase::Done));
        assert_eq!(bench.apply(end()), Outcome::Refused(Refusal::Stale), "a repeated answer changes nothing");
        assert_eq!(bench.all(), []);
    }
}

fn a_delivery_that_fails_is_repeated_after_a_pause(make: Make<'_>) {
    let bench = Bench::new(make);
    let backoff = Backoff::Ladder([1_000, 5_000].map(Duration::from_millis).into());
    let Leased { timer, token } = delivered(&bench, Policy { backoff, ..Policy::default() });
    bench.set(10);
    assert_eq!(bench.apply(Op::Fail(timer.id, token, failure("first"))), ended(timer.id, Phase::Pending));
    let waits = bench.get(timer.id).expect("it is stored");
    assert_eq!((waits.due, waits.scheduled), (at(1_010), at(0)));
    assert_eq!((waits.failures, waits.deliveries, waits.last_error), (1, 1, Some("first".into())));
    bench.set(1_009);
    assert_eq!(bench.due_ids(), []);
    bench.set(1_010);
    let second = bench.the_due();
    assert_eq!(second.timer.deliveries, 2);
    assert_eq!(bench.apply(Op::Ack(timer.id, token)), Outcome::Refused(Refusal::Stale));
    let in_a_second = Failure { retry_after: Some(Duration::from_millis(7)), ..failure("second") };
    let _pending = bench.apply(Op::Fail(timer.id, second.token, in_a_second));
    assert_eq!(bench.get(timer.id).map(|timer| timer.due), Some(at(1_017)), "the handler's pause");
    bench.set(2_000);
    let _pending = bench.apply(Op::Fail(timer.id, bench.the_due().token, failure("third")));
    assert_eq!(bench.get(timer.id).map(|timer| timer.due), Some(at(7_000)), "the last rung");
}

fn failures_end_in_death(make: Make<'_>) {
    let bench = Bench::new(make);
    let aged = Policy {
        max_age: Some(Duration::from_secs(4)),
        backoff: Backoff::Fixed(Duration::from_secs(5)),
        ..Policy::default()
    };
    let refused = Failure { is_final: true, ..failure("no") };
    let deaths = [
        (Policy { attempts: 1, ..Policy::default() }, failure("no"), DeathReason::Attempts),
        (Policy { attempts: 0, ..Policy::default() }, failure("no"), DeathReason::Attempts),
        (aged.clone(), failure("no"), DeathReason::Age),
        (Policy::default(), refused, DeathReason::Refused),
    ];
    for (policy, failure, reason) in deaths {
        let Leased { timer, token } = delivered(&bench, policy);
        assert_eq!(bench.apply(Op::Fail(timer.id, token, failure)), ended(timer.id, Phase::Dead));
        let dead = bench.get(timer.id).expect("a dead timer is stored");
        assert_eq!(dead.state, State::Dead(Death { reason, at: at(0) }));
        assert_eq!((dead.failures, dead.last_error), (1, Some("no".into())));
    }
    let Leased { timer, token } = delivered(&bench, aged);
    assert_eq!(bench.apply(Op::Snooze(timer.id, token, at(4_001))), ended(timer.id, Phase::Dead));
    bench.set(1_000_000);
    assert_eq!(bench.due_ids(), []);
    // A cancel removes a dead timer.
    for dead in bench.all() {
        assert_eq!(bench.apply(Op::Cancel(dead.id.into(), None)), Outcome::Cancelled(Box::new(dead)));
    }
    assert_eq!(bench.all(), []);
}

fn a_delivery_that_is_given_back_is_not_counted(make: Make<'_>) {
    let bench = Bench::new(make);
    let Leased { timer, token } = delivered(&bench, Policy::default());
    assert_eq!(bench.apply(Op::Release(timer.id, token)), ended(timer.id, Phase::Pending));
    assert_eq!(bench.get(timer.id).map(|timer| (timer.due, timer.deliveries)), Some((at(0), 0)));
    let token = bench.the_due().token;
    assert_eq!(bench.apply(Op::Snooze(timer.id, token, at(50))), ended(timer.id, Phase::Pending));
    let snoozed = bench.get(timer.id).expect("it is stored");
    assert_eq!((snoozed.due, snoozed.scheduled, snoozed.deliveries), (at(50), at(0), 0));
    bench.set(49);
    assert_eq!(bench.due_ids(), []);
    bench.set(50);
    assert_eq!(bench.due_ids(), [timer.id]);
}

fn a_dead_timer_is_replayed(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(Op::Replay(TimerId::from_u128(3))), Outcome::NotFound);
    for by_fire in [false, true] {
        let timer = Timer { labels: vec!["l".into()], ..bench.keyed("k", 0) };
        bench.create(&timer);
        let token = bench.the_due().token;
        let refused = Outcome::Refused(Refusal::State(Phase::Leased));
        assert_eq!(bench.apply(Op::Replay(timer.id)), refused);
        let _dead = bench.apply(Op::Fail(timer.id, token, Failure { is_final: true, ..failure("no") }));
        bench.set(60_000);
        let replay = if by_fire { Op::Fire(timer.id.into()) } else { Op::Replay(timer.id) };
        assert_eq!(bench.apply(replay), Outcome::Changed(timer.id));
        let again = bench.get("k").expect("it has its key again");
        assert_eq!((again.due, again.scheduled), (at(60_000), at(60_000)));
        assert_eq!((again.deliveries, again.failures), (0, 0));
        let _done = bench.apply(Op::Ack(timer.id, bench.the_due().token));
        bench.set(0);
    }
}

/// A move and a replay begin the greatest age anew.
fn an_occurrence_of_a_schedule_keeps_its_instant(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy { max_age: Some(Duration::from_millis(1_000)), ..Policy::default() };
    let timer = Timer { policy, age_from: Some(at(0)), ..bench.timer(0) };
    bench.create(&timer);
    let scheduled_and_due = || bench.get(timer.id).map(|timer| (timer.scheduled, timer.due, timer.age_from));
    for due in [5_000, 9_000] {
        assert_eq!(bench.apply(Op::Move(timer.id.into(), at(due))), Outcome::Changed(timer.id));
        assert_eq!(scheduled_and_due(), Some((at(0), at(due), Some(at(due)))));
    }
    bench.set(9_500);
    // A retry within the greatest age comes, and a later one does not.
    for (pause, phase) in [(100, Phase::Pending), (1_000, Phase::Dead)] {
        let failure = Failure { retry_after: Some(Duration::from_millis(pause)), ..failure("no") };
        let token = bench.the_due().token;
        assert_eq!(bench.apply(Op::Fail(timer.id, token, failure)), ended(timer.id, phase));
        bench.set(9_600);
    }
    bench.set(60_000);
    assert_eq!(bench.apply(Op::Replay(timer.id)), Outcome::Changed(timer.id));
    assert_eq!(scheduled_and_due(), Some((at(0), at(60_000), Some(at(60_000)))));
    let failure = Failure { retry_after: Some(Duration::from_millis(100)), ..failure("no") };
    let token = bench.the_due().token;
    assert_eq!(bench.apply(Op::Fail(timer.id, token, failure)), ended(timer.id, Phase::Pending));
}

fn a_dead_occurrence_of_a_series_keeps_its_instant(make: Make<'_>) {
    let bench = Bench::new(make);
    let plan = Plan::Every(100_000);
    let id = bench.fresh();
    let series = Series { id, plan, missed: MissedInstants::Skip, end: None, paused: false };
    let timer = Timer { series: Some(series), ..bench.keyed("s", 1_000) };
    let timer = Timer { id, ..timer };
    bench.create(&timer);
    bench.set(1_000);
    let token = bench.the_due().token;
    let _dead = bench.apply(Op::Fail(id, token, Failure { is_final: true, ..failure("no") }));
    bench.set(2_000);
    let _cancelled = bench.apply(Op::Cancel("s".into(), None));
    assert_eq!(bench.apply(Op::Replay(id)), Outcome::Changed(id));
    let again = bench.get(id).expect("it is stored");
    assert_eq!((again.due, again.scheduled), (at(2_000), at(1_000)));
}

fn a_dead_timers_key_may_be_another_timers(make: Make<'_>) {
    let bench = Bench::new(make);
    let (dead, owner) = (bench.keyed("k", 0), bench.keyed("k", 9_000));
    bench.create(&dead);
    let token = bench.the_due().token;
    let _dead = bench.apply(Op::Fail(dead.id, token, Failure { is_final: true, ..failure("no") }));
    bench.create(&owner);
    let refused = Box::new(bench.get(dead.id).expect("it is stored"));
    let exists = Outcome::KeyExists { holder: owner.id, refused };
    assert_eq!(bench.apply(Op::Replay(dead.id)), exists);
    assert_eq!(bench.apply(Op::Fire(dead.id.into())), exists);
    assert_eq!(bench.phase(dead.id), Some(Phase::Dead));
    // After the dead timer is removed, the key still belongs to its owner.
    assert!(matches!(bench.apply(Op::Cancel(dead.id.into(), None)), Outcome::Cancelled(_)));
    assert_eq!(bench.get("k").map(|timer| timer.id), Some(owner.id));
}

/// The answer names the phase, and not the new owner of the key: a caller that freed the key would be refused again.
fn a_replaced_timer_in_delivery_is_not_replayed(make: Make<'_>) {
    let bench = Bench::new(make);
    let (old, owner) = (bench.keyed("k", 0), bench.keyed("k", 9_000));
    bench.create(&old);
    let _leased = bench.the_due();
    let replaced = Outcome::Replaced { new: owner.id, old: old.id, was: Phase::Leased };
    assert_eq!(bench.apply(Op::Place(Box::new(owner.clone()), IfPresent::Replace)), replaced);
    let refused = Outcome::Refused(Refusal::State(Phase::Leased));
    assert_eq!(bench.apply(Op::Replay(old.id)), refused);
    assert_eq!(bench.apply(Op::Fire(old.id.into())), refused);
    assert_eq!(bench.get("k").map(|timer| timer.id), Some(owner.id));
}
