//! The wheel alone, of the crate [`tourbillon-wheel`](tourbillon_wheel), which each shard of the engine drives.
//!
//! It is useful by itself inside an event loop: [`next_expiry`](Wheel::next_expiry) gives the poll timeout,
//! [`advance`](Wheel::advance) fires what is due. A program that needs nothing else takes that crate, which builds on
//! `core` and `alloc`.

pub use tourbillon_wheel::{
    CHUNK_TICKETS, Expired, Progress, Tick, TickLength, Ticket, TicketWheel, TimerId, Wheel,
};
