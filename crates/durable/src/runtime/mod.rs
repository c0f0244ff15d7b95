//! Runs durable timers: takes due timers from a store and hands them to handlers.
//!
//! | part | |
//! |---|---|
//! | [`Builder`] | collects the settings of a runtime, and starts it |
//! | [`Durable`] | owns a runtime from its start to its end |
//! | [`Timers`] | the handle of a runtime: stores, changes and reads timers |
//! | [`delivery_loop`] | the thread that claims timers, hands them to handlers, and reports the ends of deliveries |
//! | [`shared`] | the state that the loop shares with the handlers, the engine's thread and the callers |
//! | [`report`] | the metrics, the incidents, the events and the health of a runtime |

mod alarm;
mod builder;
mod catch_up;
mod delivery_loop;
mod durable;
mod event;
mod report;
mod settings;
mod shared;
mod steps;
mod timers;
mod times;

pub use builder::{Builder, StartError};
pub use durable::Durable;
pub use event::{Attempt, Ending, Event, Incident};
pub use report::{Health, Stats};
pub use timers::{Cancelled, Change, Changed, Effect, Placed, Progress, Timers};
pub use times::Times;
