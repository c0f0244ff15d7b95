//! The settings with which a deployment is opened.

use core::time::Duration;
use std::sync::Arc;
use tourbillon::Clock;

/// The pause between two looks of a node for due timers that other processes have made.
pub const POLL: Duration = Duration::from_millis(250);

/// The time after its last sign of life at which a node counts as dead.
pub const TTL: Duration = Duration::from_secs(10);

/// Opens a [`PostgresStore`](crate::PostgresStore).
#[must_use]
pub struct PostgresBuilder {
    pub(super) schema: Box<str>,
    pub(super) node: Box<str>,
    pub(super) ttl: Duration,
    pub(super) poll: Option<Duration>,
    pub(super) migrates: bool,
    pub(super) listens: bool,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

impl core::fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PostgresBuilder").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PostgresBuilder {
    pub(super) fn new() -> Self {
        let (schema, node) = ("tourbillon".into(), "node".into());
        Self { schema, node, ttl: TTL, poll: Some(POLL), migrates: true, listens: false, clock: None }
    }

    /// Sets the name of the schema: up to 63 small letters, digits and `_`, with a letter first. `tourbillon` by
    /// default. Each schema is a deployment of its own.
    pub fn schema(mut self, name: impl Into<Box<str>>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the name of this process among the nodes.
    pub fn node(mut self, name: impl Into<Box<str>>) -> Self {
        self.node = name.into();
        self
    }

    /// Sets the time after its last sign of life at which this node counts as dead: [`TTL`] by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the pause between two looks for due timers that other processes have made: [`POLL`] by default. Without a
    /// pause the store never looks by itself, which is for tests.
    pub fn poll(mut self, pause: Option<Duration>) -> Self {
        self.poll = pause;
        self
    }

    /// Sets whether the store listens for notifications, on a connection beside those of its pool. It does not by
    /// default.
    ///
    /// A store that listens finds timers at once that other processes have made due within 250 ms. All other timers are
    /// found by looks in any case. The opening sets `notify` in the table `setting`, so creations of such timers call
    /// `pg_notify`. All commits with a notification take one lock of the server.
    ///
    /// A pool in transaction mode (pgbouncer) passes no notifications on. Without [`poll`](Self::poll) this setting has
    /// no effect.
    pub fn listen(mut self, listens: bool) -> Self {
        self.listens = listens;
        self
    }

    /// Sets whether the opening creates the schema and runs migrations. It does so by default.
    pub fn migrate(mut self, migrates: bool) -> Self {
        self.migrates = migrates;
        self
    }

    /// Lets a clock of the caller decide what is due, in place of the server's. For tests.
    #[cfg(any(test, feature = "test-clock"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-clock")))]
    pub fn on_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }
}
