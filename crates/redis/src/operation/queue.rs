//! The queue of creations that wait for a script.
//!
//! While scripts are at the server, new creations wait. The next script then takes the creations that wait, up to a
//! limit. A task sends scripts with the waiting creations until none waits. At most [`TASKS`] tasks run at a time.
//! Callers compute a creation before they add it, and tasks only send it. So no task waits for a caller that has
//! stopped.
//!
//! A creation that waits ends in one of these ways:
//!
//! | event | the creation |
//! |---|---|
//! | a task takes it | is sent, and has the answer of its script |
//! | a script fails, and the creation has waited for the patience of the connection | fails; it was not sent |
//! | its caller is gone | is dropped when it is the first in the queue |
//! | the last task is dropped, by a panic or with its runtime | has no answer, and its caller is answered `Unknown` |
//!
//! So a server that does not answer delays each call by about twice the patience, for any number of calls. The queue
//! grows only by the creations of that time. A script that fails early, for example because its connection is cut, does
//! not fail creations outside it.

use crate::deployment::Witnesses;
use crate::layout::{Shard, Slice};
use core::time::Duration;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_durable::timer::TimerId;

/// The greatest number of tasks that send scripts. While the server runs a script, the client prepares the next script.
const TASKS: usize = 2;
/// The greatest number of creations in one script.
const AT_ONCE: usize = 128;
/// The total size in bytes of a script's records at which the script takes no further creation.
const BYTES: usize = 256 << 10;

/// The data of a creation that can be sent in one script with other creations. Such a creation stores a pending timer
/// without labels, in the shard of the timer's id.
#[derive(Debug)]
pub(crate) struct Creation {
    pub(crate) id: TimerId,
    pub(crate) shard: Shard,
    /// The timer as a member of the shard's set of records: id, length of the payload, encoded record.
    pub(crate) member: Vec<u8>,
    pub(crate) due: u64,
    pub(crate) slice: Slice,
    /// The field that counts the timer in the shard's hash of counts.
    pub(crate) field: Vec<u8>,
    /// The timer's member in a sorted set of keys ([`Part::Keys`](crate::layout::Part::Keys)), without the timer's id
    /// at the end. `None` if the timer has no key.
    pub(crate) entry: Option<Vec<u8>>,
    /// The member that a timer without a key has in such a sorted set, without the timer's id at the end. Used only if
    /// `entry` is `None`.
    pub(crate) keyless: Vec<u8>,
}

/// The answer to a waiting creation.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    /// The timer is stored on the server, but perhaps not yet as durably as the connection's
    /// [`SyncPolicy`](crate::SyncPolicy) requires. [`Witnesses::confirm`] waits for this durability.
    Stored(Witnesses),
    /// The id or the key is taken, or the id belongs to an ended timer that is still remembered.
    Refused,
    Failed(StoreErrorKind, Box<str>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) creation: Creation,
    /// The moment at which the creation was added to the queue.
    pub(crate) since: Instant,
    pub(crate) answer: oneshot::Sender<Made>,
}

#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// The number of tasks that have not ended.
    tasks: usize,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a creation to the queue. If the result is `true`, the caller must start a [`task`](Self::task).
    pub(crate) fn add(&self, waiting: Waiting) -> bool {
        let mut state = self.state();
        state.waiting.push_back(waiting);
        let is_needed = state.tasks < TASKS;
        // The task is counted before it starts, so that two callers cannot both start the last permitted task.
        state.tasks += usize::from(is_needed);
        is_needed
    }

    /// Returns a task that takes creations from the queue. Each call of [`add`](Self::add) that returns `true` needs
    /// one task.
    pub(crate) fn task(&self) -> Task<'_> {
        Task { queue: self, has_ended: false }
    }

    /// Counts a task as ended, because the task was dropped early. If no other task is left, removes the waiting
    /// creations and returns them.
    fn end_task(&self) -> VecDeque<Waiting> {
        let mut state = self.state();
        state.tasks = state.tasks.saturating_sub(1);
        // Without a task, the callers of these creations would wait until somebody adds another creation.
        if state.tasks == 0 { core::mem::take(&mut state.waiting) } else { VecDeque::new() }
    }
}

/// A task that takes waiting creations from the queue. If a panic or the end of the runtime drops the task early, the
/// next creation starts another task.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    queue: &'a Queue,
    has_ended: bool,
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // The creations are dropped without the lock, since this wakes their callers.
            drop(self.queue.end_task());
        }
    }
}

impl Task<'_> {
    /// Takes the creations of the next script, which have different ids and keys. If no creation waits, returns an
    /// empty list and ends the task.
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        let mut state = self.queue.state();
        let (mut ids, mut entries, mut bytes) = (HashSet::new(), HashSet::new(), 0);
        let mut fits = |Waiting { creation, .. }: &Waiting| {
            let Creation { id, member, entry, .. } = creation;
            // The limits are compared before the creation is added. So the first creation always fits, even if its
            // record is larger than the limit, and an empty list means that no creation waits.
            let fits = ids.len() < AT_ONCE && bytes < BYTES;
            bytes += member.len();
            fits && ids.insert(*id) && entry.as_ref().is_none_or(|entry| entries.insert(entry.clone()))
        };
        let mut taken = Vec::new();
        while let Some(next) = state.waiting.front() {
            let is_wanted = !next.answer.is_closed();
            if is_wanted && !fits(next) {
                break;
            }
            taken.extend(state.waiting.pop_front().filter(|_| is_wanted));
        }
        if taken.is_empty() && !self.has_ended {
            // This is set under the lock, so that the next creation starts a task. A further call must not count the
            // end of the same task again.
            self.has_ended = true;
            state.tasks = state.tasks.saturating_sub(1);
        }
        taken
    }

    /// Removes and returns the creations that have waited for at least `patience` without being sent.
    pub(crate) fn take_late(&self, patience: Duration) -> Vec<Waiting> {
        let mut state = self.queue.state();
        // Creations wait in the order of their arrival, so the late creations are at the front.
        let count = state.waiting.iter().take_while(|waiting| waiting.since.elapsed() >= patience).count();
        state.waiting.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use tokio::sync::oneshot::error::TryRecvError;

    /// A queue of creations, and the receivers of the creations' answers.
    #[derive(Default)]
    struct Callers {
        queue: Queue,
        made: RefCell<Vec<oneshot::Receiver<Made>>>,
    }

    impl Callers {
        fn add(&self, id: u128, key: &[u8], bytes: usize) -> bool {
            let creation = Creation {
                id: TimerId::from_u128(id),
                shard: 0,
                member: vec![0; bytes],
                due: 0,
                slice: Slice::of("", 0),
                field: Vec::new(),
                entry: (!key.is_empty()).then(|| key.to_vec()),
                keyless: Vec::new(),
            };
            let (answer, made) = oneshot::channel();
            self.made.borrow_mut().push(made);
            self.queue.add(Waiting { creation, since: Instant::now(), answer })
        }
    }

    fn ids(taken: &[Waiting]) -> Vec<u128> {
        taken.iter().map(|waiting| waiting.creation.id.as_u128()).collect()
    }

    #[test]
    fn what_waits_is_taken_together_by_few_tasks() {
        let callers = Callers::default();
        let queue = &callers.queue;
        let started: Vec<bool> = (0..5).map(|id| callers.add(id, b"", 9)).collect();
        assert_eq!(started, [true, true, false, false, false]);
        let (mut one, mut other) = (queue.task(), queue.task());
        assert_eq!(ids(&one.take()), [0, 1, 2, 3, 4]);
        assert!(!callers.add(5, b"", 9), "two tasks have not ended");
        assert_eq!(ids(&other.take()), [5]);
        assert!(one.take().is_empty() && other.take().is_empty(), "both tasks end");
        assert!(callers.add(6, b"", 9), "and the next creation starts one");
    }

    #[test]
    fn a_task_that_is_dropped_is_replaced() {
        let callers = Callers::default();
        let queue = &callers.queue;
        assert!(callers.add(1, b"", 9) && callers.add(2, b"", 9));
        let (one, other) = (queue.task(), queue.task());
        assert!(!callers.add(3, b"", 9));
        drop(one);
        assert!(callers.add(4, b"", 9), "one task is left");
        let mut next = queue.task();
        assert_eq!(ids(&next.take()), [1, 2, 3, 4]);
        assert!(next.take().is_empty());
        drop(next);
        assert!(callers.add(5, b"", 9) && !callers.add(6, b"", 9), "its end counts once");
        drop(other);
    }

    #[test]
    fn a_script_has_no_id_and_no_key_twice_and_is_bounded() {
        let callers = Callers::default();
        let queue = &callers.queue;
        for (id, key) in [(1, "a"), (2, ""), (3, ""), (4, "b"), (5, "a"), (4, "c"), (6, "d")] {
            let _started = callers.add(id, key.as_bytes(), 9);
        }
        let mut task = queue.task();
        assert_eq!(ids(&task.take()), [1, 2, 3, 4]);
        assert_eq!(ids(&task.take()), [5, 4, 6]);
        (0..200).for_each(|id| _ = callers.add(id, b"", 9));
        assert_eq!((task.take().len(), task.take().len()), (AT_ONCE, 200 - AT_ONCE));
        (0..3).for_each(|id| _ = callers.add(id, b"", BYTES));
        assert_eq!((task.take().len(), task.take().len()), (1, 1), "a large record is a script of its own");
    }

    #[test]
    fn creations_without_callers_are_dropped_and_those_that_wait_for_long_are_taken_out() {
        let callers = Callers::default();
        let queue = &callers.queue;
        (0..500).for_each(|id| _ = callers.add(id, b"", 9));
        drop(callers.made.borrow_mut().drain(..400));
        let mut task = queue.task();
        assert_eq!(ids(&task.take()), (400..500).collect::<Vec<_>>());
        (0..5).for_each(|id| _ = callers.add(id, b"", 9));
        assert!(task.take_late(Duration::from_secs(3_600)).is_empty());
        assert_eq!(ids(&task.take_late(Duration::ZERO)), [0, 1, 2, 3, 4]);
        assert!(task.take().is_empty());
    }

    #[test]
    fn nobody_waits_for_a_queue_without_tasks() {
        let callers = Callers::default();
        let queue = &callers.queue;
        (1..=3).for_each(|id| _ = callers.add(id, b"", 9));
        let (one, other) = (queue.task(), queue.task());
        drop(one);
        let made = |nth: usize| callers.made.borrow_mut()[nth].try_recv();
        assert!(matches!(made(2), Err(TryRecvError::Empty)), "the other task takes it");
        drop(other);
        assert!((0..3).all(|nth| matches!(made(nth), Err(TryRecvError::Closed))));
        assert!(callers.add(4, b"", 9), "and the next creation starts one");
    }
}
