//! A queue whose items can be received when their delay has passed.
//!
//! An item waits in the queue's timing wheel. When it is due, it moves to a list of due items. The next receiver takes
//! it from that list. Several receivers may wait at the same time: threads that block, tasks that await, or both.
//!
//! A waiting thread sleeps until the first item is due. For waiting tasks, the queue has one timer of the engine. So an
//! item needs no timer of its own, and does not count towards the engine's capacity. A receiver that finds due items
//! needs no thread of the engine. One lock protects the whole queue. Each call holds the lock for some tens of
//! nanoseconds.
//!
//! If items are mostly moved or removed, and rarely received, a [`Timer`](tourbillon::Timer) is better: it has no lock.
//!
//! # Order
//!
//! Items are received by deadline, up to a tick of the engine. Within a tick there is no order.
//!
//! # The end
//!
//! [`DelayQueue::close`] ends the queue, and so does a shutdown of its engine. Items that were due by then are still
//! received. After them a receiver gets [`TryRecvError::Closed`]. `close` returns the items that were not due, even
//! after a shutdown. Dropping the last handle drops all items.
//!
//! In the child of a fork, a queue that was made before the fork has ended, too, because nothing would wake its
//! receivers there. A push is refused as [`Forked`](Refusal::Forked). A queue of an engine without threads goes on.
//!
//! # Races and their endings
//!
//! - remove x due, reset x due: the removal returns the item, or the reset lets the item wait again, or a receiver gets
//!   it.
//! - push x close: the item is received, or `close` returns it, or the error of the push returns it. Exactly one of
//!   these happens.
//! - close x shutdown, close x close: the first close returns all items that were not due, even if a task calls it that
//!   the end has woken.
//! - receive x receive: each item goes to one receiver.
//! - An item that comes due wakes the first receiver in line. A woken receiver, such as a future, may be dropped before
//!   it has looked for the item. Then the next receiver is woken. So while receivers sleep, each due item has a woken
//!   receiver that is about to take it.

mod item;
pub(crate) mod items;
pub(crate) mod line;
mod receiver;

pub use item::{Delayed, DueItem};
pub use receiver::Receiver;

use super::error::{PushError, PushErrorKind, TryRecvError};
use crate::keyed::MoveError;
use crate::sync::{OnceLock, StdArc, Weak};
use crate::task::{OnEnd, TaskCore, TaskTimer};
use core::fmt;
use core::num::NonZero;
use core::time::Duration;
use items::{Alarm, Items, NotPushed};
use tourbillon::wheel::TickLength;
use tourbillon::{ArmError, Refusal, Timestamp};

/// A queue whose items can be received when their delay has passed. Clones refer to the same queue. Each clone can push
/// and receive.
///
/// # Coming from tokio-util
///
/// tokio-util's `DelayQueue` ends when it is empty: `poll_expired` returns `None`. So
/// `while let Some(item) = queue.next().await` drains it. This queue is shared. When it is empty, it waits for the next
/// push, and it ends when it is closed. This loop drains the pushed items:
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
///     drained.push(queue.recv()?);
/// }
/// assert_eq!(drained.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The loop is right if there is one receiver, and if no other part of the program removes items. `insert` is
/// [`push`](Self::push) here, `Key` is [`Delayed`], `Expired` is [`DueItem`], and `reset_at`, `peek`, `clear` and
/// `deadline` have the same names.
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
/// assert_eq!(retries.recv().map(|due| due.item), Ok("GET /b"));
/// assert_eq!(retries.remove(first), Some("GET /a"));
/// assert!(retries.close().is_empty() && retries.recv().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DelayQueue<T: Send + 'static> {
    shared: StdArc<Shared<T>>,
}

struct Shared<T: Send + 'static> {
    tasks: TaskCore,
    items: Items<T, LazyTimer>,
}

/// The queue's timer. The first push makes the timer, because an empty queue needs none.
type LazyTimer = OnceLock<TaskTimer>;

impl Alarm for LazyTimer {
    fn set(&self, moment: Timestamp) -> Result<(), Refusal> {
        match self.get().map(|timer| timer.arm_at(moment)) {
            Some(Err(ArmError::Forked)) => Err(Refusal::Forked),
            Some(Err(_)) => Err(Refusal::ShutDown),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

impl<T: Send + 'static> DelayQueue<T> {
    pub(super) fn new(tasks: &TaskCore) -> Self {
        let ticks = TickLength::new(tasks.handle().tick());
        let ticks = ticks.unwrap_or_else(|| TickLength::from_nanos(NonZero::<u64>::MIN));
        let items = Items::new(ticks, tasks.true_now(), LazyTimer::new());
        let shared = StdArc::new(Shared { tasks: tasks.clone(), items });
        tasks.at_end(StdArc::downgrade(&shared) as Weak<dyn OnEnd>);
        Self { shared }
    }

    /// Pushes an item that can be received no earlier than `delay` from now.
    ///
    /// # Errors
    ///
    /// Fails if [the queue has ended](Self::is_closed). The first push, which makes the queue's timer, also fails if
    /// the engine is full. The error returns the item.
    ///
    /// # Time complexity
    ///
    /// O(1), amortised over the growth of the queue's tables, under the queue's lock. A push waits for the engine only
    /// if a receiver waits and the item is due before all others.
    pub fn push(&self, delay: Duration, item: T) -> Result<Delayed, PushError<T>> {
        self.push_at(self.shared.tasks.now() + delay, item)
    }

    /// Works as [`push`](Self::push), but the item can be received no earlier than `deadline`.
    ///
    /// # Errors
    ///
    /// See [`push`](Self::push).
    pub fn push_at(&self, deadline: Timestamp, item: T) -> Result<Delayed, PushError<T>> {
        if let Err(kind) = self.admit() {
            return Err(PushError { kind: self.kind_of(NotPushed::Refused(kind)), item });
        }
        let pushed = self.shared.items.push(deadline, item);
        pushed.map_err(|(reason, item)| PushError { kind: self.kind_of(reason), item })
    }

    /// Makes the queue's timer for a push, unless the timer exists. Fails in the child of a fork.
    fn admit(&self) -> Result<(), Refusal> {
        if self.shared.tasks.is_forked() { Err(Refusal::Forked) } else { self.make_timer() }
    }

    /// Makes the queue's timer, unless it exists.
    fn make_timer(&self) -> Result<(), Refusal> {
        let timer = &self.shared.items.alarm;
        if timer.get().is_none() {
            let shared = StdArc::downgrade(&self.shared);
            let ring = move || {
                if let Some(shared) = shared.upgrade() {
                    shared.items.ring(shared.tasks.true_now());
                }
            };
            let made = TaskTimer::new(&self.shared.tasks, ring).map_err(|error| error.kind)?;
            // If another push has made the timer first, this timer is dropped.
            drop(timer.set(made));
        }
        Ok(())
    }

    /// Receives an item that is already due.
    ///
    /// # Errors
    ///
    /// Fails if no item is due, or if the queue has ended.
    pub fn try_recv(&self) -> Result<DueItem<T>, TryRecvError> {
        self.take().map_or(Err(TryRecvError::Empty), |item| item.ok_or(TryRecvError::Closed))
    }

    fn take(&self) -> Option<Option<DueItem<T>>> {
        match self.shared.take_in_child() {
            None => self.shared.items.take(|| self.shared.tasks.true_now()),
            taken => taken,
        }
    }

    /// Removes and returns a waiting item. Returns `None` if the queue has found the item due, even if it was not
    /// received yet, or if the item was removed before.
    ///
    /// # Time complexity
    ///
    /// O(1).
    #[expect(clippy::must_use_candidate, reason = "who removes an item need not want it")]
    pub fn remove(&self, id: Delayed) -> Option<T> {
        self.shared.items().remove(id)
    }

    /// Removes and returns all items, including due items that were not received. The queue stays open.
    ///
    /// # Time complexity
    ///
    /// O(n) under the queue's lock.
    #[expect(clippy::must_use_candidate, reason = "who clears a queue need not want the items")]
    pub fn clear(&self) -> Vec<T> {
        self.shared.items().clear()
    }

    /// Moves an item's deadline to `delay` from now. The item cannot be received earlier.
    ///
    /// # Errors
    ///
    /// Fails if the queue has found the item due, or if the item was removed.
    pub fn reset(&self, id: Delayed, delay: Duration) -> Result<(), MoveError> {
        self.reset_at(id, self.shared.tasks.now() + delay)
    }

    /// Works as [`reset`](Self::reset), but takes an absolute moment.
    ///
    /// # Errors
    ///
    /// See [`reset`](Self::reset).
    pub fn reset_at(&self, id: Delayed, deadline: Timestamp) -> Result<(), MoveError> {
        if self.shared.items().reset(id, deadline) { Ok(()) } else { Err(MoveError::Absent) }
    }

    /// Returns the id and the deadline of the waiting item with the earliest deadline; `None` if no item waits. Items
    /// that were found due do not count. The result may be out of date at once, because other threads push, receive and
    /// reset items.
    ///
    /// # Time complexity
    ///
    /// O(n) under the queue's lock. The method is for diagnostics. To wait for items, use [`recv`](Self::recv).
    #[must_use]
    pub fn peek(&self) -> Option<(Delayed, Timestamp)> {
        self.shared.items().first()
    }

    /// Returns the deadline of an item; `None` if the item was found due, or was removed.
    #[must_use]
    pub fn deadline(&self, id: Delayed) -> Option<Timestamp> {
        self.shared.items().deadline(id)
    }

    /// Returns the number of items in the queue: items that wait, and due items that were not received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.items().len()
    }

    /// Returns whether the queue has no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: nothing can be pushed any more, and due items can still be received. Returns the items that were
    /// not due when the queue ended. Only the first call of this method returns them, even if a shutdown of the engine
    /// has ended the queue before. Later calls return no items.
    #[expect(
        clippy::must_use_candidate,
        reason = "the entries that were not due are often of no use any more"
    )]
    pub fn close(&self) -> Vec<T> {
        let Shared { items, tasks } = &*self.shared;
        let rest = items.close(tasks.true_now(), tasks.patience());
        self.shared.disarm();
        rest
    }

    /// Returns whether the queue has ended: it was closed, or its engine was shut down, or this process is the child of
    /// a fork and the engine's threads are in the parent.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.tasks.is_forked() || self.shared.items.is_ended()
    }

    /// Returns the kind of error for a refused push. A shutdown of the engine takes precedence over a closed queue, and
    /// a closed queue over `reason`.
    fn kind_of(&self, reason: NotPushed) -> PushErrorKind {
        if let Some(refusal) = self.shared.tasks.refusal() {
            return PushErrorKind::Refused(refusal);
        }
        match reason {
            NotPushed::Refused(refusal) if !self.is_closed() => PushErrorKind::Refused(refusal),
            NotPushed::Refused(_) | NotPushed::Ended => PushErrorKind::Closed,
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    /// Returns the items. In the child of a fork, first ends the queue.
    fn items(&self) -> &Items<T, LazyTimer> {
        if self.tasks.is_forked() {
            self.end();
        }
        &self.items
    }

    /// In the child of a fork, ends the queue, and takes the next due item or reports the end. Returns `None` in a
    /// process in which the queue goes on.
    fn take_in_child(&self) -> Option<Option<DueItem<T>>> {
        self.tasks.is_forked().then(|| self.items().take_after_end(self.tasks.patience()))
    }

    fn end(&self) {
        self.items.end(self.tasks.true_now(), self.tasks.patience());
        self.disarm();
    }

    fn disarm(&self) {
        if let Some(timer) = self.items.alarm.get() {
            timer.disarm();
        }
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
