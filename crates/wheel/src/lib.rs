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
//! | [`Tick`], [`TickLength`] | wheel time, and the rounding of moments to it, by which no timer is early |
//! | [`TimerId`] | the name of a place and its generation, for such tables |
//!
//! # How it works
//!
//! The wheel stores small *tickets*, never the timers themselves. Cancelling therefore touches the timer's own entry
//! and nothing else. Its ticket is recognised as *stale* when it is the next ticket to wake for, when a slot is spread,
//! when the ticket comes due, or by a sweep that begins once stale tickets outnumber the live ones.
//!
//! Inserting is O(1). Advancing is O(1) for each ticket that is handed out or moved to a finer level, at most once per
//! level; time in which nothing is due costs nothing, however long it is. Every tick of 64 bits is in reach: nothing
//! wraps, and no timer is postponed or fired early because it is far ahead. No single advance pays for a crowded slot:
//! a budget can bound the work of a call.
//!
//! Memory is 28 KiB for each level in use (a level spans 256 times the time of the one below it), 16 bytes for each
//! ticket, and the payloads. The memory is kept until the wheel is dropped, except that of emptied slots.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;

mod id;
mod level;
mod slot;
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
