//! Describes one delivery of a timer: the data that its handler may read, and whether it is settled, which happens
//! once.

use crate::policy::Guarantee;
use crate::state::{Lease, State, Token};
use crate::timer::{Timer, TimerId};
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_words::UtcMillis;

/// A delivery, as its handler sees it.
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
    /// The timer's id: the same for all deliveries of the timer. A receiver that must not act twice remembers it.
    pub id: TimerId,
    /// The namespace.
    pub namespace: Box<str>,
    /// The key, if the timer has one.
    pub key: Option<Box<str>>,
    /// The labels.
    pub labels: Vec<Box<str>>,
    /// The moment for which the timer was made.
    pub scheduled: UtcMillis,
    /// The moment from which this delivery was due.
    pub due: UtcMillis,
    /// The time from the due moment to the claim, by the store's clock.
    pub lateness: Duration,
    /// The number of the attempt, from 1 on: one more than the failures before.
    pub attempt: u32,
    /// The number of the delivery, from 1 on. Greater than `attempt` if processes died within deliveries.
    pub delivery: u32,
    /// The pause before the next attempt, by the timer's policy, if this attempt fails.
    pub pause: Duration,
    /// The trace context of the creation.
    pub trace: Option<Box<str>>,
    /// The token of the lease, with which a process that shares the store can end the delivery. `None` for a delivery
    /// at most once, since the store has removed its timer.
    pub token: Option<Token>,
    lease: Arc<Settlement>,
}

/// Tells whether a delivery is settled: by its handler's answer, by its timeout, or by the loss of its lease, whichever
/// comes first.
#[derive(Debug, Default)]
pub(crate) struct Settlement(Mutex<Settled>);

#[derive(Debug, Default)]
struct Settled {
    is_settled: bool,
    wakers: Vec<Waker>,
}

impl Settlement {
    fn lock(&self) -> MutexGuard<'_, Settled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles the delivery. Returns true for the first caller only. That caller must [`wake`](Self::wake) those that
    /// wait, once it holds no lock: a waker is an executor's code, which may run anything.
    #[must_use = "only one caller may end the delivery"]
    pub(crate) fn settle(&self) -> bool {
        !core::mem::replace(&mut self.lock().is_settled, true)
    }

    /// Wakes all that wait for the settlement.
    pub(crate) fn wake(&self) {
        let wakers = core::mem::take(&mut self.lock().wakers);
        for waker in wakers {
            // A panic of the executor's waker must not end the thread that settles.
            let _panic = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    /// Returns whether the delivery is settled. If not, the waker is woken once it is.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        if !inner.is_settled && !inner.wakers.iter().any(|known| known.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        inner.is_settled
    }
}

impl Delivery {
    pub(crate) fn new(timer: &Timer, now: UtcMillis, lease: Arc<Settlement>) -> Self {
        let token = match timer.state {
            State::Leased(Lease { token, .. }) if timer.policy.guarantee == Guarantee::AtLeastOnce => {
                Some(token)
            }
            _ => None,
        };
        Self {
            token,
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

    /// Returns whether the handler's answer no longer counts: its time is over, the lease was lost, or the runtime
    /// stops. A handler that calls this can end early. The future of an asynchronous handler is dropped in these cases.
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
