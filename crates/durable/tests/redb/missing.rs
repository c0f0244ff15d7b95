//! Tests openings of a store with a file that is missing, empty or cut.

use crate::faults::{builder, clock};
use crate::place::Place;
use crate::{ALL, apply, assert_whole, claimant, get, place, timer};
use pollster::block_on;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::{Durability, RedbStore, StoreErrorKind, TimerStore};
use tourbillon_durable::{Durable, Health};

fn operations(place_of: &Place) -> PathBuf {
    place_of.file().with_extension("redb.ops")
}

fn open(place_of: &Place) -> RedbStore {
    builder(&clock()).open(place_of.file()).unwrap()
}

fn assert_is_refused(place_of: &Place) {
    let error = builder(&clock()).open(place_of.file()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    let path = operations(place_of);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(!path.exists(), "the next opening would not notice");
}

/// Copies the database of an open store, but not the journal (the file of operations). The copy equals the database
/// that the death of the process would leave behind.
fn copy(place_of: &Place) -> Place {
    let copy = Place::new();
    fs::copy(place_of.file(), copy.file()).unwrap();
    copy
}

#[test]
fn a_store_whose_operations_are_missing_is_refused_and_goes_on_when_it_is_asked_to() {
    let place_of = Place::new();
    let store = open(&place_of);
    let new = copy(&place_of);
    apply(&store, place(timer(1, 9)), Durability::PowerLoss).unwrap();
    block_on(store.compact()).unwrap();
    apply(&store, place(timer(2, 9)), Durability::PowerLoss).unwrap();
    let copied = copy(&place_of);
    drop(store);
    for copied in [new, copied] {
        assert_is_refused(&copied);
        assert_is_refused(&copied);
    }
    let copied = copy(&place_of);
    drop(open(&copied));

    // The documented way to go on without the operations is an empty file in place of the journal.
    let store = open(&place_of);
    apply(&store, place(timer(3, 9)), Durability::PowerLoss).unwrap();
    apply(&store, place(timer(4, 9)), Durability::PowerLoss).unwrap();
    let copied = copy(&place_of);
    assert_is_refused(&copied);
    fs::File::create_new(operations(&copied)).unwrap();
    let store = open(&copied);
    assert_whole(&store);
    // Timer 3 is there, since the first change after a close is committed to the database.
    let found: Vec<u128> = (1..=4).filter(|id| get(&store, *id).is_some()).collect();
    assert_eq!(found, [1, 2, 3]);
    drop(store);
    let store = open(&copied);
    assert!(get(&store, 3).is_some());
}

/// Tests the database of a closed store without its journal. The database has all operations.
#[test]
fn a_store_that_was_closed_can_be_moved_without_the_file_of_operations() {
    let place_of = Place::new();
    for round in 0..3 {
        let store = open(&place_of);
        if round != 1 {
            for id in 0..3 {
                apply(&store, place(timer(10 * round + id, 9)), Durability::Volatile).unwrap();
            }
        }
        store.close().unwrap();
        let moved = copy(&place_of);
        let store = open(&moved);
        assert_whole(&store);
        assert!((0..3).all(|id| get(&store, 10 * (round & 2) + id).is_some()));
        // The copy has been opened, but nothing in it has changed.
        drop(open(&copy(&moved)));
        apply(&store, place(timer(99, 9)), Durability::Volatile).unwrap();
        drop(store);
        fs::remove_file(operations(&moved)).unwrap();
        assert!(get(&open(&moved), 99).is_some());
    }
}

/// Tests a journal without its database. An opening must not make an empty store, because a new store would overwrite
/// the journal.
#[test]
fn a_journal_whose_database_is_missing_or_empty_is_refused_and_kept() {
    for is_closed in [false, true] {
        let place_of = Place::new();
        let store = open(&place_of);
        for id in 0..5 {
            apply(&store, place(timer(id, 9)), Durability::PowerLoss).unwrap();
        }
        let copied = Place::new();
        if is_closed {
            store.close().unwrap();
            fs::copy(operations(&place_of), operations(&copied)).unwrap();
        } else {
            fs::copy(operations(&place_of), operations(&copied)).unwrap();
            drop(store);
        }
        let journal = fs::read(operations(&copied)).unwrap();
        for _ in 0..2 {
            let error = builder(&clock()).open(copied.file()).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            let path = copied.file();
            assert!(
                error.to_string().contains(&format!("{} is missing or empty", path.display())),
                "{error}"
            );
            assert!(fs::read(operations(&copied)).unwrap() == journal, "the journal was changed");
        }
        // The documented way to begin with an empty store is to remove the journal as well.
        fs::remove_file(operations(&copied)).unwrap();
        assert!(get(&open(&copied), 1).is_none());
    }
}

#[test]
fn a_journal_that_was_cut_is_refused() {
    let place_of = Place::new();
    let store = open(&place_of);
    for id in 0..50 {
        apply(&store, place(timer(id, 9)), Durability::PowerLoss).unwrap();
    }
    let copied = copy(&place_of);
    let journal = fs::read(operations(&place_of)).unwrap();
    drop(store);
    for length in [journal.len() - 1, journal.len() / 2, 1_000, 55] {
        fs::write(operations(&copied), &journal[..length]).unwrap();
        let error = builder(&clock()).open(copied.file()).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{length}");
        assert!(error.to_string().contains("was cut"), "{error}");
    }
    fs::write(operations(&copied), &journal).unwrap();
    let store = open(&copied);
    assert!((0..50).all(|id| get(&store, id).is_some()));
}

/// Tests a creation that fails at the first write to the database's file, as on a full disk. The next opening completes
/// the creation.
#[cfg(feature = "failpoints")]
#[test]
fn a_creation_that_failed_is_completed_by_the_next_opening() {
    use std::cell::Cell;
    use tourbillon_durable::store::failpoints::{Point, on_reach};
    thread_local! {
        /// Whether the next write of this thread fails.
        static FAILS: Cell<bool> = const { Cell::new(false) };
    }
    on_reach(|point| assert!(point != Point::InDatabaseWrite || !FAILS.take(), "the disk is full"));
    let place_of = Place::new();
    FAILS.set(true);
    drop(builder(&clock()).open(place_of.file()).unwrap_err());
    assert!(!FAILS.take() && fs::metadata(place_of.file()).unwrap().len() > 0);
    let store = open(&place_of);
    apply(&store, place(timer(1, 9)), Durability::PowerLoss).unwrap();
    assert_whole(&store);
}

/// Tests the removal of damaged records from a path where no store is. It must not leave a part of a store, which no
/// later opening would accept.
#[test]
fn damaged_records_are_not_forgotten_where_no_store_is() {
    let place_of = Place::new();
    let forget = || builder(&clock()).forget_damaged(place_of.file());
    drop(forget().unwrap_err());
    assert!(!place_of.file().exists() && !operations(&place_of).exists());
    fs::write(place_of.file(), []).unwrap();
    assert_eq!(forget().unwrap(), 0);
    assert_whole(&open(&place_of));
    assert_eq!(forget().unwrap(), 0);
}

/// Tests a database that somebody puts beside the journal of a creation that has failed. The opening must not take the
/// database for an incomplete one.
#[test]
fn a_database_beside_the_note_of_a_failed_creation_keeps_its_timers() {
    let place_of = Place::new();
    let store = open(&place_of);
    apply(&store, place(timer(1, 9)), Durability::PowerLoss).unwrap();
    block_on(store.compact()).unwrap();
    let unclosed = copy(&place_of);
    store.close().unwrap();
    let closed = copy(&place_of);
    // Of the second database, the bytes are damaged by which redb recognizes its files.
    let damaged = [12..64, 0..9].map(|part| {
        let copied = copy(&place_of);
        let mut bytes = fs::read(copied.file()).unwrap();
        bytes[part].fill(0xaa);
        fs::write(copied.file(), &bytes).unwrap();
        (copied, bytes)
    });
    for place_of in [&unclosed, &closed, &damaged[0].0, &damaged[1].0] {
        fs::write(operations(place_of), b"\xff\xff\xff\xffmaking......").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(builder(&clock()).open(unclosed.file()).unwrap_err().kind(), StoreErrorKind::Corrupt);
        for (damaged, bytes) in &damaged {
            assert_eq!(builder(&clock()).open(damaged.file()).unwrap_err().kind(), StoreErrorKind::Corrupt);
            assert!(fs::read(damaged.file()).unwrap() == *bytes, "the damaged database was changed");
        }
    }
    // The documented way to go on without the operations is an empty file in place of the journal.
    fs::write(operations(&unclosed), []).unwrap();
    assert!([unclosed, closed].iter().all(|place_of| get(&open(place_of), 1).is_some()));
}

/// Tests that a store refuses claims as well as operations once its file or its journal was removed, because their
/// effects would be lost.
#[cfg(unix)]
#[test]
fn a_store_whose_file_was_removed_takes_no_change_until_it_is_back() {
    let place_of = Place::new();
    for removed in [place_of.file(), operations(&place_of)] {
        let store = builder(&clock()).open(place_of.file()).unwrap();
        apply(&store, place(timer(1, 900)), Durability::PowerLoss).unwrap();
        let elsewhere = place_of.file().with_extension("elsewhere");
        let claim = |number| {
            block_on(store.claim(claimant(1), number, ALL, None)).map(|claimed| claimed.leased.len())
        };
        fs::rename(&removed, &elsewhere).unwrap();
        thread::sleep(Duration::from_secs(1));
        let created = apply(&store, place(timer(2, 900)), Durability::PowerLoss).map(drop);
        let import = block_on(store.import(Vec::new()));
        for refused in [created, claim(1).map(drop), import] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Io);
            let name = removed.file_name().unwrap().to_str().unwrap();
            assert!(error.to_string().contains(&format!("/{name} was removed or replaced")), "{error}");
        }
        fs::rename(&elsewhere, &removed).unwrap();
        thread::sleep(Duration::from_secs(1));
        apply(&store, place(timer(2, 900)), Durability::PowerLoss).unwrap();
        assert_eq!(claim(2).unwrap(), 2);
    }
}

/// While nothing is due, the runtime makes no call that could fail. Its health shows all the same that the store
/// refuses the changes of callers.
#[cfg(unix)]
#[test]
fn an_idle_runtime_is_not_healthy_while_the_file_of_its_store_is_missing() {
    let place_of = Place::new();
    let store: Arc<dyn TimerStore> = Arc::new(RedbStore::open(place_of.file()).unwrap());
    let durable = Durable::builder_on(store).bytes_handler("mail", async |_, _| {}).start().unwrap();
    let timers = durable.handle();
    assert!(timers.await_idle(Duration::from_secs(20)));
    assert!(matches!(timers.health(), Health::Healthy));
    let elsewhere = place_of.file().with_extension("elsewhere");
    fs::rename(place_of.file(), &elsewhere).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(
        matches!(timers.health(), Health::StoreFails { error, .. } if error.kind() == StoreErrorKind::Io)
    );
    fs::rename(&elsewhere, place_of.file()).unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(matches!(timers.health(), Health::Healthy));
}
