//! Tests `Timers::batch` on a disk that fails in the middle: all changes are made, or none.

use crate::assert_whole;
use crate::disk::{Disk, Numbers};
use crate::faults::{Timers, builder, clock, timers};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::store::{Durability, RedbStore, StoreErrorKind};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Change, Durable, Spec, UtcMillis};

/// The number of changes of each kind in the batch. The payloads of the changes fill many sectors of the journal.
const CHANGES: u128 = 20;

fn spec(id: u128) -> Spec<Vec<u8>> {
    let due = UtcMillis::from_millis(1_000_000_000);
    Spec::new(vec![7; 600]).id(TimerId::from_u128(id)).key(format!("k{id}")).at(due)
}

fn changes() -> Vec<Change> {
    let mut changes: Vec<Change> =
        (100..100 + CHANGES).map(|id| Change::schedule("mail", spec(id))).collect();
    changes.extend((0..CHANGES).map(|id| Change::Cancel(format!("k{id}").as_str().into())));
    changes.extend(
        (20..20 + CHANGES)
            .map(|id| Change::Move(TimerId::from_u128(id).into(), UtcMillis::from_millis(2_000_000_000))),
    );
    changes
}

/// Makes a store on a simulated disk, and its runtime. The store has the timers that the changes of the batch cancel or
/// move.
fn start(disk: &Disk, clock: &ManualClock) -> (Arc<RedbStore>, Durable) {
    let store = Arc::new(disk.open(builder(clock)).unwrap());
    let shared: Arc<dyn tourbillon_durable::store::TimerStore> = Arc::<RedbStore>::clone(&store);
    let durable = Durable::builder_on(shared)
        .clock(clock.clone())
        .bytes_handler("mail", async |_, _| {})
        .start()
        .unwrap();
    let first = (0..2 * CHANGES).map(|id| Change::schedule("mail", spec(id))).collect();
    let answers = durable.handle().batch_blocking(first, Durability::PowerLoss).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    (store, durable)
}

/// Returns the timers of a store before the batch, and after the batch.
fn before_and_after(clock: &ManualClock) -> [Timers; 2] {
    let (store, durable) = start(&Disk::default(), clock);
    let before = timers(&*store);
    let answers = durable.handle().batch_blocking(changes(), Durability::PowerLoss).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let after = timers(&*store);
    assert_eq!((before.len(), after.len()), (40, 40));
    [before, after]
}

/// Returns the states that the store may have after the answer `result` to the batch.
fn possible(result: Result<(), StoreErrorKind>, [before, after]: &[Timers; 2]) -> Vec<&Timers> {
    match result {
        Ok(()) => vec![after],
        Err(StoreErrorKind::Unknown) => vec![before, after],
        Err(_) => vec![before],
    }
}

#[test]
fn a_batch_that_meets_a_power_cut_is_made_whole_or_not_at_all() {
    let clock = clock();
    let states = before_and_after(&clock);
    let mut found = [0, 0];
    for cut in 0.. {
        let disk = Disk::default();
        let (store, durable) = start(&disk, &clock);
        disk.cut_at(cut);
        let result = durable.handle().batch_blocking(changes(), Durability::PowerLoss);
        let result = result.map(drop).map_err(|error| error.kind());
        let is_cut = disk.is_cut();
        // The states are copied before the close of the store, which makes further changes.
        let survivors: Vec<Disk> = [None]
            .into_iter()
            .chain((0..16).map(|seed| Some(Numbers(cut * 16 + seed))))
            .map(|some| disk.after_the_cut(some))
            .collect();
        drop((durable, store));
        for survivor in survivors {
            let store = survivor.open(builder(&clock)).unwrap();
            assert_whole(&store);
            let left = timers(&store);
            assert!(possible(result, &states).contains(&&left), "cut {cut}, {result:?}: {:?}", left.keys());
            found[usize::from(left == states[1])] += 1;
        }
        if !is_cut {
            assert_eq!(result, Ok(()));
            break;
        }
    }
    assert!(found.iter().all(|count| *count > 10), "{found:?}");
}

#[test]
fn a_batch_that_meets_errors_of_the_disk_is_made_whole_or_not_at_all() {
    let clock = clock();
    let states = before_and_after(&clock);
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
        for good in 0..6 {
            for failures in [1, 2, 3, 5, 8, 40] {
                let disk = Disk::default();
                let (store, durable) = start(&disk, &clock);
                disk.fail_after(good, kind, failures);
                let result = durable.handle().batch_blocking(changes(), Durability::PowerLoss);
                let result = result.map(drop).map_err(|error| error.kind());
                disk.fail(kind, 0);
                // The store opens its database again by itself, at the latest for the next change.
                let until = std::time::Instant::now() + Duration::from_secs(20);
                while durable
                    .handle()
                    .batch_blocking(vec![Change::Cancel("none".into())], Durability::PowerLoss)
                    .is_err()
                {
                    assert!(std::time::Instant::now() < until, "the store does not come back");
                    std::thread::sleep(Duration::from_millis(2));
                }
                let case = format!("{kind:?}, {good} good, {failures} failures: {result:?}");
                assert!(possible(result, &states).contains(&&timers(&*store)), "{case}");
                assert_whole(&store);
                drop((durable, store));
                let store = disk.after_the_cut(None).open(builder(&clock)).unwrap();
                assert!(possible(result, &states).contains(&&timers(&store)), "{case}, after a cut");
            }
        }
    }
}
