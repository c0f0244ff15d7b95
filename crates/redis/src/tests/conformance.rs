//! The conformance suite on one server.

use super::plain;
use crate::RedisStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tourbillon::ManualClock;
use tourbillon_durable::store::conformance::{self, Faults, Life};
use tourbillon_durable::store::{MemoryStore, TimerStore};
use tourbillon_fault::Server;

/// Makes stores on deployments of their own.
fn maker(port: u16, shards: u16) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    let link = plain::Plain::to(port);
    let number = AtomicU32::new(0);
    move |clock| {
        let name = format!("suite-{shards}-{}", number.fetch_add(1, Ordering::Relaxed));
        let builder = RedisStore::builder(name).shards(shards).poll(None).on_clock(clock);
        Arc::new(pollster::block_on(builder.open_on(link.session())).unwrap())
    }
}

fn failures_of(make: conformance::Make<'_>) -> Vec<&'static str> {
    let cases = conformance::CASES.iter().copied().flatten();
    let fails = |case: &dyn Fn(conformance::Make<'_>)| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(make))).is_err()
    };
    cases.filter(|(_, case)| fails(case)).map(|(name, _)| *name).collect()
}

#[test]
fn the_store_conforms() {
    let Some(server) = Server::start(&[]) else { return };
    for shards in [4, 1] {
        assert_eq!(failures_of(&maker(server.port(), shards)), [""; 0], "{shards} shards");
    }
}

#[test]
fn random_histories_of_the_store() {
    let Some(server) = Server::start(&[]) else { return };
    let make = maker(server.port(), 4);
    let _tally = conformance::histories(&make, 0..20, &Life::default());
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&make, 0..20, &Life { faults, ..Life::default() });
}

/// F-11 for the store on Redis.
#[test]
fn the_same_operations_have_the_same_outcomes_in_memory_and_on_redis() {
    let Some(server) = Server::start(&[]) else { return };
    let in_memory = |clock: ManualClock| Arc::new(MemoryStore::new(clock)) as Arc<dyn TimerStore>;
    conformance::differential(&in_memory, &maker(server.port(), 2), 0..10, &Life::default());
}
