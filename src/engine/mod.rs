//! The shards together: how a timer is scheduled, cancelled and moved.
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
//! Cancelling is one CAS on the state word, wherever the ticket is. Data flows in one direction.
//!
//! # Files
//!
//! ```text
//! hooks, anchors, totals, due, place ──► core ──► local ──► anchor, admission ──► one_shot, owned ──► fire, shutdown, start
//! ```
//! Each file uses files to its left only.

mod admission;
mod anchor;
mod anchors;
mod core;
mod due;
mod fire;
mod hooks;
mod local;
mod one_shot;
mod owned;
mod place;
mod shutdown;
mod start;
mod totals;

pub use due::{Due, DueId, Payload};
pub use one_shot::Cancel;
pub use owned::Armed;
pub use shutdown::Unfired;

pub(crate) use self::core::{Core, Handler, Settings};
pub(crate) use anchor::Anchor;
pub(crate) use local::{Local, come_home, lend};
pub(crate) use owned::{OwnedSlot, Rearmed, disarm, postpone};
