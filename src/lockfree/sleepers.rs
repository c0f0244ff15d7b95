//! Lets the threads of a pool sleep, and wakes one of them when there is work. Each thread has a bit.
//!
//! A pool differs from a [`Parker`](crate::lockfree::parker). On a parker one thread sleeps at a time, the shard's
//! leader, and producers compare deadlines. In a pool, any thread can do the work, and a thread that offers work should
//! not pay for threads that are awake.
//!
//! # Layout
//! Bit `n % 64` of word `n / 64` belongs to thread `n`. The thread sets the bit when it is about to sleep. The thread
//! that wakes it clears the bit.
//!
//! # Invariants
//! Z1. After a thread has offered work and called `wake_one`, some thread looks for the work: the woken thread, or a
//!     thread that was awake.
//!
//! A thread sets its bit, fences, and looks for work once more. It sleeps only if it finds no work. A thread that
//! offers work puts the work where other threads find it, fences, and reads the bits. The fences are ordered, which
//! leaves two cases:
//! - Case A, the offering thread's fence is first: the thread that goes to sleep finds the work when it looks once
//!   more.
//! - Case B, the sleeper's fence is first: the offering thread sees the bit, clears it and unparks the sleeper. If the
//!   bit is already clear, another offer cleared it, or the sleeper found work, and looks for more work before it
//!   sleeps again.
//!
//! # Synchronisation
//! | pair | one side                | other side             | ruled out or handed over         | model |
//! |------|-------------------------|------------------------|----------------------------------|-------|
//! | U1   | `lie_down`              | an offer, `wake_one`   | both miss                        | `sleepers::an_offer_races_with_sleep` |
//! | U2   | entry, `lie_down`       | `wake_one`, `wake_all` | the thread to unpark             | `sleepers::a_bit_brings_its_thread` |
//!
//! # Progress and cost
//! Waking is lock-free. If a thread sleeps, it costs a read-modify-write and a system call. Otherwise it costs a fence,
//! and a load for each 64 threads. The sleeping thread with the lowest number is woken, so that the work stays with few
//! threads, whose caches are warm.

use crate::base::sync::{AtomicU64, Ordering, StdArc, fence, thread};
use crate::lockfree::roster::Roster;

const WORD: usize = u64::BITS as usize;

/// A bit for each thread of a pool, set while the thread sleeps. The roster, a list of the pool's threads, wakes them.
#[derive(Debug)]
pub(crate) struct Sleepers {
    asleep: Box<[AtomicU64]>,
    roster: StdArc<Roster>,
}

impl Sleepers {
    pub(crate) fn new(roster: StdArc<Roster>) -> Self {
        let words = roster.len().div_ceil(WORD);
        Self { asleep: (0..words).map(|_| AtomicU64::new(0)).collect(), roster }
    }

    /// Lets the calling thread, number `n` of the roster (the list of sleepers), sleep until it is woken. Before the
    /// sleep, `finds_work` looks for work once more. If it returns true, the thread does not sleep.
    pub(crate) fn sleep_unless(&self, n: usize, finds_work: impl FnOnce() -> bool) {
        if let Some(asleep) = self.lie_down(n, finds_work) {
            let bit = 1 << (n % WORD);
            // Ordering: Relaxed. The work is found elsewhere.
            while asleep.load(Ordering::Relaxed) & bit != 0 {
                thread::park();
            }
        }
    }

    /// Marks thread `n` as asleep, and returns the word that contains the thread's bit. If `finds_work` returns true,
    /// removes the mark and returns `None`.
    fn lie_down(&self, n: usize, finds_work: impl FnOnce() -> bool) -> Option<&AtomicU64> {
        let (asleep, bit) = (&self.asleep[n / WORD], 1 << (n % WORD));
        // Ordering: Release [U2]. Pairs with `wake_one` and `wake_all`: the thread that takes the bit finds our thread.
        asleep.fetch_or(bit, Ordering::Release);
        // Ordering: SeqCst fence [U1]: the bit is before the look.
        fence(Ordering::SeqCst);
        if finds_work() {
            // Ordering: Relaxed. Nothing is handed over. A thread that took the bit before us unparks us, and we wake
            // once for nothing.
            asleep.fetch_and(!bit, Ordering::Relaxed);
            return None;
        }
        Some(asleep)
    }

    /// Wakes a thread if any thread sleeps. Returns whether a thread was woken. The caller has offered work before.
    pub(crate) fn wake_one(&self) -> bool {
        // Ordering: SeqCst fence [U1]: the offer is before the load.
        fence(Ordering::SeqCst);
        for (word, asleep) in self.asleep.iter().enumerate() {
            // Ordering: Relaxed. The fence orders this load; a hint for the RMW.
            let mut bits = asleep.load(Ordering::Relaxed);
            while bits != 0 {
                let lowest = bits.trailing_zeros() as usize;
                // Ordering: Acquire [U2]. The thread that set the bit.
                bits = asleep.fetch_and(!(1 << lowest), Ordering::Acquire);
                if bits & 1 << lowest != 0 {
                    self.roster.wake(word * WORD + lowest);
                    return true;
                }
            }
        }
        false
    }

    pub(crate) fn wake_all(&self) {
        // Ordering: SeqCst fence [U1], as in `wake_one`.
        fence(Ordering::SeqCst);
        for (word, asleep) in self.asleep.iter().enumerate() {
            // Ordering: Acquire [U2]. The threads that set the bits.
            let bits = asleep.swap(0, Ordering::Acquire);
            (0..WORD).filter(|n| bits & 1 << n != 0).for_each(|n| self.roster.wake(word * WORD + n));
        }
    }
}
