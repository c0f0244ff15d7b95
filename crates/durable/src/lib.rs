#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floors: a module uses only modules of its own floor and of the floors below it (`tests/tidy`).

// Floor 0: panics of foreign code, clocks, threads for handlers, and the bytes of texts.
mod clock;
mod executor;
mod panics;
mod texts;
// Floor 1: ids, plans and policies.
mod id;
pub mod plan;
pub mod policy;
// Floor 2: timers and their states.
mod phase;
pub mod state;
pub mod timer;
// Floor 3: the stored form of a timer.
mod record;
// Floor 4: stores.
pub mod store;
// Floor 5: new timers, deliveries with their verdicts, and copies of a store.
pub mod backup;
mod delivery;
pub mod external;
mod spec;
mod verdict;
// Floor 6: handlers.
mod handler;
mod supervise;
// Floor 7: the runtime.
mod runtime;
// Floor 8: schedules.
#[cfg(test)]
mod samples;
pub mod schedule;

pub use clock::WallClock;
pub use delivery::Delivery;
pub use executor::{Executor, Work};
pub use runtime::{
    Attempt, Builder, Cancelled, Change, Changed, Durable, Effect, Ending, Event, Health, Incident, Placed,
    Progress, StartError, Stats, Timers, Times,
};
pub use spec::{Due, Kind, Limits, Rejection, ScheduleError, Spec};
pub use tourbillon_words::UtcMillis;
pub use verdict::Verdict;
