//! Sizes that trade memory for speed. They are in one place so that models can shrink them.

pub(crate) use tourbillon_wheel::CHUNK_TICKETS;

/// The sizes of the lock-free data structures in a normal build. The builds of models have smaller sizes.
#[cfg(not(all(test, tourbillon_loom)))]
mod lock_free {
    /// The number of tickets in one block of a lane, a thread's queue of tickets to a shard.
    pub(crate) const BLOCK_TICKETS: usize = 64;
    /// The base-2 logarithm of the number of slots in a segment of the slab. The words of a segment's slots take 1 MiB.
    /// The system backs only the pages that are touched.
    pub(crate) const SEGMENT_BITS: u32 = 16;
    /// The maximum size of a segment in bytes. A segment of large payloads has fewer slots, to stay within this size.
    pub(crate) const SEGMENT_BYTES: usize = 1 << 20;
    /// The capacity of a slab divided by the size of its magazines (a magazine is a thread's stock of vacant slots).
    /// Small slabs have small magazines, so that one thread cannot hold all slots.
    pub(crate) const CAPACITY_PER_MAGAZINE_SLOT: u32 = 64;
    /// The maximum number of slots in a magazine, a thread's stock of vacant slots. The words of these slots fill a
    /// page. Two threads share a cache line where the slots of their magazines meet, and smaller magazines meet more
    /// often (`src/DESIGN.md`, "Slots").
    pub(crate) const MAGAZINE_SLOTS: u32 = 256;
    /// The divisor for scarce slots: while less than half of the capacity is left, a thread takes at most 1/256 of the
    /// remaining slots at a time.
    pub(crate) const PART_OF_SCARCE_SLOTS: u32 = 256;
}

/// The sizes of the lock-free data structures in a model. They are small enough for the model to reach every edge.
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
