//! Expired connections for an event loop, which fetches them in its own turn.

use super::idle::{Expired, IdleTimeouts, Limits};
use crate::sync::{AtomicBool, Ordering, StdArc};
use crate::task::Key;
use crate::task::Tasks;
use core::fmt;
use crossbeam_queue::SegQueue;

/// The connections of [`IdleTimeouts`] that have expired and were not fetched yet.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::uses::Limits;
///
/// let mut tasks = Builder::new().build_driven_tasks()?;
/// let (timeouts, batch) = tasks.idle_batches(Limits::idle(Duration::from_secs(30)), || { /* wake the poll */ });
/// let _connections = [timeouts.insert(1)?, timeouts.insert(2)?];
/// tasks.advance(Duration::from_secs(30));
///
/// let mut expired = Vec::new();
/// batch.drain(&mut expired);
/// assert_eq!(expired.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IdleBatch<I> {
    shared: StdArc<Shared<I>>,
}

struct Shared<I> {
    expired: SegQueue<Expired<I>>,
    /// Whether the loop was woken and has not drained since.
    is_told: AtomicBool,
}

impl Tasks {
    /// As [`idle_timeouts`](Self::idle_timeouts), but what expires is kept until the event loop fetches it. `wake` runs on a
    /// worker, or on the shard's thread if handlers run inline, when the first has expired since the batch was drained.
    #[must_use]
    pub fn idle_batches<I: Key>(
        &self,
        limits: Limits,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (IdleTimeouts<I>, IdleBatch<I>) {
        let shared = StdArc::new(Shared { expired: SegQueue::new(), is_told: AtomicBool::new(false) });
        let batch = StdArc::clone(&shared);
        let timeouts = self.idle_timeouts(limits, move |expired| {
            batch.expired.push(expired);
            // Ordering: AcqRel. Pairs with `drain`, which either sees what was pushed or clears before we set.
            if !batch.is_told.swap(true, Ordering::AcqRel) {
                wake();
            }
        });
        (timeouts, IdleBatch { shared })
    }
}

impl<I> IdleBatch<I> {
    /// Appends what has expired since the last call, in no order: how many. Whatever expires later wakes the loop again, and
    /// it may be woken once for what this call has fetched.
    pub fn drain(&self, into: &mut Vec<Expired<I>>) -> usize {
        // Ordering: AcqRel. Cleared first: what is pushed after the last look wakes again.
        if !self.shared.is_told.swap(false, Ordering::AcqRel) {
            return 0;
        }
        let before = into.len();
        into.extend(core::iter::from_fn(|| self.shared.expired.pop()));
        into.len() - before
    }

    /// Whether nothing waits to be fetched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.expired.is_empty()
    }
}

impl<I> fmt::Debug for IdleBatch<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleBatch").field("expired", &self.shared.expired.len()).finish()
    }
}
