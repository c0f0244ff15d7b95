//! A queue whose items can be received when their delay has passed.
//!
//! An item waits among timers by key ([`Keyed`](crate::keyed)), under its [`Delayed`] id, and is moved to a list of due
//! items when it is due. The first receiver that comes takes the item there. Several receivers may receive at a time:
//! threads that block, tasks that await, or both.
//!
//! A closure on a worker needs no queue: [`Tasks::after`] costs a fifth. If items are moved or taken back again and
//! again, and hardly ever received, a [`Timer`](tourbillon::Timer) is better.
//!
//! # Order
//!
//! Items are received in the order in which the engine fires their timers: by deadline, up to a tick on one shard, and
//! up to the lateness of the shards and of the workers if there are several shards or workers. Within a tick there is
//! no order.
//!
//! # The end
//!
//! [`DelayQueue::close`] ends the queue, and so does a shutdown of its engine. Items that were due by then are still
//! received; after them a receiver gets [`TryRecvError::Closed`]. `close`, which may be called after a shutdown, too, returns
//! the items that were not due. Dropping the last handle drops all items.
//!
//! # Races and their endings
//!
//! - remove x due, reset x due: as for [`Keyed`](crate::keyed), the item comes back, or waits anew, or is received.
//! - push x close: the item is received, or comes back from the close, or comes back with the push's error. Exactly one
//!   of these happens.
//! - receive x receive: each item goes to one receiver.
//! - An item that comes due wakes the first receiver in line. A receiver that was woken and is dropped instead of
//!   looking, such as a future, wakes the next one. So no receiver sleeps while an item is due that no woken receiver
//!   is about to take.
//!
//! Items, receivers and the end meet in `due`, under one lock; its table lists the ordering of a push against the
//! close.

pub(crate) mod due;
pub(crate) mod line;
mod receiver;

pub use receiver::Receiver;

use super::error::{PushError, PushErrorKind, TryRecvError};
use crate::keyed::{DueKey, Keyed, KeyedError, KeyedErrorKind, MoveError};
use crate::sync::{Mutex, StdArc, Weak, ignore_poison};
use crate::task::{IfPresent, OnEnd, Tasks};
use core::fmt;
use core::time::Duration;
use due::{Due, NotPushed};
use tourbillon::{Refusal, Timestamp};

/// The id of an item in its [`DelayQueue`]. No other item of the queue has the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delayed(u64);

/// An item that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueItem<T> {
    /// The item as it was pushed.
    pub item: T,
    /// The item's id, by which the item is found no more.
    pub id: Delayed,
    /// The moment at which the item was due.
    pub deadline: Timestamp,
}

/// A queue whose items can be received when their delay has passed. Clones refer to the same queue: any of them pushes
/// and receives.
///
/// # Coming from tokio-util
///
/// tokio-util's `DelayQueue` ends when it is empty (`poll_expired` returns `None`), so that
/// `while let Some(item) = queue.next().await` drains it. This queue is shared: an empty one waits for the next push,
/// and the queue ends when it is closed. This loop drains the pushed items:
///
/// ```
/// # use std::time::Duration;
/// # use tourbillon_tasks::TaskEngine;
/// # let tasks = TaskEngine::new()?;
/// # let queue = tasks.handle().delay_queue();
/// queue.push(Duration::from_millis(2), "b")?;
/// queue.push(Duration::from_millis(1), "a")?;
/// let mut drained = Vec::new();
/// while !queue.is_empty() {
///     drained.extend(queue.recv());
/// }
/// assert_eq!(drained.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The loop is for one receiver, which is also the only one that removes items. `insert` is [`push`](Self::push) here,
/// `Key` is [`Delayed`], `Expired` is [`DueItem`], and `reset_at`, `peek` and `deadline` have the same names.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
///
/// let mut tasks = DrivenTasks::new()?;
/// let retries = tasks.handle().delay_queue();
///
/// let first = retries.push(Duration::from_secs(1), "GET /a")?;
/// retries.push(Duration::from_secs(2), "GET /b")?;
/// retries.reset(first, Duration::from_secs(4))?;
///
/// tasks.advance(Duration::from_secs(3));
/// assert_eq!(retries.recv().map(|due| due.item), Some("GET /b"));
/// assert_eq!(retries.remove(first), Some("GET /a"));
/// assert!(retries.close().is_empty() && retries.recv().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DelayQueue<T: Send + 'static> {
    shared: StdArc<Shared<T>>,
}

struct Shared<T: Send + 'static> {
    tasks: Tasks,
    waiting: Keyed<u64, T>,
    due: StdArc<Due<DueItem<T>>>,
    /// The items that had not come due when the queue ended, until a call of `close` fetches them.
    left: Mutex<Vec<T>>,
}

impl Tasks {
    /// Makes a queue whose items wait for their time on this engine.
    #[must_use]
    pub fn delay_queue<T: Send + 'static>(&self) -> DelayQueue<T> {
        let due = StdArc::new(Due::new());
        let came_due = StdArc::clone(&due);
        let waiting = self.keyed(move |due| {
            let DueKey { key, value: item, deadline, .. } = due;
            came_due.put(DueItem { item, id: Delayed(key), deadline });
        });
        let shared = StdArc::new(Shared { tasks: self.clone(), waiting, due, left: Mutex::default() });
        self.at_end(StdArc::downgrade(&shared) as Weak<dyn OnEnd>);
        DelayQueue { shared }
    }
}

impl<T: Send + 'static> DelayQueue<T> {
    /// Pushes an item, to be received `delay` from now or later; never earlier.
    ///
    /// # Errors
    ///
    /// Fails when the queue was closed, and when the engine is full or shut down. The error returns the item.
    ///
    /// # Time complexity
    ///
    /// O(1): a timer, its allocation, an operation of a map, and a count that all pushing threads share.
    pub fn push(&self, delay: Duration, item: T) -> Result<Delayed, PushError<T>> {
        self.push_at(self.shared.tasks.now() + delay, item)
    }

    /// As [`push`](Self::push), to be received at `deadline` or later.
    ///
    /// # Errors
    ///
    /// See [`push`](Self::push).
    pub fn push_at(&self, deadline: Timestamp, item: T) -> Result<Delayed, PushError<T>> {
        let Shared { waiting, due, .. } = &*self.shared;
        let place = |id, item| match waiting.schedule_at(IfPresent::Reject, id, deadline, item) {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match due.push(item, place, |id| waiting.cancel(&id)) {
            Ok(id) => Ok(Delayed(id)),
            Err(NotPushed::Closed(item)) => Err(PushError { kind: self.end_kind(), item }),
            Err(NotPushed::Refused(KeyedError { kind, value: item, .. })) => {
                let KeyedErrorKind::Refused(kind) = kind else { unreachable!("no other item has this id") };
                Err(PushError { kind: PushErrorKind::Refused(kind), item })
            }
        }
    }

    /// Receives an item that is due already.
    ///
    /// # Errors
    ///
    /// Fails when no item is due, and when the queue has ended.
    pub fn try_recv(&self) -> Result<DueItem<T>, TryRecvError> {
        self.shared.due.take().map_or(Err(TryRecvError::Empty), |item| item.ok_or(TryRecvError::Closed))
    }

    /// Takes an item back. `None` when the item is due and can be, or was, received; and when it was taken before.
    ///
    /// # Time complexity
    ///
    /// O(1), as for [`Keyed::cancel`](crate::keyed::Keyed::cancel).
    #[expect(clippy::must_use_candidate, reason = "who removes an item need not want it")]
    pub fn remove(&self, id: Delayed) -> Option<T> {
        let item = self.shared.waiting.cancel(&id.0)?;
        self.shared.due.settle(1);
        Some(item)
    }

    /// Moves an item to `delay` from now. The item cannot be received before.
    ///
    /// # Errors
    ///
    /// Fails when the item is due or was taken out, and when the engine is full or shut down. The item is unchanged
    /// then.
    pub fn reset(&self, id: Delayed, delay: Duration) -> Result<(), MoveError> {
        self.shared.waiting.reschedule(&id.0, delay)
    }

    /// As [`reset`](Self::reset), to an absolute moment.
    ///
    /// # Errors
    ///
    /// See [`reset`](Self::reset).
    pub fn reset_at(&self, id: Delayed, deadline: Timestamp) -> Result<(), MoveError> {
        self.shared.waiting.reschedule_at(&id.0, deadline)
    }

    /// The waiting item that is due first, and its deadline. The result may be out of date, since other threads push,
    /// take and reset items meanwhile. `None` when no item waits; items that are due already do not count.
    ///
    /// # Time complexity
    ///
    /// O(n), for diagnostics and not for a loop. A loop waits in [`recv`](Self::recv).
    #[must_use]
    pub fn peek(&self) -> Option<(Delayed, Timestamp)> {
        let first = self.shared.waiting.first()?;
        Some((Delayed(first.0), first.1))
    }

    /// The deadline of an item; `None` when the item is due already, or was taken out.
    #[must_use]
    pub fn deadline(&self, id: Delayed) -> Option<Timestamp> {
        self.shared.waiting.deadline(&id.0)
    }

    /// The number of items that wait for their time, or are due and were not received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.due.len()
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: no item can be pushed any more, and items that are due can be received. The first call after the
    /// end returns the items that were not due.
    #[expect(clippy::must_use_candidate, reason = "what was not due is often of no use any more")]
    pub fn close(&self) -> Vec<T> {
        self.shared.end();
        core::mem::take(&mut *ignore_poison(self.shared.left.lock()))
    }

    /// Whether the queue was closed, or its engine shut down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.due.is_closed()
    }

    /// The error kind that says how the queue ended.
    fn end_kind(&self) -> PushErrorKind {
        if self.shared.tasks.is_shut_down() {
            PushErrorKind::Refused(Refusal::ShutDown)
        } else {
            PushErrorKind::Closed
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    fn end(&self) {
        self.due.end(|| {
            let items = self.waiting.drain();
            let count = items.len() as u64;
            ignore_poison(self.left.lock()).extend(items.into_iter().map(|(_, item)| item));
            count
        });
    }
}

impl<T: Send + 'static> OnEnd for Shared<T> {
    fn on_end(&self) {
        self.end();
    }
}

impl<T: Send + 'static> Clone for DelayQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: StdArc::clone(&self.shared) }
    }
}

impl<T: Send + 'static> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue")
            .field("len", &self.len())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
