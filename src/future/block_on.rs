//! Runs a future on shards without threads. Time moves on when the future waits for a timer.

use crate::api::driven::DrivenShards;
use crate::base::sync::{Condvar, Mutex, Ordering, PoisonError, StdArc, fence};
use core::fmt;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::task::Wake;

/// The time between two checks for a timer that another thread has armed. `block_on` makes these checks while the
/// future waits and no timer is pending.
const LOOK_AFTER: Duration = Duration::from_millis(1);

impl DrivenShards {
    /// Runs a future to its end on the calling thread. Whenever the future waits and nothing has woken it, the call
    /// moves time forward to the next timer. Inside the future, the functions of `tourbillon::future` use the shards of
    /// `self`.
    ///
    /// If no timer is pending, the call waits until another thread wakes the future or arms a timer. It looks for a
    /// timer once a millisecond. The clock does not wait for other threads: it also moves on while other threads work
    /// for the future.
    ///
    /// # Errors
    ///
    /// Fails if the future waits and no clone of its waker is left, as with [`pending`](core::future::pending): nothing
    /// can wake the future then. The future is dropped. If a clone of the waker is kept and never woken, for example by
    /// a sleep until [`Timestamp::MAX`](crate::Timestamp::MAX), the call waits for ever, as any executor does.
    ///
    /// # Examples
    ///
    /// A day passes at once:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Clock, Timestamp, future};
    ///
    /// let mut shards = Builder::new().driven_shards()?;
    /// let answer = shards.block_on(async {
    ///     future::sleep(Duration::from_secs(86_400)).await;
    ///     future::timeout(Duration::from_secs(5), std::future::pending::<()>()).await
    /// })?;
    /// assert!(answer.is_err());
    /// assert!(shards.block_on(std::future::pending::<()>()).is_err());
    /// assert_eq!(shards.clock().now() - Timestamp::ZERO, Duration::from_secs(86_405));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_on<F: IntoFuture>(&mut self, future: F) -> Result<F::Output, NeverWoken> {
        let _scope = self.shards().enter();
        let woken = StdArc::new(Woken::default());
        let waker = Waker::from(StdArc::clone(&woken));
        let mut future = pin!(future.into_future());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            // Timers whose deadlines have passed fire before time moves.
            self.turn();
            while !woken.take() {
                if Woken::is_out_of_reach(&woken) {
                    return Err(NeverWoken(()));
                }
                match self.next_step() {
                    Some(moment) => self.advance_to(moment),
                    None => woken.wait_for(LOOK_AFTER),
                }
            }
        }
    }
}

/// The error of [`DrivenShards::block_on`] for a future that waits although nothing can wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverWoken(());

impl fmt::Display for NeverWoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the future waits, and nothing is left that could wake it")
    }
}

impl std::error::Error for NeverWoken {}

/// Records whether a future was woken since its last poll, and wakes the thread that polls the future.
#[derive(Default)]
struct Woken {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Woken {
    fn take(&self) -> bool {
        core::mem::take(&mut *self.is_set.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether nothing can wake the future any more: no clone of its waker is left, and nothing has woken it.
    fn is_out_of_reach(woken: &StdArc<Self>) -> bool {
        // The polling call has two references: this reference and its own waker. Clones of the waker are made only in a
        // poll, or from other clones.
        if StdArc::strong_count(woken) > 2 {
            return false;
        }
        // Ordering: Acquire fence. Pairs with the release of a clone that was dropped: the load below sees a wake-up by
        // that clone.
        fence(Ordering::Acquire);
        !*woken.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, time: Duration) {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set));
    }
}

impl Wake for Woken {
    fn wake(self: StdArc<Self>) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}
