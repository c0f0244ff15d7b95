//! Receives items from a delay queue: by waiting on a thread, or by polling from a task.

use super::line::Place;
use super::{DelayQueue, DueItem, Shared};
use crate::sync::{StdArc, park_timeout, thread};
use crate::uses::error::{RecvError, TryRecvError};
use core::fmt;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::task::Wake;
use tourbillon::{Clock, SystemClock, Timestamp};

/// A receiver of a [`DelayQueue`] that a task polls. Several receivers share the items.
///
/// A receiver that has returned [`Poll::Pending`] stands in line until it is polled again or dropped. When an item
/// becomes due and wakes the receiver's task, the item stays in the queue until this receiver or another receiver takes
/// it.
///
/// # Examples
///
/// ```
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
///
/// let mut tasks = DrivenTasks::new()?;
/// let queue = tasks.handle().delay_queue();
/// let mut receiver = queue.receiver();
/// let mut cx = Context::from_waker(Waker::noop());
///
/// queue.push(Duration::from_secs(1), "retry")?;
/// assert!(receiver.poll_recv(&mut cx).is_pending());
/// tasks.advance(Duration::from_secs(1));
/// assert!(matches!(receiver.poll_recv(&mut cx), Poll::Ready(Some(due)) if due.item == "retry"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Receiver<T: Send + 'static> {
    queue: DelayQueue<T>,
    /// The receiver's place in line. It is `Some` while the receiver waits, and after the wake-up until the next poll.
    place: Option<Place>,
}

impl<T: Send + 'static> DelayQueue<T> {
    /// Receives the next due item, and waits until an item is due. A handler of the engine must not call this method.
    /// It would block a thread of the engine, and the wait might end only after this thread has fired the queue's timer
    /// or pushed an item.
    ///
    /// # Errors
    ///
    /// Fails if the queue has ended.
    pub fn recv(&self) -> Result<DueItem<T>, RecvError> {
        self.take().or_else(|| self.receiver().wait(|| None)).flatten().ok_or(RecvError)
    }

    /// Works as [`recv`](Self::recv), but waits no longer than `timeout`. The timeout is real time, even if the
    /// engine's clock is manual.
    ///
    /// # Errors
    ///
    /// Fails if no item came due in time, or if the queue has ended.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<DueItem<T>, TryRecvError> {
        let clock = SystemClock::new();
        let deadline = clock.now() + timeout;
        let outcome = self.receiver().wait(|| Some(deadline - clock.now()));
        outcome.map_or(Err(TryRecvError::Empty), |item| item.ok_or(TryRecvError::Closed))
    }

    /// Makes a receiver that a task polls. The receiver has its own place in the line of waiting receivers. With the
    /// feature `stream`, the receiver is a `Stream`.
    #[must_use]
    pub fn receiver(&self) -> Receiver<T> {
        Receiver::new(self.clone())
    }

    /// Receives the next due item, as a future. Its output is `None` if the queue has ended, like the output of a
    /// stream's `next`. A future that is dropped before it completes has taken no item.
    pub fn next(&self) -> impl Future<Output = Option<DueItem<T>>> + Send + use<T> {
        let mut receiver = self.receiver();
        core::future::poll_fn(move |cx| receiver.poll_recv(cx))
    }
}

impl<T: Send + 'static> Receiver<T> {
    fn new(queue: DelayQueue<T>) -> Self {
        Self { queue, place: None }
    }

    /// Receives the next due item, or `None` if the queue has ended. While the receiver is pending, it wakes the task
    /// that polled it last.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<DueItem<T>>> {
        let Shared { items, tasks } = &*self.queue.shared;
        let received = match self.queue.shared.take_in_child() {
            None => items.poll(&mut self.place, cx.waker(), || tasks.true_now()),
            received => received,
        };
        received.map_or(Poll::Pending, Poll::Ready)
    }

    /// Blocks the calling thread until an item is due or the queue ends. `left` returns the remaining time, or `None`
    /// for no limit. When the remaining time is zero and no item is due, this method returns `None`.
    fn wait(mut self, left: impl Fn() -> Option<Duration>) -> Option<Option<DueItem<T>>> {
        let waker = Waker::from(StdArc::new(Unpark(thread::current())));
        let Shared { items, tasks } = &*self.queue.shared;
        let can_sleep = tasks.sleep_for(Timestamp::MAX).is_some();
        loop {
            if let Some(received) = self.queue.shared.take_in_child() {
                return Some(received);
            }
            let left = left();
            let waited = if can_sleep {
                items.wait(&mut self.place, &waker, || tasks.true_now())
            } else {
                items.poll(&mut self.place, &waker, || tasks.true_now()).ok_or(None)
            };
            let watch = match waited {
                Ok(outcome) => return Some(outcome),
                Err(watch) => watch.and_then(|moment| tasks.sleep_for(moment)),
            };
            match left.into_iter().chain(watch).min() {
                _ if left == Some(Duration::ZERO) => return None,
                Some(pause) => park_timeout(pause),
                None => thread::park(),
            }
        }
    }

    /// Returns the queue of this receiver.
    #[must_use]
    pub fn queue(&self) -> &DelayQueue<T> {
        &self.queue
    }
}

/// A waker that unparks a waiting thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}

impl<T: Send + 'static> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let Shared { items, tasks } = &*self.queue.shared;
            items.leave(place, tasks.patience());
        }
    }
}

#[cfg(feature = "stream")]
impl<T: Send + 'static> futures_core::Stream for Receiver<T> {
    type Item = DueItem<T>;

    fn poll_next(self: core::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<DueItem<T>>> {
        self.get_mut().poll_recv(cx)
    }
}

impl<T: Send + 'static> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self::new(self.queue.clone())
    }
}

impl<T: Send + 'static> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("queue", &self.queue).finish_non_exhaustive()
    }
}
