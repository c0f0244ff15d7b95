//! The C interface of [`tourbillon`]: handles, one-shots, timers, periodic tasks and keys, with callbacks or with events that
//! are polled.
//!
//! C programs read `include/tourbillon.h`, which is generated from this crate: what is said there of threads and pointers is
//! the contract of every function here. Rust programs use [`tourbillon`] and [`tourbillon_tasks`] themselves.
//!
//! # Contract
//!
//! - A handle is one that the interface gave and that was not freed, and no thread frees it while another uses it.
//! - Any other pointer is null, or points to what its type says: to be read, or written where the interface returns something,
//!   for as long as the call lasts.
//! - A callback is a function of the given type that does not unwind. It, and the `user` that it gets, may be used on any
//!   thread for as long as it can be called.
//!
//! Null is told from the rest and is never followed.
//!
//! # Layout
//! ```text
//!  options  engine  timer  task  keyed  stats      what C calls: one function each, through `status::guard`
//!     │       │       │      │     │      │
//!  handles    └───────┴──┬───┴── keys             boxes that C holds; in debug builds, which of them live
//!                     delivery                     an event becomes a call here, or an entry there
//!                        │
//!                     events ── bell               the queue that is polled, and the descriptor that says so
//! ```
//!
//! # Not here
//!
//! Calendars, parallel runs and futures: their types do not cross the border.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(non_camel_case_types, reason = "the names of a C header")]

mod annotate;
mod bell;
mod delivery;
mod engine;
mod events;
mod fork;
mod handles;
#[cfg(test)]
mod interleavings;
mod keyed;
mod keys;
mod options;
mod poll;
mod shot;
mod stats;
mod status;
mod task;
mod timer;
mod version;

pub use annotate::{tb_annotate_with, tb_annotation, tb_hand_over};
pub use delivery::{tb_callback, tb_event};
pub use engine::*;
pub use keyed::*;
pub use options::{tb_clock, tb_delivery, tb_options, tb_pinning};
pub use poll::*;
pub use shot::*;
pub use stats::{tb_engine_stats, tb_stats};
pub use status::{tb_last_error, tb_status, tb_status_name};
pub use task::*;
pub use timer::*;
pub use version::tb_version;
