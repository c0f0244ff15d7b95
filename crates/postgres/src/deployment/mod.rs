//! An open deployment: its connections, its time, and the alarm that wakes the runtime.

mod made;
mod time;

pub(crate) use made::Made;
pub(crate) use time::ms;

use crate::link::{Failure, Pool, Session};
use std::sync::Arc;
use tourbillon_durable::store::{Alarm, ServerTime, StoreError};

/// A store's access to its deployment (a set of timers in one schema, and the nodes that deliver them): the
/// connections, the clock, and the alarm. All operations of the store share these parts.
pub(crate) struct Deployment {
    pub(crate) pool: Arc<Pool>,
    pub(crate) time: ServerTime,
    pub(crate) alarm: Alarm,
}

impl Deployment {
    /// Returns the argument `p_now` of the SQL functions: the time of the test clock. `None` if the server's clock
    /// decides.
    pub(crate) fn argument(&self) -> Option<i64> {
        self.time.of_caller().map(|now| now.as_millis().cast_signed())
    }

    /// Returns a connection for an urgent call, such as a claim or a renewal. Without such calls the node would lose
    /// its shards or its leases.
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        self.pool.session().await.map_err(Failure::into_error)
    }

    /// Returns a connection for a read of a caller. Two connections stay free for urgent calls, even if many reads are
    /// slow.
    pub(crate) async fn session_for_read(&self) -> Result<Session, StoreError> {
        self.pool.session_for_call().await.map_err(Failure::into_error)
    }
}
