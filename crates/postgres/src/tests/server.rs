//! A server for a test, and stores on it.

use crate::{Connect, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::store::TimerStore;
use tourbillon_fault::Postgres;

/// Returns a function that makes stores on a test clock, each in a schema of its own whose name begins with `name`.
pub(super) fn maker_of(server: &Postgres, name: &'static str) -> impl Fn(ManualClock) -> Arc<PostgresStore> {
    maker_at(connect(server), name)
}

/// Returns a function that makes stores as [`maker_of`] does, on the server or pool of these connections.
pub(super) fn maker_at(connect: Connect, name: &'static str) -> impl Fn(ManualClock) -> Arc<PostgresStore> {
    let number = AtomicU32::new(0);
    move |clock| {
        let name = format!("{name}_{}", number.fetch_add(1, Ordering::Relaxed));
        let builder = PostgresStore::builder().schema(name).poll(None).on_clock(clock);
        Arc::new(pollster::block_on(builder.open(&connect)).unwrap())
    }
}

/// Returns a function that makes stores on a test clock.
pub(super) fn maker(server: &Postgres) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    let make = maker_of(server, "suite");
    move |clock| make(clock)
}

pub(super) fn connect(server: &Postgres) -> Connect {
    Connect::to(&server.url()).unwrap()
}

/// Opens a store that does not poll for timers of other processes.
pub(super) fn open(server: &Postgres) -> Arc<PostgresStore> {
    opened(server, crate::TTL)
}

/// Opens a store that does not poll for timers of other processes, as a node with this `ttl`.
pub(super) fn opened(server: &Postgres, ttl: Duration) -> Arc<PostgresStore> {
    let builder = PostgresStore::builder().poll(None).ttl(ttl);
    Arc::new(pollster::block_on(builder.open(&connect(server))).unwrap())
}

/// Opens the deployment of a service in the schema `service`. The store does not poll for timers of other processes.
pub(super) fn open_of_service(server: &Postgres) -> Arc<PostgresStore> {
    let builder = PostgresStore::builder().schema("service").for_service(true).poll(None);
    Arc::new(pollster::block_on(builder.open(&connect(server))).unwrap())
}
