//! A queue whose items can be received when their delay has passed.
//!
//! An item waits in a timing wheel of the queue, and is moved to a list of due items when it is due. The first receiver
//! that comes takes the item there. Several receivers may receive at a time: threads that block, tasks that await, or
//! both.
//!
//! A thread that waits sleeps until the first item is due. For tasks that wait, the queue has one timer of the engine.
//! So an item costs no timer and no room in the engine, and a receiver that finds items due needs no thread of the
//! engine. All that a queue has is behind one lock, which is held for some tens of nanoseconds.
//!
//! If items are moved or taken back again and again, and hardly ever received, a [`Timer`](tourbillon::Timer) is
//! better: it has no lock.
//!
//! # Order
//!
//! Items are received by deadline, up to a tick of the engine. Within a tick there is no order.
//!
//! # The end
//!
//! [`DelayQueue::close`] ends the queue, and so does a shutdown of its engine. Items that were due by then are still
//! received; after them a receiver gets [`TryRecvError::Closed`]. `close`, which may be called after a shutdown, too,
//! returns the items that were not due. Dropping the last handle drops all items.
//!
//! # Races and their endings
//!
//! - remove x due, reset x due: the item comes back, or waits anew, or is received.
//! - push x close: the item is received, or comes back from the close, or comes back with the push's error. Exactly one
//!   of these happens.
//! - receive x receive: each item goes to one receiver.
//! - An item that comes due wakes the first receiver in line. A receiver that was woken and is dropped instead of
//!   looking, such as a future, wakes the next receiver. So no receiver sleeps while an item is due that no woken
//!   receiver is about to take.

mod item;
pub(crate) mod items;
pub(crate) mod line;
mod receiver;

pub use item::{Delayed, DueItem};
pub use receiver::Receiver;

use super::error::{PushError, PushErrorKind, TryRecvError};
use crate::keyed::MoveError;
use crate::sync::{Mutex, OnceLock, StdArc, Weak};
use crate::task::{OnEnd, TaskCore, TaskTimer};
use core::fmt;
use core::num::NonZero;
use core::time::Duration;
use items::{Alarm, Items, NotPushed};
use tourbillon::wheel::TickLength;
use tourbillon::{ArmError, Refusal, Timestamp};

/// A queue whose items can be received when their delay has passed. Clones refer to the same queue: any of them pushes
/// and receives.
///
/// # Coming from tokio-util
///
/// tokio-util's `DelayQueue` ends when it is empty (`poll_expired` returns `None`), so that `while let Some(item) =
/// queue.next().await` drains it. This queue is shared: an empty queue waits for the next push, and the queue ends when
/// it is closed. This loop drains the pushed items:
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
/// The loop is for one receiver, and no other part of the program removes items. `insert` is [`push`](Self::push) here,
/// `Key` is [`Delayed`], `Expired` is [`DueItem`], and `reset_at`, `peek`, `clear` and `deadline` have the same names.
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
    items: Items<T, LateTimer>,
    /// The items that had not come due when the queue ended, until a call of `close` fetches them.
    left: Mutex<Vec<T>>,
}

/// The queue's timer, which is made with the first push: before, there is nothing to wait for.
type LateTimer = OnceLock<TaskTimer>;

impl Alarm for LateTimer {
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
        let items = Items::new(ticks, tasks.true_now(), LateTimer::new());
        let shared = StdArc::new(Shared { tasks: tasks.clone(), items, left: Mutex::default() });
        tasks.at_end(StdArc::downgrade(&shared) as Weak<dyn OnEnd>);
        Self { shared }
    }

    /// Pushes an item, to be received `delay` from now or later; never earlier.
    ///
    /// # Errors
    ///
    /// Fails when the queue was closed, when the engine is shut down, and when the engine is full at the first push,
    /// for which the queue makes its timer. The error returns the item.
    ///
    /// # Time complexity
    ///
    /// O(1), amortised over the growth of the queue's tables, under the queue's lock. A push does not wait for the
    /// engine, unless a receiver waits and the item is due before all others.
    pub fn push(&self, delay: Duration, item: T) -> Result<Delayed, PushError<T>> {
        self.push_at(self.shared.tasks.now() + delay, item)
    }

    /// As [`push`](Self::push), to be received at `deadline` or later.
    ///
    /// # Errors
    ///
    /// See [`push`](Self::push).
    pub fn push_at(&self, deadline: Timestamp, item: T) -> Result<Delayed, PushError<T>> {
        if let Err(kind) = self.make_timer() {
            return Err(PushError { kind: self.kind_of(NotPushed::Refused(kind)), item });
        }
        let pushed = self.shared.items.push(deadline, item);
        pushed.map_err(|(reason, item)| PushError { kind: self.kind_of(reason), item })
    }

    /// Makes the queue's timer, unless there is one.
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
            // Another push may have been faster.
            drop(timer.set(made));
        }
        Ok(())
    }

    /// Receives an item that is due already.
    ///
    /// # Errors
    ///
    /// Fails when no item is due, and when the queue has ended.
    pub fn try_recv(&self) -> Result<DueItem<T>, TryRecvError> {
        self.take().map_or(Err(TryRecvError::Empty), |item| item.ok_or(TryRecvError::Closed))
    }

    fn take(&self) -> Option<Option<DueItem<T>>> {
        self.shared.items.take(|| self.shared.tasks.true_now())
    }

    /// Takes an item back. `None` when the item was found due and can be, or was, received; and when it was taken
    /// before.
    ///
    /// # Time complexity
    ///
    /// O(1).
    #[expect(clippy::must_use_candidate, reason = "who removes an item need not want it")]
    pub fn remove(&self, id: Delayed) -> Option<T> {
        self.shared.items.remove(id)
    }

    /// Takes all items back, also those that are due and were not received. The queue goes on.
    ///
    /// # Time complexity
    ///
    /// O(n) under the queue's lock.
    #[expect(clippy::must_use_candidate, reason = "who clears a queue need not want the items")]
    pub fn clear(&self) -> Vec<T> {
        self.shared.items.clear()
    }

    /// Moves an item to `delay` from now. The item cannot be received before.
    ///
    /// # Errors
    ///
    /// Fails when the item was found due, or was taken out.
    pub fn reset(&self, id: Delayed, delay: Duration) -> Result<(), MoveError> {
        self.reset_at(id, self.shared.tasks.now() + delay)
    }

    /// As [`reset`](Self::reset), to an absolute moment.
    ///
    /// # Errors
    ///
    /// See [`reset`](Self::reset).
    pub fn reset_at(&self, id: Delayed, deadline: Timestamp) -> Result<(), MoveError> {
        if self.shared.items.reset(id, deadline) { Ok(()) } else { Err(MoveError::Absent) }
    }

    /// The waiting item that is due first, and its deadline. The result may be out of date, since other threads push,
    /// take and reset items. `None` when no item waits; items that were found due do not count.
    ///
    /// # Time complexity
    ///
    /// O(n) under the queue's lock, for diagnostics and not for a loop. A loop waits in [`recv`](Self::recv).
    #[must_use]
    pub fn peek(&self) -> Option<(Delayed, Timestamp)> {
        self.shared.items.first()
    }

    /// The deadline of an item; `None` when the item was found due, or was taken out.
    #[must_use]
    pub fn deadline(&self, id: Delayed) -> Option<Timestamp> {
        self.shared.items.deadline(id)
    }

    /// The number of items that wait for their time, or are due and were not received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.items.len()
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
        let left = self.shared.tasks.lock_unless_lost(&self.shared.left);
        left.map(|mut left| core::mem::take(&mut *left)).unwrap_or_default()
    }

    /// Whether the queue was closed, or its engine shut down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.items.is_ended()
    }

    /// The kind of a push's error: the end comes before other reasons.
    fn kind_of(&self, reason: NotPushed) -> PushErrorKind {
        match reason {
            _ if self.shared.tasks.is_shut_down() => PushErrorKind::Refused(Refusal::ShutDown),
            NotPushed::Refused(refusal) if !self.is_closed() => PushErrorKind::Refused(refusal),
            NotPushed::Refused(_) | NotPushed::Ended => PushErrorKind::Closed,
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    fn end(&self) {
        let items = self.items.end(self.tasks.true_now(), self.tasks.is_in_child());
        if let Some(timer) = self.items.alarm.get() {
            timer.disarm();
        }
        if let Some(mut left) = self.tasks.lock_unless_lost(&self.left) {
            left.extend(items);
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
