//! The way of a call to a server.

use super::dial::Wire;
use super::keeper::Keeper;
use super::slots::Address;
use redis::aio::ConnectionLike;
use redis::{Pipeline, RedisError, RedisResult, Value};

/// A connection, and the keeper that replaces it.
pub(crate) struct Route {
    pub(crate) keeper: Keeper,
    /// The number of the attempt that made the connection.
    pub(crate) attempt: u64,
    pub(crate) connection: Wire,
    /// The server's address in a cluster.
    pub(crate) address: Option<Address>,
}

impl Route {
    /// The replies to the commands in order, without the first `skipped` replies. Errors of the server are values.
    pub(crate) async fn send(&mut self, commands: &Pipeline, skipped: usize) -> RedisResult<Vec<Value>> {
        self.connection.calls.req_packed_commands(commands, skipped, commands.len() - skipped).await
    }

    /// Takes the connection out of use. The next call waits for another.
    pub(crate) async fn doubt(&self) {
        self.keeper.doubt(self.attempt).await;
    }

    /// The server to which an answer redirects.
    pub(crate) fn redirection(&self, error: &RedisError) -> Option<Address> {
        Address::read(error.redirect_node()?.0, self.address.as_ref()?)
    }
}
