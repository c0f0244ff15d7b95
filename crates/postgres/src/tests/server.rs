//! A server for a test, and stores on it.

use crate::{Connect, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tourbillon::ManualClock;
use tourbillon_durable::store::TimerStore;
use tourbillon_fault::Postgres;

/// Returns a function that makes stores, each in a schema of its own.
pub(super) fn maker(server: &Postgres) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    let (connect, number) = (connect(server), AtomicU32::new(0));
    move |clock| {
        let name = format!("suite_{}", number.fetch_add(1, Ordering::Relaxed));
        let builder = PostgresStore::builder().schema(name).poll(None).on_clock(clock);
        Arc::new(pollster::block_on(builder.open(&connect)).unwrap())
    }
}

pub(super) fn connect(server: &Postgres) -> Connect {
    Connect::to(&server.url()).unwrap()
}
