//! Allocates the memory of a wheel's tickets (requests to check timers): blocks of 16 tickets. Each slot of the wheel
//! links its blocks to a list.
//!
//! A slot's list of blocks is a ring: the last block is linked to the first. So a slot that knows its last block finds
//! both ends. The links are beside the blocks, not in them: so a cascade follows a list without waiting for the blocks
//! to come from memory.
//!
//! The blocks are in segments of [`SEGMENT_BLOCKS`]. The blocks of a segment never move once the segment is whole, so a
//! wheel that grows copies no more than a segment. The memory of emptied segments is freed, except for one segment.

use crate::ticket::Ticket;
use alloc::vec::Vec;

/// The number of tickets in a block. With tickets of 16 bytes, a block takes four cache lines. With 8 bytes, two.
pub(crate) const BLOCK_TICKETS: usize = 16;
/// The number of blocks in a whole segment. With tickets of 16 bytes, a segment takes 33 KiB.
const SEGMENT_BLOCKS: usize = 1 << SEGMENT_BITS;
const SEGMENT_BITS: u32 = 7;
/// The index that stands for no block, or for no segment.
const NIL: u32 = u32::MAX;

/// The number of a block of tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockIndex(u32);

impl BlockIndex {
    /// The number that stands for no block.
    pub(crate) const NONE: Self = Self(NIL);

    #[inline]
    fn segment(self) -> usize {
        (self.0 >> SEGMENT_BITS) as usize
    }

    /// Returns the block's place in its segment.
    #[inline]
    fn place(self) -> usize {
        self.0 as usize % SEGMENT_BLOCKS
    }
}

/// The blocks of a wheel, in use and free.
#[derive(Debug)]
pub(crate) struct Blocks<T> {
    segments: Vec<Segment<T>>,
    /// The first segment of the list of segments that have room for another block.
    roomy: u32,
    /// The last segment that kept its memory when it became empty. It may be in use again.
    spare: u32,
}

#[derive(Debug)]
struct Segment<T> {
    blocks: Vec<[T; BLOCK_TICKETS]>,
    /// For a block in use, the next block in its slot's list. For a free block, the place of the next free block.
    links: Vec<u32>,
    /// The place of the first free block.
    free: u32,
    /// The number of blocks in use.
    used: u32,
    /// The next segment that has room.
    next_roomy: u32,
}

impl<T: Ticket> Blocks<T> {
    pub(crate) const fn new() -> Self {
        Self { segments: Vec::new(), roomy: NIL, spare: NIL }
    }

    #[inline]
    pub(crate) fn get(&self, block: BlockIndex) -> &[T; BLOCK_TICKETS] {
        &self.segments[block.segment()].blocks[block.place()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, block: BlockIndex) -> &mut [T; BLOCK_TICKETS] {
        &mut self.segments[block.segment()].blocks[block.place()]
    }

    /// Returns the block to which `block` is linked.
    #[inline]
    pub(crate) fn next(&self, block: BlockIndex) -> BlockIndex {
        BlockIndex(self.segments[block.segment()].links[block.place()])
    }

    #[inline]
    pub(crate) fn link(&mut self, block: BlockIndex, next: BlockIndex) {
        self.segments[block.segment()].links[block.place()] = next.0;
    }

    /// Allocates a block, and links it to itself. The first ticket of the block is `ticket`. The values of its other
    /// tickets are unspecified.
    #[inline]
    pub(crate) fn allocate(&mut self, ticket: T) -> BlockIndex {
        let number = self.roomy;
        if let Some(segment) = self.segments.get_mut(number as usize) {
            let place = segment.free;
            if let (Some(tickets), Some(link)) =
                (segment.blocks.get_mut(place as usize), segment.links.get_mut(place as usize))
            {
                let block = BlockIndex(number << SEGMENT_BITS | place);
                tickets[0] = ticket;
                segment.free = core::mem::replace(link, block.0);
                segment.used += 1;
                if segment.used as usize == SEGMENT_BLOCKS {
                    self.roomy = segment.next_roomy;
                }
                return block;
            }
        }
        self.allocate_new(ticket)
    }

    /// Adds a block to the first segment with room, or to a new segment.
    #[cold]
    fn allocate_new(&mut self, ticket: T) -> BlockIndex {
        if self.roomy == NIL {
            self.add_segment();
        }
        let number = self.roomy;
        let segment = &mut self.segments[number as usize];
        let place = segment.add_block(number > 0, ticket);
        segment.used += 1;
        if segment.used as usize == SEGMENT_BLOCKS {
            self.roomy = segment.next_roomy;
        }
        let block = BlockIndex(number << SEGMENT_BITS | place);
        self.link(block, block);
        block
    }

    fn add_segment(&mut self) {
        self.roomy = u32::try_from(self.segments.len()).unwrap_or(NIL);
        assert!(self.roomy < NIL >> SEGMENT_BITS, "fewer than 2^32 blocks");
        self.segments.push(Segment {
            blocks: Vec::new(),
            links: Vec::new(),
            free: NIL,
            used: 0,
            next_roomy: NIL,
        });
    }

    /// Frees a block.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a number and a place are parts of a u32")]
    pub(crate) fn free(&mut self, block: BlockIndex) {
        let (number, place) = (block.segment(), block.place());
        let segment = &mut self.segments[number];
        segment.links[place] = segment.free;
        segment.free = place as u32;
        if segment.used as usize == SEGMENT_BLOCKS {
            segment.next_roomy = self.roomy;
            self.roomy = number as u32;
        }
        segment.used -= 1;
        if segment.used == 0 {
            self.empty_segment(number as u32);
        }
    }

    /// Frees the memory of an empty segment. One empty segment keeps its memory, so that a wheel does not allocate
    /// each time its last segment is filled and emptied.
    #[cold]
    fn empty_segment(&mut self, number: u32) {
        let spare = self.segments.get(self.spare as usize);
        let keeps = self.spare == number || spare.is_none_or(|spare| spare.used > 0);
        let segment = &mut self.segments[number as usize];
        segment.free = NIL;
        if keeps {
            self.spare = number;
            segment.blocks.clear();
            segment.links.clear();
        } else {
            segment.blocks = Vec::new();
            segment.links = Vec::new();
        }
    }

    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let bytes = |segment: &Segment<T>| {
            segment.blocks.capacity() * size_of::<[T; BLOCK_TICKETS]>() + segment.links.capacity() * 4
        };
        self.segments.iter().map(bytes).sum::<usize>() + self.segments.capacity() * size_of::<Segment<T>>()
    }
}

impl<T: Ticket> Segment<T> {
    /// Adds a block, and returns its place. If `whole` is true, an empty segment allocates the memory of all its blocks
    /// at once. The first segment of a wheel grows with its blocks instead.
    #[expect(clippy::cast_possible_truncation, reason = "a place is smaller than a segment")]
    fn add_block(&mut self, whole: bool, ticket: T) -> u32 {
        if whole && self.blocks.capacity() == 0 {
            self.blocks.reserve_exact(SEGMENT_BLOCKS);
            self.links.reserve_exact(SEGMENT_BLOCKS);
        }
        self.blocks.push([ticket; BLOCK_TICKETS]);
        self.links.push(NIL);
        self.blocks.len() as u32 - 1
    }
}
