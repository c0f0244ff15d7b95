//! The watch: one thread checks whether the handlers that shards' leaders run themselves return. A leader is the thread
//! that runs a shard at present.
//!
//! A leader that is about to run handlers calls `begin` and unlocks its shard (`shard`). One of the idle threads, the
//! *watcher*, checks all shards once in a while. If a shard's leader runs the same handlers as at the check before, the
//! watcher takes the shard over. If no leader has run handlers since the check before, the watch ends, and no thread
//! wakes until a leader runs handlers again. Each check costs a wake-up. So after many checks that found no leader
//! stuck, the checks come less often.
//!
//! # Layout
//! ```text
//! watch          IDLE     no thread watches
//!                WANTED   a leader wants a watcher; a thread that stands by was woken, or sees it before it sleeps
//!                TAKEN    a thread watches
//! firing[shard]  odd      the shard's leader runs handlers; each run of handlers has its own number
//!                even     it does not
//! ```
//! Only the thread that leads a shard changes the shard's number.
//!
//! # Transitions
//! | operation | from -> to          | otherwise                              |
//! |-----------|---------------------|----------------------------------------|
//! | `begin`   | idle -> wanted: the caller wakes a thread | wanted, taken: nothing |
//! | `take`    | wanted -> taken     | idle, taken: false                     |
//! | `pass_on` | taken -> wanted: the caller wakes a thread |                       |
//! | `leave`   | taken -> idle       | a leader runs handlers: taken again, unless wanted by now |
//!
//! # Invariants
//! Y1. While a leader runs handlers, the watch is wanted or taken.
//!
//! `begin` changes the number, fences and reads the watch. `leave` gives the watch up, fences and reads the numbers. So
//! at least one of the two calls sees the change that the other call made.
//!
//! # Synchronisation
//! | pair | one side | other side | ruled out         | model |
//! |------|----------|------------|-------------------|-------|
//! | Y2   | `begin`  | `leave`    | both miss         | `watch::a_leader_begins_while_the_watcher_leaves` |
//!
//! Nothing is handed over here: the shard's lock hands over the shard.

use crate::base::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::system::clock::Alarm;
use core::time::Duration;
use crossbeam_utils::CachePadded;

const IDLE: u32 = 0;
const WANTED: u32 = 1;
const TAKEN: u32 = 2;

/// Records which leaders (the threads that run shards) run handlers, and whether a thread watches them.
#[derive(Debug)]
pub(crate) struct Watch {
    watch: CachePadded<AtomicU32>,
    firing: Box<[CachePadded<AtomicU64>]>,
}

impl Watch {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            watch: CachePadded::new(AtomicU32::new(IDLE)),
            firing: (0..shards).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    /// Records that the calling thread, which leads `shard`, is about to run handlers. Returns true if the caller must
    /// wake a thread to watch the leading threads.
    #[must_use]
    pub(crate) fn begin(&self, shard: usize) -> bool {
        let number = &self.firing[shard];
        // Ordering: Relaxed. Only the shard's leader writes; the lock of the shard orders the leaders.
        number.store((number.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
        // Ordering: SeqCst fence [Y2]: the number is written before the watch is read.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed. The fence orders this load.
        self.watch.load(Ordering::Relaxed) == IDLE && self.change(IDLE, WANTED)
    }

    /// Records that the calling thread leads `shard` again. Either the thread's handlers have returned, or the thread
    /// has taken the shard over.
    pub(crate) fn end(&self, shard: usize) {
        let number = &self.firing[shard];
        // Ordering: Relaxed. As in `begin`.
        number.store(number.load(Ordering::Relaxed).next_multiple_of(2), Ordering::Relaxed);
    }

    /// Returns whether a thread that leads a shard runs handlers and no thread watches the leaders yet.
    pub(crate) fn is_wanted(&self) -> bool {
        // Ordering: Relaxed. The sleepers' fences order this load as they order an offer (U1).
        self.watch.load(Ordering::Relaxed) == WANTED
    }

    /// Makes the calling thread the watcher of the threads that lead the shards, if a watcher is wanted. Returns
    /// whether the thread became the watcher.
    pub(crate) fn take(&self) -> bool {
        self.is_wanted() && self.change(WANTED, TAKEN)
    }

    /// Ends the calling thread's watch because it has something else to do, and asks for another watcher. The caller
    /// then wakes a thread to be the watcher.
    pub(crate) fn pass_on(&self) {
        // Ordering: Relaxed. See `is_wanted`.
        self.watch.store(WANTED, Ordering::Relaxed);
    }

    /// Ends the watch if no thread that leads a shard runs handlers. Otherwise returns false, and the calling thread is
    /// still the watcher.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // Ordering: Relaxed. The fence orders this store.
        self.watch.store(IDLE, Ordering::Relaxed);
        // Ordering: SeqCst fence [Y2]: the watch is given up before the numbers are read.
        fence(Ordering::SeqCst);
        let is_missed = (0..self.firing.len()).any(|shard| is_running(self.number(shard)));
        !(is_missed && self.change(IDLE, TAKEN))
    }

    fn number(&self, shard: usize) -> u64 {
        // Ordering: Relaxed. A stale number postpones the watcher's verdict by one check.
        self.firing[shard].load(Ordering::Relaxed)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // Ordering: Relaxed. Nothing is handed over.
        self.watch.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn is_running(number: u64) -> bool {
    number % 2 == 1
}

/// The time between two checks of the shards' leaders, unless all leaders have been quick ([`QUICK_CHECKS`]). A leader,
/// the thread that runs a shard, can run its handlers for at least this time before another thread takes the shard
/// over. It can run them for at most twice this time, plus the wake-up time of a thread.
const PATIENCE: Duration = Duration::from_millis(1);
/// The time to the next check if all leaders (the threads that run the shards) have been quick and the last check found
/// none running handlers. A stuck leader is then noticed later, by the difference to [`PATIENCE`].
const RARELY: Duration = Duration::from_millis(4);
/// The number of successive checks after which the threads that lead the shards count as quick. Each check must find a
/// leader at work, and none stuck in a handler.
const QUICK_CHECKS: u32 = 64;

/// The results of earlier checks of the threads that lead the shards. The results pass from one watching thread to the
/// next.
#[derive(Debug)]
pub(crate) struct Checks {
    /// The number of each shard's last run of handlers, as of the last check.
    seen: Box<[u64]>,
    /// The shards whose leader (the thread that runs the shard) was stuck in a handler at the last check, and that no
    /// thread has taken over yet.
    stuck: Vec<usize>,
    /// The number of checks after the last check that found a leader stuck. Only checks that found a leader at work
    /// count.
    quick: u32,
    next: Alarm,
}

/// The result of a check of all threads that lead shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// A thread that leads a shard has run handlers after the previous check.
    Busy,
    /// No thread that leads a shard has run handlers after the previous check.
    Quiet,
}

impl Checks {
    pub(crate) fn new(shards: usize) -> Self {
        Self { seen: vec![0; shards].into(), stuck: Vec::new(), quick: 0, next: Alarm::after(Duration::ZERO) }
    }

    /// Returns the time until the next check; zero if the check is due.
    pub(crate) fn rest(&self) -> Duration {
        self.next.rest()
    }

    /// Checks the leaders (the threads that run the shards). Returns whether any leader has run handlers after the
    /// previous check. The next check comes after [`PATIENCE`] or [`RARELY`], when quick handlers have returned.
    pub(crate) fn check(&mut self, watch: &Watch) -> Check {
        self.stuck.clear();
        let mut found = Check::Quiet;
        for (shard, seen) in self.seen.iter_mut().enumerate() {
            let number = watch.number(shard);
            if number == *seen && is_running(number) {
                self.stuck.push(shard);
            }
            if number != *seen || is_running(number) {
                found = Check::Busy;
            }
            *seen = number;
        }
        if !self.stuck.is_empty() {
            self.quick = 0;
        } else if found == Check::Busy {
            self.quick = self.quick.saturating_add(1);
        }
        self.next = Alarm::after(self.pause());
        found
    }

    /// Returns the time from the check that was just made to the next check.
    fn pause(&self) -> Duration {
        let is_any_at_work = self.seen.iter().any(|&number| is_running(number));
        if self.quick >= QUICK_CHECKS && !is_any_at_work { RARELY } else { PATIENCE }
    }

    /// Returns a shard whose leader ran the same handlers at the last two checks, and still runs them.
    pub(crate) fn next_stuck(&mut self, watch: &Watch) -> Option<usize> {
        let seen = &self.seen;
        core::iter::from_fn(|| self.stuck.pop()).find(|&shard| watch.number(shard) == seen[shard])
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_stuck_that_is_at_the_same_handlers_at_two_checks() {
        let (watch, mut checks) = (Watch::new(3), Checks::new(3));
        assert_eq!(checks.check(&watch), Check::Quiet);
        for shard in 0..3 {
            let _ = watch.begin(shard);
        }
        assert_eq!((checks.check(&watch), checks.next_stuck(&watch)), (Check::Busy, None));
        // One leader comes back and runs other handlers. Another leader comes back.
        watch.end(0);
        let _ = watch.begin(0);
        watch.end(1);
        assert_eq!(checks.check(&watch), Check::Busy);
        assert_eq!((checks.next_stuck(&watch), checks.next_stuck(&watch)), (Some(2), None));
        assert_eq!(checks.check(&watch), Check::Busy);
        // The leader comes back before the shard is taken over.
        watch.end(0);
        assert_eq!((checks.next_stuck(&watch), checks.next_stuck(&watch)), (Some(2), None));
        watch.end(2);
        assert_eq!((checks.check(&watch), checks.next_stuck(&watch)), (Check::Busy, None));
        assert_eq!(checks.check(&watch), Check::Quiet);
    }

    #[test]
    fn the_checks_come_rarely_while_leaders_are_quick() {
        // As `Builder::workers` states.
        assert_eq!((2 * PATIENCE, RARELY + PATIENCE), (Duration::from_millis(2), Duration::from_millis(5)));
        let (watch, mut checks) = (Watch::new(2), Checks::new(2));
        let run_quickly = |checks: &mut Checks| {
            let _ = watch.begin(0);
            watch.end(0);
            checks.check(&watch);
            checks.pause()
        };
        let first_rest =
            |checks: &mut Checks| (1..=200).find(|_| run_quickly(checks) == RARELY).expect("some time");
        assert_eq!(first_rest(&mut checks), QUICK_CHECKS);
        // A leader that is at work may be stuck: the next check comes soon, and finds it so.
        let _ = watch.begin(1);
        assert_eq!((checks.check(&watch), checks.pause()), (Check::Busy, PATIENCE));
        watch.end(1);
        assert_eq!(run_quickly(&mut checks), RARELY);
        let _ = watch.begin(1);
        checks.check(&watch);
        assert_eq!((checks.check(&watch), checks.next_stuck(&watch)), (Check::Busy, Some(1)));
        watch.end(1);
        assert_eq!(first_rest(&mut checks), QUICK_CHECKS);
        // Checks that find nothing say nothing.
        assert_eq!((checks.check(&watch), run_quickly(&mut checks)), (Check::Quiet, RARELY));
    }
}
