//! The settings with which a deployment is opened.

use core::time::Duration;
use std::sync::Arc;
use tourbillon::Clock;

/// The default pause between two polls. A poll finds due timers that other processes have created.
pub const POLL: Duration = Duration::from_millis(250);

/// The default time after which a node counts as dead if it has given no sign of life (heartbeat).
pub const TTL: Duration = Duration::from_secs(10);

/// The owner that a deployment must have: the processes that deliver its timers. Otherwise the opening fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Programs,
    Service,
    /// Any processes may deliver the timers.
    Any,
}

/// Opens a [`PostgresStore`](crate::PostgresStore).
#[must_use]
pub struct PostgresBuilder {
    pub(super) schema: Box<str>,
    pub(super) node: Box<str>,
    pub(super) ttl: Duration,
    pub(super) poll: Option<Duration>,
    pub(super) migrates: bool,
    pub(super) listens: bool,
    pub(super) owner: Owner,
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
        Self {
            schema,
            node,
            ttl: TTL,
            poll: Some(POLL),
            migrates: true,
            listens: false,
            owner: Owner::Programs,
            clock: None,
        }
    }

    /// Sets the name of the schema: up to 63 small letters, digits and `_`, with a letter first. The names `pg_...` and
    /// `information_schema` are not permitted. `tourbillon` by default. Each schema is a deployment of its own.
    pub fn schema(mut self, name: impl Into<Box<str>>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the name of this process among the nodes.
    pub fn node(mut self, name: impl Into<Box<str>>) -> Self {
        self.node = name.into();
        self
    }

    /// Sets the time after which this node counts as dead if it has given no sign of life. A sign of life is a
    /// heartbeat that the store sends to the server four times in this time. The other nodes take over the timers of a
    /// dead node. [`TTL`] by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the pause between two polls, which find due timers that other processes have created. [`POLL`] by default.
    /// With `None` the store never polls, which is for tests.
    pub fn poll(mut self, pause: Option<Duration>) -> Self {
        self.poll = pause;
        self
    }

    /// Sets whether the store listens for notifications, on a connection beside those of its pool. `false` by default.
    ///
    /// A notification announces a new timer that is due within 250 ms. A store that listens finds such a timer at once.
    /// Polls find all other timers.
    ///
    /// While at least one listening node is alive, each creation or move of such a timer calls `pg_notify`, in all
    /// processes. All commits with a notification wait for one lock of the server. `PREPARE TRANSACTION` fails in a
    /// transaction with a notification. So either no node may listen, or callers with two-phase commit must not create
    /// timers that are due within 250 ms. A dead node counts as alive for its [`ttl`](Self::ttl).
    ///
    /// A pooler in transaction mode (pgbouncer) passes no notifications on. If [`poll`](Self::poll) is `None`, this
    /// setting has no effect.
    pub fn listen(mut self, listens: bool) -> Self {
        self.listens = listens;
        self
    }

    /// Sets whether the opening creates the schema and runs migrations. `true` by default.
    pub fn migrate(mut self, migrates: bool) -> Self {
        self.migrates = migrates;
        self
    }

    /// Sets whether the deployment belongs to the service `tourbillond`. `false` by default: programs with handlers of
    /// their own deliver the timers.
    ///
    /// The service cannot handle a program's timers, and a program cannot handle the service's timers. So a deployment
    /// belongs either to the service or to programs, and an opening with the wrong setting fails. If the setting is
    /// `true`, and the deployment has no timers and no nodes, it belongs to the service from then on.
    ///
    /// In a deployment of the service, the SQL functions refuse timers that the service does not deliver. In other
    /// deployments they refuse callbacks and entries of queues.
    pub fn for_service(mut self, is_of_service: bool) -> Self {
        self.owner = if is_of_service { Owner::Service } else { Owner::Programs };
        self
    }

    /// Opens the deployment whether it belongs to the service or to programs. The opening does not change to whom the
    /// deployment belongs, so this suits a program that only reads.
    pub fn for_any(mut self) -> Self {
        self.owner = Owner::Any;
        self
    }

    /// Sets a clock of the caller that decides which timers are due, in place of the server's clock. For tests.
    #[cfg(any(test, feature = "test-clock"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-clock")))]
    pub fn on_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }
}
