//! Faults of other timer engines, which this engine must not have. The comment of a test has one or more rows, each
//! with the fault of another engine. The rows `P5` and the like are of engines in Java, Go, C and C++. The rows `R5`
//! and the like are of engines in Rust. `src/DESIGN.md` has all rows, also those that other files test and those that
//! cannot apply.

#[path = "../support/mod.rs"]
mod support;

mod cancelling;
mod clock;
mod handlers;
mod room;
mod waking;

use std::time::Duration;
use tourbillon::{Builder, Engine, Fired, ManualClock, Timestamp};

const MICRO: Duration = Duration::from_micros(1);

/// Makes an engine with one unpinned shard, on a manual clock. Handlers run on the shard's own thread.
fn stepped(handler: impl Fn(Fired<'_, u64>) + Send + Sync + 'static) -> (Engine<u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Builder::new().clock(clock.clone()).shards(1).unpinned().inline();
    (builder.start(handler).unwrap(), clock)
}

fn ticks(count: u64, tick: Duration) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(tick.as_nanos()).unwrap() * count)
}
