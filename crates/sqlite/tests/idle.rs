//! Tests that an idle store costs little: the looks for changes of other connections, and nothing else.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs these tests")]
#![cfg(target_os = "linux")]

use pollster::block_on;
use std::time::Duration;
use tourbillon_durable::store::{Durability, IfPresent, Op, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Durable, Spec};
use tourbillon_sqlite::SqliteStore;

const TIMERS: u128 = 20_000;

/// Returns the processor time of this process in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_idle_store_with_many_far_timers_uses_hardly_any_processor_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path).unwrap();
    let far = store.now() + Duration::from_secs(30 * 86_400);
    for first in (0..TIMERS).step_by(1_000) {
        let place =
            |n: u128| Op::Place(Box::new(Timer::new(TimerId::from_u128(n), "job", far)), IfPresent::Reject);
        block_on(store.apply((first..first + 1_000).map(place).collect(), Durability::ProcessCrash)).unwrap();
    }
    let durable = Durable::builder(store).bytes_handler("job", async |_, _| {}).start().unwrap();
    let near = Spec::new(Vec::new()).after(Duration::from_secs(3_600));
    durable.handle().schedule_bytes_blocking("job", near).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks();
    let whole = Duration::from_secs(3);
    std::thread::sleep(whole);
    let used = ticks() - before;
    println!("{used} ticks of 10 ms in {whole:?}");
    assert!(used <= 9, "{used} ticks of 10 ms in {whole:?}");
}
