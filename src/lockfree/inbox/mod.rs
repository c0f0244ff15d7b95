//! The inbox of a station at a shard: a lock-free queue for many producers and one reader. It consists of lanes; each
//! lane is a queue with one producer.
//!
//! With a single queue for all producers, each push would cost an atomic read-modify-write on a cache line that all
//! producers write. With a lane for each thread, a push costs a plain store, and the shard walks over the lanes.
//!
//! If the reader visited all lanes that were ever made, each thread that came and went would cost time in every later
//! turn. So the reader visits only the lanes of its *walk*: the lanes that have a writer, and the lanes that were not
//! drained since their writer left. A thread that ends returns its lane to a list of vacant lanes, from which the next
//! thread takes the lane in O(1). A lane *arrives* when a writer puts it on the list from which the reader adds lanes
//! to the walk.
//!
//! # Invariants
//! X1. A lane stays in the list from its creation until the inbox is dropped, since the statistics include its
//!     counters.
//! X2. A lane has one writer at a time: the lane is vacant, or has one `LaneWriter`.
//! X3. A lane with insertions that were not drained is in the reader's walk or among the arrivals. No lane is in both,
//!     or twice in one of them (`WALKED` in `lane`).
//!
//! A shard's last look before its sleep relies on X3 (`parker`, K1). A lane arrives before the first push of its
//! writer. So the producer's fence orders the arrival and the push before the producer's look at the parker.
//!
//! # Synchronisation
//! | pair | release side | acquire side | handed over         | model |
//! |------|--------------|--------------|---------------------|-------|
//! | L1   | `Lane::push` | `Lane::drain`| the insertions, the next block | `inbox::push_races_with_drain` |
//! | L2   | `Lane::drain` (recycle) | `Lane::spare_block` | a drained block | `inbox::a_drained_block_is_reused` |
//! | L3   | `Vacant::put`, by its lock | `Vacant::take` | the writer's side of a lane | `inbox::a_lane_is_taken_over` |
//! | L4   | `list`       | `lanes`      | a new lane          | `inbox::a_new_lane_is_counted` |
//! | L5   | `arrive`     | `take_arrivals` | a lane, its link | `inbox::two_producers_one_drain` |
//! | L6   | `retire`     | `leave_walk` | the last insertions   | `inbox::a_lane_leaves_the_walk` |
//!
//! # Progress and cost
//! push: wait-free, O(1), unless it needs a block from the allocator. walk: wait-free, O(lanes in use + tickets).
//! register and retire: O(1), under a lock that only these two take; rare. lanes: O(the highest number of lanes in use
//! at the same time).

mod lane;

pub(crate) use lane::{Lane, Pushed};

use crate::base::fork::ForkLock;
use crate::base::sync::{Arc, AtomicBool, AtomicPtr, AtomicU64, Ordering, StdArc};
use crate::base::ticket::Insertion;
use core::ptr;

/// All lanes (the queues of threads) to one station, an engine's part of a shard.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The newest lane of the list of all lanes. Each lane points to the next older lane. Each entry owns a reference
    /// to its lane.
    newest: AtomicPtr<Lane>,
    /// The latest of the arrivals: lanes that the reader will start to drain. Each entry owns a reference to its lane.
    arrivals: AtomicPtr<Lane>,
    vacant: StdArc<Vacant>,
    has_reader: AtomicBool,
    /// The number of calls of `register` so far.
    registered: AtomicU64,
    lane_capacity: u64,
}

/// The lanes whose threads have ended. A thread that ends takes this lock, in the child of a fork, too.
#[derive(Debug)]
struct Vacant(ForkLock<Vec<Arc<Lane>>>);

impl Vacant {
    fn new() -> Self {
        Self(ForkLock::new(Vec::new()))
    }

    /// Adds a lane whose thread has ended. In the child of a fork the lock may be held for ever (M1 of `fork`). Then no
    /// thread of the child takes the lane over.
    fn put(&self, lane: Arc<Lane>) {
        self.0.lock().into_iter().for_each(|mut lanes| lanes.push(Arc::clone(&lane)));
    }

    fn take(&self) -> Option<Arc<Lane>> {
        self.0.lock()?.pop()
    }
}

/// Puts a lane at the front of the chain that begins at `top`. The chain keeps a reference to the lane.
fn chain(top: &AtomicPtr<Lane>, lane: &Arc<Lane>, link: fn(&Lane, *mut Lane)) {
    let entry = Arc::into_raw(Arc::clone(lane)).cast_mut();
    // Ordering: Relaxed. A hint for the CAS.
    let mut first = top.load(Ordering::Relaxed);
    loop {
        link(lane, first);
        // Ordering: Release [L4, L5]. Pairs with `lanes` and `take_arrivals`: the lane and its link. An RMW, so the
        // lanes below stay published. Failure Relaxed: a hint for the retry. No ABA: nothing is read from `first`.
        match top.compare_exchange_weak(first, entry, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(newer) => first = newer,
        }
    }
}

/// Takes all lanes of a chain. The chain's references to the lanes move to the caller.
fn unchain(first: *mut Lane, next: fn(&Lane) -> *const Lane) -> impl Iterator<Item = Arc<Lane>> {
    let mut at = first.cast_const();
    core::iter::from_fn(move || {
        // SAFETY: X3, or we have the only reference to the list: the entry's own reference, made by `chain`.
        let lane = (!at.is_null()).then(|| unsafe { Arc::from_raw(at) })?;
        at = next(&lane);
        Some(lane)
    })
}

impl Inbox {
    pub(crate) fn new(lane_capacity: u64) -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            arrivals: AtomicPtr::new(ptr::null_mut()),
            vacant: StdArc::new(Vacant::new()),
            has_reader: AtomicBool::new(false),
            registered: AtomicU64::new(0),
            lane_capacity,
        }
    }

    /// Returns the reading end of the inbox. An inbox has one reading end only: a second call panics.
    pub(crate) fn reader(self: &StdArc<Self>) -> InboxReader {
        // Ordering: Relaxed. The RMW decides, and nothing is handed over.
        let has_reader = self.has_reader.swap(true, Ordering::Relaxed);
        assert!(!has_reader, "an inbox has one reader (N3)");
        InboxReader { inbox: StdArc::clone(self), walk: Vec::new() }
    }

    /// Gives the calling thread a lane: a vacant lane if there is any, else a new lane.
    pub(crate) fn register(&self) -> LaneWriter {
        // Ordering: Relaxed. A counter.
        self.registered.fetch_add(1, Ordering::Relaxed);
        let lane = self.vacant.take().unwrap_or_else(|| self.list());
        if lane.take_over() {
            chain(&self.arrivals, &lane, Lane::set_next_arrival);
        }
        LaneWriter { lane, vacant: StdArc::clone(&self.vacant) }
    }

    pub(crate) fn registered(&self) -> u64 {
        // Ordering: Relaxed. A counter.
        self.registered.load(Ordering::Relaxed)
    }

    /// Makes a lane and adds it to the list of all lanes.
    fn list(&self) -> Arc<Lane> {
        let lane = Arc::new(Lane::new(self.lane_capacity));
        chain(&self.newest, &lane, Lane::set_older);
        lane
    }

    /// Returns all lanes that were ever made.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        // Ordering: Acquire [L4]. The lane and its link.
        let mut next = self.newest.load(Ordering::Acquire).cast_const();
        core::iter::from_fn(move || {
            // SAFETY: X1: a listed lane lives as long as `self`.
            let lane = (!next.is_null()).then(|| unsafe { &*next })?;
            next = lane.older();
            Some(lane)
        })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Ordering: Acquire [L4, L5]. We have the only reference to the lists.
        let (listed, arrived) = (self.newest.load(Ordering::Acquire), self.arrivals.load(Ordering::Acquire));
        unchain(listed, Lane::older).for_each(drop);
        unchain(arrived, Lane::next_arrival).for_each(drop);
    }
}

/// The reading end of an inbox. Through it, the thread that leads the shard drains the inbox's lanes.
#[derive(Debug)]
pub(crate) struct InboxReader {
    inbox: StdArc<Inbox>,
    walk: Vec<Arc<Lane>>,
}

impl InboxReader {
    /// Calls `visit` with each lane of the walk, the list of lanes to drain. Other lanes have no insertions (tickets).
    pub(crate) fn walk(&mut self, mut visit: impl FnMut(&mut LaneReader<'_>)) {
        self.take_arrivals();
        self.walk.retain(|lane| {
            let mut lane = LaneReader { lane, has_left: false };
            visit(&mut lane);
            !lane.has_left
        });
    }

    fn take_arrivals(&mut self) {
        let arrivals = &self.inbox.arrivals;
        // Ordering: Relaxed. Before a sleep the heavy fence orders this load (F1). At other times, an arrival that this
        // load misses waits for the next walk.
        if arrivals.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Ordering: Acquire [L5]. Pairs with `chain`: the lanes and their links.
        let arrived = arrivals.swap(ptr::null_mut(), Ordering::Acquire);
        self.walk.extend(unchain(arrived, Lane::next_arrival));
    }
}

/// The reading end of one lane while [`InboxReader::walk`] visits the lane.
#[derive(Debug)]
pub(crate) struct LaneReader<'a> {
    lane: &'a Lane,
    has_left: bool,
}

impl LaneReader<'_> {
    /// Takes all insertions (tickets) that were published before the call, and passes them to `each`, the oldest first.
    pub(crate) fn drain(&mut self, each: impl FnMut(Insertion)) {
        self.has_left |= self.lane.leave_walk();
        // SAFETY: N3: the inbox has one reader, which has lent this lane exclusively.
        unsafe { self.lane.drain(each) };
    }
}

/// The writing end of a lane. After its drop, the next thread that registers may take the lane over.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    lane: Arc<Lane>,
    vacant: StdArc<Vacant>,
}

impl LaneWriter {
    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Returns whether the lane has room for another insertion (ticket).
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.lane.has_room()
    }

    /// Publishes an insertion (ticket), even beyond the lane's capacity. The method never refuses an insertion, because
    /// a timer may rely on it.
    #[inline]
    pub(crate) fn push(&mut self, insertion: Insertion) -> Pushed {
        // SAFETY: X2: this is the lane's one writer.
        unsafe { self.lane.push(&[insertion]) }
    }

    /// Publishes all `insertions` (tickets) with one store, so that the shard sees none or all of them.
    pub(crate) fn push_all(&mut self, insertions: &[Insertion]) -> Pushed {
        // SAFETY: X2: this is the lane's one writer.
        unsafe { self.lane.push(insertions) }
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        self.lane.retire();
        self.vacant.put(Arc::clone(&self.lane));
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::tick::Timestamp;

    const THREADS: u32 = 4_000;

    /// Drains all lanes. Returns the number of visited lanes, and the number of insertions (tickets) in them.
    fn drain(reader: &mut InboxReader) -> (usize, usize) {
        let (mut lanes, mut insertions) = (0, 0);
        reader.walk(|lane| {
            lanes += 1;
            lane.drain(|_| insertions += 1);
        });
        (lanes, insertions)
    }

    fn post(writer: &mut LaneWriter) {
        let _ = writer.push(Insertion { deadline: Timestamp::ZERO, index: 0, stamp: 0 });
    }

    #[test]
    fn a_burst_of_threads_leaves_no_lane_to_walk() {
        let inbox = StdArc::new(Inbox::new(64));
        let mut reader = inbox.reader();
        let mut writers: Vec<LaneWriter> = (0..THREADS).map(|_| inbox.register()).collect();
        writers.iter_mut().for_each(post);
        assert_eq!(drain(&mut reader), (4_000, 4_000));
        writers.iter_mut().for_each(post);
        drop(writers);
        assert_eq!(drain(&mut reader), (4_000, 4_000), "the timers of threads that have ended");
        assert_eq!(drain(&mut reader), (0, 0));
        let mut writer = inbox.register();
        post(&mut writer);
        assert_eq!(drain(&mut reader), (1, 1));
        assert_eq!(drain(&mut reader), (1, 0));
        let scheduled: u64 = inbox.lanes().map(Lane::scheduled).sum();
        assert_eq!(scheduled, 8_001, "the statistics include the counts of retired lanes");
    }

    #[test]
    fn threads_that_come_and_go_share_a_lane() {
        let inbox = StdArc::new(Inbox::new(64));
        let mut reader = inbox.reader();
        for thread in 0..THREADS {
            post(&mut inbox.register());
            if thread % 3 == 0 {
                drain(&mut reader);
            }
        }
        assert_eq!(inbox.lanes().count(), 1);
    }
}
