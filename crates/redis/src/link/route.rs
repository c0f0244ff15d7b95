//! The connection that a call takes.

use super::dial::Wire;
use super::reconnector::Reconnector;
use super::slots::Address;
use redis::aio::ConnectionLike;
use redis::{Pipeline, RedisError, RedisResult, Value};

/// A connection for one call, with the [`Reconnector`] that keeps it open.
pub(crate) struct Route {
    pub(crate) reconnector: Reconnector,
    /// The number of the attempt to connect that made the connection.
    pub(crate) attempt: u64,
    pub(crate) connection: Wire,
    /// The address of the server, or `None` without a cluster.
    pub(crate) address: Option<Address>,
}

impl Route {
    /// Sends commands on the connection. Returns their replies in order, without the first `skipped` replies. The reply
    /// to a command that the server refuses is a [`Value::ServerError`].
    pub(crate) async fn send(&mut self, commands: &Pipeline, skipped: usize) -> RedisResult<Vec<Value>> {
        self.connection.calls.req_packed_commands(commands, skipped, commands.len() - skipped).await
    }

    /// Takes the connection out of use. The next call waits for a new connection.
    pub(crate) async fn doubt(&self) {
        self.reconnector.doubt(self.attempt).await;
    }

    /// Returns the server that a redirection names. A redirection is the error `MOVED` or `ASK`, by which a server of a
    /// cluster says that another server has the keys. Returns `None` for any other error, or without a cluster.
    pub(crate) fn redirection(&self, error: &RedisError) -> Option<Address> {
        Address::read(error.redirect_node()?.0, self.address.as_ref()?)
    }
}
