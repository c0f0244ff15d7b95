//! Races between a task that polls a sleep and the firing that wakes it.
//!
//! Each row was tried: the named ordering was made `Relaxed`.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | V1, V2: `with_slot` from rest | `a_firing_for_an_earlier_deadline_loses_no_wake`, `poll_races_with_fire`, `the_last_waker_wins` |
//! | V1: `with_slot` back to rest, Release | `a_firing_for_an_earlier_deadline_loses_no_wake`, `poll_races_with_fire`, `the_last_waker_wins` |
//! | V1: `fire` to waking, Acquire | `a_firing_for_an_earlier_deadline_loses_no_wake`, `poll_races_with_fire`, `the_last_waker_wins` |
//! | V2: `fire` to waking, Release | `a_firing_for_an_earlier_deadline_loses_no_wake`, `the_last_waker_wins` |
//! | V1: `fire` back to rest | `a_firing_for_an_earlier_deadline_loses_no_wake`, `poll_races_with_fire`, `the_last_waker_wins` |

use super::model;
use crate::base::sync::{AtomicU32, StdArc, thread};
use crate::base::tick::Timestamp;
use crate::lockfree::waker::WakerCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

const DUE: Timestamp = Timestamp::from_nanos(20);

/// A task reduced to a flag, which says whether the task was woken.
#[derive(Default)]
pub(super) struct Task {
    pub(super) woken: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
    }
}

impl Task {
    pub(super) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }
}

/// Polls a task's sleep once. Returns whether the sleep is over.
fn poll(cell: &WakerCell, task: &Arc<Task>) -> bool {
    cell.register(&Arc::clone(task).into());
    cell.has_fired_for(DUE)
}

fn fire(cell: &WakerCell) {
    if let Some(waker) = cell.fire(DUE) {
        waker.wake();
    }
}

/// A poll of a sleep races with the firing of its timer. Legal endings: (a) the poll sees that the deadline has passed;
/// (b) the task is woken. No wake is lost.
#[test]
fn poll_races_with_fire() {
    model("poll_races_with_fire", || {
        let cell = StdArc::new(WakerCell::new());
        let other = StdArc::clone(&cell);
        let shard = thread::spawn(move || fire(&other));
        let task = Arc::new(Task::default());
        let is_over = poll(&cell, &task);
        shard.join().unwrap();
        assert!(is_over || task.is_woken(), "the wake was lost");
        assert!(cell.has_fired_for(DUE), "the cell forgot its firing");
    });
}

/// A poll of a sleep races with a shutdown. Legal endings: (a) the poll sees that the timer is shut; (b) the task is
/// woken.
#[test]
fn poll_races_with_shutdown() {
    model("poll_races_with_shutdown", || {
        let (cell, is_shut) = (StdArc::new(WakerCell::new()), StdArc::new(AtomicU32::new(0)));
        let (other, shut) = (StdArc::clone(&cell), StdArc::clone(&is_shut));
        let shutdown = thread::spawn(move || {
            shut.store(1, Ordering::Relaxed);
            if let Some(waker) = other.take() {
                waker.wake();
            }
        });
        let task = Arc::new(Task::default());
        cell.register(&Arc::clone(&task).into());
        let is_cut_off = is_shut.load(Ordering::Relaxed) == 1;
        shutdown.join().unwrap();
        assert!(is_cut_off || task.is_woken(), "the task waits for ever");
    });
}

/// A task polls a sleep, and another task polls it afterwards. The second task sees that the timer has fired, or is
/// woken.
#[test]
fn the_last_waker_wins() {
    model("the_last_waker_wins", || {
        let cell = StdArc::new(WakerCell::new());
        let other = StdArc::clone(&cell);
        let shard = thread::spawn(move || fire(&other));
        let (first, last) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let is_over = poll(&cell, &first) || poll(&cell, &last);
        shard.join().unwrap();
        assert!(is_over || last.is_woken(), "the wake was lost on another task");
    });
}

/// A timer fires for an earlier deadline, and fires again for a later deadline. The second firing wakes a task that
/// waits for the later deadline.
#[test]
fn a_firing_for_an_earlier_deadline_loses_no_wake() {
    model("a_firing_for_an_earlier_deadline_loses_no_wake", || {
        let cell = StdArc::new(WakerCell::new());
        let other = StdArc::clone(&cell);
        let shard = thread::spawn(move || {
            if let Some(waker) = other.fire(Timestamp::from_nanos(10)) {
                waker.wake();
            }
            fire(&other);
        });
        let task = Arc::new(Task::default());
        let mut is_over = poll(&cell, &task);
        if !is_over && task.woken.swap(false, Ordering::Relaxed) {
            is_over = poll(&cell, &task);
        }
        shard.join().unwrap();
        assert!(is_over || task.is_woken(), "the wake was lost");
    });
}
