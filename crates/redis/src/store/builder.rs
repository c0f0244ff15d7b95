//! The settings with which a store is opened.

use crate::node::{MAY_LOSE, OnSetBack, TTL};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// The default number of shards of a new deployment.
pub const SHARDS: u16 = 64;

/// The default pause between two searches for timers that other processes have stored.
pub const POLL: Duration = Duration::from_millis(250);

/// The settings with which a process opens a deployment as a store.
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
    /// True if a test uses one server like a cluster, so that each script names the keys of a single shard.
    #[cfg(test)]
    pub(super) is_split: bool,
    /// The number of sorted sets of keys if a test sets it.
    #[cfg(test)]
    pub(super) key_sets: Option<u16>,
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
            #[cfg(test)]
            key_sets: None,
        }
    }

    /// Sets the number of shards of a new deployment: a power of two of at most 1,024, [`SHARDS`] by default. The
    /// number never changes. An existing deployment with a different number of shards is refused.
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets the pause between two searches for timers that other processes have stored. The default is [`POLL`]. The
    /// other processes also send messages about timers that are due soon. While this process can receive these
    /// messages, the pause is at least 1.25 s. With `None`, the store has no thread that searches, which suits a
    /// deployment that only this process uses.
    pub fn poll(mut self, poll: Option<Duration>) -> Self {
        self.poll = poll;
        self
    }

    /// Sets the name of this process for people who read [`nodes`](tourbillon_durable::store::TimerStore::nodes), at
    /// most 255 bytes. The default is `process` with the process id. Nothing depends on the name, so several processes
    /// may have the same name.
    pub fn node(mut self, name: impl Into<Box<str>>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// Sets how long this process owns a shard without renewing its ownership. The owner of a shard delivers the
    /// shard's timers, and renews its ownership while it runs. The time is between 100 ms and an hour, and 10 seconds
    /// by default. If the machine of the process dies, other processes take over its shards after about this time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the greatest loss of data that an open store accepts. The loss is the length of the last period whose
    /// changes the server has lost. The default is 10 seconds.
    ///
    /// A server loses its last changes, for example, in a failover to a replica that lacks the last writes. After a
    /// greater loss, such as a restart from an older snapshot, the store is closed for good: created timers would be
    /// missing, and cancelled timers would be delivered. A store that is opened after the loss accepts the data as they
    /// are.
    ///
    /// The store measures the loss by the signs of life (heartbeats) of the processes. The server stores the moment of
    /// the last sign of life. If this moment goes back, the difference is the loss. A process sends a sign each quarter
    /// of [`ttl`](Self::ttl), so the measured loss may be wrong by a quarter of `ttl`. The store adds a quarter of
    /// `ttl` to the limit.
    pub fn may_lose(mut self, time: Duration) -> Self {
        self.may_lose = time;
        self
    }

    /// Sets a function that is called when the server has lost its last changes (see [`may_lose`](Self::may_lose)) and
    /// the store goes on. The argument is the length of the period whose changes are lost.
    /// [`nodes`](tourbillon_durable::store::TimerStore::nodes) returns how many times this has happened.
    pub fn on_set_back(mut self, tell: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.on_set_back = Some(Arc::new(tell));
        self
    }

    /// Uses the caller's clock, which counts from the start of 1970, instead of the server's time. A deployment that
    /// was created on a test clock can only be opened on a test clock, and any other deployment only on the server's
    /// clock.
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

    /// Makes a test use one server as if it were a cluster.
    #[cfg(test)]
    pub(crate) fn split(mut self) -> Self {
        self.is_split = true;
        self
    }

    /// Gives a test's deployment fewer sorted sets of keys than other deployments have. All stores of the deployment
    /// must be opened with this setting.
    #[cfg(test)]
    pub(crate) fn few_key_sets(mut self) -> Self {
        self.key_sets = Some(64);
        self
    }

    /// Makes [`open`](Self::open) skip the check of the servers: their versions, their behaviour when memory is full,
    /// and their clocks.
    pub fn unchecked(mut self) -> Self {
        self.is_unchecked = true;
        self
    }
}
