//! Tests the export of all timers and their import into another store.

use crate::bench::{Bench, Case, LEASE, Make, at};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::state::{Failure, Phase, State};
use tourbillon_durable::store::{IfPresent, Op, PAUSED, StoreErrorKind};
use tourbillon_durable::timer::Timer;

pub(crate) const CASES: &[Case] = &[
    ("a backup goes into another store", a_backup_goes_into_another_store),
    ("a backup leaves withdrawn timers out", a_backup_leaves_withdrawn_timers_out),
    ("an import into taken places changes nothing", an_import_into_taken_places_changes_nothing),
    ("an export stops when it is asked to", an_export_stops_when_it_is_asked_to),
];

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
    let too_long = Timer { namespace: "n".repeat(256).into(), ..bench.timer(0) };
    for taken in [timer, same_key, too_long] {
        assert_eq!(import(&bench, vec![free.clone(), taken]), Err(StoreErrorKind::Limit));
        assert_eq!(bench.all(), before);
    }
    let other = Timer { namespace: "other".into(), due: at(9), ..bench.keyed("k", 9) };
    assert_eq!(import(&bench, vec![free, other]), Ok(()));
    assert_eq!(bench.all().len(), 3);
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
