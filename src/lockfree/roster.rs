//! The roster: the threads that sleep on the parkers of a set of shards, by their numbers, for waking.
//!
//! A set of shards has threads of its own, or loops of the program (`shard::loop_shard`). A thread enters itself once,
//! before it first announces a sleep. The word of that announcement hands the entry over to the thread that removes the
//! announcement (K2 of [`parker`](crate::lockfree::parker), U2 of [`sleepers`](crate::lockfree::sleepers)).
//!
//! A loop has a [`Place`], behind a lock that only the wake of a sleeping loop takes, and a loop that comes, goes or
//! moves to another thread. The lock hands over the thread on which the loop runs (W1): a producer that lowers the
//! loop's word takes the lock afterwards, and a loop that has come to another thread takes the lock before it reads the
//! word (`Seat::next_look`, `turn`). If the producer is first, the loop reads the lowered word. If the loop is
//! first, the producer sees that it runs on another thread, and calls the wake function.
//!
//! | pair | one side                          | other side                   | ruled out         | model |
//! |------|-----------------------------------|------------------------------|-------------------|-------|
//! | W1   | `wake`: the word, then the lock   | `come_here`, then the word   | a loop that sleeps too long and is not woken | `looped::a_loop_moves_while_its_former_thread_arms` |

use crate::base::fork::ForkLock;
use crate::base::sync::{ModelledMutexGuard, OnceLock, StdArc, ThreadKey, this_thread, thread};
use core::fmt;

/// A function that wakes a loop. It does not panic.
pub(crate) type WakeFn = dyn Fn() + Send + Sync;

/// How a loop is woken.
#[derive(Clone)]
pub(crate) struct Waking {
    pub(crate) function: StdArc<WakeFn>,
    /// The loop is woken from its own thread, too: it is a task, and does not read its words again before it waits.
    pub(crate) is_of_task: bool,
}

/// The sleepers of a set of shards, with a place for each of them.
#[derive(Debug)]
pub(crate) struct Roster {
    threads: Box<[OnceLock<thread::Thread>]>,
    loops: Box<[Place]>,
}

/// The place of a loop.
#[derive(Debug)]
struct Place(ForkLock<Occupant>);

type Guard<'a> = ModelledMutexGuard<'a, Occupant>;

/// The loop that has a place.
#[derive(Default)]
struct Occupant {
    is_taken: bool,
    /// The thread on which the loop was last driven.
    runs_on: Option<ThreadKey>,
    waking: Option<Waking>,
}

impl Roster {
    /// A roster for threads.
    pub(crate) fn new(threads: usize) -> StdArc<Self> {
        StdArc::new(Self { threads: (0..threads).map(|_| OnceLock::new()).collect(), loops: Box::new([]) })
    }

    /// A roster for loops.
    pub(crate) fn of_loops(loops: usize) -> StdArc<Self> {
        let place = |_| Place(ForkLock::new(Occupant::default()));
        StdArc::new(Self { threads: Box::new([]), loops: (0..loops).map(place).collect() })
    }

    /// The number of threads.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Enters the calling thread as number `n`, for the first time or again.
    pub(crate) fn enter_current_thread(&self, n: usize) {
        let entered = self.threads[n].get_or_init(thread::current);
        debug_assert_eq!(entered.id(), thread::current().id(), "each thread has a number of its own");
    }

    /// Unparks thread `n`, or wakes loop `n`, unless the loop runs on the calling thread and is not a task. Does
    /// nothing if nobody has this number.
    pub(crate) fn wake(&self, n: usize) {
        if let Some(thread) = self.threads.get(n).and_then(OnceLock::get) {
            thread.unpark();
        } else if let Some(place) = self.loops.get(n) {
            place.wake();
        }
    }

    /// Whether the sleepers are loops.
    pub(crate) fn is_of_loops(&self) -> bool {
        !self.loops.is_empty()
    }

    /// Gives place `n` to a loop, unless another loop has it.
    pub(crate) fn take_place(&self, n: usize) -> bool {
        let take = |mut occupant: Guard<'_>| !core::mem::replace(&mut occupant.is_taken, true);
        self.occupant(n).is_some_and(take)
    }

    /// Takes place `n` away from its loop.
    pub(crate) fn leave_place(&self, n: usize) {
        let left = self.occupant(n).map(|mut occupant| core::mem::take(&mut *occupant));
        // Outside of the lock: the drop of the wake function is the user's.
        drop(left);
    }

    /// Notes that loop `n` runs on the calling thread from now on (W1).
    pub(crate) fn come_here(&self, n: usize) {
        self.occupant(n).into_iter().for_each(|mut occupant| occupant.runs_on = Some(this_thread()));
    }

    /// Sets how loop `n` is woken.
    pub(crate) fn wake_by(&self, n: usize, waking: Waking) {
        let former = self.occupant(n).map(|mut occupant| occupant.waking.replace(waking));
        // Outside of the lock, as in `leave_place`.
        drop(former);
    }

    /// The first of the loops that run on the calling thread.
    pub(crate) fn loop_here(&self) -> Option<usize> {
        if self.loops.is_empty() {
            return None;
        }
        let here = Some(this_thread());
        let runs_here = |place: &Place| place.0.lock().is_some_and(|occupant| occupant.runs_on == here);
        self.loops.iter().position(runs_here)
    }

    /// Whether all places are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.loops.iter().all(Place::is_taken)
    }

    /// Whether a loop has place `n`.
    pub(crate) fn is_taken(&self, n: usize) -> bool {
        self.loops.get(n).is_some_and(Place::is_taken)
    }

    /// The occupant of place `n`. `None` if there is no such place, or if this is the child of a fork and the place is
    /// locked for ever.
    fn occupant(&self, n: usize) -> Option<Guard<'_>> {
        self.loops.get(n)?.0.lock()
    }
}

impl Place {
    fn is_taken(&self) -> bool {
        self.0.lock().is_some_and(|occupant| occupant.is_taken)
    }

    fn wake(&self) {
        let waking = self.0.lock().and_then(|occupant| {
            let is_here = occupant.runs_on == Some(this_thread());
            occupant.waking.clone().filter(|waking| waking.is_of_task || !is_here)
        });
        // Outside of the lock: the function is the user's, and may use an engine of this set.
        if let Some(waking) = waking {
            (waking.function)();
        }
    }
}

impl fmt::Debug for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Occupant").field("is_taken", &self.is_taken).finish_non_exhaustive()
    }
}
