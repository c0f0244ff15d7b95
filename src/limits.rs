//! Sizes that trade memory for speed, in one place so that models can shrink them.

pub(crate) use tourbillon_wheel::CHUNK_TICKETS;

/// Sizes of the lock-free parts as they are run.
#[cfg(not(all(test, tourbillon_loom)))]
mod lock_free {
    /// Tickets in one block of a lane.
    pub(crate) const BLOCK_TICKETS: usize = 64;
    /// log2 of the slots in a segment of the slab: 1 MiB of words, of which the system backs what is touched.
    pub(crate) const SEGMENT_BITS: u32 = 16;
    /// Segments of large payloads have fewer slots, so as not to be larger than this.
    pub(crate) const SEGMENT_BYTES: usize = 1 << 20;
    /// Slots of capacity for each slot of a magazine: small slabs have small magazines, lest one thread's hands hold all.
    pub(crate) const CAPACITY_PER_MAGAZINE_SLOT: u32 = 64;
    /// Slots that a magazine holds at most: a page of words. Where two threads' slots meet they share a line, and smaller
    /// magazines meet more often (`docs/design.md`, "Slots").
    pub(crate) const MAGAZINE_SLOTS: u32 = 256;
    /// Of fewer slots than half the capacity, a thread takes no more than this part at a time.
    pub(crate) const PART_OF_SCARCE_SLOTS: u32 = 256;
}

/// The same sizes, small enough for a model to reach every edge.
#[cfg(all(test, tourbillon_loom))]
mod lock_free {
    pub(crate) const BLOCK_TICKETS: usize = 2;
    pub(crate) const SEGMENT_BITS: u32 = 1;
    pub(crate) const SEGMENT_BYTES: usize = usize::MAX >> 8;
    pub(crate) const CAPACITY_PER_MAGAZINE_SLOT: u32 = 2;
    pub(crate) const MAGAZINE_SLOTS: u32 = 2;
    pub(crate) const PART_OF_SCARCE_SLOTS: u32 = 2;
}

pub(crate) use lock_free::*;
