//! Tests the data that the store keeps over a close, and the openings that it refuses.

use crate::place::Place;
use crate::{ALL, apply, assert_whole, claimant, get, keyed, place, timer};
use pollster::block_on;
use redb::ReadableTable;
use std::fs;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Durability, Op, Outcome, RedbStore, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};

#[test]
fn what_was_stored_is_there_after_a_close() {
    let place_of = Place::new();
    let store = RedbStore::open(place_of.file()).unwrap();
    let id = TimerId::from_u128(1);
    let placed = apply(&store, place(keyed(1, 5, "order 17")), Durability::PowerLoss).unwrap();
    assert_eq!(placed, Outcome::Created(id));
    let again = apply(&store, place(keyed(2, 5, "order 17")), Durability::PowerLoss).unwrap();
    assert!(matches!(again, Outcome::KeyExists { holder, .. } if holder == id));
    for durability in [Durability::Volatile, Durability::ProcessCrash] {
        apply(&store, place(timer(3 + durability as u128, 9)), durability).unwrap();
    }
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 3);
    assert_whole(&store);
    store.close().unwrap();
    let store = RedbStore::open(place_of.file()).unwrap();
    assert_eq!(block_on(store.get("order 17".into())).unwrap().unwrap().id, id);
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 3);
    assert_eq!(store.next_due().unwrap().map(|due| due.as_millis()), Some(5));
    assert_whole(&store);
}

#[test]
fn leases_end_when_the_store_is_opened_and_their_deliveries_stay_counted() {
    let place_of = Place::new();
    let store = RedbStore::open(place_of.file()).unwrap();
    for id in 1..=3 {
        apply(&store, place(timer(id, 1)), Durability::PowerLoss).unwrap();
    }
    let claimed = block_on(store.claim(claimant(1), 1, ALL, None)).unwrap();
    assert_eq!(claimed.leased.len(), 3);
    let ack = Op::Ack(TimerId::from_u128(1), claimed.leased[0].token);
    apply(&store, ack, Durability::PowerLoss).unwrap();
    // A timer that was cancelled in flight is not delivered again.
    let cancel = Op::Cancel(TimerId::from_u128(2).into(), None);
    assert!(matches!(apply(&store, cancel, Durability::Volatile).unwrap(), Outcome::InFlight(_)));
    drop(store);
    let store = RedbStore::open(place_of.file()).unwrap();
    assert_eq!((get(&store, 1), get(&store, 2)), (None, None));
    let left = get(&store, 3).unwrap();
    assert_eq!((left.state, left.deliveries), (State::Pending, 1));
    assert_whole(&store);
}

#[test]
fn the_clock_of_the_store_decides_what_is_due() {
    let place_of = Place::new();
    let clock = ManualClock::default();
    clock.set(Timestamp::from_nanos(1_000_000_000));
    let store = RedbStore::builder().clock(clock.clone()).open(place_of.file()).unwrap();
    apply(&store, place(timer(1, 2_000)), Durability::PowerLoss).unwrap();
    let claimed = block_on(store.claim(claimant(1), 1, ALL, None)).unwrap();
    assert_eq!((claimed.now.as_millis(), claimed.leased.len()), (1_000, 0));
    assert_eq!(claimed.next_due.map(|due| due.as_millis()), Some(2_000));
    let batches = store.stats().batches;
    clock.set(Timestamp::from_nanos(2_000_000_000));
    assert_eq!(block_on(store.claim(claimant(1), 2, ALL, None)).unwrap().leased.len(), 1);
    // A claim that finds nothing writes nothing.
    assert_eq!(block_on(store.claim(claimant(1), 3, ALL, None)).unwrap().leased.len(), 0);
    assert_eq!(store.stats().batches, batches + 1);
}

#[test]
fn a_second_opener_is_refused_at_once() {
    let place_of = Place::new();
    let first = RedbStore::open(place_of.file()).unwrap();
    let second = RedbStore::open(place_of.file()).unwrap_err();
    assert_eq!(second.kind(), StoreErrorKind::Locked);
    drop(first);
    RedbStore::open(place_of.file()).unwrap();
}

/// Changes the version of a store's schema. `schema` returns the new version from the present version. Asserts that an
/// opening then fails and leaves the file as it is. Returns the error.
fn refusal_of_schema(schema: impl Fn(u64) -> u64) -> StoreError {
    let place_of = Place::new();
    drop(RedbStore::open(place_of.file()).unwrap());
    {
        let database = redb::Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&[u8], &[u8]>::new("meta");
        let mut meta = transaction.open_table(meta).unwrap();
        let name = &b"schema"[..];
        let present = u64::from_be_bytes(meta.get(name).unwrap().unwrap().value().try_into().unwrap());
        meta.insert(name, &schema(present).to_be_bytes()[..]).unwrap();
        drop(meta);
        transaction.commit().unwrap();
    }
    let before = fs::read(place_of.file()).unwrap();
    let error = RedbStore::open(place_of.file()).unwrap_err();
    assert!(fs::read(place_of.file()).unwrap() == before);
    error
}

#[test]
fn a_newer_schema_is_refused_and_the_file_stays_as_it_is() {
    assert_eq!(refusal_of_schema(|present| present + 1).kind(), StoreErrorKind::NewerSchema);
}

#[test]
fn an_older_schema_is_refused_with_its_version_and_the_file_stays_as_it_is() {
    let error = refusal_of_schema(|present| present - 1);
    assert_eq!(error.kind(), StoreErrorKind::OlderSchema);
    assert!(error.to_string().contains("version 4 of the schema"), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_stays_as_it_is() {
    let place_of = Place::new();
    let text = "no database\n".repeat(1_000);
    fs::write(place_of.file(), &text).unwrap();
    let error = RedbStore::open(place_of.file()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert_eq!(fs::read_to_string(place_of.file()).unwrap(), text);
    assert_eq!(fs::read_dir(place_of.file().parent().unwrap()).unwrap().count(), 1);
    // A database of another program is refused, too.
    fs::remove_file(place_of.file()).unwrap();
    {
        let database = redb::Database::create(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        drop(transaction.open_table(redb::TableDefinition::<u64, u64>::new("other")).unwrap());
        transaction.commit().unwrap();
    }
    let error = RedbStore::open(place_of.file()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
}

/// Tests the opening of a store in a folder where not even root can make a file.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_refused_as_such() {
    let error = RedbStore::open("/sys/tourbillon.redb").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
}

#[test]
fn a_request_that_fails_leaves_the_others_of_its_batch_as_they_are() {
    let place_of = Place::new();
    let store = RedbStore::open(place_of.file()).unwrap();
    apply(&store, place(keyed(1, 5, "a")), Durability::PowerLoss).unwrap();
    // The other operations wait while the first operation is synced. So they share a batch or two.
    let before = store.apply(vec![place(timer(2, 5))], Durability::PowerLoss);
    let import = store.import(vec![timer(3, 5), keyed(4, 5, "b"), keyed(5, 5, "a")]);
    let after = store.apply(vec![place(keyed(6, 5, "b"))], Durability::PowerLoss);
    assert!(block_on(before).is_ok());
    assert_eq!(block_on(import).unwrap_err().kind(), StoreErrorKind::Limit);
    assert_eq!(block_on(after).unwrap(), [Outcome::Created(TimerId::from_u128(6))]);
    let stored: Vec<bool> = (1..=6).map(|id| get(&store, id).is_some()).collect();
    assert_eq!(stored, [true, true, false, false, false, true]);
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 3);
    assert_whole(&store);
}

#[test]
fn a_waker_is_called_when_a_timer_is_due_earlier_than_the_last_claim_said() {
    let place_of = Place::new();
    let clock = ManualClock::default();
    let store = RedbStore::builder().clock(clock.clone()).open(place_of.file()).unwrap();
    let (wakes, woken) = std::sync::mpsc::channel();
    store.subscribe(Box::new(move || wakes.send(()).unwrap_or(())));
    let mut claims = 0;
    let mut claim = || {
        claims += 1;
        drop(block_on(store.claim(claimant(1), claims, ALL, None)).unwrap());
    };
    claim();
    apply(&store, place(timer(1, 100)), Durability::Volatile).unwrap();
    woken.recv().unwrap();
    claim();
    apply(&store, place(timer(2, 200)), Durability::Volatile).unwrap();
    apply(&store, place(timer(3, 50)), Durability::Volatile).unwrap();
    woken.recv().unwrap();
    clock.advance(core::time::Duration::from_millis(1));
    woken.recv().unwrap();
    drop(store);
    assert!(woken.try_recv().is_err());
}

/// Tests a timer with a chosen id that ends, is imported, and ends again. The id counts as remembered from the second
/// end on.
#[test]
fn an_imported_id_is_remembered_for_the_whole_time_after_its_second_end() {
    let place_of = Place::new();
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(1_000_000_000));
    let store = RedbStore::builder().clock(clock.clone()).open(place_of.file()).unwrap();
    let chosen = || Timer { has_chosen_id: true, ..timer(1, 90_000_000) };
    let end = || apply(&store, Op::Cancel(chosen().id.into(), None), Durability::Volatile).unwrap();
    let minutes = |minutes: u64| clock.advance(core::time::Duration::from_secs(60 * minutes));
    apply(&store, place(chosen()), Durability::Volatile).unwrap();
    assert!(matches!(end(), Outcome::Cancelled(_)));
    minutes(20);
    block_on(store.import(vec![chosen()])).unwrap();
    assert_whole(&store);
    assert!(matches!(end(), Outcome::Cancelled(_)));
    assert_whole(&store);
    minutes(41);
    // Each creation forgets the ids whose time has passed.
    apply(&store, place(timer(2, 90_000_000)), Durability::Volatile).unwrap();
    let again = apply(&store, place(chosen()), Durability::Volatile).unwrap();
    assert_eq!(again, Outcome::Repeated(chosen().id));
    minutes(20);
    assert_eq!(apply(&store, place(chosen()), Durability::Volatile).unwrap(), Outcome::Created(chosen().id));
    assert_whole(&store);
}
