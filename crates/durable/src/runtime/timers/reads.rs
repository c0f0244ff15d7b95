//! Reads stored timers.

use super::Timers;
use crate::plan::PlanError;
use crate::store::{Counts, Cursor, Fault, Filter, Horizon, Page, StoreError, StoreErrorKind};
use crate::timer::{Address, Timer};
use tourbillon_words::UtcMillis;

impl Timers {
    /// Returns the stored timer with this key or id, or `None` if there is no such timer.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
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
    /// let id = timers.schedule_bytes_blocking("mail", mail("order 17"))?.id();
    /// assert_eq!(block_on(timers.get("order 17"))?.map(|timer| timer.id), Some(id));
    /// assert_eq!(block_on(timers.get("order 18"))?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get(&self, at: impl Into<Address>) -> Result<Option<Timer>, StoreError> {
        self.store().get(at.into()).await
    }

    /// Returns a page of the timers that match the filter. A list is read page by page. A timer that stays stored while
    /// all pages are read is on exactly one page, unless its position in the order of the list changes.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::store::Filter;
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// for key in ["order 1", "order 2", "bill 1"] {
    ///     timers.schedule_bytes_blocking("mail", mail(key))?;
    /// }
    /// let orders = Filter { key_prefix: Some("order ".into()), ..Filter::default() };
    /// let (mut cursor, mut keys) = (None, Vec::new());
    /// loop {
    ///     let page = block_on(timers.list(orders.clone(), cursor, 1))?;
    ///     keys.extend(page.timers.into_iter().filter_map(|timer| timer.key));
    ///     cursor = page.next;
    ///     if cursor.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(keys, ["order 1".into(), "order 2".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Result<Page, StoreError> {
        self.store().list(filter, cursor, limit).await
    }

    /// Returns the next `count` instants of a stored series, beginning with the instant of the present occurrence. The
    /// result is empty if the timer does not belong to a series.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::plan::{MissedInstants, Plan};
    ///
    /// # use pollster::block_on;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let timers = durable.handle();
    /// # let mail = |key: &str| Spec::new(Vec::<u8>::new()).key(key).after(Duration::from_secs(3_600));
    /// let monthly = Plan::cron("0 9 1 * *", "Europe/Zurich")?;
    /// timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("bill").repeat(monthly, MissedInstants::Skip))?;
    /// assert_eq!(block_on(timers.preview("bill", 12))?.len(), 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn preview(&self, at: impl Into<Address>, count: usize) -> Result<Vec<UtcMillis>, StoreError> {
        let Some(timer) = self.get(at).await? else { return Ok(Vec::new()) };
        let Some(series) = &timer.series else { return Ok(Vec::new()) };
        let rest = series.plan.preview(timer.scheduled, count.saturating_sub(1));
        let rest =
            rest.map_err(|error: PlanError| StoreError::new(StoreErrorKind::Corrupt, error.to_string()))?;
        let is_within = |instant: &UtcMillis| series.end.is_none_or(|end| *instant <= end);
        Ok(core::iter::once(timer.scheduled).chain(rest).filter(is_within).take(count).collect())
    }

    /// Returns the number of stored timers for each namespace and phase. The call takes time in proportion to the
    /// number of namespaces.
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
    /// timers.schedule_bytes_blocking("mail", mail("a").namespace("shop"))?;
    /// let counts = block_on(timers.counts())?;
    /// assert_eq!(counts.of(Phase::Pending), 1);
    /// assert_eq!(counts.by_namespace.get(&("shop".into(), Phase::Pending)), Some(&1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.store().counts().await
    }

    /// Counts pending timers by the time until they are due, in spans of growing length. The first span has the timers
    /// that are already due. The second span has the timers that become due within a minute. The last span has the
    /// timers that become due after more than ten years. The call takes a few milliseconds with ten million timers.
    ///
    /// The stores of this crate add up counts that they keep for each full hour of UTC. The spans up to one hour from
    /// now do not end at a full hour. So the stores count the timers that are due between the start of the present hour
    /// and an hour from now one by one, up to 50,000 timers. If more timers are due in this time, some counts are only
    /// lower bounds ([`Span::is_exact`](crate::store::Span::is_exact) is false). These are the counts of the span of
    /// the first timer that was not counted, and of the following spans up to the span that ends in six hours.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::MemoryStore;
    /// use tourbillon_durable::{Durable, Spec};
    ///
    /// let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// let timers = durable.handle();
    /// timers.schedule_bytes_blocking("mail", Spec::new(Vec::new()).after(Duration::from_secs(5 * 86_400)))?;
    /// let horizon = pollster::block_on(timers.horizon())?;
    /// let within_a_week = horizon.spans.iter().find(|span| span.within == Some(Duration::from_secs(7 * 86_400)));
    /// assert_eq!(within_a_week.map(|span| (span.count, span.is_exact)), Some((1, true)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn horizon(&self) -> Result<Horizon, StoreError> {
        self.store().horizon().await
    }

    /// Checks the store's structure, and returns its faults. The result is empty if the store has no fault. The call
    /// reads the whole store.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
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
    /// timers.schedule_bytes_blocking("mail", mail("a"))?;
    /// assert_eq!(block_on(timers.check())?, []);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn check(&self) -> Result<Vec<Fault>, StoreError> {
        self.store().check().await
    }
}
