//! Collects expired connections until an event loop fetches them.

use super::idle::Expired;
use crate::sync::{Mutex, StdArc, ignore_poison};
use core::fmt;

/// The connections of [`IdleTimeouts`](super::IdleTimeouts) that have expired and have not been fetched yet.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tasks::DrivenTasks;
/// use tourbillon_tasks::uses::Limits;
///
/// let mut tasks = DrivenTasks::new()?;
/// let (timeouts, batch) = tasks.handle().idle_batches(Limits::idle(Duration::from_secs(30)), || { /* wake the poll */ });
/// let _connections = [timeouts.insert(1)?, timeouts.insert(2)?];
/// tasks.advance(Duration::from_secs(30));
///
/// let mut expired = Vec::new();
/// batch.drain(&mut expired);
/// assert_eq!(expired.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IdleBatch<I> {
    /// The expired connections that wait to be fetched. A connection that is added to the empty list wakes the event
    /// loop. Further connections do not wake the loop again until it has drained the list.
    expired: StdArc<Mutex<Vec<Expired<I>>>>,
}

impl<I> IdleBatch<I> {
    /// Makes an empty batch, and a callback for expired connections. The callback adds the connection to the batch. For
    /// the first connection in an empty batch, the callback also calls `wake`.
    pub(super) fn new(
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, impl Fn(Expired<I>) + Send + Sync + 'static)
    where
        I: Send + 'static,
    {
        let batch = StdArc::new(Mutex::new(Vec::new()));
        let expired = StdArc::clone(&batch);
        let on_expired = move |connection| {
            let is_first = {
                let mut batch = ignore_poison(batch.lock());
                batch.push(connection);
                batch.len() == 1
            };
            if is_first {
                wake();
            }
        };
        (Self { expired }, on_expired)
    }

    /// Moves all connections that have expired since the previous call of this method to the end of `into`, in no
    /// order. Returns their number. The next connection that expires calls the closure `wake` of
    /// [`Tasks::idle_batches`](crate::Tasks::idle_batches) again. A call of `wake` may also come late, for a connection
    /// that was fetched already.
    pub fn drain(&self, into: &mut Vec<Expired<I>>) -> usize {
        let mut expired = core::mem::take(&mut *ignore_poison(self.expired.lock()));
        let count = expired.len();
        into.append(&mut expired);
        count
    }

    /// Returns whether no connection waits to be fetched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        ignore_poison(self.expired.lock()).is_empty()
    }
}

impl<I> fmt::Debug for IdleBatch<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleBatch").field("expired", &ignore_poison(self.expired.lock()).len()).finish()
    }
}
