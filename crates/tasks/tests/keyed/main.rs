//! Timers by key. The tests check the answers of the calls. They also check that nothing is left behind, and that each
//! generation of a key ends in exactly one way. A generation is the time from one entry of a key to the next. Most
//! tests use the threadless engine. Tests of calls that race with firing use threads.
//!
//! `TOURBILLON_KEYS=10000000 cargo test --release -p tourbillon-tasks --test keyed` is the long run of the test with
//! many keys.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod calls;
mod jobs;
mod many;
mod races;
mod user_code;

use std::time::Duration;
use support::{Log, assert_settled};
use tourbillon::Timestamp;
use tourbillon_tasks::keyed::{DueKey, Keyed};
use tourbillon_tasks::{DrivenTasks, Key, Tasks};

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

fn ms(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn driven() -> DrivenTasks {
    DrivenTasks::new().unwrap()
}

/// A log of the jobs that ran, each with its moment, key and value.
type Ran<K> = Log<(Timestamp, K, u64)>;

/// Makes timers by key whose jobs are logged.
fn logged<K: Key>(tasks: &Tasks) -> (Keyed<K, u64>, Ran<K>) {
    let log = Log::new();
    let (sink, inside) = (log.clone(), tasks.clone());
    let job = move |due: DueKey<'_, K, u64>| sink.push((inside.now(), due.key.clone(), due.value));
    (tasks.keyed(job), log)
}

/// Asserts that nothing is left: no key, no timer, and no ticket (a request to check a timer) in the engine.
fn assert_empty<K: Key, V: Send>(keyed: &Keyed<K, V>, tasks: &mut DrivenTasks) {
    assert_eq!((keyed.len(), keyed.is_empty(), keyed.keys().len()), (0, true, 0));
    assert!(keyed.drain().is_empty());
    tasks.turn();
    assert_settled(&tasks.handle().stats());
}
