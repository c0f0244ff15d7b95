//! Tests the export of all timers and their import into another store.

use crate::bench::{Bench, Case, HOUR, LEASE, Make, at};
use crate::placing::timers_with_zero_bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::state::{Death, DeathReason, Failure, Lease, Phase, State, Token};
use tourbillon_durable::store::{IfPresent, Op, Outcome, PAUSED, StoreErrorKind};
use tourbillon_durable::timer::Timer;

pub(crate) const CASES: &[Case] = &[
    ("a backup goes into another store", a_backup_goes_into_another_store),
    ("a backup leaves withdrawn timers out", a_backup_leaves_withdrawn_timers_out),
    ("an import into taken places changes nothing", an_import_into_taken_places_changes_nothing),
    ("an import leaves withdrawn timers out, whatever is taken", an_import_leaves_withdrawn_timers_out),
    ("an import of a timer that has ended", an_import_of_a_timer_that_has_ended),
    ("an import names a timer with a zero byte", an_import_names_a_timer_with_a_zero_byte),
    ("an export stops when it is asked to", an_export_stops_when_it_is_asked_to),
];

const DEATH: Death = Death { reason: DeathReason::Attempts, at: at(0) };

fn import(bench: &Bench, timers: Vec<Timer>) -> Result<(), StoreErrorKind> {
    let result = pollster::block_on(bench.store.import(timers)).map_err(|error| error.kind());
    bench.audit();
    result
}

fn a_backup_goes_into_another_store(make: Make<'_>) {
    let (from, to) = (Bench::new(make), Bench::new(make));
    let series = Series {
        id: from.fresh(),
        plan: Plan::Every(1_000),
        missed: MissedInstants::Skip,
        end: None,
        paused: false,
    };
    let timers: Vec<Timer> = (0..8)
        .map(|n| Timer {
            series: (n % 2 == 0).then(|| Series { id: from.fresh(), ..series.clone() }),
            labels: vec!["l".into()],
            ..from.keyed(&format!("k{n}"), n)
        })
        .collect();
    for timer in &timers {
        from.create(timer);
    }
    from.set(3);
    let leased = from.due();
    let failure = Failure { is_final: true, ..Failure::default() };
    let _dead = from.apply(Op::Fail(leased[1].timer.id, leased[1].token, failure));
    let _parked = from.apply(Op::Park(leased[3].timer.id, leased[3].token, "limit".into()));
    let _paused = from.apply(Op::Pause("k0".into()));
    assert_eq!(from.phase("k0"), Some(Phase::Leased));
    let _paused = from.apply(Op::Pause("k6".into()));
    let all = from.all();
    assert_eq!(import(&to, all.clone()), Ok(()));
    let wanted: Vec<Timer> = all
        .into_iter()
        .map(|timer| match timer.state {
            State::Leased(_) if timer.series.as_ref().is_some_and(|series| series.paused) => {
                Timer { state: State::Parked(PAUSED.into()), ..timer }
            }
            State::Leased(_) => Timer { state: State::Pending, ..timer },
            _ => timer,
        })
        .collect();
    assert_eq!(to.all(), wanted);
    to.set(1_000);
    let due = to.due();
    assert!(!due.iter().any(|leased| leased.timer.key.as_deref() == Some("k0")), "a paused series is due");
    assert_eq!(due.len(), 4, "{due:#?}");
}

fn a_backup_leaves_withdrawn_timers_out(make: Make<'_>) {
    let (from, to) = (Bench::new(make), Bench::new(make));
    let (cancelled, replaced) = (from.keyed("c", 0), from.keyed("r", 0));
    from.create(&cancelled);
    from.create(&replaced);
    let _leased = from.due();
    let _in_flight = from.apply(Op::Cancel("c".into(), None));
    let new = from.keyed("r", 5);
    let _replaced = from.place(&new, IfPresent::Replace);
    assert_eq!(from.all().len(), 3);
    assert_eq!(import(&to, from.all()), Ok(()));
    to.set(LEASE);
    assert_eq!(to.due_ids(), [new.id], "no timer comes back to life");
}

fn an_import_into_taken_places_changes_nothing(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = bench.keyed("k", 5);
    bench.create(&timer);
    let before = bench.all();
    let free = bench.keyed("free", 5);
    let same_key = bench.keyed("k", 5);
    // A part of a backup may conflict with another part of it.
    let (same_id, free_key) = (free.clone(), bench.keyed("free", 6));
    let long: Box<str> = "n".repeat(256).into();
    let in_state = |state| Timer { state, ..bench.timer(0) };
    let token = Token { incarnation: 9, claim: 9 };
    let leased = State::Leased(Lease { token, until: at(9), withdrawn: None });
    let too_long = [
        Timer { namespace: long.clone(), ..bench.timer(0) },
        Timer { labels: vec!["l".into(), long.clone()], ..bench.timer(0) },
        Timer { labels: vec![long.clone()], ..in_state(leased) },
        Timer { kind: long.clone(), ..bench.timer(0) },
        Timer { key: Some(long.clone()), ..bench.timer(0) },
        Timer { trace: Some(long.clone()), ..bench.timer(0) },
        Timer { namespace: long.clone(), ..in_state(State::Dead(DEATH)) },
        in_state(State::Parked(long)),
    ];
    for taken in [timer, same_key, same_id, free_key].into_iter().chain(too_long) {
        let refused = import(&bench, vec![free.clone(), taken.clone()]);
        assert_eq!(refused, Err(StoreErrorKind::Limit), "{taken:?}");
        assert_eq!(bench.all(), before);
    }
    let other = Timer { namespace: "other".into(), due: at(9), ..bench.keyed("k", 9) };
    assert_eq!(import(&bench, vec![free, other]), Ok(()));
    assert_eq!(bench.all().len(), 3);
}

/// A timer that was withdrawn during its delivery is not imported. So it conflicts with no stored timer.
fn an_import_leaves_withdrawn_timers_out(make: Make<'_>) {
    let bench = Bench::new(make);
    let cancelled = bench.keyed("k", 0);
    bench.create(&cancelled);
    let leased = bench.the_due();
    assert_eq!(bench.apply(Op::Cancel("k".into(), None)), Outcome::InFlight(cancelled.id));
    let owner = bench.keyed("k", 9);
    bench.create(&owner);
    let before = bench.all();
    let withdrawn = bench.get(cancelled.id).expect("it is stored until its delivery ends");
    let dead = Timer { state: State::Dead(DEATH), ..bench.keyed("k", 3) };
    assert_eq!(import(&bench, vec![withdrawn.clone()]), Ok(()));
    assert_eq!(bench.all(), before, "the stored timer stays as it was");
    assert_eq!(import(&bench, vec![withdrawn.clone(), dead.clone()]), Ok(()), "a dead timer takes no key");
    assert_eq!(bench.get("k").map(|timer| timer.id), Some(owner.id));
    assert_eq!((bench.get(dead.id), bench.get(withdrawn.id)), (Some(dead), Some(withdrawn.clone())));
    let ended = bench.apply(Op::Release(withdrawn.id, leased.token));
    assert!(matches!(ended, Outcome::Ended { phase: Phase::Withdrawn, .. }), "{ended:?}");
}

/// A timer has ended, and its id is remembered for an hour. Then a backup brings the timer back. When the timer ends
/// again, its id is remembered for another hour.
fn an_import_of_a_timer_that_has_ended(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = Timer { has_chosen_id: true, ..bench.timer(0) };
    bench.create(&timer);
    let backup = bench.all();
    let cancel = || assert!(matches!(bench.apply(Op::Cancel(timer.id.into(), None)), Outcome::Cancelled(_)));
    cancel();
    assert_eq!(import(&bench, backup.clone()), Ok(()));
    assert_eq!(bench.all(), backup);
    assert_eq!(bench.place(&timer, IfPresent::Replace), Outcome::Repeated(timer.id));
    bench.set(HOUR / 2);
    cancel();
    bench.set(HOUR);
    // The next creation and the next reap drop the ids whose hour is over.
    bench.create(&bench.timer(10 * HOUR));
    let _reaped = bench.reap(9);
    assert_eq!(bench.place(&timer, IfPresent::Reject), Outcome::Repeated(timer.id));
    bench.set(HOUR + HOUR / 2);
    assert_eq!(bench.place(&timer, IfPresent::Reject), Outcome::Created(timer.id));
}

fn an_import_names_a_timer_with_a_zero_byte(make: Make<'_>) {
    let bench = Bench::new(make);
    for forged in timers_with_zero_bytes(&bench) {
        let id = forged.id;
        let import = bench.store.import(vec![bench.timer(5), forged]);
        let error = pollster::block_on(import).expect_err("the import was not refused");
        assert_eq!(error.kind(), StoreErrorKind::Limit);
        assert!(error.to_string().contains(&id.to_string()), "{error} names no timer");
        assert_eq!(bench.all(), []);
        bench.audit();
    }
}

fn an_export_stops_when_it_is_asked_to(make: Make<'_>) {
    let bench = Bench::new(make);
    for due in 0..9 {
        bench.create(&bench.timer(due));
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let each = Box::new(move |_: &Timer| count.fetch_add(1, Ordering::Relaxed) < 3);
    pollster::block_on(bench.store.export(each)).expect("an export failed");
    assert_eq!(seen.load(Ordering::Relaxed), 4);
}
