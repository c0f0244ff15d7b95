//! Changes stored timers: cancels, moves, pauses and resumes them.

use super::Timers;
use super::answers::{Cancelled, Changed, Progress, cancelled, changed, unexpected};
use crate::executor::block_on;
use crate::store::{Durability, Op, Outcome, StoreError, StoreErrorKind};
use crate::texts::has_zero_byte;
use crate::timer::{Address, TimerId};
use crate::verdict::Verdict;
use tourbillon_words::UtcMillis;

/// The greatest number of timers that [`cancel_labelled`](Timers::cancel_labelled) cancels in one transaction.
const CANCELLED_AT_ONCE: u32 = 500;

impl Timers {
    /// Cancels the timer with this key or id. If the timer belongs to a series, the whole series ends. After the answer
    /// [`Cancelled::Cancelled`], no delivery of the timer begins. The call returns once the cancellation is durable
    /// even against a loss of power.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Cancelled;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// let Cancelled::Cancelled(timer) = block_on(timers.cancel("order 17"))? else { panic!("it is not due") };
    /// assert_eq!(timer.key.as_deref(), Some("order 17"));
    /// assert_eq!(block_on(timers.cancel(timer.id))?, Cancelled::NotFound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn cancel(&self, at: impl Into<Address>) -> Result<Cancelled, StoreError> {
        cancelled(self.apply_one(Op::Cancel(at.into(), None), Durability::PowerLoss).await?)
    }

    /// Cancels a timer as [`cancel`](Self::cancel) does, and waits on the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub fn cancel_blocking(&self, at: impl Into<Address>) -> Result<Cancelled, StoreError> {
        block_on(self.cancel(at))
    }

    /// Cancels all timers of a namespace that have this label. The timers are cancelled in batches. Other callers'
    /// changes may come between two batches. Calls `progress` after each batch. If `progress` returns false, the
    /// remaining timers stay.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. The timers of earlier batches stay cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// for key in ["a", "b"] {
    ///     timers.schedule_bytes_blocking("mail", mail(key).label("customer 4"))?;
    /// }
    /// let progress = block_on(timers.cancel_labelled("", "customer 4", |_| true))?;
    /// assert_eq!((progress.cancelled, progress.in_flight), (2, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn cancel_labelled(
        &self,
        namespace: &str,
        label: &str,
        mut progress: impl FnMut(Progress) -> bool,
    ) -> Result<Progress, StoreError> {
        let mut done = Progress::default();
        loop {
            let (namespace, label) = (namespace.into(), label.into());
            let op = Op::CancelLabelled { namespace, label, limit: CANCELLED_AT_ONCE };
            match self.apply_one(op, Durability::PowerLoss).await? {
                Outcome::CancelledMany { cancelled, in_flight, more } => {
                    done.cancelled += u64::from(cancelled);
                    done.in_flight += u64::from(in_flight);
                    // `progress` is called first, so that the program also learns of the last batch.
                    if !progress(done) || !more {
                        return Ok(done);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Moves the due moment of a timer. A timer whose delivery has begun is not moved. A parked timer that is moved
    /// into the future becomes pending, unless it is paused.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Changed;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// let tomorrow = timers.timer_store().now() + Duration::from_secs(86_400);
    /// assert_eq!(block_on(timers.move_to("order 17", tomorrow))?, Changed::Changed);
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.due), Some(tomorrow));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn move_to(&self, at: impl Into<Address>, due: UtcMillis) -> Result<Changed, StoreError> {
        self.change(Op::Move(at.into(), due)).await
    }

    /// Delivers a pending, paused, parked or dead timer now.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Changed;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// assert_eq!(block_on(timers.fire("order 17"))?, Changed::Changed);
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(block_on(timers.get("order 17"))?, None, "it was delivered");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn fire(&self, at: impl Into<Address>) -> Result<Changed, StoreError> {
        self.change(Op::Fire(at.into())).await
    }

    /// Pauses a timer or a series: no delivery begins until the timer or series is resumed. A delivery that has begun
    /// goes on. A timer that is parked for another reason becomes paused, and loses that reason.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::state::Phase;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// block_on(timers.pause("order 17"))?;
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.state.phase()), Some(Phase::Parked));
    /// block_on(timers.resume("order 17"))?;
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.state.phase()), Some(Phase::Pending));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pause(&self, at: impl Into<Address>) -> Result<Changed, StoreError> {
        self.change(Op::Pause(at.into())).await
    }

    /// Resumes a paused timer or series. If the due moment has passed, the timer's [`Misfire`](crate::policy::Misfire)
    /// decides whether the timer is still delivered.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Changed;
    /// use tourbillon_durable::state::Phase;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// timers.schedule_bytes_blocking("mail", mail("order 17"))?;
    /// assert_eq!(block_on(timers.resume("order 17"))?, Changed::Refused(Phase::Pending), "it is not paused");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn resume(&self, at: impl Into<Address>) -> Result<Changed, StoreError> {
        self.change(Op::Resume(at.into())).await
    }

    /// Delivers a dead timer again, as if it were new: earlier failures do not count.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{Changed, Verdict};
    ///
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # use std::time::Duration;
    /// let builder = Durable::builder(MemoryStore::default());
    /// let durable = builder.bytes_handler("mail", async |_, _| Verdict::Dead("no such address".into())).start()?;
    /// let timers = durable.handle();
    /// let id = timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).at(tourbillon_durable::UtcMillis::ZERO))?.id();
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(pollster::block_on(timers.replay(id))?, Changed::Changed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn replay(&self, id: TimerId) -> Result<Changed, StoreError> {
        self.change(Op::Replay(id)).await
    }

    /// The greatest number of timers that one call of [`unpark`](Self::unpark) makes pending.
    pub const MOST_UNPARKED: u32 = 1_000;

    /// Makes timers that were parked for this reason ([`Verdict::Park`]) pending again. The call takes at most `limit`
    /// timers, and at most [`MOST_UNPARKED`](Self::MOST_UNPARKED), in one transaction. Timers with the earliest due
    /// moments come first. Afterwards these timers are claimed like other timers: timers that are late by more than 5 s
    /// are delivered at the [`catch_up_rate`](crate::Builder::catch_up_rate).
    ///
    /// Returns the number of timers that are pending again. An occurrence of a paused series becomes paused instead.
    /// Such an occurrence counts neither for the limit nor for the result. Unparking the reason
    /// [`PAUSED`](crate::store::PAUSED) resumes paused timers.
    ///
    /// To unpark all timers of a reason, a caller repeats the call until it returns zero. If handlers still park timers
    /// for the reason during these calls, the result may never be zero.
    ///
    /// If a handler has decided to park its timer, but the park is not stored yet, the timer is not unparked: see
    /// [`Verdict::Park`].
    ///
    /// # Errors
    ///
    /// Fails if the store fails. Fails with [`StoreErrorKind::Limit`] if the reason is longer than
    /// [`Verdict::LONGEST_REASON`] or has a zero byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec, Verdict};
    ///
    /// let builder = Durable::builder(MemoryStore::default());
    /// let durable = builder.bytes_handler("print", async |_, _| Verdict::Park("no paper".into())).start()?;
    /// let timers = durable.handle();
    /// timers.schedule_bytes_blocking("print", Spec::new(Vec::new()).at(tourbillon_durable::UtcMillis::ZERO))?;
    /// assert!(timers.await_idle(Duration::from_secs(20)));
    /// assert_eq!(timers.unpark_blocking("no paper", 100)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn unpark(&self, reason: &str, limit: u32) -> Result<u32, StoreError> {
        admit_reason(reason)?;
        let op = Op::Unpark(reason.into(), limit.min(Self::MOST_UNPARKED));
        match self.apply_one(op, Durability::PowerLoss).await? {
            Outcome::Unparked(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    /// Unparks timers as [`unpark`](Self::unpark) does, and waits on the calling thread.
    ///
    /// # Errors
    ///
    /// Fails as [`unpark`](Self::unpark) does.
    pub fn unpark_blocking(&self, reason: &str, limit: u32) -> Result<u32, StoreError> {
        block_on(self.unpark(reason, limit))
    }

    /// Claims due timers that are parked for this reason ([`Verdict::Park`]), and delivers them in this process. Timers
    /// with the earliest due moments come first. In a store that several processes share, the call also takes timers
    /// from the shards (parts of the timers) that other processes own.
    ///
    /// If `n` due timers are parked for this reason, the call takes `wanted` or `n / 2` of them, whichever is more. But
    /// the call takes at most `n` timers, and at most `most` timers (or `wanted`, if `most` is less). It leaves the
    /// remaining timers to other processes. The call takes fewer timers if fewer handlers can begin at once
    /// ([`concurrency`](crate::Builder::concurrency)). Returns the number of claimed timers.
    ///
    /// If the store cannot claim parked timers, the call unparks up to `wanted` timers instead, and returns their
    /// number.
    ///
    /// Fetching the reason [`PAUSED`](crate::store::PAUSED) delivers paused timers, and resumes their series.
    ///
    /// If no handler can begin now, the call waits. The handler of a claimed timer should park the timer again if the
    /// reason still holds.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, with [`StoreErrorKind::Closed`] if the runtime stops, and with
    /// [`StoreErrorKind::Limit`] if the reason is longer than [`Verdict::LONGEST_REASON`] or has a zero byte.
    ///
    /// # Races
    ///
    /// If a handler has decided to park its timer, but the park is not stored yet, the timer is not found: see
    /// [`Verdict::Park`].
    pub async fn fetch(&self, reason: &str, wanted: u32, most: u32) -> Result<u32, StoreError> {
        admit_reason(reason)?;
        let (wanted, most) = (wanted.min(Self::MOST_UNPARKED), most.min(Self::MOST_UNPARKED));
        let answer = self.runtime.fetch(reason.into(), wanted, most.max(wanted)).await;
        // A runtime that goes on has dropped the reply because its store panicked.
        let unanswered = |_| match self.runtime.is_stopping() {
            true => Err(StoreError::new(StoreErrorKind::Closed, "the runtime stops")),
            false => Err(StoreError::new(StoreErrorKind::Unknown, "the store panicked")),
        };
        match answer.unwrap_or_else(unanswered)? {
            Some(claimed) => Ok(claimed),
            None => self.store().put_back(reason.into(), wanted).await,
        }
    }

    async fn change(&self, op: Op) -> Result<Changed, StoreError> {
        changed(&self.apply_one(op, Durability::PowerLoss).await?)
    }
}

fn admit_reason(reason: &str) -> Result<(), StoreError> {
    let message = if reason.len() > Verdict::LONGEST_REASON {
        format!("the reason has {} bytes, the most are {}", reason.len(), Verdict::LONGEST_REASON)
    } else if has_zero_byte(reason) {
        "the reason has a zero byte".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::new(StoreErrorKind::Limit, message))
}
