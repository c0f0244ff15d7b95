//! A lane: blocks of insertions from one writer to one reader.
//!
//! # Layout
//! ```text
//!  reader: head, taken                                 writer: tail, published
//!       │                                                   │
//!       ▼                                                   ▼
//!   [ block ] ── next ──► [ block ] ── next ──► ... ──► [ block ]
//!       │ drained                                            ▲ when full
//!       └──────────────► returned (a stack) ─────────────────┘
//! ```
//! The word `published` counts the insertions since the lane was made. Insertion `n` is in cell `n % BLOCK` of its
//! block. The reader reads up to `published`, the writer writes from there on, and the statistics read the number of
//! insertions from this word. Apart from the insertion itself, `published` is the only word that a push writes.
//!
//! # Invariants
//! N1. Cells of insertions below `published` are written. They are not written again until their block was drained and
//!     reused. The cells from `published` on belong to the writer. A block is linked before the first insertion in the
//!     block is published.
//! N2. A block has exactly one owner: the lane's chain, `returned`, or the writer's spare chain.
//! N3. Only the lane's writer accesses `Writer`. Only the lane's reader, the inbox's `InboxReader`, accesses `Reader`.
//!
//! # States
//! ```text
//! state   1 OWNED    a writer has the lane
//!         2 WALKED   the reader walks the lane, or will: it is among the arrivals
//! ```
//! | operation    | from -> to                       | otherwise         |
//! |--------------|----------------------------------|-------------------|
//! | `take_over`  | not owned -> owned, walked       |                   |
//! | `retire`     | owned -> not owned               |                   |
//! | `leave_walk` | walked, not owned -> not walked  | owned: stays      |
//!
//! The walk is the reader's list of lanes to drain. The reader drains a lane once more after the lane has left the
//! walk, so that no insertion of the former writers stays behind. A later writer makes the lane arrive again before its
//! first push.

use crate::base::limits::BLOCK_TICKETS;
use crate::base::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::base::ticket::Insertion;
use core::mem::MaybeUninit;
use core::ptr;
use crossbeam_utils::CachePadded;

#[derive(Debug)]
struct Block {
    next: AtomicPtr<Block>,
    insertions: [UnsafeCell<MaybeUninit<Insertion>>; BLOCK_TICKETS],
}

const OWNED: u32 = 1;
const WALKED: u32 = 2;

const BLOCK: u64 = BLOCK_TICKETS as u64;

impl Block {
    fn new() -> *mut Block {
        Box::into_raw(Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            insertions: core::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }))
    }
}

/// Returns the index of the insertion (ticket) `number` within its block of a lane, a thread's queue.
fn cell_of(number: u64) -> usize {
    (number % BLOCK) as usize
}

/// The data of a lane (a thread's queue to a shard) that only the lane's writer accesses.
#[derive(Debug)]
struct Writer {
    tail: *mut Block,
    /// A chain of drained blocks of the lane that the writer may use again.
    spare: *mut Block,
}

/// The data of a lane that only the lane's reader accesses.
#[derive(Debug)]
struct Reader {
    head: *mut Block,
    /// The number of insertions (tickets) that the reader has taken out of the lane so far.
    taken: u64,
}

/// The result of a push into a lane. It says whether the writer must wake the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The push gives the writer no reason to wake the shard, because the lane is not crowded.
    Quietly,
    /// The push filled a block, and a quarter of the capacity waits in the lane. The writer should wake the shard if it
    /// sleeps, so that the shard drains the lane.
    Crowding,
}

/// Adds `by` to a counter that only the owner of the lane writes. Returns the sum. Because the counter has one writer,
/// a plain load and store suffice.
#[inline(always)]
fn count(counter: &AtomicU64, by: u64) -> u64 {
    // Ordering: Relaxed. A counter with one writer.
    let count = counter.load(Ordering::Relaxed) + by;
    counter.store(count, Ordering::Relaxed);
    count
}

#[derive(Debug)]
pub(crate) struct Lane {
    writer: CachePadded<UnsafeCell<Writer>>,
    /// The number of insertions (tickets) that all writers of the lane have published so far.
    published: AtomicU64,
    /// The number of published insertions that schedule no new timer. They are tickets (requests to check timers) that
    /// were sent again, and timers that were withdrawn.
    not_scheduled: AtomicU64,
    /// The number of timers that were cancelled so far by threads that had this lane.
    cancelled: AtomicU64,
    /// The number of owned timers that the owners of the lane have created. `destroyed` counts the owned timers that
    /// they have destroyed.
    created: AtomicU64,
    destroyed: AtomicU64,
    /// The number of armings of owned timers that needed a new ticket in this lane.
    posted_arms: AtomicU64,
    state: AtomicU32,
    capacity: u64,
    /// The next older lane in the inbox's list of all lanes. It is set before this lane is listed.
    older: AtomicPtr<Lane>,
    /// The next older lane among the arrivals (lanes that the reader will start to drain). It is set before this lane
    /// arrives.
    next_arrival: AtomicPtr<Lane>,
    reader: CachePadded<UnsafeCell<Reader>>,
    /// The number of insertions (tickets) that the reader has drained. From it, the writer estimates how full the lane
    /// is.
    drained: AtomicU64,
    /// A stack of drained blocks on their way back to the writer. The reader pushes one block at a time, and the writer
    /// takes the whole stack: no ABA.
    returned: AtomicPtr<Block>,
}

// SAFETY: N1 to N3 state which thread accesses which part; insertions are plain data.
unsafe impl Send for Lane {}
// SAFETY: as above; the methods that rely on a role are unsafe and name it.
unsafe impl Sync for Lane {}

impl Lane {
    pub(super) fn new(capacity: u64) -> Self {
        let block = Block::new();
        Self {
            writer: CachePadded::new(UnsafeCell::new(Writer { tail: block, spare: ptr::null_mut() })),
            published: AtomicU64::new(0),
            not_scheduled: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            created: AtomicU64::new(0),
            destroyed: AtomicU64::new(0),
            posted_arms: AtomicU64::new(0),
            state: AtomicU32::new(0),
            capacity,
            older: AtomicPtr::new(ptr::null_mut()),
            next_arrival: AtomicPtr::new(ptr::null_mut()),
            reader: CachePadded::new(UnsafeCell::new(Reader { head: block, taken: 0 })),
            drained: AtomicU64::new(0),
            returned: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn set_older(&self, lane: *mut Lane) {
        // Ordering: Relaxed. Published with the lane (L4).
        self.older.store(lane, Ordering::Relaxed);
    }

    pub(super) fn older(&self) -> *const Lane {
        // Ordering: Relaxed. Acquired with the lane (L4).
        self.older.load(Ordering::Relaxed)
    }

    pub(super) fn set_next_arrival(&self, lane: *mut Lane) {
        // Ordering: Relaxed. Published with the arrival (L5).
        self.next_arrival.store(lane, Ordering::Relaxed);
    }

    pub(super) fn next_arrival(&self) -> *const Lane {
        // Ordering: Relaxed. Acquired with the arrival (L5).
        self.next_arrival.load(Ordering::Relaxed)
    }

    /// Makes the caller the lane's writer (X2). The caller has made the lane, or has taken it from the vacant lanes.
    /// Returns true if the reader does not drain the lane at present. Then the caller must add the lane to the
    /// arrivals.
    #[must_use]
    pub(super) fn take_over(&self) -> bool {
        // Ordering: Acquire. The reader read the link of arrivals before it left the lane (`leave_walk`). The lock of
        // the vacant lanes hands over the rest (L3).
        let before = self.state.fetch_or(OWNED | WALKED, Ordering::Acquire);
        debug_assert!(before & OWNED == 0, "X2");
        before & WALKED == 0
    }

    pub(super) fn retire(&self) {
        // Ordering: Release [L6]. Pairs with `leave_walk`: the insertions.
        self.state.fetch_and(!OWNED, Ordering::Release);
    }

    /// Takes the lane out of the reader's walk (its list of lanes to drain) if the lane has no writer. Returns whether
    /// the call took the lane out. If so, the reader drains the lane once more.
    #[inline]
    pub(super) fn leave_walk(&self) -> bool {
        // Ordering: Relaxed. A hint for the CAS.
        if self.state.load(Ordering::Relaxed) != WALKED {
            return false;
        }
        // Ordering: Acquire [L6]. Pairs with `retire`: the insertions. Release: the link of arrivals has been read, and
        // the next writer may set it (`take_over`). Failure Relaxed: nothing is read.
        self.state.compare_exchange(WALKED, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the number of insertions (tickets) that the writer has published. Only the writer of the lane may call
    /// this method.
    #[inline(always)]
    fn written(&self) -> u64 {
        // Ordering: Relaxed. The caller wrote the count, or another writer before the caller took the lane over (L3).
        self.published.load(Ordering::Relaxed)
    }

    /// Returns whether the lane has room for another insertion (ticket). The method checks the capacity only at the
    /// start of a block.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let written = self.written();
        !written.is_multiple_of(BLOCK) || self.waiting(written) < self.capacity
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    fn waiting(&self, written: u64) -> u64 {
        // Ordering: Relaxed. Only a measure; a stale value makes the lane look fuller than it is.
        written.saturating_sub(self.drained.load(Ordering::Relaxed))
    }

    /// # Safety
    ///
    /// The caller is the lane's writer (X2).
    #[inline]
    pub(super) unsafe fn push(&self, insertions: &[Insertion]) -> Pushed {
        self.writer.with_mut(|writer| {
            // SAFETY: N3: the caller is the writer.
            let writer = unsafe { &mut *writer };
            let mut pushed = Pushed::Quietly;
            let mut written = self.written();
            for &insertion in insertions {
                if written.is_multiple_of(BLOCK) && written > 0 {
                    self.extend(writer);
                    if self.waiting(written) >= self.capacity / 4 {
                        pushed = Pushed::Crowding;
                    }
                }
                // SAFETY: N2: the tail is in the chain until its last insertion was published and drained.
                let tail = unsafe { &*writer.tail };
                tail.insertions[cell_of(written)].with_mut(|cell| {
                    // SAFETY: N1: cells from `published` on are the writer's.
                    unsafe { (*cell).write(insertion) };
                });
                written += 1;
            }
            // Ordering: Release [L1]. Pairs with `drain`: the cells below, and the links of their blocks.
            self.published.store(written, Ordering::Release);
            pushed
        })
    }

    #[cold]
    fn extend(&self, writer: &mut Writer) {
        let block = self.spare_block(writer);
        // SAFETY: N2: the tail is in the chain: the reader leaves it only for an insertion that is not published yet.
        let tail = unsafe { &*writer.tail };
        // Ordering: Relaxed. Published with the first insertion of the new block (L1).
        tail.next.store(block, Ordering::Relaxed);
        writer.tail = block;
    }

    /// Returns an empty block: a drained block if there is any, else a new block.
    fn spare_block(&self, writer: &mut Writer) -> *mut Block {
        if writer.spare.is_null() {
            // Ordering: Acquire [L2]. Pairs with `recycle`: the reader is done with the blocks.
            writer.spare = self.returned.swap(ptr::null_mut(), Ordering::Acquire);
        }
        if writer.spare.is_null() {
            return Block::new();
        }
        let block = writer.spare;
        // SAFETY: N2: the spare chain is the writer's.
        let spare = unsafe { &*block };
        // Ordering: Relaxed. The block is ours until `push` publishes its contents.
        writer.spare = spare.next.load(Ordering::Relaxed);
        spare.next.store(ptr::null_mut(), Ordering::Relaxed);
        block
    }

    /// Takes all insertions (tickets) that were published before the call, and passes them to `each`, the oldest first.
    ///
    /// # Safety
    ///
    /// The caller is the lane's one reader (N3).
    pub(super) unsafe fn drain(&self, mut each: impl FnMut(Insertion)) {
        // Ordering: Acquire [L1]. Pairs with `push`: the cells below, and the links of their blocks.
        let published = self.published.load(Ordering::Acquire);
        self.reader.with_mut(|reader| {
            // SAFETY: N3: the caller is the reader.
            let reader = unsafe { &mut *reader };
            while reader.taken < published {
                if reader.taken.is_multiple_of(BLOCK) && reader.taken > 0 {
                    self.leave_block(reader);
                }
                // SAFETY: N2: the head is in the chain until `leave_block`.
                let head = unsafe { &*reader.head };
                let first = cell_of(reader.taken);
                let here = (published - reader.taken).min(BLOCK - first as u64);
                let cells = &head.insertions[first..=cell_of(reader.taken + here - 1)];
                // The count changes before the insertions are passed on: if `each` unwinds, no insertion is read twice.
                reader.taken += here;
                for cell in cells {
                    // SAFETY: N1: a cell below `published` is not written again while the block is in the chain.
                    let insertion = cell.with(|cell| unsafe { *cell });
                    // SAFETY: N1: the cell is written.
                    each(unsafe { insertion.assume_init() });
                }
            }
            // Ordering: Relaxed. Only a measure, see `waiting`.
            self.drained.store(reader.taken, Ordering::Relaxed);
        });
    }

    /// Moves the reader to the next block of the lane, a thread's queue. That block is linked, because one of its
    /// insertions is published (N1).
    fn leave_block(&self, reader: &mut Reader) {
        // SAFETY: N2: the head is in the chain.
        let head = unsafe { &*reader.head };
        // Ordering: Relaxed. Acquired with `published` (L1).
        let next = head.next.load(Ordering::Relaxed);
        debug_assert!(!next.is_null(), "N1");
        self.recycle(reader.head);
        reader.head = next;
    }

    /// Returns a drained block to the writer.
    fn recycle(&self, block: *mut Block) {
        // Ordering: Relaxed. A hint for the CAS.
        let mut top = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: N2: the block has left the chain and is the reader's until the CAS.
            let next = unsafe { &(*block).next };
            // Ordering: Relaxed. Published by the CAS.
            next.store(top, Ordering::Relaxed);
            // Ordering: Release [L2]. Pairs with `spare_block`: we are done with the block. An RMW, so the blocks below
            // stay published. Failure Relaxed: a hint for the retry.
            match self.returned.compare_exchange_weak(top, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => top = newer,
            }
        }
    }

    #[cold]
    pub(crate) fn count_not_scheduled(&self) {
        count(&self.not_scheduled, 1);
    }

    /// Counts a timer that the thread with this lane has cancelled. Returns the new count.
    #[inline(always)]
    pub(crate) fn count_cancelled(&self) -> u64 {
        count(&self.cancelled, 1)
    }

    pub(crate) fn count_created(&self) {
        count(&self.created, 1);
    }

    /// Counts an owned timer whose slot was vacated. Returns the new count.
    pub(crate) fn count_destroyed(&self) -> u64 {
        count(&self.destroyed, 1)
    }

    /// Counts an arming of an owned timer that needed a new ticket. Returns the new count.
    pub(crate) fn count_posted_arm(&self) -> u64 {
        count(&self.not_scheduled, 1);
        count(&self.posted_arms, 1)
    }

    /// Returns two counts of owned timers: the created timers, and the timers destroyed by threads that had this lane.
    pub(crate) fn created_and_destroyed(&self) -> (u64, u64) {
        // Ordering: Relaxed. Counters.
        (self.created.load(Ordering::Relaxed), self.destroyed.load(Ordering::Relaxed))
    }

    /// Returns the number of armings of owned timers for which the owners of the lane pushed a ticket.
    pub(crate) fn posted_arms(&self) -> u64 {
        // Ordering: Relaxed. A counter.
        self.posted_arms.load(Ordering::Relaxed)
    }

    /// Returns the number of timers that were cancelled so far by threads that had this lane.
    pub(crate) fn cancelled(&self) -> u64 {
        // Ordering: Relaxed. A counter.
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns the number of timers that were scheduled so far by threads that had this lane.
    pub(crate) fn scheduled(&self) -> u64 {
        // Ordering: Relaxed. Counters.
        let not_scheduled = self.not_scheduled.load(Ordering::Relaxed);
        self.published.load(Ordering::Relaxed).saturating_sub(not_scheduled)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut chains = [ptr::null_mut(); 3];
        self.reader.with_mut(|reader| {
            // SAFETY: we have the only reference to the lane.
            chains[0] = unsafe { (*reader).head };
        });
        self.writer.with_mut(|writer| {
            // SAFETY: as above.
            chains[1] = unsafe { (*writer).spare };
        });
        // Ordering: Acquire [L2]. The blocks, if the reader was another thread.
        chains[2] = self.returned.load(Ordering::Acquire);
        for mut block in chains {
            while !block.is_null() {
                // SAFETY: N2: each block is in one of the three chains, and no other thread has them.
                let owned = unsafe { Box::from_raw(block) };
                // Ordering: Relaxed. No other thread has a reference to the lane any more.
                block = owned.next.load(Ordering::Relaxed);
            }
        }
    }
}
