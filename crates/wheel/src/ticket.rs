//! The trait of the tickets that a wheel holds, and the short form of a ticket.
//!
//! # Long and short tickets
//! A ticket is *long* if it has its whole tick, and *short* if it has the low bits of its tick only. All ticks of a
//! slot have their high bits in common, so the slot in which a ticket lies gives these bits. A slot of at most
//! `2^TICK_BITS` ticks keeps a short ticket as it is, and tickets move between such slots without a change. With a
//! radix of 256 and 16 bits, these are the slots of the three finest levels. They reach 2^25 ticks: more than nine
//! hours, if a tick is a millisecond.
//!
//! | a short ticket lies | kept with it | its tick is known by |
//! |---|---|---|
//! | in a slot of at most `2^TICK_BITS` ticks | nothing | the slot, and the ticket's bits |
//! | in a wider slot | the whole tick, 8 bytes | these 8 bytes |
//! | among the overdue tickets | nothing | nobody: the tick has come, and nothing else matters |
//!
//! There are two limits. A ticket for a tick beyond those levels takes as much memory as a long ticket, until it comes
//! nearer. And a wheel hands a short ticket out without the high bits: its receiver knows only that the tick has come.
//! A receiver that needs the tick itself keeps the deadline in its table of timers.

use crate::tick::Tick;

/// The number of tickets in a full chunk, a group of tickets. [`TicketWheel::advance`](crate::TicketWheel::advance)
/// hands tickets out in chunks of at most this size.
pub const CHUNK_TICKETS: usize = 32;

/// A small value that stays in a [`TicketWheel`](crate::TicketWheel) until its tick. A ticket means: "check this timer
/// at this tick".
///
/// A ticket names a timer that is kept elsewhere, for example by an index into a table. A ticket usually carries a
/// stamp, too: by the stamp, the table recognises tickets of timers that have ended. The wheel copies tickets and never
/// looks at the timers. 8 or 16 bytes are a good size.
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
///
/// A ticket of half the size, with the low 16 bits of its tick. The wheel is given the whole tick by
/// [`insert_at`](crate::TicketWheel::insert_at), and keeps the high bits where they are needed:
///
/// ```
/// use tourbillon_wheel::{Progress, Tick, Ticket, TicketWheel};
///
/// #[derive(Clone, Copy)]
/// struct Timeout {
///     connection: u32,
///     request: u16,
///     tick: u16,
/// }
///
/// impl Ticket for Timeout {
///     const TICK_BITS: u32 = 16;
///
///     fn tick(&self) -> Tick {
///         Tick(self.tick.into())
///     }
/// }
///
/// let mut wheel = TicketWheel::<Timeout>::new(Tick(0));
/// let due = Tick(1_000_000);
/// wheel.insert_at(due, Timeout { connection: 17, request: 1, tick: due.0 as u16 });
///
/// let mut chunks = Vec::new();
/// assert_eq!(wheel.advance(Tick(999_999), usize::MAX, |_| true, |chunk| chunks.push(chunk)), Progress::Settled);
/// assert_eq!((chunks.len(), wheel.wake_tick()), (0, Some(due)));
/// assert_eq!(wheel.advance(due, usize::MAX, |_| true, |chunk| chunks.push(chunk)), Progress::Settled);
/// assert_eq!(chunks[0][0].connection, 17);
/// ```
pub trait Ticket: Copy {
    /// The number of low bits of its tick that a ticket stores, from 1 to 64. By default, a ticket stores all bits.
    const TICK_BITS: u32 = u64::BITS;

    /// Returns the tick at which the ticket is due. If the ticket stores only the low bits of its tick
    /// ([`TICK_BITS`](Self::TICK_BITS)), returns these bits.
    fn tick(&self) -> Tick;
}

/// Returns a mask of the bits of a tick that a ticket of this type stores.
#[inline]
pub(crate) const fn low_bits<T: Ticket>() -> u64 {
    const { assert!(T::TICK_BITS >= 1 && T::TICK_BITS <= u64::BITS, "a ticket has 1 to 64 bits of its tick") }
    u64::MAX >> (u64::BITS - T::TICK_BITS)
}

/// A pair of a tick and a name is a ticket, too. The name identifies the timer that is due at the tick.
impl<N: Copy> Ticket for (Tick, N) {
    #[inline]
    fn tick(&self) -> Tick {
        self.0
    }
}
