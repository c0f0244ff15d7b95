//! A hierarchical timing wheel for one thread: no clock, no threads, no unsafe code, on `core` and `alloc`.
//!
//! Each shard of the engine [`tourbillon`](https://docs.rs/tourbillon) drives such a wheel. The wheel is useful by
//! itself inside an event loop: [`Wheel::next_expiry`] gives the poll timeout, [`Wheel::advance`] fires the due timers.
//!
//! ```
//! use tourbillon_wheel::{Tick, Wheel};
//!
//! let mut wheel = Wheel::<&str>::new(Tick(0));
//! let answer = wheel.insert(Tick(5_000), "no answer");
//! let idle = wheel.insert(Tick(30_000), "idle");
//!
//! assert_eq!(wheel.cancel(answer), Some("no answer"));
//! assert!(wheel.reschedule(idle, Tick(31_000)));
//! assert_eq!(wheel.next_expiry(), Some(Tick(31_000)));
//! ```
//!
//! | | |
//! |---|---|
//! | [`Wheel`] | timers with payloads, inserted, moved and cancelled by id |
//! | [`TicketWheel`] | the wheel below [`Wheel`], for programs that have a table of timers of their own |
//! | [`Tick`], [`TickLength`] | wheel time, and the rounding of moments to ticks, so that no timer is early |
//! | [`TimerId`] | the name of a slot and its generation, for tables of timers |
//!
//! # How it works
//!
//! The wheel stores small *tickets*, never the timers themselves. Cancelling therefore touches the timer's own entry
//! and nothing else. The timer's ticket is *stale* then. The wheel finds this out when the ticket would decide the next
//! wake-up, when the ticket's slot is spread over a finer level, or when the ticket comes due. Once stale tickets
//! outnumber the live tickets, a sweep also finds them.
//!
//! Inserting is O(1). Advancing is O(1) for each ticket that is handed out or moved to a finer level; a ticket moves at
//! most once per level. Time in which nothing is due costs nothing, even if it is long. Every 64-bit tick is in reach:
//! nothing wraps, and no timer is postponed or fired early because its tick is far in the future. No single advance
//! pays for a crowded slot, since a budget can bound the work of a call.
//!
//! Memory is 8 KiB for each level in use (a level spans 256 times the time of the level below it), 17 bytes or less
//! for each ticket among many, and the payloads. A [`TicketWheel`] takes half of that for tickets that have the low
//! bits of their tick only ([`Ticket::TICK_BITS`]). The slots keep their tickets in blocks of sixteen, in segments of
//! 128 blocks. An emptied segment is freed, except for one; all other memory is kept until the wheel is dropped.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;

mod blocks;
mod id;
mod level;
mod outlet;
mod sampling;
mod slot;
mod sweep;
#[cfg(test)]
mod tests;
mod tick;
mod ticket;
mod tickets;
mod wheel;

pub use id::TimerId;
pub use tick::{Tick, TickLength};
pub use ticket::{CHUNK_TICKETS, Ticket};
pub use tickets::{Progress, TicketWheel};
pub use wheel::{Expired, Wheel};

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
