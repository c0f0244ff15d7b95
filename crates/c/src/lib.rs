//! The C interface of [`tourbillon`]: engines, one-shots by id or by key, timers and periodic tasks. A due timer calls
//! its callback, on a thread of the engine or in a loop of the program, or becomes an event that the program polls.
//!
//! C programs include `include/tourbillon.h`, which is generated from this crate. The header's rules on threads and
//! pointers are the contract of every function here. Rust programs use [`tourbillon`] and [`tourbillon_tasks`]
//! directly.
//!
//! # Contract
//!
//! - A handle came from this interface and was not freed, and no thread frees it while another uses it.
//! - Any other pointer is null or points to a value of its type. The value may be read, or written where the interface
//!   returns something, for as long as the call lasts.
//! - A callback is a function of the given type that does not unwind. The callback and its `user` may be used on any
//!   thread for as long as the callback can be called.
//!
//! A null pointer is recognised and never dereferenced.
//!
//! # Layout
//! ```text
//!  options  engine  loops  timer  task  keyed  stats   the functions that C calls, each through `status::guard`
//!     │       │       │     │      │     │      │
//!  handles    └── direct ───┴──┬───┴── keys       the boxes that C holds; callbacks without a closure
//!     │               delivery                     an event becomes a call, or is put into the array of a poll
//!  register   origin     │                         in debug builds, the live handles; where a handle comes from
//!              fork      │                         the number of forks
//!                     events ── notifier           the jobs that polls run, and their descriptor
//!                        │
//!                      event                       the event, and the callback that receives it
//! ```
//!
//! # Not here
//!
//! Calendars, parallel runs and futures: C has no counterpart of their types.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(non_camel_case_types, reason = "the names of a C header")]

mod annotate;
mod delivery;
mod direct;
mod engine;
mod event;
mod events;
mod fork;
mod handles;
#[cfg(test)]
mod interleavings;
mod keyed;
mod keys;
mod loops;
mod notifier;
mod options;
mod origin;
mod outcome;
mod poll;
mod register;
mod shot;
mod stats;
mod status;
mod task;
mod timer;
mod version;

pub use annotate::{tb_annotate_with, tb_annotation, tb_hand_over};
pub use engine::*;
pub use event::{tb_callback, tb_event};
pub use keyed::*;
pub use loops::*;
pub use options::{tb_clock, tb_delivery, tb_options, tb_pinning};
pub use outcome::tb_outcome;
pub use poll::*;
pub use shot::*;
pub use stats::{tb_engine_stats, tb_stats};
pub use status::{tb_last_error, tb_status, tb_status_name};
pub use task::*;
pub use timer::*;
pub use version::tb_version;
