//! Tests that operations skip unreadable records, and index entries that do not belong to their timers.

use super::*;
use crate::state::{Phase, State};
use crate::store::{IfPresent, Reaped};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use tourbillon::ManualClock;

/// Returns the result of a future of the store in memory, which is ready at the first poll.
fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.unwrap(),
        Poll::Pending => panic!("an answer of the store in memory waits"),
    }
}

const BY: Claimant = Claimant { incarnation: 1, lease: Duration::from_secs(30) };

fn id(n: u128) -> TimerId {
    TimerId::from_u128(n)
}

fn at(millis: u64) -> UtcMillis {
    UtcMillis::from_millis(millis)
}

/// Makes a store with timers 1 to 4. Timer `n` is due at millisecond `n`, and the clock shows millisecond 10.
fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::new(clock.clone());
    clock.advance(Duration::from_millis(10));
    for n in 1..=4 {
        let due = at(n.try_into().unwrap());
        let timer =
            Timer { id: id(n), key: None, due, scheduled: due, ..crate::state::tests::timer(State::Pending) };
        now(store.apply(vec![Op::Place(Box::new(timer), IfPresent::Reject)], Durability::Volatile));
    }
    (store, clock)
}

fn key_of(timer: TimerId) -> Vec<u8> {
    timer.as_u128().to_be_bytes().into()
}

/// Truncates a timer's record after the namespace, so that the record is unreadable.
fn damage(store: &MemoryStore, timer: TimerId) {
    let mut tables = store.lock();
    let record = tables.tables[Table::Timers as usize].get_mut(&key_of(timer)).unwrap();
    record.truncate(3);
}

fn claim(store: &MemoryStore, number: u64, timers: u32) -> (Vec<TimerId>, u32) {
    let claimed = now(store.claim(BY, number, Limit { timers, bytes: u64::MAX }, None));
    (claimed.leased.iter().map(|leased| leased.timer.id).collect(), claimed.quarantined)
}

#[test]
fn an_unreadable_record_is_set_aside_by_a_claim() {
    let (store, _clock) = store();
    damage(&store, id(2));
    assert_eq!(claim(&store, 1, 10), (vec![id(1), id(3), id(4)], 1));
    let counts = now(store.counts());
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Leased), counts.quarantined), (0, 3, 1));
    assert_eq!(claim(&store, 2, 10), (vec![], 0));
    let tables = store.lock();
    assert_eq!(tables.tables[Table::Quarantine as usize].get(&key_of(id(2))).map(Vec::len), Some(3));
}

/// Tests a timer whose unreadable record was set aside, and that is created again with the same id. The new timer has
/// the old due moment from the start, or is moved to it later.
#[test]
fn a_timer_that_takes_the_entry_of_a_record_set_aside_is_counted_once() {
    for moves in [false, true] {
        let (store, _clock) = store();
        let timer = now(store.get(id(2).into())).unwrap();
        damage(&store, id(2));
        let apply = |op| now(store.apply(vec![op], Durability::Volatile));
        assert_eq!(apply(Op::Cancel(id(2).into(), None)), [Outcome::NotFound]);
        let due = if moves { at(9) } else { at(2) };
        let place = Op::Place(Box::new(Timer { due, scheduled: due, ..timer }), IfPresent::Reject);
        assert_eq!(apply(place), [Outcome::Created(id(2))]);
        if moves {
            assert_eq!(apply(Op::Move(id(2).into(), at(2))), [Outcome::Changed(id(2))]);
        }
        let counts = now(store.counts());
        assert_eq!((counts.of(Phase::Pending), counts.quarantined), (4, 1));
        let faults =
            || now(store.check()).into_iter().filter(|fault| fault.table != Table::Quarantine.name());
        assert_eq!(faults().collect::<Vec<_>>(), []);
        assert_eq!(claim(&store, 1, 10), (vec![id(1), id(2), id(3), id(4)], 0));
        assert_eq!(faults().collect::<Vec<_>>(), []);
    }
}

#[test]
fn an_unreadable_record_is_set_aside_by_a_reap() {
    let (store, clock) = store();
    assert_eq!(claim(&store, 1, 10).0.len(), 4);
    damage(&store, id(3));
    clock.advance(Duration::from_secs(30));
    let reaped = now(store.reap(10));
    assert_eq!((reaped.returned, reaped.next), (vec![id(1), id(2), id(4)], None));
    assert_eq!(now(store.counts()).of(Phase::Leased), 0);
    assert_eq!(now(store.reap(10)), Reaped::default());
}

#[test]
fn a_backup_has_all_that_can_be_read() {
    let (store, _clock) = store();
    damage(&store, id(2));
    let found = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&found);
    now(store.export(Box::new(move |timer| {
        into.lock().unwrap().push(timer.id);
        true
    })));
    assert_eq!(*found.lock().unwrap(), [id(1), id(3), id(4)]);
}

#[test]
fn an_entry_that_is_not_its_timers_stops_no_claim() {
    let (store, _clock) = store();
    let stale = [&[0, 0, 0, 0, 0, 0][..], &key_of(id(3))].concat();
    store.lock().tables[Table::Due as usize].insert(stale, Vec::new());
    assert!(!now(store.check()).is_empty());
    assert_eq!(claim(&store, 1, 10), (vec![id(1), id(2), id(3), id(4)], 0));
    assert_eq!(now(store.check()), []);
}

#[test]
fn an_entry_that_is_not_its_timers_stops_no_reap() {
    let (store, clock) = store();
    assert_eq!(claim(&store, 1, 2).0.len(), 2);
    let stale = [&[0, 0, 0, 0, 0, 1][..], &key_of(id(3))].concat();
    store.lock().tables[Table::Leases as usize].insert(stale, Vec::new());
    clock.advance(Duration::from_secs(30));
    assert_eq!(now(store.reap(10)).returned, [id(1), id(2)]);
    assert_eq!(now(store.check()), []);
}

/// Tests index entries whose bytes stand for a moment after [`UtcMillis::MAX`]. Such a moment is read as
/// `UtcMillis::MAX`, so the entry has other bytes than the entry that is made from the moment and the id.
#[test]
fn the_end_of_all_leases_removes_entries_with_any_bytes_and_is_over_once_it_has() {
    let (store, _clock) = store();
    assert_eq!(claim(&store, 1, 2).0.len(), 2);
    let far = |timer| [&[0xff; 6][..], &key_of(timer)].concat();
    for entry in [far(id(1)), far(id(3)), vec![0xff; 3], Vec::new()] {
        store.lock().tables[Table::Leases as usize].insert(entry, Vec::new());
    }
    let end = || store.transact(|ledger| ledger.end_leases(2, &mut Reaped::default())).unwrap();
    let passes = (0..100).take_while(|_| end()).count();
    assert!(passes < 100, "the opening of a store would not end");
    assert_eq!(claim(&store, 2, 10).0.len(), 4);
    assert_eq!(now(store.check()), []);
}

#[test]
fn a_wrong_entry_at_the_latest_moment_does_not_end_the_lease_of_another_entry() {
    let (store, _clock) = store();
    let forever = Claimant { incarnation: 1, lease: Duration::MAX };
    assert_eq!(now(store.claim(forever, 1, Limit { timers: 1, bytes: u64::MAX }, None)).leased.len(), 1);
    let wrong = [&[0xff; 6][..], &key_of(id(1))].concat();
    store.lock().tables[Table::Leases as usize].insert(wrong, Vec::new());
    assert!(store.transact(|ledger| ledger.end_leases(10, &mut Reaped::default())).unwrap());
    assert_eq!(now(store.counts()).of(Phase::Leased), 0);
    assert_eq!(now(store.check()), []);
}

#[test]
fn a_transaction_that_panics_leaves_nothing() {
    let (store, _clock) = store();
    let before = now(store.counts());
    let panics = std::panic::AssertUnwindSafe(|| {
        let _never = store.transact(|ledger| -> Result<(), StoreError> {
            ledger.apply(Op::Cancel(id(1).into(), None))?;
            panic!("within a transaction")
        });
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(claim(&store, 1, 10).0.len(), 4);
    assert_eq!(now(store.counts()).of(Phase::Leased), before.of(Phase::Pending));
    assert_eq!(now(store.check()), []);
}

/// Makes a store in which timers 5 and 6 have keys and the same label, and the record of timer 5 is damaged.
fn damaged_with_names() -> MemoryStore {
    let (store, _clock) = store();
    let due = at(20);
    for n in [5, 6] {
        let timer = Timer {
            id: id(n),
            key: Some(format!("key {n}").into()),
            labels: vec!["label".into()],
            due,
            ..crate::state::tests::timer(State::Pending)
        };
        now(store.apply(vec![Op::Place(Box::new(timer), IfPresent::Reject)], Durability::Volatile));
    }
    assert_eq!(now(store.check()), []);
    damage(&store, id(5));
    store
}

fn faults_of(store: &MemoryStore, table: Table) -> Vec<Option<TimerId>> {
    let faults = now(store.check());
    faults.iter().filter(|fault| fault.table == table.name()).map(|fault| fault.timer).collect()
}

#[test]
fn the_check_names_the_entries_that_a_record_set_aside_leaves_behind() {
    let store = damaged_with_names();
    // The store sets the record aside. It does not know the index entries of the record, so they stay.
    let cancel = |at: Address| now(store.apply(vec![Op::Cancel(at, None)], Durability::Volatile));
    assert_eq!(cancel(id(5).into()), [Outcome::NotFound]);
    for table in [Table::Keys, Table::Labels, Table::Due] {
        assert_eq!(faults_of(&store, table), [None, Some(id(5))], "{table:?}");
    }
    // An operation that finds an entry without its timer removes the entry.
    assert_eq!(cancel("key 5".into()), [Outcome::NotFound]);
    assert_eq!(faults_of(&store, Table::Keys), []);
    let by_label = Op::CancelLabelled { namespace: "".into(), label: "label".into(), limit: 10 };
    let cancelled = Outcome::CancelledMany { cancelled: 1, in_flight: 0, more: false };
    assert_eq!(now(store.apply(vec![by_label], Durability::Volatile)), [cancelled]);
    assert_eq!(faults_of(&store, Table::Labels), []);
}

#[test]
fn a_key_of_a_record_that_was_set_aside_is_free() {
    let store = damaged_with_names();
    let timer =
        |n| Timer { id: id(n), key: Some("key 5".into()), ..crate::state::tests::timer(State::Pending) };
    now(store.import(vec![timer(7)]));
    assert_eq!(now(store.get("key 5".into())).map(|timer| timer.id), Some(id(7)));
    assert_eq!(faults_of(&store, Table::Keys), []);
}
