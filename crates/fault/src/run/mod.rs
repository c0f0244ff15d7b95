//! The parts of a run under faults: clients, nodes as separate processes, and a receiver. Together they write a
//! history.

mod busy;
mod callbacks;
mod child;
mod door;
mod http;
mod load;
mod node;
mod part;
mod receiver;
mod requests;
mod sql;
mod stage;
mod target;

pub use child::{Daemons, Node};
pub use door::{ask, open};
pub use load::{Clients, Load};
pub use node::{KIND, NodeSettings, payload, serve, start};
pub use part::be_part;
pub use receiver::{Journal, Post, receive};
pub use stage::{Row, Stage, stored};
pub use target::Target;

use crate::history::Moment;
use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::Duration;

fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    part(time.tv_sec) * 1_000_000 + part(time.tv_nsec) / 1_000
}

/// Returns the present moment of the machine's monotonic clock.
#[must_use]
pub fn moment() -> Moment {
    micros(ClockId::Monotonic)
}

/// Returns the moment at which the monotonic clock was zero, in microseconds of UTC.
#[must_use]
pub fn wall() -> u64 {
    // If the thread is interrupted between the two clock readings, the difference is too small. So the greatest
    // difference counts.
    (0..100).map(|_| micros(ClockId::Realtime) - moment()).max().unwrap_or_default()
}

/// Starts a thread that notices when this process did not run for more than a second. For each such span, it calls
/// `report` with the span's start and end.
fn watch_stalls(report: impl Fn(Moment, Moment) + Send + 'static) {
    let body = move || {
        let mut before = moment();
        loop {
            thread::sleep(Duration::from_millis(100));
            let now = moment();
            if now - before > 1_000_000 {
                report(before, now);
            }
            before = now;
        }
    };
    // The thread ends with the process.
    drop(thread::spawn(body));
}
