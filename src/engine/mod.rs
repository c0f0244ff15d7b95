//! The engine: how timers are scheduled, cancelled and moved, and how they fire.
//!
//! ```text
//!  schedule                         shard                              leader or worker
//!  take a slot, write the payload
//!  arm the state word
//!  post a ticket ──► lane ──► drain ──► wheel ──► due chunk ──► claim, run the handler, vacate the slot
//!  notify the parker                                              │
//!       ▲                                                         ▼
//!       └────────────── slots flow back through the depot ────────┘
//! ```
//! Cancelling is a single CAS on the state word, wherever the ticket is. Data flows in one direction only.
//!
//! # Parts
//!
//! ```text
//!  Core ──┬── Timers ──┬── Slab                     the slots and the payloads
//!         │            └── Admission ── Stations    slots and lanes for the threads, refusals; counters
//!         ├── Quiescence                            the sessions of workers, and the threads that wait
//!         ├── Membership                            the set of shards and the threads that handlers run on
//!         └── the handler, the hooks, the anchors
//!
//!  Local      a thread's part of an engine: a lane, magazines of slots, spares of its futures
//!  Session    a worker's stay in an engine, in which it fires
//! ```
//! Nothing below `Core` knows the handler, and nothing below `Timers` knows the payload.
//!
//! # Files
//!
//! ```text
//! hooks, anchors, totals, due, pace, place ──► stations ──► admission ──► local ──► timers ──► one_shot, owned ─┐
//! spares ───────────────────────────────────────────────────────────────┘                                        │
//!                                              quiescence, membership ──────────────────────────────────────────┴► core
//! core ──► anchor, fire, shutdown, start
//! ```
//! Each file uses only files to its left, or files of an earlier line.

mod admission;
mod anchor;
mod anchors;
mod core;
mod due;
mod fire;
mod hooks;
mod local;
mod membership;
mod one_shot;
mod owned;
mod pace;
mod place;
mod quiescence;
mod shutdown;
#[cfg(feature = "async")]
mod spares;
mod start;
mod stations;
mod timers;
mod totals;

pub use due::{Due, Moment, Payload};
pub use one_shot::{Cancel, Unfired};
pub use owned::Armed;

pub(crate) use self::core::{Core, Handler, Settings};
pub(crate) use anchor::Anchor;
pub(crate) use local::{Local, come_home, follow_a_loop, lend};
pub(crate) use owned::{OwnedSlot, Rearmed, disarm, postpone};
pub(crate) use timers::Timers;
