//! The events that `tb_poll` takes.
//!
//! If an engine is polled, the threads that poll do the work of its workers. The shards hand over batches of due timers
//! as jobs, which wait in this queue. A poll runs jobs as long as the caller's array has room. The handler of each
//! timer puts an event into the array. So a timer whose event waits is still pending: before the engine calls the
//! handler, it decides whether the timer was cancelled, moved or disarmed.
//!
//! # Invariants
//! V1. Each job of the engine is in `jobs`, in `begun`, or in the hands of one poll.
//! V2. While a poll runs jobs on a thread, the thread's `ROOM` is the free rest of the poll's array. At any other time,
//!     `ROOM` is empty. A job calls no more handlers than there is room for events, and a handler puts at most one
//!     event.
//!
//! # Races and their legal endings
//! - cancel x poll: the engine decides. (a) The one-shot is cancelled. (b) Its handler has begun on the polling thread:
//!   the event was polled, and the cancel returns `TB_GONE`. The same holds for a disarm, and for the stop of a task.
//! - poll x poll: each takes jobs of its own. A poll that fills its array in the middle of a job puts the job into
//!   `begun`. Another poll may have found no job before that, and have cleared the descriptor. So the first poll
//!   signals the descriptor again.
//! - shutdown x poll: a job that runs stops at the next timer, and the shutdown returns the timers that are left. Then
//!   the jobs that wait are dropped, and so is a job that a poll would put back.
//!
//! # Progress and cost
//! A push is lock-free, O(1). A poll takes a lock for each job that it begins or continues. No shard takes this lock.
//! While jobs wait, their shard checks them once a millisecond. While 128 jobs of a shard wait, the shard holds further
//! due timers back until a poll makes room.

use crate::annotate;
use crate::event::tb_event;
use crate::notifier::Notifier;
use crossbeam_queue::SegQueue;
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon::{Executor, Job};

/// The queue of an engine's jobs, which the program's polls run. A [`Job`] is a batch of due timers. Running the job
/// makes the timers' events.
pub(crate) struct Events {
    jobs: SegQueue<Job>,
    begun: Mutex<Begun>,
    notifier: Notifier,
}

/// The jobs that polls have run only in part, because the array of the poll's caller was full. A later poll goes on
/// with them.
#[derive(Debug, Default)]
struct Begun {
    jobs: Vec<Job>,
    /// Whether the engine was shut down. If it was, a poll that has run a job only in part drops the job, and does not
    /// put it into `jobs`.
    is_closed: bool,
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { jobs: SegQueue::new(), begun: Mutex::default(), notifier: Notifier::new()? })
    }

    /// Makes the executor that adds the engine's jobs to this queue.
    pub(crate) fn executor(self: &Arc<Self>) -> impl Executor + use<> + 'static {
        let events = Arc::clone(self);
        move |job| {
            events.jobs.push(job);
            events.notifier.signal();
        }
    }

    /// Writes events into `room`, beginning with its first element. Returns the number of events.
    pub(crate) fn poll(&self, room: &mut [MaybeUninit<tb_event>]) -> usize {
        let room = Opened::open(room);
        while room.left() > 0 {
            let Some(mut job) = self.take_job() else { break };
            job.run_some(room.left());
            if !job.is_done() {
                self.put_back(job);
            }
        }
        if self.is_empty() {
            self.notifier.clear(|| self.is_empty());
        }
        room.filled()
    }

    /// Drops all jobs. The caller has shut the engine down, so no further jobs are pushed. A job refers to its engine,
    /// and the engine's executor refers to the jobs. Without this call, the cycle would keep both alive for ever.
    pub(crate) fn close(&self) {
        self.begun().is_closed = true;
        while self.take_job().is_some() {}
        self.notifier.clear(|| self.is_empty());
    }

    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.notifier.descriptor()
    }

    /// Takes the next job that a poll runs. The jobs that earlier polls have run only in part come first.
    fn take_job(&self) -> Option<Job> {
        let begun = self.begun().jobs.pop();
        begun.or_else(|| self.jobs.pop())
    }

    fn put_back(&self, job: Job) {
        let mut begun = self.begun();
        if !begun.is_closed {
            begun.jobs.push(job);
            drop(begun);
            self.notifier.signal();
        }
    }

    /// Returns whether no job waits for a poll.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.begun().jobs.is_empty()
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("jobs", &self.jobs.len()).field("notifier", &self.notifier).finish()
    }
}

/// The free part of an array that a poll fills with events.
#[derive(Clone, Copy)]
struct Room {
    next: *mut tb_event,
    left: usize,
}

impl Room {
    const NONE: Self = Self { next: ptr::null_mut(), left: 0 };
}

thread_local! {
    /// The free part of the array that a poll on this thread is filling with events. If no poll runs on this thread,
    /// this is [`Room::NONE`]. The value needs no drop, so it can be used even while the thread ends.
    static ROOM: Cell<Room> = const { Cell::new(Room::NONE) };
    /// The keys of the events that this thread has polled last, kept alive for the program.
    static POLLED_KEYS: RefCell<Vec<Arc<CStr>>> = const { RefCell::new(Vec::new()) };
}

/// The array that a poll fills with events. As long as this value exists, [`ROOM`] refers to the array. So the jobs
/// that the poll runs on this thread put their events into this array.
struct Opened<'a> {
    length: usize,
    /// The value that [`ROOM`] had before it referred to this array. Dropping `Opened` restores the earlier value.
    before: Room,
    array: PhantomData<&'a mut [MaybeUninit<tb_event>]>,
}

impl<'a> Opened<'a> {
    fn open(array: &'a mut [MaybeUninit<tb_event>]) -> Self {
        let length = array.len();
        let before = ROOM.replace(Room { next: array.as_mut_ptr().cast(), left: length });
        Self { length, before, array: PhantomData }
    }

    fn left(&self) -> usize {
        ROOM.get().left
    }

    fn filled(&self) -> usize {
        self.length - self.left()
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        ROOM.set(self.before);
    }
}

/// Puts the event of a due timer into the array that a poll on this thread is filling. Only the handler of the timer
/// may call this function. The poll runs the job of the timer, and the job calls the handler.
pub(crate) fn put(event: tb_event) {
    let Room { next, left } = ROOM.get();
    debug_assert!(left > 0, "a handler of a polled engine was called outside of a poll");
    if left == 0 {
        return;
    }
    annotate::arrived(event.user);
    // SAFETY: V2: there is room for `left` events at `next`, borrowed by the poll that runs this handler.
    unsafe { next.write(event) };
    // SAFETY: as above: the result is at most the end of the array.
    let next = unsafe { next.add(1) };
    ROOM.set(Room { next, left: left - 1 });
}

/// Works as `put`, for an event with a key. The key lives until this thread polls again. A thread that is ending has no
/// thread-local storage, so the event gets no key there.
pub(crate) fn put_keyed(event: tb_event, key: Arc<CStr>) {
    let keyed = event.with_key(&key);
    let is_kept = POLLED_KEYS.try_with(|keys| keys.borrow_mut().push(key)).is_ok();
    put(if is_kept { keyed } else { event });
}

/// Drops the keys of the events that this thread has polled last.
pub(crate) fn forget_keys() {
    let _ = POLLED_KEYS.try_with(|keys| keys.borrow_mut().clear());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Target;
    use std::time::Duration;
    use tourbillon::Timestamp;

    fn event(id: u64) -> tb_event {
        let target = Target { callback: None, user: ptr::null_mut() };
        target.event(id, Timestamp::ZERO, Duration::ZERO, 1)
    }

    #[test]
    fn an_array_is_filled_in_order_and_closed() {
        let mut array = [MaybeUninit::uninit(); 3];
        let room = Opened::open(&mut array);
        put(event(1));
        put(event(2));
        assert_eq!((room.left(), room.filled()), (1, 2));
        drop(room);
        assert_eq!(ROOM.get().left, 0);
        // SAFETY: two events were put.
        let ids = array[..2].iter().map(|event| unsafe { event.assume_init_ref() }.id);
        assert_eq!(ids.collect::<Vec<_>>(), [1, 2]);
    }
}
