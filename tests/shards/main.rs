//! Several engines on one set of shards: their threads, their ends, and a set that is driven by hand.

#[path = "../support/mod.rs"]
mod support;

mod driven;
mod engines;
mod lifecycle;
mod options;

use std::sync::Arc;
use support::Log;
use tourbillon::{Builder, DrivenShards, Engine, Fired, Shards};

fn small() -> Builder {
    Builder::new().shards(2).workers(2)
}

fn driven() -> DrivenShards {
    Builder::new().driven_shards().expect("a driven set")
}

/// Makes an engine on `shards` that logs the payloads of its firings.
fn logging(shards: &Shards) -> (Engine<u64>, Log<u64>) {
    let log = Log::new();
    let sink = log.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload));
    (engine.expect("an engine"), log)
}

/// Returns a value, and a function that counts the other references to the value. A test sees whether an engine still
/// has a reference.
fn witness() -> (Arc<()>, impl Fn() -> usize) {
    let witness = Arc::new(());
    let count = Arc::downgrade(&witness);
    (witness, move || count.strong_count())
}
