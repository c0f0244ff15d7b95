//! Tests a failed sync with a later loss of power. The system takes the writes before a failed sync for synced. So a
//! later sync does not bring them to the disk.

use crate::disk::{Disk, Numbers};
use crate::faults::{builder, clock};
use crate::{apply, assert_whole, place, timer};
use pollster::block_on;
use std::collections::BTreeMap;
use tourbillon_durable::store::{Durability, Op, RedbStore, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::TimerId;

const TIMERS: u128 = 300;
const CANCELLED: u128 = 250;

/// Whether the store must have the timer with each id. `None` if the outcome of a change is not known.
type Stored = BTreeMap<u128, Option<bool>>;

/// Notes the answer to a change of the timers `ids`. After a success, the timers are stored if `after` is true, and
/// gone otherwise.
fn note(stored: &mut Stored, ids: impl Iterator<Item = u128>, after: bool, error: Option<StoreErrorKind>) {
    for id in ids {
        let before = stored.get(&id).copied().unwrap_or(Some(false));
        let now = match error {
            None => Some(after),
            Some(StoreErrorKind::Unknown) if before != Some(after) => None,
            Some(_) => before,
        };
        stored.insert(id, now);
    }
}

fn act(store: &RedbStore, stored: &mut Stored, ops: Vec<Op>, ids: impl Iterator<Item = u128>, after: bool) {
    let error = block_on(store.apply(ops, Durability::PowerLoss)).err().map(|error| error.kind());
    note(stored, ids, after, error);
}

/// Places many timers, cancels most of them, compacts the store, and places more timers. Notes each answer in `stored`.
fn live(disk: &Disk, stored: &mut Stored) {
    let Ok(store) = disk.open(builder(&clock())) else { return };
    let many = (0..TIMERS).map(|id| place(timer(id, 5_000))).collect();
    act(&store, stored, many, 0..TIMERS, true);
    let cancels = (0..CANCELLED).map(|id| Op::Cancel(TimerId::from_u128(id).into(), None)).collect();
    act(&store, stored, cancels, 0..CANCELLED, false);
    for round in 0..2 {
        // A compaction may fail, but must not lose anything.
        drop(block_on(store.compact()));
        for id in (0..10).map(|id| 1_000 + 10 * round + id) {
            act(&store, stored, vec![place(timer(id, 5_000))], id..=id, true);
        }
    }
}

fn assert_is_stored(disk: &Disk, stored: &Stored, image: &str) {
    let store = disk.open(builder(&clock())).unwrap_or_else(|error| panic!("{image}: {error}"));
    assert_whole(&store);
    let found = crate::faults::timers(&store);
    for (id, expected) in stored {
        let is_there = found.contains_key(&TimerId::from_u128(*id));
        assert!(expected.is_none_or(|expected| expected == is_there), "{image}: timer {id}: {expected:?}");
    }
    apply(&store, place(timer(9_999, 1)), Durability::PowerLoss).unwrap();
}

/// Tests a failed sync together with a loss of power at a random change. Checks an image of the disk for each
/// combination. `TOURBILLON_IMAGES` sets the number of combinations.
#[test]
fn a_sync_that_fails_and_a_loss_of_power_later_lose_nothing_that_was_acknowledged() {
    let images = std::env::var("TOURBILLON_IMAGES").map_or(150, |images| images.parse().unwrap());
    let whole = Disk::default();
    live(&whole, &mut Stored::new());
    let syncs = whole.syncs();
    let mut numbers = Numbers(7);
    let mut failed = 0;
    for image in 0..images {
        let fails_at = image % syncs;
        let seed = numbers.next();
        let lose = |disk: &Disk| disk.lose_a_sync(fails_at, Numbers(seed));
        // A life with the failed sync and without a power cut gives the number of changes.
        let uncut = Disk::default();
        lose(&uncut);
        live(&uncut, &mut Stored::new());
        let cut = numbers.next() % (uncut.changes() + 1);
        let (disk, mut stored) = (Disk::default(), Stored::new());
        lose(&disk);
        disk.cut_at(cut);
        live(&disk, &mut stored);
        failed += u64::from(disk.has_lost_a_sync());
        let name = format!("image {image}: sync {fails_at} fails, the power goes at {cut}");
        assert_is_stored(&disk.after_the_cut(None), &stored, &name);
        assert_is_stored(&disk.after_the_cut(Some(Numbers(seed))), &stored, &name);
    }
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!(
            "{images} images of {syncs} syncs, {failed} with a sync that failed before the loss of power"
        );
    }
    assert!(failed >= images / 4, "{failed}");
}
