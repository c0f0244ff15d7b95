//! Tests the store in a file: its data, and its behaviour when the disk, the process or the machine fails.

mod basics;
mod batch;
mod damage;
mod disk;
mod far;
mod faults;
mod flips;
mod horizon;
mod killed;
mod life;
mod lists;
mod machine;
mod missing;
#[cfg(unix)]
mod names;
mod pipeline;
mod place;
mod syncs;
mod unsure;

use pollster::block_on;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, RedbStore, StoreError, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

/// Makes a timer that is due at the moment `due`, in milliseconds since 1970.
fn timer(id: u128, due: u64) -> Timer {
    let due = UtcMillis::from_millis(due);
    Timer { payload: Payload(vec![7; 64].into()), ..Timer::new(TimerId::from_u128(id), "mail", due) }
}

fn keyed(id: u128, due: u64, key: &str) -> Timer {
    Timer { key: Some(key.into()), ..timer(id, due) }
}

fn place(timer: Timer) -> Op {
    Op::Place(Box::new(timer), IfPresent::Reject)
}

fn apply(store: &RedbStore, op: Op, durability: Durability) -> Result<Outcome, StoreError> {
    block_on(store.apply(vec![op], durability)).map(|mut outcomes| outcomes.remove(0))
}

fn get(store: &RedbStore, id: u128) -> Option<Timer> {
    block_on(store.get(TimerId::from_u128(id).into())).unwrap()
}

fn claimant(incarnation: u64) -> Claimant {
    Claimant { incarnation, lease: core::time::Duration::from_secs(30) }
}

const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };

fn assert_whole(store: &RedbStore) {
    let faults = block_on(store.check()).unwrap();
    assert!(faults.is_empty(), "{faults:#?}");
}
