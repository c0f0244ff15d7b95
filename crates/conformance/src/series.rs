//! Tests series of occurrences, where each occurrence follows the last.

use crate::bench::{Bench, Case, LEASE, Make, START, at};
use core::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Failure, Phase, State};
use tourbillon_durable::store::{Leased, Op, Outcome, PAUSED};
use tourbillon_durable::timer::{Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    (
        "the next occurrence comes with the end of the last",
        the_next_occurrence_comes_with_the_end_of_the_last,
    ),
    ("an occurrence has the same id whenever computed", an_occurrence_has_the_same_id_whenever_computed),
    ("instants that passed are skipped or made up for", instants_that_passed_are_skipped_or_made_up_for),
    ("a dead occurrence does not stop its series", a_dead_occurrence_does_not_stop_its_series),
    ("a series ends", a_series_ends),
    ("a skip beyond the end is not counted", a_skip_beyond_the_end_is_not_counted),
    ("a cancel ends the series", a_cancel_ends_the_series),
    ("a paused series", a_paused_series),
    ("a paused series stays paused when limits are lifted", a_paused_series_stays_paused),
    ("an unpark does not count paused timers", an_unpark_does_not_count_paused_timers),
    ("an occurrence that is moved keeps its instant", an_occurrence_that_is_moved_keeps_its_instant),
    ("an occurrence that is fired keeps its instant", an_occurrence_that_is_fired_keeps_its_instant),
    ("a series that is placed again finds its ids taken", a_series_that_is_placed_again),
    ("a series at most once", a_series_at_most_once),
    ("jitter makes late, never early", jitter_makes_late_never_early),
    ("a calendar's series", a_calendars_series),
];

pub(crate) fn every(bench: &Bench, millis: u64, due: u64) -> Timer {
    let series = Series {
        id: bench.fresh(),
        plan: Plan::Every(millis),
        missed: MissedInstants::Skip,
        end: None,
        paused: false,
    };
    Timer { series: Some(series), ..bench.keyed("s", due) }
}

pub(crate) fn with(mut timer: Timer, change: impl FnOnce(&mut Series)) -> Timer {
    change(timer.series.as_mut().expect("it has a series"));
    timer
}

fn of(timer: &Timer) -> &Series {
    timer.series.as_ref().expect("it has a series")
}

/// Returns the next occurrence of a series after a delivery has ended, and the number of instants that were left out
/// before that occurrence.
#[track_caller]
fn next_of(outcome: &Outcome) -> (Option<TimerId>, u64) {
    match outcome {
        Outcome::Ended { next, skipped, .. } => (*next, *skipped),
        other => panic!("no end: {other:?}"),
    }
}

fn the_next_occurrence_comes_with_the_end_of_the_last(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = Timer { labels: vec!["l".into()], ..every(&bench, 1_000, 0) };
    bench.create(&timer);
    let mut ids = vec![timer.id];
    for nth in 0..10 {
        bench.set(nth * 1_000 + 300);
        let Leased { timer: occurrence, token } = bench.the_due();
        assert_eq!(Some(&occurrence.id), ids.last());
        assert_eq!((occurrence.due, occurrence.scheduled), (at(nth * 1_000), at(nth * 1_000)));
        let op = if nth % 2 == 0 { Op::Ack(occurrence.id, token) } else { Op::Skip(occurrence.id, token) };
        let (next, skipped) = next_of(&bench.apply(op.clone()));
        let next = next.expect("the series goes on");
        assert_eq!((skipped, ids.contains(&next)), (0, false));
        // If the same end is reported again, the store does not make another occurrence.
        assert!(matches!(bench.apply(op), Outcome::Refused(_)));
        let [stored] = &bench.all()[..] else { panic!("a series has one occurrence") };
        let wanted = Timer {
            id: next,
            created: at(nth * 1_000 + 300),
            scheduled: at(nth * 1_000 + 1_000),
            due: at(nth * 1_000 + 1_000),
            ..timer.clone()
        };
        assert_eq!(*stored, wanted);
        assert_eq!(bench.get("s").as_ref(), Some(stored));
        ids.push(next);
    }
}

fn an_occurrence_has_the_same_id_whenever_computed(make: Make<'_>) {
    // The id of an occurrence depends only on its instant. It is the same in each store, whether a delivery ends on
    // time or late, after a failure, or after a renewal of the lease.
    let mut all = Vec::new();
    for way in 0..4_u64 {
        let bench = Bench::new(make);
        let mut ids = Vec::new();
        let timer = every(&bench, 60_000, 0);
        bench.create(&timer);
        for nth in 0..3 {
            bench.set(nth * 60_000 + way * 31_000 % 60_000);
            let Leased { timer, mut token } = bench.the_due();
            if way == 2 {
                let failure = Failure { retry_after: Some(Duration::ZERO), ..Failure::default() };
                let _pending = bench.apply(Op::Fail(timer.id, token, failure));
                token = bench.the_due().token;
            }
            if way == 3 {
                bench.set(nth * 60_000 + 33_000 + LEASE / 2);
                let _extended = bench.renew(vec![(timer.id, token)]);
            }
            ids.push(next_of(&bench.apply(Op::Ack(timer.id, token))).0);
        }
        all.push(ids);
    }
    assert!(all.iter().all(|ids| *ids == all[0]), "{all:#?}");
}

fn instants_that_passed_are_skipped_or_made_up_for(make: Make<'_>) {
    let bench = Bench::new(make);
    bench.create(&every(&bench, 1_000, 0));
    let Leased { timer, token } = bench.the_due();
    bench.set(4_000);
    let (next, skipped) = next_of(&bench.apply(Op::Ack(timer.id, token)));
    assert_eq!((skipped, bench.get("s").map(|timer| timer.due)), (4, Some(at(5_000))));
    assert_eq!(bench.get("s").map(|timer| timer.id), next);
    let _cancelled = bench.apply(Op::Cancel("s".into(), None));

    bench.set(0);
    bench.create(&with(every(&bench, 1_000, 0), |series| series.missed = MissedInstants::All));
    bench.set(4_000);
    for nth in 0..=4 {
        let Leased { timer, token } = bench.the_due();
        assert_eq!(timer.scheduled, at(nth * 1_000));
        assert_eq!(next_of(&bench.apply(Op::Ack(timer.id, token))).1, 0);
    }
    assert_eq!(bench.due_ids(), []);
}

fn a_dead_occurrence_does_not_stop_its_series(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy { deliveries: 1, ..Policy::default() };
    let timer = Timer { policy, ..every(&bench, 100_000, 0) };
    bench.create(&timer);
    // The first occurrence is dead after a final failure.
    let Leased { timer: first, token } = bench.the_due();
    let failure = Failure { is_final: true, ..Failure::default() };
    let outcome = bench.apply(Op::Fail(first.id, token, failure));
    let (next, _) = next_of(&outcome);
    assert!(matches!(outcome, Outcome::Ended { phase: Phase::Dead, .. }));
    assert_eq!(bench.get("s").map(|timer| timer.id), next, "the series goes on under the key");
    // The second occurrence is dead after its lease has expired, as after a crash.
    bench.set(100_000);
    let second = bench.the_due().timer;
    bench.set(100_000 + LEASE);
    assert_eq!(bench.reap(9).dead, [second.id]);
    let third = bench.get("s").expect("the series goes on");
    assert_eq!((third.due, of(&third)), (at(200_000), of(&timer)));
    // If a dead occurrence is replayed, it is delivered and starts no second series.
    for dead in [first, second] {
        let _cancelled = bench.apply(Op::Cancel("s".into(), None));
        assert_eq!(bench.apply(Op::Replay(dead.id)), Outcome::Changed(dead.id));
        let Leased { timer, token } = bench.the_due();
        assert_eq!(next_of(&bench.apply(Op::Ack(timer.id, token))), (None, 0));
    }
    assert_eq!(bench.all(), []);
}

fn a_series_ends(make: Make<'_>) {
    let bench = Bench::new(make);
    bench.create(&with(every(&bench, 1_000, 0), |series| series.end = Some(at(2_000))));
    for nth in 0..=2 {
        bench.set(nth * 1_000);
        let Leased { timer, token } = bench.the_due();
        let next = next_of(&bench.apply(Op::Ack(timer.id, token))).0;
        assert_eq!(next.is_some(), nth < 2);
    }
    assert_eq!(bench.all(), []);
    let near = UtcMillis::from_millis(UtcMillis::MAX.as_millis() - 10);
    let timer = Timer { scheduled: near, ..every(&bench, 1_000, 0) };
    bench.create(&timer);
    let token = bench.the_due().token;
    assert_eq!(next_of(&bench.apply(Op::Ack(timer.id, token))), (None, 0), "at the end of all moments");
}

fn a_skip_beyond_the_end_is_not_counted(make: Make<'_>) {
    let bench = Bench::new(make);
    bench.create(&with(every(&bench, 1_000, 0), |series| series.end = Some(at(3_500))));
    bench.set(9_000);
    let Leased { timer, token } = bench.the_due();
    assert_eq!(next_of(&bench.apply(Op::Ack(timer.id, token))), (None, 3), "those at 1, 2 and 3 s");
}

fn a_cancel_ends_the_series(make: Make<'_>) {
    let bench = Bench::new(make);
    bench.create(&every(&bench, 1_000, 0));
    assert!(matches!(bench.apply(Op::Cancel("s".into(), None)), Outcome::Cancelled(_)));
    assert_eq!(bench.all(), []);
    for end in 0..4 {
        let policy = Policy { deliveries: 1, ..Policy::default() };
        bench.set(0);
        bench.create(&Timer { policy, ..every(&bench, 1_000, 0) });
        let Leased { timer, token } = bench.the_due();
        assert_eq!(bench.apply(Op::Cancel("s".into(), None)), Outcome::InFlight(timer.id));
        let failure = Failure { is_final: true, ..Failure::default() };
        match end {
            0 => assert_eq!(next_of(&bench.apply(Op::Ack(timer.id, token))), (None, 0)),
            1 => assert_eq!(next_of(&bench.apply(Op::Fail(timer.id, token, failure))), (None, 0)),
            2 => assert_eq!(next_of(&bench.apply(Op::Skip(timer.id, token))), (None, 0)),
            _ => {
                bench.set(LEASE);
                assert_eq!(bench.reap(9).withdrawn, 1);
            }
        }
        assert_eq!(bench.all(), []);
    }
}

fn a_paused_series(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = every(&bench, 1_000, 0);
    bench.create(&timer);
    // The series is paused in three situations: its occurrence is pending, is in a delivery that succeeds, or is in a
    // delivery that fails.
    for nth in 0..3 {
        bench.set(nth * 10_000);
        let leased = (nth > 0).then(|| bench.the_due());
        assert!(matches!(bench.apply(Op::Pause("s".into())), Outcome::Changed(_)));
        assert!(bench.get("s").is_some_and(|timer| of(&timer).paused));
        if let Some(Leased { timer, token }) = leased {
            let failure = Failure { retry_after: Some(Duration::ZERO), ..Failure::default() };
            let outcome = match nth {
                1 => bench.apply(Op::Ack(timer.id, token)),
                _ => bench.apply(Op::Fail(timer.id, token, failure)),
            };
            assert_eq!(next_of(&outcome).0.is_some(), nth == 1);
        }
        bench.set(nth * 10_000 + 9_000);
        assert_eq!(bench.due_ids(), [], "nothing is delivered while the series is paused");
        assert_eq!(bench.get("s").map(|timer| timer.state), Some(State::Parked(PAUSED.into())));
        assert!(matches!(bench.apply(Op::Resume("s".into())), Outcome::Changed(_)));
        assert!(bench.get("s").is_some_and(|timer| !of(&timer).paused));
        let Leased { timer, token } = bench.the_due();
        assert!(next_of(&bench.apply(Op::Ack(timer.id, token))).0.is_some());
    }
    // A crash may end a delivery while the series is paused. Then the occurrence comes back only after the resume.
    bench.set(40_000);
    let occurrence = bench.the_due().timer;
    let _paused = bench.apply(Op::Pause("s".into()));
    bench.set(40_000 + LEASE);
    assert_eq!(bench.reap(9).dead, []);
    assert_eq!(bench.due_ids(), []);
    let _resumed = bench.apply(Op::Resume("s".into()));
    assert_eq!(bench.due_ids(), [occurrence.id]);
}

fn a_paused_series_stays_paused(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = every(&bench, 1_000, 0);
    bench.create(&timer);
    let token = bench.the_due().token;
    let _parked = bench.apply(Op::Park(timer.id, token, "limit".into()));
    assert_eq!(bench.apply(Op::Pause("s".into())), Outcome::Changed(timer.id));
    let _lifted = bench.apply(Op::Unpark("limit".into(), 9));
    assert_eq!(bench.due_ids(), [], "the limit is lifted, the pause is not");
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 9)), Outcome::Unparked(0));
    assert_eq!(bench.apply(Op::Resume("s".into())), Outcome::Changed(timer.id));
    assert_eq!(bench.due_ids(), [timer.id]);
    // An unpark with the reason `PAUSED` resumes the timers.
    bench.set(LEASE);
    let _reaped = bench.reap(9);
    let _paused = bench.apply(Op::Pause("s".into()));
    assert_eq!(bench.apply(Op::Unpark(PAUSED.into(), 9)), Outcome::Unparked(1));
    let Leased { timer, token } = bench.the_due();
    let _next = bench.apply(Op::Ack(timer.id, token));
    assert_eq!(bench.phase("s"), Some(Phase::Pending));
}

fn an_unpark_does_not_count_paused_timers(make: Make<'_>) {
    let bench = Bench::new(make);
    // Two series are paused while their occurrences are parked for another reason. Two single timers are due later.
    let mut aside: Vec<Timer> = (0..2)
        .map(|nth| Timer {
            key: Some(format!("s{nth}").into()),
            id: bench.fresh(),
            ..every(&bench, 1_000, nth)
        })
        .collect();
    aside.extend((10..12).map(|due| bench.timer(due)));
    for timer in &aside {
        bench.create(timer);
    }
    bench.set(20);
    for Leased { timer, token } in bench.due() {
        let _parked = bench.apply(Op::Park(timer.id, token, "limit".into()));
    }
    for timer in &aside[..2] {
        assert_eq!(bench.apply(Op::Pause(timer.id.into())), Outcome::Changed(timer.id));
    }
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 0)), Outcome::Unparked(0));
    assert_eq!(
        bench.apply(Op::Unpark("limit".into(), 1)),
        Outcome::Unparked(1),
        "paused occurrences hide no others"
    );
    assert_eq!(bench.due_ids(), [aside[2].id]);
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 9)), Outcome::Unparked(1));
    assert_eq!(bench.due_ids(), [aside[3].id]);
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 9)), Outcome::Unparked(0));
    for timer in &aside[..2] {
        assert_eq!(bench.get(timer.id).map(|timer| timer.state), Some(State::Parked(PAUSED.into())));
    }
}

fn an_occurrence_that_is_moved_keeps_its_instant(make: Make<'_>) {
    // First, the occurrence is moved to a moment before the previous occurrence. Then, in another store, it is moved to
    // a moment after the next instant.
    for (to, after) in [(3_500, 6_000), (6_200, 7_000)] {
        let bench = Bench::new(make);
        bench.create(&every(&bench, 1_000, 3_000));
        for _ in 0..2 {
            bench.set(bench.get("s").expect("it goes on").due.as_millis() - START);
            let Leased { timer, token } = bench.the_due();
            let _next = bench.apply(Op::Ack(timer.id, token));
        }
        let moved = bench.get("s").expect("it goes on");
        assert_eq!(moved.scheduled, at(5_000));
        assert_eq!(bench.apply(Op::Move("s".into(), at(to))), Outcome::Changed(moved.id));
        bench.set(to.max(4_000));
        let Leased { timer, token } = bench.the_due();
        assert_eq!((timer.id, timer.due, timer.scheduled), (moved.id, at(to), at(5_000)));
        // The dead occurrence stays stored beside the next occurrence.
        let failure = Failure { is_final: true, ..Failure::default() };
        let (next, _) = next_of(&bench.apply(Op::Fail(timer.id, token, failure)));
        assert_ne!(next, Some(moved.id), "two instants have one id");
        assert_eq!(bench.get("s").map(|timer| timer.scheduled), Some(at(after)));
        assert_eq!(bench.phase(moved.id), Some(Phase::Dead));
    }
}

fn an_occurrence_that_is_fired_keeps_its_instant(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = every(&bench, 1_000, 5_000);
    bench.create(&timer);
    assert_eq!(bench.apply(Op::Fire("s".into())), Outcome::Changed(timer.id));
    let Leased { timer, token } = bench.the_due();
    assert_eq!(timer.scheduled, at(5_000));
    let _next = bench.apply(Op::Ack(timer.id, token));
    assert_eq!(bench.get("s").map(|timer| timer.due), Some(at(6_000)), "the instant is not delivered twice");
}

fn a_series_that_is_placed_again(make: Make<'_>) {
    let bench = Bench::new(make);
    let first = every(&bench, 1_000, 0);
    bench.create(&first);
    let Leased { timer, token } = bench.the_due();
    let taken = next_of(&bench.apply(Op::Ack(timer.id, token))).0.expect("it goes on");
    bench.set(1_000);
    let dead = bench.the_due();
    assert_eq!(dead.timer.id, taken);
    let failure = Failure { is_final: true, ..Failure::default() };
    let _dead = bench.apply(Op::Fail(taken, dead.token, failure));
    // The same series starts again. Its second instant is that of the dead occurrence.
    bench.set(0);
    let again = Timer { id: bench.fresh(), ..first };
    assert!(matches!(
        bench.place(&again, tourbillon_durable::store::IfPresent::Replace),
        Outcome::Replaced { .. }
    ));
    let Leased { timer, token } = bench.the_due();
    let (next, _) = next_of(&bench.apply(Op::Ack(timer.id, token)));
    assert!(next.is_some_and(|next| next != taken), "the series goes on under an id of its own");
    assert_eq!(bench.phase(taken), Some(Phase::Dead), "the dead timer stays");
    assert_eq!(bench.get("s").map(|timer| timer.scheduled), Some(at(2_000)));
}

fn a_series_at_most_once(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    bench.create(&Timer { policy, ..every(&bench, 1_000, 0) });
    for nth in 0..4 {
        bench.set(nth * 1_000);
        let leased = bench.the_due();
        assert_eq!(leased.timer.scheduled, at(nth * 1_000));
        // The next occurrence is stored when the delivery begins.
        assert_eq!(bench.get("s").map(|timer| timer.id), Some(leased.timer.id));
        let begun = bench.apply(Op::Skip(leased.timer.id, leased.token));
        assert!(matches!(begun, Outcome::Ended { phase: Phase::Done, next: Some(_), .. }), "{begun:?}");
        assert_eq!(bench.get("s").map(|timer| timer.scheduled), Some(at(nth * 1_000 + 1_000)));
    }
}

fn jitter_makes_late_never_early(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy { jitter: Duration::from_millis(400), ..Policy::default() };
    bench.create(&Timer { policy, ..every(&bench, 1_000, 0) });
    let mut lateness = Vec::new();
    for nth in 0..20 {
        let due = bench.get("s").expect("it goes on").due;
        assert!(due >= at(nth * 1_000) && due < at(nth * 1_000 + 400), "{due}");
        lateness.push(due - at(nth * 1_000));
        bench.set(due.as_millis() - START);
        let Leased { timer, token } = bench.the_due();
        assert_eq!(timer.scheduled, at(nth * 1_000));
        let _next = bench.apply(Op::Ack(timer.id, token));
    }
    assert!(lateness.iter().any(|late| *late != lateness[1]), "{lateness:?}");
}

fn a_calendars_series(make: Make<'_>) {
    let bench = Bench::new(make);
    let plan = Plan::Cron { expression: "0 9 * * *".into(), zone: "Europe/Zurich".into(), skip_gaps: false };
    let wanted = plan.preview(at(0), 10).expect("a valid plan");
    let first = Timer { due: wanted[0], scheduled: wanted[0], ..every(&bench, 1, 0) };
    bench.create(&with(first, |series| series.plan = plan));
    for instant in wanted {
        bench.set(instant.as_millis() - START);
        let Leased { timer, token } = bench.the_due();
        assert_eq!(timer.scheduled, instant);
        let _next = bench.apply(Op::Ack(timer.id, token));
    }
}
