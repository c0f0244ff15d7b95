#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backup;
mod clock;
mod delivery;
mod executor;
pub mod external;
mod handler;
mod id;
mod phase;
pub mod plan;
pub mod policy;
mod record;
mod runtime;
#[cfg(test)]
mod samples;
pub mod schedule;
mod spec;
pub mod state;
pub mod store;
mod supervise;
pub mod timer;
mod utc;

pub use clock::WallClock;
pub use delivery::Delivery;
pub use executor::{Executor, Work};
pub use handler::Verdict;
pub use runtime::{
    Attempt, Builder, Cancelled, Change, Changed, Durable, Effect, Ending, Event, Health, Incident, Placed,
    Progress, StartError, Stats, Timers, Times,
};
pub use spec::{Due, Kind, Limits, Rejection, ScheduleError, Spec};
pub use utc::UtcMillis;
