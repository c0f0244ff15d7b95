//! Sizes that trade memory for speed, in one place so that models can shrink them.

pub(crate) use tourbillon_wheel::CHUNK_TICKETS;

/// Sizes of the lock-free parts as they are run.
#[cfg(not(all(test, tourbillon_loom)))]
mod lock_free {
    /// The number of tickets in one block of a lane.
    pub(crate) const BLOCK_TICKETS: usize = 64;
    /// log2 of the number of slots in a segment of the slab: 1 MiB of words. The system backs only
    /// the pages that are touched.
    pub(crate) const SEGMENT_BITS: u32 = 16;
    /// The maximum size of a segment: segments of large payloads have fewer slots, so as not to be larger than this.
    pub(crate) const SEGMENT_BYTES: usize = 1 << 20;
    /// Slots of capacity for each slot of a magazine: small slabs have small magazines, so that one
    /// thread cannot hold all slots.
    pub(crate) const CAPACITY_PER_MAGAZINE_SLOT: u32 = 64;
    /// The maximum number of slots in a magazine: a page of words. Where the slots of two threads meet, the threads
    /// share a line, and smaller magazines meet more often (`src/DESIGN.md`, "Slots").
    pub(crate) const MAGAZINE_SLOTS: u32 = 256;
    /// If fewer slots than half the capacity are left, a thread takes no more than this part of them at a time.
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
