//! The watch: it finds the leaders that a slow handler holds up. A leader is the thread that runs a shard.
//!
//! Before a leader runs handlers, it counts the run (`begin`), unlocks the shard (`shard`), and sets the shard's alarm
//! (`set_alarm`). The next run sets the alarm again, and `calm` clears it before a longer sleep. So the alarm of a
//! leader that comes back in time does not ring, and no second thread wakes. If the alarm rings, the *sentry*, a thread
//! that waits for the alarms (`clock::alarms`), marks the shard as held up, and wakes a thread that stands by. That
//! thread takes the shard over.
//!
//! # Layout
//! ```text
//! run        odd       the shard's leader runs handlers; each run of handlers has its own number
//!            even      it does not
//! rings_at   0         the alarm may not be set
//!            a moment  the alarm rings then, unless it is set again or cleared
//! held_up    0         no thread need take the shard over
//!            odd       a thread takes the shard over, unless the run with this number has ended
//! ```
//! Only the shard's leader changes `run` and clears the alarm. A thread that has just unlocked the shard sets the
//! alarm, although another thread may lead the shard by then.
//!
//! # Transitions
//! | operation      | from -> to                                     | otherwise                             |
//! |----------------|------------------------------------------------|---------------------------------------|
//! | `begin`        | run: next odd number                           |                                       |
//! | `set_alarm`    | alarm: set anew                                | it rings late enough: it stays        |
//! | `end`          | run: next even number                          |                                       |
//! | `calm`         | alarm: set -> not set                          | not set: nothing                      |
//! | `ring`         | alarm: not set; held_up: the number of the run | the run is over: held_up stays        |
//! | `take_held_up` | held_up: odd -> 0: the caller takes the shard over | the run is over: the next shard   |
//!
//! # Invariants
//! Y1. While a shard is unlocked, its alarm is set or about to be set, or the shard is marked as held up, or a thread
//!     is about to lock it.
//!
//! The leader counts its run, unlocks the shard, fences and reads `rings_at`. The sentry resets `rings_at`, fences and
//! reads the number of the run. That leaves two cases:
//! - Case A, the sentry's fence is first: the leader finds `rings_at` reset, and sets the alarm again. The thread that
//!   the sentry has woken may find the shard still locked.
//! - Case B, the leader's fence is first: the sentry finds the run, and the woken thread finds the shard unlocked.
//!
//! Y3. If `rings_at` is a moment, the alarm is set for that moment or later, or rings, or is about to be set.
//!
//! A thread stores `rings_at` before it sets the alarm, and the leader resets `rings_at` after it has cleared the
//! alarm. So if one thread sets the alarm while another clears it, `rings_at` is 0 whenever the alarm stays cleared.
//!
//! A late `ring` may meet an alarm that was set again. Then the sentry marks a run that has just begun, and a thread
//! takes the shard over early. That is harmless, and so is an alarm that rings for a leader that has come back.
//!
//! # Synchronisation
//! | pair | one side | other side | ruled out         | model |
//! |------|----------|------------|-------------------|-------|
//! | Y2   | `begin`, the unlock, `set_alarm` | `ring`, then the lock | both miss | `watch::a_leader_begins_while_its_alarm_rings` |
//! | Y4   | `ring`   | `take_held_up` | a mark that is taken off for an older number of the run | `watch::an_earlier_leader_leads_its_shard_again` |
//!
//! The shard's lock hands over the shard itself.

use crate::base::sync::{AtomicU64, Ordering, fence};
use crate::system::clock::Alarms;
use core::time::Duration;
use crossbeam_utils::CachePadded;

/// The time after which an alarm rings. If a leader runs handlers for longer, another thread takes the shard over.
const PATIENCE: Duration = Duration::from_micros(1_500);
/// An alarm that rings after this time or later is not set again. So a leader that runs handlers all the time makes a
/// system call for each 250 µs at most, and is held up for this time at least when its alarm rings.
const LEAST_PATIENCE: Duration = Duration::from_micros(1_250);

/// Finds the leaders of a set of shards that the handlers which they run hold up.
#[derive(Debug)]
pub(crate) struct Watch {
    posts: Box<[CachePadded<Post>]>,
    alarms: Alarms,
}

/// The words of one shard: the number of its leader's present run of handlers, the moment at which its alarm rings, and
/// the number of the run that is held up. See the module's section "Layout".
#[derive(Debug, Default)]
struct Post {
    run: AtomicU64,
    rings_at: AtomicU64,
    held_up: AtomicU64,
}

impl Watch {
    pub(crate) fn new(shards: usize) -> Self {
        Self { posts: (0..shards).map(|_| CachePadded::default()).collect(), alarms: Alarms::new(shards) }
    }

    /// Records that the calling thread, which leads `shard`, is about to run handlers. The caller then unlocks the
    /// shard and calls [`set_alarm`](Self::set_alarm).
    pub(crate) fn begin(&self, shard: usize) {
        let run = &self.posts[shard].run;
        // Ordering: Relaxed. Only the shard's leader writes; the lock of the shard orders the leaders.
        run.store((run.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
    }

    /// Sets the alarm of `shard`, unless it rings late enough. The calling thread has unlocked the shard in order to
    /// run handlers.
    pub(crate) fn set_alarm(&self, shard: usize) {
        let rings_at = &self.posts[shard].rings_at;
        // Ordering: SeqCst fence [Y2]: the number of the run and the unlock come before the look at the alarm.
        fence(Ordering::SeqCst);
        let now = self.alarms.now();
        // Ordering: Relaxed. The fence orders this load.
        if rings_at.load(Ordering::Relaxed) < now.saturating_add(nanos(LEAST_PATIENCE)) {
            // Ordering: Relaxed. Other threads at most set the alarm once more, or leave that to this thread (Y3).
            rings_at.store(now.saturating_add(nanos(PATIENCE)), Ordering::Relaxed);
            self.alarms.set(shard, PATIENCE);
        }
    }

    /// Records that the calling thread leads `shard` again. Either the thread's handlers have returned, or the thread
    /// has taken the shard over.
    pub(crate) fn end(&self, shard: usize) {
        let run = &self.posts[shard].run;
        // Ordering: Relaxed. As in `begin`.
        run.store(run.load(Ordering::Relaxed).next_multiple_of(2), Ordering::Relaxed);
    }

    /// Clears the alarm of `shard` if it is set. The calling thread leads the shard, and will run no handlers for a
    /// while.
    pub(crate) fn calm(&self, shard: usize) {
        let rings_at = &self.posts[shard].rings_at;
        // Ordering: Relaxed. Nothing is lost if another thread sets the alarm at the same time, or the alarm rings
        // (Y3).
        if rings_at.load(Ordering::Relaxed) != 0 {
            self.alarms.clear(shard);
            rings_at.store(0, Ordering::Relaxed);
        }
    }

    /// Waits until alarms ring, and puts the numbers of their shards into `rung`. Returns false once the watch is
    /// closed. Only one thread, the sentry, may call this method.
    pub(crate) fn await_alarms(&self, rung: &mut Vec<usize>) -> bool {
        self.alarms.wait(rung)
    }

    /// Puts the numbers of the shards whose alarms are set into `rung`, as if they rang, and does not wait.
    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn take_alarms(&self, rung: &mut Vec<usize>) {
        self.alarms.take_set(rung);
    }

    /// Marks `shard` as held up if its leader runs handlers. Returns whether the shard is marked: then the caller wakes
    /// a thread to take it over. The caller is the sentry, and the shard's alarm has rung.
    #[must_use]
    pub(crate) fn ring(&self, shard: usize) -> bool {
        let Post { run, rings_at, held_up } = &*self.posts[shard];
        // Ordering: Relaxed. The fence orders this store.
        rings_at.store(0, Ordering::Relaxed);
        // Ordering: SeqCst fence [Y2]: the alarm is reset before the number is read.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed. The fence orders this load.
        let number = run.load(Ordering::Relaxed);
        let is_running = number % 2 == 1;
        if is_running {
            // Ordering: Release [Y4]. Pairs with `take_held_up`, which must not read an older number of the run.
            held_up.store(number, Ordering::Release);
        }
        is_running
    }

    pub(crate) fn is_held_up(&self) -> bool {
        // Ordering: Relaxed. The sleepers' fences order this load as they order an offer (U1).
        self.posts.iter().any(|post| post.held_up.load(Ordering::Relaxed) != 0)
    }

    /// Takes the mark off a shard whose leader is still held up, and returns the shard. The caller tries to take it
    /// over. Marks of shards whose leaders have come back are taken off as well.
    pub(crate) fn take_held_up(&self) -> Option<usize> {
        self.posts.iter().position(|post| {
            // Ordering: Relaxed. As in `is_held_up`; a hint for the swap.
            if post.held_up.load(Ordering::Relaxed) == 0 {
                return false;
            }
            // Ordering: Acquire [Y4]. Pairs with `ring`. The load that follows reads the number of the marked run, or a
            // later one.
            let number = post.held_up.swap(0, Ordering::Acquire);
            number != 0 && post.run.load(Ordering::Relaxed) == number
        })
    }

    /// Ends the sentry's wait for good.
    pub(crate) fn close(&self) {
        self.alarms.close();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::sleep;

    fn begin(watch: &Watch, shard: usize) {
        watch.begin(shard);
        watch.set_alarm(shard);
    }

    fn held_up(watch: &Watch) -> Vec<usize> {
        let mut rung = Vec::new();
        assert!(watch.await_alarms(&mut rung));
        rung.into_iter().for_each(|shard| {
            let _is_held_up = watch.ring(shard);
        });
        core::iter::from_fn(|| watch.take_held_up()).collect()
    }

    #[test]
    fn a_leader_is_held_up_whose_alarm_rings_while_it_runs_handlers() {
        let watch = Watch::new(3);
        (0..2).for_each(|shard| begin(&watch, shard));
        watch.end(0);
        watch.calm(0);
        assert_eq!((held_up(&watch), watch.is_held_up()), (vec![1], false));
        // The leader comes back after its alarm has rung, and before another thread takes the shard over.
        watch.end(1);
        begin(&watch, 1);
        let mut rung = Vec::new();
        assert!(watch.await_alarms(&mut rung) && watch.ring(1) && watch.is_held_up());
        watch.end(1);
        assert_eq!((rung, watch.take_held_up(), watch.is_held_up()), (vec![1], None, false));
        // It runs other handlers by then.
        begin(&watch, 1);
        assert!(watch.ring(1));
        watch.end(1);
        begin(&watch, 1);
        assert_eq!(watch.take_held_up(), None);
        watch.close();
        assert!(!watch.await_alarms(&mut Vec::new()));
    }

    #[test]
    fn an_alarm_is_set_again_before_it_rings() {
        let watch = Watch::new(1);
        begin(&watch, 0);
        let first = watch.posts[0].rings_at.load(Ordering::Relaxed);
        watch.end(0);
        begin(&watch, 0);
        let is_early = watch.alarms.now() + nanos(LEAST_PATIENCE) < first;
        assert!(
            !is_early || watch.posts[0].rings_at.load(Ordering::Relaxed) == first,
            "it rings late enough"
        );
        watch.end(0);
        sleep(PATIENCE - LEAST_PATIENCE);
        begin(&watch, 0);
        assert!(watch.posts[0].rings_at.load(Ordering::Relaxed) > first);
        watch.end(0);
        watch.calm(0);
        assert_eq!(watch.posts[0].rings_at.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_limits_are_those_that_the_builder_states() {
        assert_eq!((LEAST_PATIENCE, PATIENCE), (Duration::from_micros(1_250), Duration::from_micros(1_500)));
    }
}
