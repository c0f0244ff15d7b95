//! Tests that a horizon reads a bounded number of entries of the index by due moment.

use super::*;
use crate::state::{Phase, State};
use crate::store::horizon::AN_HOUR;
use crate::store::{Counts, IfPresent};
use tourbillon::ManualClock;

const HOUR: u64 = 3_600_000;
/// The time of the store's clock, in milliseconds since the start of 1970: half an hour after a full hour.
const NOW: u64 = 495_000 * HOUR + HOUR / 2;

/// Makes a store with a timer for each of the due moments `dues`.
fn store(dues: &[u64]) -> MemoryStore {
    let clock = ManualClock::new();
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(NOW).as_nanos()));
    let store = MemoryStore::new(clock);
    let ops = dues.iter().zip(1..).map(|(due, n)| {
        let due = UtcMillis::from_millis(*due);
        let id = TimerId::from_u128(n);
        let timer =
            Timer { id, key: None, due, scheduled: due, ..crate::state::tests::timer(State::Pending) };
        Op::Place(Box::new(timer), IfPresent::Reject)
    });
    let outcomes = store.transact(|ledger| ops.map(|op| ledger.apply(op)).collect::<Result<Vec<_>, _>>());
    assert_eq!(outcomes.unwrap().len(), dues.len());
    store
}

fn horizon(store: &MemoryStore, looks: usize) -> Horizon {
    store.transact(|ledger| ledger.horizon(looks)).unwrap()
}

#[test]
fn a_horizon_that_has_looked_enough_says_less_and_nothing_wrong() {
    // A timer is due every 47 s, from two hours ago until two hours from now. Others are due in the hours, days and
    // years after.
    let near = (0..).map(|n| NOW - 2 * HOUR + n * 47_000).take_while(|due| *due < NOW + 2 * HOUR);
    let far = (1..60).map(|n| NOW + n * n * n * 3 * HOUR);
    let dues: Vec<u64> = near.chain(far).collect();
    let store = store(&dues);
    let mut wanted = Horizon::empty(UtcMillis::from_millis(NOW));
    dues.iter().for_each(|due| wanted.add(UtcMillis::from_millis(*due), 1));
    assert!(wanted.spans.iter().all(|span| span.count > 0), "{wanted:#?}");
    let (mut exact, mut looks) = (0, 0);
    while exact < wanted.spans.len() {
        let found = horizon(&store, looks);
        let before = exact;
        exact = found.spans.iter().filter(|span| span.is_exact).count();
        assert!(exact >= before, "more looks and fewer spans");
        for (nth, (span, wanted)) in found.spans.iter().zip(&wanted.spans).enumerate() {
            assert!(if span.is_exact { span == wanted } else { span.count <= wanted.count }, "{span:?}");
            assert!(span.is_exact || nth <= AN_HOUR + 1, "the hours are enough for the later spans");
        }
        assert_eq!(found.placed() + found.unplaced, dues.len() as u64, "{looks} looks");
        looks += 1;
    }
    assert_eq!(horizon(&store, looks - 1), wanted);
    let near = dues.iter().filter(|due| (NOW - HOUR / 2..=NOW + HOUR).contains(due));
    assert_eq!(looks - 1, near.count(), "looks that make all spans exact");
}

#[test]
fn what_is_due_for_hours_is_not_looked_at() {
    let dues: Vec<u64> = (0..500).map(|n| NOW - HOUR - n).chain([NOW + 1]).collect();
    let found = horizon(&store(&dues), 1);
    assert_eq!((found.spans[0].count, found.spans[1].count, found.unplaced), (500, 1, 0));
    assert!(found.spans.iter().all(|span| span.is_exact));
}

#[test]
fn a_number_that_is_not_that_of_its_hour_is_a_fault() {
    let store = store(&[NOW, NOW + 2 * HOUR]);
    let check = || store.transact(|ledger| ledger.check()).unwrap();
    assert_eq!(check(), []);
    let numbers = |store: &MemoryStore| store.lock().tables[Table::Hours as usize].clone();
    let right = numbers(&store);
    assert_eq!(right.len(), 2);
    let hour: Vec<u8> = right.keys().next().unwrap().clone();
    for wrong in [None, Some(2_u64), Some(0)] {
        let mut tables = store.lock();
        let hours = &mut tables.tables[Table::Hours as usize];
        match wrong {
            Some(wrong) => drop(hours.insert(hour.clone(), wrong.to_be_bytes().into())),
            None => drop(hours.remove(&hour)),
        }
        drop(tables);
        let faults = check();
        assert_eq!((faults.len(), faults[0].table), (1, "hours"), "{faults:?}");
        store.lock().tables[Table::Hours as usize].clone_from(&right);
    }
    assert_eq!(check(), []);
}

#[test]
fn numbers_of_a_damaged_database_do_not_overflow() {
    let mut horizon = Horizon::empty(UtcMillis::from_millis(NOW));
    for due in [NOW, NOW, NOW + 2 * 3_600_000] {
        horizon.add(UtcMillis::from_millis(due), u64::MAX);
    }
    assert_eq!((horizon.spans[0].count, horizon.placed()), (u64::MAX, u64::MAX));
    let mut counts = Counts::default();
    for namespace in ["a", "b"] {
        counts.by_namespace.insert((namespace.into(), Phase::Pending), u64::MAX);
    }
    assert_eq!(counts.of(Phase::Pending), u64::MAX);
}
