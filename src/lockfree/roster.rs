//! The roster: it maps numbers to the threads or loops that sleep on the parkers of a set of shards, so that other
//! threads can wake them.
//!
//! A set of shards has threads of its own, or loops of the program (`shard::loop_shard`). A thread enters itself once,
//! before it first announces a sleep. The word of an announcement hands the entry over to the thread that removes the
//! announcement (K2 of [`parker`](crate::lockfree::parker), U2 of [`sleepers`](crate::lockfree::sleepers)).
//!
//! A loop has a [`Place`], an entry with a lock. A thread takes the lock to wake a sleeping loop. A loop takes it when
//! it comes, goes or moves to another thread. The lock hands over the key of the thread on which the loop runs (W1). A
//! producer lowers the loop's word and then takes the lock. A loop that has moved to another thread takes the lock and
//! then reads the word (`Seat::next_look`, `turn`). If the producer has the lock first, the loop reads the lowered
//! word. If the loop has the lock first, the producer sees that the loop runs on another thread, and calls the wake
//! function.
//!
//! | pair | one side                          | other side                   | ruled out         | model |
//! |------|-----------------------------------|------------------------------|-------------------|-------|
//! | W1   | `wake`: the word, then the lock   | `come_here`, then the word   | a loop that sleeps too long and is not woken | `looped::a_loop_moves_while_its_former_thread_arms` |

use crate::base::fork::ForkLock;
use crate::base::sync::{
    AtomicU64, ModelledMutexGuard, OnceLock, Ordering, StdArc, ThreadKey, this_thread, thread,
};
use core::fmt;

/// A function of the program that wakes an event loop. It does not panic.
pub(crate) type WakeFn = dyn Fn() + Send + Sync;

/// Says how other threads wake an event loop of the program.
#[derive(Clone)]
pub(crate) struct Waking {
    pub(crate) function: StdArc<WakeFn>,
    /// Whether the loop is a task of an asynchronous runtime. A task must be woken from its own thread, too: it does
    /// not read the parkers' words again before it waits.
    pub(crate) is_of_task: bool,
}

/// The list of all sleepers of a set of shards, by their numbers. The sleepers are threads, or event loops of the
/// program.
#[derive(Debug)]
pub(crate) struct Roster {
    threads: Box<[OnceLock<thread::Thread>]>,
    loops: Box<[Place]>,
    /// The number of times that a loop has left its thread.
    departures: AtomicU64,
}

/// The entry for the event loop of one shard in the roster, the list of sleepers.
#[derive(Debug)]
struct Place(ForkLock<Occupant>);

type Guard<'a> = ModelledMutexGuard<'a, Occupant>;

/// The data about the event loop that turns a shard: how to wake the loop, and its thread.
#[derive(Default)]
struct Occupant {
    is_taken: bool,
    /// The thread on which the loop was last turned; `None` before the first turn.
    runs_on: Option<ThreadKey>,
    waking: Option<Waking>,
}

impl Roster {
    pub(crate) fn new(threads: usize) -> StdArc<Self> {
        let threads = (0..threads).map(|_| OnceLock::new()).collect();
        StdArc::new(Self { threads, loops: Box::new([]), departures: AtomicU64::new(0) })
    }

    pub(crate) fn of_loops(loops: usize) -> StdArc<Self> {
        let place = |_| Place(ForkLock::new(Occupant::default()));
        let loops = (0..loops).map(place).collect();
        StdArc::new(Self { threads: Box::new([]), loops, departures: AtomicU64::new(0) })
    }

    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Enters the calling thread into the roster (the list of sleepers) as number `n`. A thread may enter itself again
    /// under its number.
    pub(crate) fn enter_current_thread(&self, n: usize) {
        let entered = self.threads[n].get_or_init(thread::current);
        debug_assert_eq!(entered.id(), thread::current().id(), "each thread has a number of its own");
    }

    /// Unparks thread `n`, or wakes loop `n`. A loop that runs on the calling thread is woken only if it is a task.
    /// Does nothing if no thread or loop has this number.
    pub(crate) fn wake(&self, n: usize) {
        if let Some(thread) = self.threads.get(n).and_then(OnceLock::get) {
            thread.unpark();
        } else if let Some(place) = self.loops.get(n) {
            place.wake();
        }
    }

    /// Returns whether the sleepers on the roster (the list of sleepers) are event loops, not threads.
    pub(crate) fn is_of_loops(&self) -> bool {
        !self.loops.is_empty()
    }

    /// Gives entry `n` of the roster (the list of sleepers) to an event loop. Returns false if another loop has the
    /// entry.
    pub(crate) fn take_place(&self, n: usize) -> bool {
        let take = |mut occupant: Guard<'_>| !core::mem::replace(&mut occupant.is_taken, true);
        self.occupant(n).is_some_and(take)
    }

    /// Makes entry `n` of the roster (the list of sleepers) vacant, because its loop has ended.
    pub(crate) fn leave_place(&self, n: usize) {
        let left = self.occupant(n).map(|mut occupant| {
            self.count_departure(occupant.runs_on);
            core::mem::take(&mut *occupant)
        });
        // This happens outside of the lock, since dropping the wake function may run code of the user.
        drop(left);
    }

    /// Records that loop `n` of the roster (the list of sleepers) runs on the calling thread from now on (W1).
    pub(crate) fn come_here(&self, n: usize) {
        if let Some(mut occupant) = self.occupant(n) {
            self.count_departure(occupant.runs_on);
            occupant.runs_on = Some(this_thread());
        }
    }

    /// Counts that a loop leaves the thread `from`. The caller holds the lock of the loop's entry, so a thread that has
    /// read the new number finds the loop gone.
    fn count_departure(&self, from: Option<ThreadKey>) {
        if from.is_some() {
            // Ordering: Relaxed. See the method `departures`.
            self.departures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of times that a loop has left its thread, by its end or by a move to another thread. If the
    /// number has not changed since an earlier call, the loops that ran on the calling thread then still run on it.
    #[inline]
    pub(crate) fn departures(&self) -> u64 {
        // Ordering: Relaxed. A program that moves a loop, and needs the former thread to know, synchronises the two.
        self.departures.load(Ordering::Relaxed)
    }

    /// Sets how other threads wake loop `n` of the roster, the list of sleepers.
    pub(crate) fn wake_by(&self, n: usize, waking: Waking) {
        let former = self.occupant(n).map(|mut occupant| occupant.waking.replace(waking));
        // This happens outside of the lock, as in `leave_place`.
        drop(former);
    }

    /// Returns the number of the first loop that runs on the calling thread, if any loop does.
    pub(crate) fn loop_here(&self) -> Option<usize> {
        if self.loops.is_empty() {
            return None;
        }
        let here = Some(this_thread());
        let runs_here = |place: &Place| place.0.lock().is_some_and(|occupant| occupant.runs_on == here);
        self.loops.iter().position(runs_here)
    }

    /// Returns whether each entry of the roster (the list of sleepers) belongs to a loop.
    pub(crate) fn is_full(&self) -> bool {
        self.loops.iter().all(Place::is_taken)
    }

    pub(crate) fn is_taken(&self, n: usize) -> bool {
        self.loops.get(n).is_some_and(Place::is_taken)
    }

    /// Locks entry `n` and returns its data. Returns `None` if the roster (the list of sleepers) has no such entry.
    /// Also returns `None` in the child of a fork if the lock is held for ever.
    fn occupant(&self, n: usize) -> Option<Guard<'_>> {
        self.loops.get(n)?.0.lock()
    }
}

impl Place {
    fn is_taken(&self) -> bool {
        self.0.lock().is_some_and(|occupant| occupant.is_taken)
    }

    fn wake(&self) {
        // In the child of a fork, the loop does not turn, and its wake function may need a lock that stays locked.
        if self.0.is_inherited() {
            return;
        }
        let waking = self.0.lock().and_then(|occupant| {
            let is_here = occupant.runs_on == Some(this_thread());
            occupant.waking.clone().filter(|waking| waking.is_of_task || !is_here)
        });
        // This happens outside of the lock, since the function is the user's and may use an engine of this set.
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

#[cfg(all(test, unix, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::AtomicBool;
    use crate::system::forks::tests::in_child;

    #[test]
    fn a_child_does_not_call_the_wake_function_of_a_loop() {
        let (roster, was_woken) = (Roster::of_loops(1), StdArc::new(AtomicBool::new(false)));
        let woken = StdArc::clone(&was_woken);
        let function = StdArc::new(move || woken.store(true, Ordering::Relaxed));
        roster.wake_by(0, Waking { function, is_of_task: true });
        let wakes = || {
            roster.wake(0);
            was_woken.load(Ordering::Relaxed)
        };
        assert!(in_child(|| !wakes()));
        assert!(wakes(), "the parent's loop is woken");
    }
}
