#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod audit;
mod backup;
mod client;
mod connect;
mod error;
mod events;
mod namespace;
mod pages;
mod path;
mod place;
mod queue;
mod schedule;
mod timer;
mod transport;

pub use audit::Audit;
pub use backup::Backup;
pub use client::{Builder, Client};
pub use error::{BuildError, Error};
pub use events::{Events, Seen};
pub use namespace::Namespace;
pub use pages::{List, Pages};
pub use place::Place;
pub use queue::Queue;
pub use schedule::{ScheduleAt, SchedulePages};
pub use timer::TimerAt;
pub use tourbillon_api as api;
