//! The records of a test run: how each timer ended.

use crate::foreign::{EXTRA, FAR, OWN_TIMERS, OWNED, PLAYERS, number};
use crate::support::assert_settled;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tourbillon::{Fired, Stats, Timestamp};

/// The test's records of how each timer ended.
pub(crate) struct Ledger {
    /// For each one-shot, the number of its ends. At the end of the test, each number must be 1.
    ends: Vec<AtomicU64>,
    /// For each owned timer, the deadlines for which it fired.
    pub(crate) owned_fired: Vec<Mutex<Vec<Timestamp>>>,
    /// The number of one-shots that a thread has begun to schedule, including the main thread's.
    pub(crate) submitted: AtomicU64,
    pub(crate) extra: AtomicU64,
    /// The number of one-shots with soon deadlines that a thread has begun to schedule. `near_ended` is the number of
    /// these one-shots that have ended.
    pub(crate) near: AtomicU64,
    near_ended: AtomicU64,
    pub(crate) scheduled: AtomicU64,
    pub(crate) fired: AtomicU64,
    cancelled: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) disarmed: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// Adds one to `counter`, and returns its value from before.
pub(crate) fn add_one(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::SeqCst)
}

impl Ledger {
    /// Makes the records for `one_shots` one-shots of the players. The main thread's one-shots have the numbers from
    /// `one_shots` on.
    pub(crate) fn new(one_shots: u64) -> Self {
        Self {
            ends: (0..one_shots + EXTRA).map(|_| AtomicU64::new(0)).collect(),
            owned_fired: (0..PLAYERS * OWN_TIMERS).map(|_| Mutex::default()).collect(),
            submitted: AtomicU64::new(0),
            extra: AtomicU64::new(one_shots),
            near: AtomicU64::new(0),
            near_ended: AtomicU64::new(0),
            scheduled: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            disarmed: AtomicU64::new(0),
        }
    }

    /// Records the firing of a timer. The engine's handler calls this.
    pub(crate) fn on_fire(&self, timer: &Fired<'_, u64>) {
        assert!(Timestamp::from(Instant::now()) >= timer.deadline, "early");
        if timer.payload & OWNED != 0 {
            self.owned_fired[number(timer.payload)].lock().unwrap().push(timer.deadline);
        } else {
            add_one(&self.fired);
            self.note_end(timer.payload);
        }
    }

    pub(crate) fn note_end(&self, payload: u64) {
        add_one(&self.ends[number(payload)]);
        if payload & FAR == 0 {
            add_one(&self.near_ended);
        }
    }

    pub(crate) fn note_cancelled(&self, payload: u64) {
        add_one(&self.cancelled);
        self.note_end(payload);
    }

    pub(crate) fn ends_of(&self, payload: u64) -> u64 {
        count(&self.ends[number(payload)])
    }

    /// Returns whether each one-shot with a soon deadline has ended.
    pub(crate) fn is_at_rest(&self) -> bool {
        count(&self.near_ended) == count(&self.near)
    }

    /// Checks after a shutdown that the engine's counts agree with the records.
    pub(crate) fn check(&self, stats: &Stats, returned: u64, owned_fired: u64) {
        let submitted = count(&self.submitted) + EXTRA;
        assert!(self.ends.iter().all(|ends| count(ends) <= 1), "a one-shot ended twice");
        assert_eq!(self.ends.iter().map(count).sum::<u64>(), submitted, "a one-shot was lost");
        let [scheduled, fired, cancelled, moved, disarmed] =
            [&self.scheduled, &self.fired, &self.cancelled, &self.moved, &self.disarmed].map(count);
        let all = [fired, cancelled, moved, disarmed, returned, owned_fired];
        assert!(all.iter().all(|&number| number > 0), "{all:?}");
        assert_eq!(fired + cancelled + returned, scheduled);
        assert_eq!((stats.fired, stats.returned), (fired, returned));
        // A move counts as a cancelled timer and as a scheduled timer.
        assert_eq!((stats.scheduled, stats.cancelled), (scheduled + moved, cancelled + moved));
        assert_eq!((stats.owned.fired, stats.owned.alive), (owned_fired, 0));
        assert_eq!(stats.total.panics, 0);
        assert_settled(stats);
    }
}
