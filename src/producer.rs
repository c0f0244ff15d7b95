//! Producers: lanes that callers hold themselves.

use crate::engine::{Cancel, Local};
use crate::error::{BatchError, RescheduleError, ScheduleError};
use crate::handle::{self, Handle};
use crate::tick::Timestamp;
use crate::ticket::TimerId;
use core::fmt;
use core::time::Duration;

/// A lane and a stock of slots that the caller holds itself. A [`Handle`] looks up such a pair for each thread.
///
/// A producer may move to another thread; one thread at a time uses it. Dropping a producer leaves its lane to the next
/// producer.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, Cancel};
///
/// let mut engine = Builder::new().build_driven(|timer| println!("{}", timer.payload))?;
/// let mut producer = engine.handle().producer();
/// let now = producer.now();
/// let id = producer.schedule_at(now + Duration::from_secs(1), "request timed out")?;
/// assert_eq!(producer.cancel(id), Cancel::Cancelled("request timed out"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Producer<T: Send + 'static> {
    local: Local,
    handle: Handle<T>,
}

impl<T: Send + 'static> Producer<T> {
    pub(crate) fn new(handle: Handle<T>, shard: usize) -> Self {
        Self { local: Local::new(handle.core(), shard), handle }
    }

    /// A handle to the engine.
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        &self.handle
    }

    /// The shard to which the producer's timers go.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.local.home()
    }

    /// The present moment on the engine's clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.handle.now()
    }

    /// See [`Handle::schedule`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::schedule`] does.
    #[inline(always)]
    pub fn schedule(&mut self, delay: Duration, payload: T) -> Result<TimerId, ScheduleError<T>> {
        self.schedule_at(self.now() + delay, payload)
    }

    /// See [`Handle::schedule_at`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::schedule_at`] does.
    #[inline(always)]
    pub fn schedule_at(&mut self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        match self.try_schedule_at(deadline, payload) {
            Ok(id) => Ok(id),
            Err(error) => {
                let Self { local, handle } = self;
                let core = handle.core();
                handle::wait_for_room(core, error, |payload| handle::schedule(core, local, deadline, payload))
            }
        }
    }

    /// See [`Handle::try_schedule_at`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::try_schedule_at`] does.
    #[inline(always)]
    pub fn try_schedule_at(&mut self, deadline: Timestamp, payload: T) -> Result<TimerId, ScheduleError<T>> {
        handle::schedule(self.handle.core(), &mut self.local, deadline, payload)
    }

    /// See [`Handle::schedule_batch`]. The deadlines are absolute, and the call reads no clock.
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::schedule_batch`] does.
    pub fn schedule_batch_at(
        &mut self,
        batch: impl IntoIterator<Item = (Timestamp, T)>,
    ) -> Result<Vec<TimerId>, BatchError<T>> {
        let Self { local, handle } = self;
        let core = handle.core();
        handle::batch_result(core, batch.into_iter().collect(), |batch| core.schedule_batch(local, batch))
    }

    /// See [`Handle::cancel`].
    #[inline(always)]
    pub fn cancel(&mut self, id: TimerId) -> Cancel<T> {
        self.handle.core().cancel(&mut self.local, id)
    }

    /// See [`Handle::reschedule_at`].
    ///
    /// # Errors
    ///
    /// Fails as [`Handle::reschedule_at`] does.
    pub fn reschedule_at(&mut self, id: TimerId, deadline: Timestamp) -> Result<TimerId, RescheduleError<T>> {
        let Self { local, handle } = self;
        let core = handle.core();
        handle::move_when_there_is_room(core, || core.reschedule(local, id, deadline))
    }
}

impl<T: Send + 'static> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("shard", &self.shard()).finish_non_exhaustive()
    }
}
