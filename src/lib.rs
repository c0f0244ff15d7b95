//! tourbillon
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod limits;
mod tick;
mod ticket;
pub mod wheel;
#[cfg(feature = "std")]
mod sync;

pub use tick::{Tick, Timestamp};
pub use ticket::TimerId;

#[cfg(all(test, tourbillon_loom))]
#[path = "../loom_tests/mod.rs"]
mod loom_tests;
