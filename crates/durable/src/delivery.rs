//! Describes one delivery of a timer to its handler, and records whether the end of the delivery is decided.

use crate::panics::survive;
use crate::policy::Guarantee;
use crate::state::Token;
use crate::timer::{Timer, TimerId};
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tourbillon_words::UtcMillis;

/// A delivery of a timer, as its handler gets it.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon_durable::store::MemoryStore;
/// use tourbillon_durable::{Delivery, Durable, Spec};
///
/// let (sender, deliveries) = mpsc::channel();
/// let durable = Durable::builder(MemoryStore::default())
///     .bytes_handler("mail", move |_, delivery: Delivery| {
///         let sent = sender.send((delivery.id, delivery.attempt, delivery.key.clone()));
///         async move { sent.map_err(|_| "nobody receives") }
///     })
///     .start()?;
/// let placed = durable.handle().schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("order 17"))?;
/// let (id, attempt, key) = deliveries.recv_timeout(Duration::from_secs(20))?;
/// assert_eq!((id, attempt, key.as_deref()), (placed.id(), 1, Some("order 17")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The timer's id, which is the same in all deliveries of the timer. A receiver that remembers the id can ignore a
    /// repeated delivery.
    pub id: TimerId,
    /// The timer's namespace.
    pub namespace: Box<str>,
    /// The timer's key. `None` if the timer has no key.
    pub key: Option<Box<str>>,
    /// The timer's labels.
    pub labels: Vec<Box<str>>,
    /// The moment for which the timer is scheduled. Retries and snoozes do not change it.
    pub scheduled: UtcMillis,
    /// The moment at which this delivery became due.
    pub due: UtcMillis,
    /// The time from the due moment to the claim (the call that took the timer from the store), by the store's clock.
    pub lateness: Duration,
    /// The number of the attempt: the number of earlier failures, plus one.
    pub attempt: u32,
    /// The number of this delivery, counted from 1. The number is greater than `attempt` if processes died during
    /// earlier deliveries.
    pub delivery: u32,
    /// The pause that the timer's policy sets before the next attempt, if this attempt fails.
    pub pause: Duration,
    /// The trace context that the timer's creator has given. `None` if the creator has given no trace context.
    pub trace: Option<Box<str>>,
    /// The token of the claim by which the runtime leased the timer. While the store has the timer, any process that
    /// shares the store can report the end of the delivery with this token, for example by
    /// [`Op::Ack`](crate::store::Op::Ack). A timer that is delivered at most once leaves the store when its delivery
    /// begins ([`begin`](Self::begin)).
    pub token: Token,
    guarantee: Guarantee,
    lease: Arc<Settlement>,
    runtime: Weak<dyn Begin>,
    /// The number by which the runtime identifies the delivery.
    number: u64,
}

/// The runtime's answer to a delivery that wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Granted,
    /// The store has not confirmed yet that it has removed the timer. [`Settlement::wake`] wakes the delivery's future
    /// after the store's answer.
    Awaited,
    /// As `Awaited`, but the store takes long, so the thread of the handler must not wait.
    Later,
    Refused,
}

/// The method of a runtime that a [`Delivery`] calls when its handler begins the delivery.
pub(crate) trait Begin: Send + Sync {
    /// Begins the delivery `number` for [`Delivery::begin`]. Asks the store to remove the timer if the timer is
    /// delivered at most once and is still stored.
    fn begin(&self, number: u64) -> Permission;
}

/// Records whether a delivery is *settled*, which means that its end is decided. A delivery is settled only once: by
/// its handler's answer, its timeout, the loss of its lease, the stop of the runtime, or an executor that drops the
/// work or does not call the handler.
#[derive(Debug, Default)]
pub(crate) struct Settlement(Mutex<Settled>);

#[derive(Debug, Default)]
struct Settled {
    is_settled: bool,
    /// True if the store has removed the timer, because it is delivered at most once and its delivery has begun.
    is_removed: bool,
    wakers: Vec<Waker>,
}

impl Settlement {
    fn lock(&self) -> MutexGuard<'_, Settled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the delivery as settled (its end is decided). Returns true for the first caller only, which decides the
    /// end. This caller must then call [`wake`](Self::wake). The call of `wake` runs the executor's wakers, so the
    /// caller must not hold a lock during this call.
    #[must_use = "only the caller that gets `true` may end the delivery"]
    pub(crate) fn settle(&self) -> bool {
        !core::mem::replace(&mut self.lock().is_settled, true)
    }

    /// Notes that the store has removed the timer, which is delivered at most once. The caller must then call
    /// [`wake`](Self::wake).
    pub(crate) fn remove(&self) {
        self.lock().is_removed = true;
    }

    fn is_removed(&self) -> bool {
        self.lock().is_removed
    }

    /// Wakes all futures that wait until the delivery is settled ([`poll`](Self::poll)), or until it may begin.
    pub(crate) fn wake(&self) {
        let wakers = core::mem::take(&mut self.lock().wakers);
        for waker in wakers {
            // The executor's waker may panic, which must not end the thread that settles the delivery.
            survive(|| waker.wake());
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    /// Returns whether the delivery is settled, which means that its end is decided. If it is not settled yet, keeps
    /// `waker` until a call of [`wake`](Self::wake) wakes it.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        // A future may be polled many times with the same waker, which must not make the list longer each time.
        if !inner.is_settled && !inner.wakers.iter().any(|known| known.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        inner.is_settled
    }
}

impl Delivery {
    /// Describes the delivery `number` of a timer that the claim with this token has leased.
    pub(crate) fn new(
        timer: &Timer,
        token: Token,
        now: UtcMillis,
        lease: Arc<Settlement>,
        runtime: Weak<dyn Begin>,
        number: u64,
    ) -> Self {
        Self {
            guarantee: timer.policy.guarantee,
            token,
            runtime,
            number,
            id: timer.id,
            namespace: timer.namespace.clone(),
            key: timer.key.clone(),
            labels: timer.labels.clone(),
            scheduled: timer.scheduled,
            due: timer.due,
            lateness: now - timer.due,
            attempt: timer.failures.saturating_add(1),
            delivery: timer.deliveries,
            pause: timer.next_pause(),
            trace: timer.trace.clone(),
            lease,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn settlement(&self) -> Arc<Settlement> {
        Arc::clone(&self.lease)
    }

    /// Returns true if the timer is delivered at most once.
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.guarantee == Guarantee::AtMostOnce
    }

    /// Begins the delivery. A handler calls this method only if the builder has the setting
    /// [`begins_itself`](crate::Builder::begins_itself) for its kind. Returns true if the handler may act now.
    ///
    /// A timer that is delivered at most once leaves the store at this moment. The call returns true once the store has
    /// confirmed the removal with the durability [`PowerLoss`](crate::store::Durability::PowerLoss). It returns false,
    /// and the handler must not act, if the timer was cancelled or replaced, if the lease was lost, or if the store has
    /// not removed the timer in time. The timer is then delivered again after a pause. If nobody knows whether the
    /// store has removed the timer, it may be lost. Such a delivery is over, and so the runtime usually drops the
    /// handler's future before it sees this answer. For any other delivery, the call returns true at once, unless the
    /// delivery [is over](Self::is_over).
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the store may still remove the timer. Another call of `begin` returns the result of
    /// the removal. If the handler returns a verdict instead, the verdict takes effect if the removal has not reached
    /// the store. Otherwise the timer is lost.
    ///
    /// ```
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Delivery, Durable, Spec, Verdict};
    ///
    /// async fn print(has_paper: bool, delivery: Delivery) -> Verdict {
    ///     // The timer is still stored, so it can be put aside.
    ///     if !has_paper {
    ///         return Verdict::Park("no paper".into());
    ///     }
    ///     if delivery.begin().await {
    ///         // ... print the page, at most once ...
    ///     }
    ///     Verdict::Done
    /// }
    ///
    /// let builder = Durable::builder(MemoryStore::default());
    /// let builder = builder.bytes_handler("print", |_, delivery| print(true, delivery)).begins_itself("print");
    /// let durable = builder.start()?;
    /// durable.handle().schedule_bytes_blocking("print", Spec::new(Vec::new()).at_most_once())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn begin(&self) -> bool {
        poll_fn(|context| {
            // The waker is stored before the runtime is asked, so that the answer wakes this future.
            if self.lease.poll(context.waker()) {
                return Poll::Ready(false);
            }
            match self.runtime.upgrade().map(|runtime| runtime.begin(self.number)) {
                Some(Permission::Granted) => Poll::Ready(true),
                Some(Permission::Awaited | Permission::Later) => Poll::Pending,
                Some(Permission::Refused) | None => Poll::Ready(false),
            }
        })
        .await
    }

    /// Returns true if the timer is delivered at most once and its delivery has begun. The store has then removed the
    /// timer, and no verdict of the handler stores it again.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.lease.is_removed()
    }

    /// Returns true if the answer of this delivery's handler no longer counts. The reason is that the policy's
    /// [`timeout`](crate::policy::Policy::timeout) has passed, that the runtime has lost its lease (the right to
    /// deliver the timer), or that the runtime stops. A blocking handler can call this method, and then return early.
    /// An asynchronous handler does not need this method, because the runtime drops its future.
    ///
    /// ```
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Delivery, Durable};
    ///
    /// fn export(pages: u32, delivery: &Delivery) -> Result<(), String> {
    ///     for _page in 0..pages {
    ///         if delivery.is_over() {
    ///             return Err("the time is over".into());
    ///         }
    ///         // ... write the page ...
    ///     }
    ///     Ok(())
    /// }
    ///
    /// # let _builder =
    /// Durable::builder(MemoryStore::default())
    ///     .bytes_handler("export", |_, delivery| async move { export(100, &delivery) });
    /// ```
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.lease.is_settled()
    }

    /// Waits until [`is_over`](Self::is_over) is true.
    pub async fn over(&self) {
        poll_fn(|context| if self.lease.poll(context.waker()) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}
