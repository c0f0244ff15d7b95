//! The wheel alone, from the crate [`tourbillon-wheel`](tourbillon_wheel). Each shard of the engine drives such wheels.
//!
//! The wheel is useful by itself inside an event loop: [`next_expiry`](Wheel::next_expiry) gives the poll timeout, and
//! [`advance`](Wheel::advance) fires the due timers. A program that needs only the wheel depends on that crate alone.
//! It builds on `core` and `alloc`.

pub use tourbillon_wheel::{
    CHUNK_TICKETS, Expired, Progress, Tick, TickLength, Ticket, TicketWheel, TimerId, Wheel,
};
