//! The connection that a call takes.

use super::dial::Wire;
use super::keeper::Keeper;
use super::slots::Address;
use redis::aio::ConnectionLike;
use redis::{Pipeline, RedisError, RedisResult, Value};

/// A connection for a call, and the keeper (a task) that replaces the connection after its end.
pub(crate) struct Route {
    pub(crate) keeper: Keeper,
    /// The number of the attempt that made the connection.
    pub(crate) attempt: u64,
    pub(crate) connection: Wire,
    /// The address of the server. `None` without a cluster.
    pub(crate) address: Option<Address>,
}

impl Route {
    /// Sends commands. Returns their replies in order, without the first `skipped` replies. Errors of the server are
    /// returned as values.
    pub(crate) async fn send(&mut self, commands: &Pipeline, skipped: usize) -> RedisResult<Vec<Value>> {
        self.connection.calls.req_packed_commands(commands, skipped, commands.len() - skipped).await
    }

    /// Takes the connection out of use. The next call waits for another.
    pub(crate) async fn doubt(&self) {
        self.keeper.doubt(self.attempt).await;
    }

    /// Returns the server that a redirection names. Returns `None` for other errors, and without a cluster.
    pub(crate) fn redirection(&self, error: &RedisError) -> Option<Address> {
        Address::read(error.redirect_node()?.0, self.address.as_ref()?)
    }
}
