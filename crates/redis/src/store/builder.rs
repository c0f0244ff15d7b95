//! How a store is opened: the settings.

use crate::node::{MAY_LOSE, OnSetBack, TTL};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// The shards of a deployment that is created without a number of them.
pub const SHARDS: u16 = 64;

/// The pause between two looks for timers that other processes have placed.
pub const POLL: Duration = Duration::from_millis(250);

/// How a store is opened.
#[must_use = "a builder does nothing before it opens a store"]
pub struct RedisBuilder {
    pub(super) name: Box<str>,
    pub(super) shards: Option<u16>,
    pub(super) poll: Option<Duration>,
    pub(super) node: Option<Box<str>>,
    pub(super) ttl: Duration,
    pub(super) may_lose: Duration,
    pub(super) on_set_back: Option<OnSetBack>,
    pub(super) clock: Option<Arc<dyn tourbillon::Clock>>,
    pub(super) is_unchecked: bool,
    /// Whether a script on one server names the keys of one shard only, as in a cluster.
    #[cfg(test)]
    pub(super) is_split: bool,
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, shards, poll, node, ttl, clock, .. } = self;
        f.debug_struct("RedisBuilder")
            .field("name", name)
            .field("shards", shards)
            .field("poll", poll)
            .field("node", node)
            .field("ttl", ttl)
            .field("is_on_test_clock", &clock.is_some())
            .finish_non_exhaustive()
    }
}

impl RedisBuilder {
    pub(super) fn new(name: Box<str>) -> Self {
        Self {
            name,
            shards: None,
            poll: Some(POLL),
            node: None,
            ttl: TTL,
            may_lose: MAY_LOSE,
            on_set_back: None,
            clock: None,
            is_unchecked: false,
            #[cfg(test)]
            is_split: false,
        }
    }

    /// The number of shards of a deployment that is created: a power of two of at most 1,024, [`SHARDS`] by default. It
    /// stays as it is for good. A deployment that has another number is not opened.
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The pause between two looks for timers that other processes have placed, [`POLL`] by default. While the
    /// processes get each other's hints, the pause is 1.25 s at least. `None` for a deployment that only this process
    /// uses: no thread looks then.
    pub fn poll(mut self, poll: Option<Duration>) -> Self {
        self.poll = poll;
        self
    }

    /// The name by which people know this process, in [`nodes`](tourbillon_durable::store::TimerStore::nodes). Several
    /// processes may have the same name: nothing depends on it. At most 255 bytes; unless set, it has the number of the
    /// process.
    pub fn node(mut self, name: impl Into<Box<str>>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// The time for which this process takes shards for itself, 10 seconds unless set. If the process dies, its timers
    /// wait at most this time until other processes take its shards over. From 100 ms to an hour.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The time by which the server's data may go back while the store is open, 10 seconds unless set, as in a failover
    /// to a replica without the last writes. If they go back further, as after a restart from an older snapshot, the
    /// store is closed for good: created timers would be missing, and cancelled timers would be delivered. The store
    /// measures the loss by the age of the nodes' last sign of life. Signs are a quarter of [`ttl`](Self::ttl) apart,
    /// so a loss may be greater or less than it seems by this time, which is added to the limit. A store that is opened
    /// afterwards takes the data as they are.
    pub fn may_lose(mut self, time: Duration) -> Self {
        self.may_lose = time;
        self
    }

    /// Calls a function with the time by which the data have gone back, each time that the store goes on.
    /// [`nodes`](tourbillon_durable::store::TimerStore::nodes) counts these times.
    pub fn on_set_back(mut self, tell: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.on_set_back = Some(Arc::new(tell));
        self
    }

    /// A clock of the caller's, which counts from the start of 1970, in place of the server's time. A deployment is
    /// created on one kind of clock and opened only on the same kind.
    #[cfg(feature = "test-clock")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-clock")))]
    pub fn test_clock(self, clock: impl tourbillon::Clock + 'static) -> Self {
        self.on_clock(clock)
    }

    #[cfg(any(test, feature = "test-clock"))]
    pub(crate) fn on_clock(mut self, clock: impl tourbillon::Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Uses one server as if it were a cluster.
    #[cfg(test)]
    pub(crate) fn split(mut self) -> Self {
        self.is_split = true;
        self
    }

    /// Opens the deployment without a check of its servers: of their version, of their behaviour when memory is full,
    /// and of their clocks.
    pub fn unchecked(mut self) -> Self {
        self.is_unchecked = true;
        self
    }
}
