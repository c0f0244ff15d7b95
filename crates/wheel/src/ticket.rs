//! The trait of the tickets that a wheel holds.

use crate::tick::Tick;

/// The number of tickets in a full chunk, a group of tickets. [`TicketWheel::advance`](crate::TicketWheel::advance)
/// hands tickets out in chunks of at most this size.
pub const CHUNK_TICKETS: usize = 32;

/// A small value that stays in a [`TicketWheel`](crate::TicketWheel) until its tick. A ticket means: "check this timer
/// at this tick".
///
/// A ticket names a timer that is kept elsewhere, for example by an index into a table. A ticket usually carries a
/// stamp, too: by the stamp, the table recognises tickets of timers that have ended. The wheel copies tickets and never
/// looks at the timers. 16 bytes or fewer are a good size.
///
/// [`tick`](Self::tick) must return the same tick on each call. If a ticket's tick changes, the ticket may be handed
/// out at any time or never, and a call of the wheel may panic.
///
/// # Examples
///
/// ```
/// use tourbillon_wheel::{Tick, Ticket};
///
/// #[derive(Clone, Copy)]
/// struct Timeout {
///     tick: Tick,
///     connection: u32,
///     request: u32,
/// }
///
/// impl Ticket for Timeout {
///     fn tick(&self) -> Tick {
///         self.tick
///     }
/// }
/// ```
pub trait Ticket: Copy {
    /// Returns the tick at which the ticket is due.
    fn tick(&self) -> Tick;
}
