//! Measures the size of the stored numbers of timers by hour.

use crate::faults::{builder, clock};
use crate::place::Place;
use crate::{assert_whole, place, timer};
use pollster::block_on;
use redb::{ReadableDatabase, ReadableTableMetadata, TableDefinition};
use tourbillon_durable::store::{Durability, Op, TimerStore};

const HOURS: TableDefinition<'_, &[u8; 4], &[u8; 8]> = TableDefinition::new("hours");
const MONTH: u64 = 30 * 86_400_000;

/// Prints the number of pages that the counts of timers by hour take. The timers are due at random within 30 days.
#[test]
fn the_hours_of_a_month_take_a_few_pages_whatever_the_number_of_timers() {
    let place_of = Place::new();
    let store = builder(&clock()).open(place_of.file()).unwrap();
    let timers: u64 = 20_000;
    for first in (0..timers).step_by(1_000) {
        let due = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MONTH;
        let ops: Vec<Op> = (first..first + 1_000).map(|n| place(timer(n.into(), due(n)))).collect();
        block_on(store.apply(ops, Durability::Volatile)).unwrap();
    }
    assert_whole(&store);
    assert_eq!(block_on(store.horizon()).unwrap().placed(), timers);
    drop(store);
    let database = redb::Database::open(place_of.file()).unwrap();
    let hours = database.begin_read().unwrap().open_table(HOURS).unwrap();
    let (found, stats) = (hours.len().unwrap(), hours.stats().unwrap());
    let pages = stats.leaf_pages() + stats.branch_pages();
    #[expect(clippy::print_stdout, reason = "figures")]
    {
        println!(
            "{timers} timers in {found} hours: {} bytes of numbers in {pages} pages, {} bytes of pages",
            stats.stored_bytes(),
            stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes()
        );
    }
    assert!(found <= 721 && stats.stored_bytes() == 12 * found);
    // A batch can change at most all of these pages.
    assert!(pages <= 8, "{stats:?}");
}
