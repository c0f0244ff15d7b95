//! Tests the store over a long time: damaged records, timers that come and go, and far timers.

use crate::place::Place;
use crate::{ALL, apply, assert_whole, claimant, get, place, timer};
use pollster::block_on;
use redb::backends::FileBackend;
use redb::{ReadableDatabase, ReadableTable, StorageBackend};
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, Limit, Op, Part, RedbStore, TimerStore};
use tourbillon_durable::timer::TimerId;

const TEN: Limit = Limit { timers: 10, ..ALL };

#[test]
fn a_record_that_cannot_be_read_is_set_aside_with_its_bytes_and_the_others_are_delivered() {
    let place_of = Place::new();
    let store = RedbStore::open(place_of.file()).unwrap();
    for id in 1..=3 {
        apply(&store, place(timer(id, 1)), Durability::PowerLoss).unwrap();
    }
    drop(store);
    let id = 2_u128.to_be_bytes();
    let damaged = [1, 0, 0xff, 0xff, 0xff];
    {
        let database = redb::Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let timers = redb::TableDefinition::<&[u8; 16], &[u8]>::new("timers");
        transaction.open_table(timers).unwrap().insert(&id, &damaged[..]).unwrap();
        transaction.commit().unwrap();
    }
    let store = RedbStore::open(place_of.file()).unwrap();
    let claimed = block_on(store.claim(claimant(1), 1, ALL, None)).unwrap();
    let ids: Vec<u128> = claimed.leased.iter().map(|leased| leased.timer.id.as_u128()).collect();
    assert_eq!((ids, claimed.quarantined), (vec![1, 3], 1));
    assert_eq!(block_on(store.claim(claimant(1), 2, ALL, None)).unwrap().quarantined, 0);
    let counts = block_on(store.counts()).unwrap();
    assert_eq!((counts.quarantined, counts.of(Phase::Leased), counts.of(Phase::Pending)), (1, 2, 0));
    let faults = block_on(store.check()).unwrap();
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!((fault.table, fault.timer), ("quarantine", Some(TimerId::from_u128(2))), "{fault}");
    drop(store);
    let database = redb::Database::open(place_of.file()).unwrap();
    let transaction = database.begin_read().unwrap();
    let aside = redb::TableDefinition::<&[u8; 16], &[u8]>::new("quarantine");
    let aside = transaction.open_table(aside).unwrap();
    assert_eq!(aside.get(&id).unwrap().unwrap().value(), damaged);
    assert_eq!(aside.iter().unwrap().count(), 1);
}

/// Stores `count` timers that are due at the moment `due`, 1,000 in each call.
fn fill(store: &RedbStore, first: u128, count: u128, due: u64) {
    #[expect(clippy::cast_possible_truncation, reason = "few timers")]
    for start in (0..count).step_by(1_000) {
        let ops = (start..count.min(start + 1_000)).map(|n| place(timer(first + n, due + n as u64)));
        block_on(store.apply(ops.collect(), Durability::PowerLoss)).unwrap();
    }
}

#[test]
fn a_day_of_churn_leaves_the_file_at_most_two_and_a_half_times_the_live_data() {
    const LIVE: u128 = 20_000;
    let (churned, fresh) = (Place::new(), Place::new());
    let clock = ManualClock::default();
    let store = RedbStore::builder().clock(clock.clone()).open(churned.file()).unwrap();
    fill(&store, 0, LIVE, 500_000_000);
    // Every ten seconds of the day, six timers are made. They live for a hundred seconds.
    let mut claims = 0;
    for turn in 0..8_640_u128 {
        let now = u64::try_from(turn).unwrap() * 10_000;
        clock.set(Timestamp::from_nanos(now * 1_000_000));
        claims += 1;
        let claimed = block_on(store.claim(claimant(1), claims, ALL, None)).unwrap();
        let mut ops: Vec<Op> =
            claimed.leased.into_iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
        let first = 1_000_000 + turn * 6;
        ops.extend((0..6).map(|n| place(timer(first + n, now + 100_000))));
        block_on(store.apply(ops, Durability::Volatile)).unwrap();
    }
    assert_whole(&store);
    let left = block_on(store.counts()).unwrap().of(Phase::Pending);
    assert_eq!(u128::from(left), LIVE + 60);
    let live = RedbStore::open(fresh.file()).unwrap();
    fill(&live, 0, LIVE + 60, 500_000_000);
    while block_on(live.compact()).unwrap() {}
    let size = |place_of: &Place| std::fs::metadata(place_of.file()).unwrap().len();
    let (live, churned_size) = (size(&fresh), size(&churned));
    assert!(churned_size * 2 <= live * 5, "{churned_size} bytes, and {live} for the live timers alone");
    while block_on(store.compact()).unwrap() {}
    assert!(size(&churned) * 4 <= live * 5, "{} bytes after compaction, {live}", size(&churned));
    assert_whole(&store);
}

/// A file that counts the bytes that all reads return.
#[derive(Debug)]
struct Counted {
    file: FileBackend,
    read: Arc<AtomicU64>,
}

impl StorageBackend for Counted {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(out.len() as u64, Relaxed);
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Returns the number of bytes that a claim of ten timers reads from the database. The store has `far` timers that are
/// due much later, and no cache. The result is the least of many claims, because some claims also read pages for a
/// checkpoint.
fn bytes_of_a_claim(far: u128) -> u64 {
    let place_of = Place::new();
    let clock = ManualClock::default();
    clock.set(Timestamp::from_nanos(1_000_000_000));
    let store = RedbStore::builder().clock(clock.clone()).open(place_of.file()).unwrap();
    fill(&store, 1 << 64, far, 1_000_000);
    fill(&store, 0, 1_000, 0);
    drop(store);
    let read = Arc::new(AtomicU64::new(0));
    let (counter, file) = (Arc::clone(&read), place_of.file());
    let open = move |part| {
        let path = match part {
            Part::Timers => file.clone(),
            Part::Operations => PathBuf::from(format!("{}.ops", file.display())),
        };
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let file = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(match part {
            Part::Timers => Box::new(Counted { file, read: Arc::clone(&counter) }) as Box<dyn StorageBackend>,
            Part::Operations => Box::new(file),
        })
    };
    let store = RedbStore::builder().clock(clock).cache(0).open_with(open).unwrap();
    let least = (0..60)
        .map(|claim| {
            let before = read.load(Relaxed);
            let claimed = block_on(store.claim(claimant(1), claim, TEN, None)).unwrap();
            assert_eq!(claimed.leased.len(), 10);
            read.load(Relaxed) - before
        })
        .min();
    assert!(get(&store, 1 << 64).is_some());
    least.unwrap()
}

/// Tests that the bytes that a claim reads do not depend on the number of timers that are due much later.
/// `TOURBILLON_FAR` sets their number, 100,000 by default.
#[test]
fn a_claim_reads_no_more_when_many_timers_are_far() {
    let far = std::env::var("TOURBILLON_FAR").map_or(100_000, |far| far.parse().unwrap());
    let (few, many) = (bytes_of_a_claim(1_000), bytes_of_a_claim(far));
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("a claim of ten reads {few} bytes with 1,000 far timers, {many} with {far}");
    }
    assert!(few > 0);
    // Only the greater height of the trees costs more reads.
    assert!(many < 2 * few, "{few} and {many} bytes");
}
