//! A lane: blocks of tickets from one writer to one reader.
//!
//! # Layout
//! ```text
//!  reader: head, read                                  writer: tail, written
//!       │                                                   │
//!       ▼                                                   ▼
//!   [ block ] ── next ──► [ block ] ── next ──► ... ──► [ block ]
//!       │ drained                                            ▲ when full
//!       └──────────────► returned (a stack) ─────────────────┘
//! ```
//!
//! # Invariants
//! N1. A block's cells below `published` are written and not written again until it was drained and reused; the cells
//!     from there on are the writer's.
//! N2. A block is owned by the lane's chain, by `returned`, or by the writer's spare chain: by exactly one of them.
//! N3. `written` is touched by the writer only, `read` by the reader only: the shard that owns the inbox.

use crate::limits::BLOCK_TICKETS;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::ticket::Ticket;
use core::mem::MaybeUninit;
use core::ptr;
use crossbeam_utils::CachePadded;

#[derive(Debug)]
struct Block {
    next: AtomicPtr<Block>,
    published: AtomicU32,
    tickets: [UnsafeCell<MaybeUninit<Ticket>>; BLOCK_TICKETS],
}

#[expect(clippy::cast_possible_truncation, reason = "some dozens")]
const FULL: u32 = BLOCK_TICKETS as u32;

impl Block {
    fn new() -> *mut Block {
        Box::into_raw(Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            published: AtomicU32::new(0),
            tickets: core::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }))
    }
}

/// The writer's side.
#[derive(Debug)]
struct Written {
    tail: *mut Block,
    /// Tickets in the tail.
    len: u32,
    /// Drained blocks, ready for use.
    spare: *mut Block,
    /// Tickets ever pushed.
    total: u64,
}

/// The reader's side.
#[derive(Debug)]
struct Read {
    head: *mut Block,
    /// Tickets taken from the head.
    len: u32,
    /// Tickets ever taken.
    total: u64,
}

/// What the writer should know after a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Nothing.
    Quietly,
    /// A block is full and a quarter of the capacity waits: a sleeping shard should come and drain.
    Crowding,
}

/// Whether a drain took all there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Drained {
    /// Whatever was published before the call.
    All,
    /// The lane was refilled as fast as it was drained; drain again before sleeping.
    Some,
}

/// Counters of what a lane's owner did. Only the owner writes, so counting is a plain load and store.
#[derive(Debug)]
pub(crate) struct Tally {
    scheduled: AtomicU64,
    cancelled: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) -> u64 {
    // Ordering: Relaxed. A counter with one writer.
    let count = counter.load(Ordering::Relaxed) + by;
    counter.store(count, Ordering::Relaxed);
    count
}

#[derive(Debug)]
pub(crate) struct Lane {
    written: CachePadded<UnsafeCell<Written>>,
    tally: Tally,
    owned: AtomicBool,
    capacity: u64,
    /// The next older lane of the inbox; set before the lane is listed.
    older: AtomicPtr<Lane>,
    read: CachePadded<UnsafeCell<Read>>,
    /// Tickets drained, for the writer's view of how full the lane is.
    drained: AtomicU64,
    /// Drained blocks on their way back. The reader pushes one at a time, the writer takes all: no ABA.
    returned: AtomicPtr<Block>,
}

// SAFETY: N1 to N3 say which thread is where; tickets are plain data.
unsafe impl Send for Lane {}
// SAFETY: as above; the methods that rely on a role are unsafe and name it.
unsafe impl Sync for Lane {}

impl Lane {
    /// An empty lane, owned by the caller's thread.
    pub(super) fn new(capacity: u64) -> Self {
        let block = Block::new();
        Self {
            written: CachePadded::new(UnsafeCell::new(Written {
                tail: block,
                len: 0,
                spare: ptr::null_mut(),
                total: 0,
            })),
            tally: Tally { scheduled: AtomicU64::new(0), cancelled: AtomicU64::new(0) },
            owned: AtomicBool::new(true),
            capacity,
            older: AtomicPtr::new(ptr::null_mut()),
            read: CachePadded::new(UnsafeCell::new(Read { head: block, len: 0, total: 0 })),
            drained: AtomicU64::new(0),
            returned: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn set_older(&self, lane: *mut Lane) {
        // Ordering: Relaxed. Published with the lane (L5).
        self.older.store(lane, Ordering::Relaxed);
    }

    pub(super) fn older(&self) -> *const Lane {
        // Ordering: Relaxed. Acquired with the lane (L5).
        self.older.load(Ordering::Relaxed)
    }

    /// Becomes the lane's writer, if it has none (X2).
    pub(super) fn take_over(&self) -> bool {
        // Ordering: Acquire [L4]. Pairs with `retire`: the writer's side. Relaxed on failure: nothing is read.
        self.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn retire(&self) {
        // Ordering: Release [L4]. Pairs with `take_over`: the writer's side.
        self.owned.store(false, Ordering::Release);
    }

    /// # Safety
    ///
    /// The caller is the lane's writer (X2).
    #[inline]
    pub(super) unsafe fn has_room(&self) -> bool {
        self.written.with(|written| {
            // SAFETY: N3: the caller is the writer.
            let written = unsafe { &*written };
            written.len < FULL || self.waiting(written) < self.capacity
        })
    }

    fn waiting(&self, written: &Written) -> u64 {
        // Ordering: Relaxed. Only a measure; a stale value makes the lane look fuller than it is.
        written.total.saturating_sub(self.drained.load(Ordering::Relaxed))
    }

    /// # Safety
    ///
    /// The caller is the lane's writer (X2).
    #[inline]
    pub(super) unsafe fn push(&self, tickets: impl Iterator<Item = Ticket>) -> Pushed {
        self.written.with_mut(|written| {
            // SAFETY: N3: the caller is the writer.
            let written = unsafe { &mut *written };
            let mut pushed = Pushed::Quietly;
            for ticket in tickets {
                if written.len == FULL {
                    self.publish(written);
                    self.extend(written);
                    if self.waiting(written) >= self.capacity / 4 {
                        pushed = Pushed::Crowding;
                    }
                }
                // SAFETY: N2: the tail is in the chain, which only the writer and the reader free, after this.
                let tail = unsafe { &*written.tail };
                tail.tickets[written.len as usize].with_mut(|cell| {
                    // SAFETY: N1: cells from `published` on are the writer's.
                    unsafe { (*cell).write(ticket) };
                });
                written.len += 1;
                written.total += 1;
            }
            self.publish(written);
            pushed
        })
    }

    #[inline]
    fn publish(&self, written: &Written) {
        // SAFETY: N2, as in `push`.
        let tail = unsafe { &*written.tail };
        // Ordering: Release [L1]. Pairs with `drain`: the cells below `len`.
        tail.published.store(written.len, Ordering::Release);
    }

    #[cold]
    fn extend(&self, written: &mut Written) {
        let block = self.spare_block(written);
        // SAFETY: N2: the tail is in the chain.
        let tail = unsafe { &*written.tail };
        // Ordering: Release [L2]. Pairs with `drain`: the new block is empty.
        tail.next.store(block, Ordering::Release);
        written.tail = block;
        written.len = 0;
    }

    /// An empty block: one that was drained, or a new one.
    fn spare_block(&self, written: &mut Written) -> *mut Block {
        if written.spare.is_null() {
            // Ordering: Acquire [L3]. Pairs with `drain`: the reader is done with the blocks.
            written.spare = self.returned.swap(ptr::null_mut(), Ordering::Acquire);
        }
        if written.spare.is_null() {
            return Block::new();
        }
        let block = written.spare;
        // SAFETY: N2: the spare chain is the writer's.
        let spare = unsafe { &*block };
        // Ordering: Relaxed. The block is ours until `extend` publishes it.
        written.spare = spare.next.load(Ordering::Relaxed);
        spare.next.store(ptr::null_mut(), Ordering::Relaxed);
        spare.published.store(0, Ordering::Relaxed);
        block
    }

    /// Takes what is published and gives it to `each`, oldest first; stops after about a capacity's worth.
    ///
    /// # Safety
    ///
    /// The caller is the lane's one reader (N3).
    pub(crate) unsafe fn drain(&self, mut each: impl FnMut(Ticket)) -> Drained {
        self.read.with_mut(|read| {
            // SAFETY: N3: the caller is the reader.
            let read = unsafe { &mut *read };
            let before = read.total;
            let mut drained = Drained::All;
            loop {
                // SAFETY: N2: the head is in the chain until `recycle`.
                let head = unsafe { &*read.head };
                // Ordering: Acquire [L1]. Pairs with `publish`: the cells.
                let published = head.published.load(Ordering::Acquire);
                for cell in &head.tickets[read.len as usize..published as usize] {
                    // SAFETY: N1: a cell below `published` is written, and not again while the block is in the chain.
                    each(cell.with(|cell| unsafe { (*cell).assume_init_read() }));
                }
                read.total += u64::from(published - read.len);
                read.len = published;
                if published < FULL {
                    break;
                }
                if read.total - before >= self.capacity {
                    drained = Drained::Some;
                    break;
                }
                // Ordering: Acquire [L2]. Pairs with `extend`: the block is made.
                let next = head.next.load(Ordering::Acquire);
                if next.is_null() {
                    break;
                }
                self.recycle(read.head);
                read.head = next;
                read.len = 0;
            }
            // Ordering: Relaxed. Only a measure, see `waiting`.
            self.drained.store(read.total, Ordering::Relaxed);
            drained
        })
    }

    /// Sends a drained block back to the writer.
    fn recycle(&self, block: *mut Block) {
        // Ordering: Relaxed. A hint for the CAS.
        let mut top = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: N2: the block has left the chain and is the reader's until the CAS.
            let next = unsafe { &(*block).next };
            // Ordering: Relaxed. Published by the CAS.
            next.store(top, Ordering::Relaxed);
            // Ordering: Release [L3]. Pairs with `spare_block`: we are done with the block. An RMW, so the blocks below
            // stay published. Failure Relaxed: a hint for the retry.
            match self.returned.compare_exchange_weak(top, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => top = newer,
            }
        }
    }

    /// Counts timers scheduled by this lane's owner.
    #[inline]
    pub(crate) fn count_scheduled(&self, by: u64) {
        count(&self.tally.scheduled, by);
    }

    /// Counts a timer cancelled by this lane's owner; gives the new count.
    #[inline]
    pub(crate) fn count_cancelled(&self) -> u64 {
        count(&self.tally.cancelled, 1)
    }

    /// Timers scheduled and cancelled by the lane's owners so far.
    pub(crate) fn tally(&self) -> (u64, u64) {
        // Ordering: Relaxed. Counters. Cancelled first: a timer is scheduled before it is cancelled.
        let cancelled = self.tally.cancelled.load(Ordering::Relaxed);
        (self.tally.scheduled.load(Ordering::Relaxed), cancelled)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut chains = [ptr::null_mut(); 3];
        self.read.with_mut(|read| {
            // SAFETY: we have the only reference to the lane.
            chains[0] = unsafe { (*read).head };
        });
        self.written.with_mut(|written| {
            // SAFETY: as above.
            chains[1] = unsafe { (*written).spare };
        });
        // Ordering: Acquire [L3]. The blocks, should the reader have been another thread.
        chains[2] = self.returned.load(Ordering::Acquire);
        for mut block in chains {
            while !block.is_null() {
                // SAFETY: N2: each block is in one of the three chains, and nobody else has them.
                let owned = unsafe { Box::from_raw(block) };
                // Ordering: Acquire [L2], should the writer have been another thread.
                block = owned.next.load(Ordering::Acquire);
            }
        }
    }
}
