//! Timers that survive the process: delayed and recurring jobs, kept in one file, on the timer engine
//! [`tourbillon`].
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod plan;
pub mod policy;
mod record;
pub mod state;
pub mod store;
pub mod timer;
mod utc;

pub use utc::UtcMillis;
